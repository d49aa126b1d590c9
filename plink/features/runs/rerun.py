"""Turn a recorded run into a job that can be started again (``plink runs rerun``)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

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
    runner = options.runner or _value(run, "runner", (str,), "ssh")
    folder = _value(run, "sync", (str,), None)
    sync = options.sync or (None if folder is None else Path(folder))
    verify_nccl = "nccl" in run.document
    options = replace(options, sync=sync, python=_value(run, "python", (str,), None), verify_nccl=verify_nccl)
    options.check(runner)
    hosts = run.hosts()
    job = Job(
        program=run.text("program"),
        args=run.texts("args"),
        workdirs=_texts(run, "workdirs") or (run.text("workdir"), "~"),
        pythons=_texts(run, "pythons") or ("python3",),
        env=run.settings(),
        timeout_s=_value(run, "timeout_s", (int, float), None),
        interface=_value(run, "interface", (str,), None),
        master_port=_value(run, "master_port", (int,), 0),
        allow_version_mismatch=_value(run, "mixed_versions", (bool,), False),
        launcher_args=_texts(run, "launcher_args"),
    )
    order = JobOrder(hosts, hosts, run.machines(), source=_value(run, "order", (str,), JobOrder.source))
    request = launch_request(runner, options, _autotune(run))
    return set_up(options.applied(job), order, request, options)


def _autotune(run: Run) -> AutotuneRequest | None:
    """Return the run's Autotune settings, None where it had none."""
    path = run.folder / NAME
    if not path.is_file():
        return None
    masters, settings, _ = read_log(path)
    return AutotuneRequest(masters, settings.change)


def _texts(run: Run, key: str) -> tuple[str, ...]:
    return run.texts(key) if key in run.document else ()


def _value(run: Run, key: str, types: tuple[type, ...], default: Any) -> Any:
    value = run.document.get(key)
    if value is None:
        return default
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise InputError(f"{run.folder / 'run.json'}: {key}", f"{str(value)[:40]!r} was not expected there")
    return value
