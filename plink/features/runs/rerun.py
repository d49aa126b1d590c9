"""Turn a recorded run into a job that can be started again (``plink runs rerun``)."""

from dataclasses import replace
from pathlib import Path

from plink.errors import InputError, UsageError
from plink.features.launch.order import JobOrder
from plink.features.launch.request import JobRequest
from plink.features.launch.run import AutotuneRequest
from plink.features.launch.session import JobSetup
from plink.features.launch.setup import launch_request, set_up
from plink.records import workspace
from plink.records.runs import ELASTIC, Run, run_named
from runners.autotune.daemon import NAME, read_log
from runners.job.runner import Job

_TEXTS = tuple[str, ...]


def recorded_job(name: str, options: JobRequest) -> JobSetup:
    """Return the job of the run whose id begins so, or ``last``; typed options win.

    :raises UsageError: when there is none, or more than one. :raises InputError: when its file does not tell.
    """
    run = run_named(workspace.RUNS, name)
    if run.document.get("backend") == ELASTIC:
        raise UsageError(
            f"{name} was an elastic job, which cannot be run again; `plink elastic run --restore DIR` starts from its "
            "checkpoint"
        )
    runner = options.runner or run.optional(str, "runner", "ssh")
    folder = run.optional(str, "sync", None)
    sync = options.sync or (None if folder is None else Path(folder))
    verify_nccl = "nccl" in run.document
    options = replace(options, sync=sync, python=run.optional(str, "python", None), verify_nccl=verify_nccl)
    options.check(runner)
    hosts = run.hosts()
    # A backend that is typed has hubs of its own.
    hubs = () if options.backend else run.optional(_TEXTS, "hubs", ())
    if missing := [name for name in hubs if name not in hosts.names]:
        raise InputError(str(run.folder), f"hub {missing[0]} is none of its hosts")
    job = Job(
        program=run.value(str, "program"),
        args=run.value(_TEXTS, "args"),
        workdirs=run.optional(_TEXTS, "workdirs", ()) or (run.value(str, "workdir"), "~"),
        pythons=run.optional(_TEXTS, "pythons", ()) or ("python3",),
        env=run.optional(dict[str, str], "env", {}),
        timeout_s=run.optional(float, "timeout_s", None),
        interface=run.optional(str, "interface", None),
        master_port=run.optional(int, "master_port", 0),
        allow_version_mismatch=run.optional(bool, "mixed_versions", False),
        launcher_args=run.optional(_TEXTS, "launcher_args", ()),
        hubs=hubs,
    )
    placed, source = hosts if job.hubs else hosts.ranked(), run.optional(str, "order", JobOrder.source)
    order = JobOrder(placed, hosts.ranked(), run.machines(), hubs=hosts.hubs, source=source)
    request = launch_request(runner, options, _autotune(run))
    if request.record and options.backend is None and (backend := run.optional(str, "backend", None)):
        request = replace(request, record=replace(request.record, note={**request.record.note, "backend": backend}))
    return set_up(options.applied(job), order, request, options)


def _autotune(run: Run) -> AutotuneRequest | None:
    """Return the run's Autotune settings, None where it had none."""
    path = run.folder / NAME
    if not path.is_file():
        return None
    masters, settings, _ = read_log(path)
    return AutotuneRequest(masters, settings.change)
