"""The log of an elastic run that a command was given, by the run's id or as a file."""

from pathlib import Path
from typing import TYPE_CHECKING

from plink.errors import UsageError
from plink.records import workspace

if TYPE_CHECKING:
    from plink.records.elastic_history import History


def history_from(run: str) -> "History":
    """What its log tells. ``run``: a file, an id or its beginning, or ``last``.

    :raises UsageError: when there is no such run, or it was not elastic. :raises InputError: as the log's reader.
    """
    from plink.records.elastic_history import history_of
    from plink.records.elastic_log import read_elastic_log

    return history_of(read_elastic_log(log_path(run)))


def log_path(run: str) -> Path:
    """Return the log of a run. ``run``: as :func:`history_from` has it. :raises UsageError: as that does."""
    if Path(run).is_file():
        return Path(run)
    from plink.records.elastic_log import NAME
    from plink.records.runs import run_named

    path = run_named(workspace.RUNS, run).folder / NAME
    if not path.is_file():
        raise UsageError(f"the run {path.parent.name} was not elastic: there is no {path}")
    return path
