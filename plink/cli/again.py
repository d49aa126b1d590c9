"""A run that was kept, as what would be asked for again."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plink.cli.elastic_options import AGILEML
from plink.cli.job_order import JobOrder
from plink.errors import InputError, UsageError
from plink.records import workspace
from plink.records.runs import Run, run_named
from runners.job.job import Job

if TYPE_CHECKING:
    from solvers.autotune.observed import Assignment


@dataclass(frozen=True)
class Recalled:
    """``runner``: its name; ``python``: the interpreter that was asked for, None: none was; ``tuned``: the masters that
    Autotune began with, and the change of throughput it looked into, None where it was not asked for."""

    order: JobOrder
    job: Job
    runner: str
    python: str | None
    tuned: "tuple[Assignment, float] | None" = None


def recalled(name: str) -> Recalled:
    """The run whose id begins so, or ``last``.

    :raises UsageError: when there is none, or more than one. :raises InputError: when its file does not tell.
    """
    run = run_named(workspace.RUNS, name)
    if run.document.get("backend") == AGILEML:
        raise UsageError(
            f"--again {name}: that was an elastic job; start it anew (--backend {AGILEML}), from its checkpoint with "
            "--restore DIR"
        )
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
        mixed_versions=_value(run, "mixed_versions", (bool,), False),
        sync=None if (folder := _value(run, "sync", (str,), None)) is None else Path(folder),
        launcher_args=_texts(run, "launcher_args"),
    )
    python = _value(run, "python", (str,), None)
    runner = _value(run, "runner", (str,), "ssh")
    return Recalled(JobOrder(hosts, hosts, run.machines()), job, runner, python, _tuned(run))


def _tuned(run: Run) -> "tuple[Assignment, float] | None":
    from runners.autotune.log import NAME, read_log

    path = run.folder / NAME
    if not path.is_file():
        return None
    masters, settings, _ = read_log(path)
    return masters, settings.change


def _texts(run: Run, key: str) -> tuple[str, ...]:
    return run.texts(key) if key in run.document else ()


def _value(run: Run, key: str, kinds: tuple[type, ...], default: Any) -> Any:
    value = run.document.get(key)
    if value is None:
        return default
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise InputError(f"{run.folder / 'run.json'}: {key}", f"{str(value)[:40]!r} was not expected there")
    return value
