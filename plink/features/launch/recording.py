"""Record a run in ``.plink/runs``: what was requested, its output and its result."""

import contextlib
import datetime
import logging
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plink.errors import PlinkError
from plink.model.hosts import Hosts
from plink.records import workspace
from plink.records.runs import Record
from plink.records.scratch import scratch_folder
from runners.job.job import Job
from runners.job.result import PlacementError
from runners.job.runner import HostIdentities

_log = logging.getLogger("plink.runs")


@dataclass(frozen=True)
class RecordRequest:
    """Keep a run in ``.plink/runs/ID`` of the working folder, where ``plink runs`` finds it. ``log_dir``: where each
    rank's output is written, None: to the run's folder; ``note``: further keys of the run's document."""

    log_dir: Path | None = None
    note: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunDescription:
    """Description of a run for its document. ``identities``: of the hosts, by name, as far as they are known."""

    id: str
    runner: str
    job: Job
    hosts: Hosts
    identities: HostIdentities


@dataclass
class Recording:
    """A run that is being recorded. ``folder``: for what a launcher reads; ``record``: None where the run is not kept;
    ``outcome``: what the record will say of its end."""

    folder: Path
    record: Record | None
    outcome: dict[str, Any]

    def line(self, rank: int | None, stream: str, line: str) -> None:
        """Record one line that a rank, or the launcher (None), printed."""
        if self.record is not None:
            self.record.line(rank, stream, line)


@contextlib.contextmanager
def recording(request: RecordRequest | None, run: RunDescription) -> Iterator[Recording]:
    """Record a run and its result: the ``outcome`` that the block sets, or the error that leaves it.

    :param request: None: nothing is kept, and the folder is a temporary one.
    :raises PlinkError: when ``log_dir`` was asked for and nothing can be written.
    """
    record = None if request is None else _new_record(request, run)
    with _folder_of(record) as folder:
        current = Recording(folder, record, {"exit_code": 130})  # unless something better is known of it
        try:
            yield current
        except PlacementError as error:
            current.outcome = error.result.to_json()
            raise
        except PlinkError as error:
            current.outcome = {"exit_code": error.exit_code, "error": str(error)}
            raise
        except BrokenPipeError:
            current.outcome = {
                "exit_code": 128 + signal.SIGPIPE,
                "error": "the reader of its output has closed the pipe",
            }
            raise
        except Exception as error:
            current.outcome = {"exit_code": 1, "error": f"{type(error).__name__}: {error}"}
            raise
        finally:
            if record is not None:
                record.finish(current.outcome)
                if record.write_error is not None:
                    _log.warning("%s", record.write_error)


@contextlib.contextmanager
def _folder_of(record: Record | None) -> Iterator[Path]:
    if record is not None:
        yield record.folder
        return
    with scratch_folder() as folder:
        yield folder


def _new_record(request: RecordRequest, run: RunDescription) -> Record | None:
    """Return a new record, or None and a warning where nothing can be written: the job matters more."""
    folder, job = workspace.RUNS / run.id, run.job
    document = {
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        "runner": run.runner,
        "program": job.program,
        "args": list(job.args),
        "workdir": job.workdirs[0],
        "workdirs": list(job.workdirs),
        "pythons": list(job.pythons),
        "env": job.env,
        "timeout_s": job.timeout_s,
        "interface": job.interface,
        "master_port": job.master_port,
        "mixed_versions": job.allow_version_mismatch,
        "launcher_args": list(job.launcher_args),
        "sync": None if job.sync is None else str(job.sync.absolute()),
        "hosts": [host.to_json() for host in run.hosts],
        **({} if run.hosts.lab is None else {"lab": run.hosts.lab}),
        "machines": {name: run.identities[name] for name in run.hosts.names if name in run.identities},
        "logs": str(request.log_dir or folder / "logs"),
        **request.note,
    }
    try:
        workspace.prepare()
        return Record(folder, document, request.log_dir)
    except PlinkError as error:
        if request.log_dir is not None:
            raise
        _log.warning("this run is not kept: %s", error)
        return None
