"""The elastic run that a command is about, by its id: where it is asked, and its log, which may be a file."""

from pathlib import Path
from typing import Annotated

import typer

from plink.errors import UsageError
from plink.model.codec import decode
from plink.model.elastic.status import JobControl
from plink.model.storage import read_document
from plink.records import workspace
from plink.records.elastic_history import History, history_of
from plink.records.elastic_log import NAME, SOCKET, read_elastic_log
from plink.records.runs import Run, run_named

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run, the beginning of its id, or `last`.")]


def history_from(run: str) -> History:
    """What its log tells. ``run``: a file, an id or its beginning, or ``last``.

    :raises UsageError: when there is no such run, or it was not elastic. :raises InputError: as the log's reader.
    """
    return history_of(read_elastic_log(log_path(run)))


def log_path(run: str) -> Path:
    """Return the log of a run. ``run``: as :func:`history_from` has it. :raises UsageError: as that does."""
    if Path(run).is_file():
        return Path(run)
    path = run_named(workspace.RUNS, run).folder / NAME
    if not path.is_file():
        raise UsageError(f"the run {path.parent.name} was not elastic: there is no {path}")
    return path


def live_job(name: str) -> tuple[Run, JobControl]:
    """The run, and where its supervisor listens. :raises UsageError: no such run, or it is of another kind."""
    run = run_named(workspace.RUNS, name)
    path = workspace.RUNS / run.id / SOCKET
    if not path.is_file():
        raise UsageError(f"{run.id} is no elastic job (`plink elastic run`)")
    return run, decode(JobControl, read_document(path), str(path))
