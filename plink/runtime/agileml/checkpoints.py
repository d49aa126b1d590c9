"""Checkpoints in a folder that a job's reliable hosts share, and perhaps other jobs: ``clock-K-JOB/partition-P``.

Which is the latest stands in ``latest.json`` for whoever goes on from any, and in ``latest-JOB.json`` for the job
itself. A checkpoint counts when it is named there.
"""

import contextlib
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

_LATEST = "latest.json"
_SAVED = ("clock", "partitions")
_JOB, _FOLDER = "job", "folder"
_KEPT = 2  # the latest and the one before, should somebody be reading that


def name_of(clock: int, job: str) -> str:
    """The folder of one checkpoint of a job, which no other job writes in or removes."""
    return f"clock-{clock}-{job}"


def keep(folder: Path, saved: dict[str, Any], job: str) -> None:
    """All files of a checkpoint are there: it is the latest, and those of the job before the one before it are removed.

    :param saved: its ``clock``, of how many ``partitions`` it is, and its ``folder``. :param job: whose it is.
    """
    text = json.dumps({**saved, _JOB: job})
    for name in (_own(job), _LATEST):
        temporary = folder / f".{name}.{secrets.token_hex(8)}"
        temporary.write_text(text)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.rename(folder / name)
    clocks = sorted((clock, path) for path in folder.iterdir() if (clock := _clock(path.name, job)) is not None)
    older = [path for clock, path in clocks if clock <= saved["clock"]]
    for path in older[:-_KEPT]:
        shutil.rmtree(path, ignore_errors=True)


def latest(folder: Path, job: str | None = None) -> dict[str, Any] | None:
    """What :func:`keep` was given last; None where there is no checkpoint.

    :param job: the last of this very job, whatever others have written in its folder since. None: anybody's last.
    """
    try:
        saved = json.loads((folder / (_LATEST if job is None else _own(job))).read_text())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(saved, dict) or not all(type(saved.get(key)) is int and saved[key] >= 0 for key in _SAVED):
        return None
    if job is not None and saved.get(_JOB) != job:
        return None
    unnamed = f"clock-{saved['clock']}"  # as an earlier plink called it
    name = saved.get(_FOLDER, unnamed)
    if not isinstance(name, str) or "/" in name or not f"{name}-".startswith(f"{unnamed}-"):
        return None
    return {**{key: saved[key] for key in _SAVED}, _FOLDER: name}


def unwritable(folder: Path) -> str | None:
    """Why no checkpoint can be written there, for a person; None: one can."""
    trial = folder / f".trial.{secrets.token_hex(8)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        trial.write_bytes(b"plink")
    except OSError as error:
        return error.strerror or str(error)
    finally:
        with contextlib.suppress(OSError):
            trial.unlink()
    return None


def _own(job: str) -> str:
    return f"latest-{job}.json"


def _clock(name: str, job: str) -> int | None:
    """Of a checkpoint of that job; None for any other name."""
    clock = name.removeprefix("clock-").removesuffix(f"-{job}")
    return int(clock) if clock.isdecimal() and name == name_of(int(clock), job) else None
