"""Checkpoints of a job in a folder that its reliable hosts share: ``clock-K/partition-P``, and which is the latest."""

import json
import os
import secrets
import shutil
from pathlib import Path

_LATEST = "latest.json"
_SAVED = ("clock", "partitions")
_JOB = "job"
_KEPT = 2  # the latest and the one before, should somebody be reading that


def keep(folder: Path, saved: dict[str, int], job: str) -> None:
    """All files of a checkpoint are there: it is the latest, and those before the one before it are removed.

    :param saved: its ``clock``, and of how many ``partitions`` it is. :param job: whose it is.
    """
    temporary = folder / f".{_LATEST}.{secrets.token_hex(8)}"
    temporary.write_text(json.dumps({**saved, _JOB: job}))
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.rename(folder / _LATEST)
    clocks = sorted(
        (int(path.name.removeprefix("clock-")), path)
        for path in folder.glob("clock-*")
        if path.name.removeprefix("clock-").isdigit()
    )
    older = [path for clock, path in clocks if clock <= saved["clock"]]
    for path in older[:-_KEPT]:
        shutil.rmtree(path, ignore_errors=True)


def latest(folder: Path, job: str | None = None) -> dict[str, int] | None:
    """What :func:`keep` was given last; None where there is no checkpoint.

    :param job: only one that this job wrote: in its folder those of an earlier one may lie. None: anybody's.
    """
    try:
        saved = json.loads((folder / _LATEST).read_text())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(saved, dict) or not all(type(saved.get(key)) is int and saved[key] >= 0 for key in _SAVED):
        return None
    if job is not None and saved.get(_JOB) != job:
        return None
    return {key: saved[key] for key in _SAVED}
