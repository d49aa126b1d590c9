"""Checkpoints in a folder that a job's reliable hosts share, and perhaps other jobs: ``clock-K-JOB/partition-P``.

Which is the latest stands in ``latest.json`` for whoever goes on from any, and in ``latest-JOB.json`` for the job
itself. A checkpoint counts when it is named there. ``.shared-JOB`` shows the hosts of a job that they see one folder.
"""

import contextlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plink.errors import InputError
from plink.model.checkpoint_names import name_of, partition_file

_LATEST = "latest.json"
_SAVED = ("clock", "partitions")
_JOB, _FOLDER = "job", "folder"
_VISIBLE_S = 3.0  # after which a network file system shows what another host has written
_POLL_S = 0.1
_MARK_EXPIRY_S = 86400.0
_RETAINED_CHECKPOINTS = 2  # the latest and the one before, should somebody be reading that


def keep(folder: Path, saved: dict[str, Any], job: str) -> None:
    """Name a checkpoint as the latest, and remove those of the job before the one before it.

    :param saved: its ``clock``, of how many ``partitions`` it is, and its ``folder``. :param job: whose it is.
    :raises InputError: a partition's file is not there, because the hosts that wrote them do not share the folder, say.
    """
    files = [folder / saved[_FOLDER] / partition_file(number) for number in range(saved["partitions"])]
    if missing := _missing(files):
        raise InputError(
            str(missing[0]),
            f"not there ({len(missing)} of {len(files)} files): the reliable hosts must share the folder",
        )
    text = json.dumps({**saved, _JOB: job})
    for name in (_own(job), _LATEST):
        temporary = folder / f".{name}.{secrets.token_hex(8)}"
        temporary.write_text(text)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.rename(folder / name)
    clocks = sorted((clock, path) for path in folder.iterdir() if (clock := _clock(path.name, job)) is not None)
    older = [path for clock, path in clocks if clock <= saved["clock"]]
    count = saved["partitions"]
    whole = [path for path in older if all((path / partition_file(number)).is_file() for number in range(count))]
    for path in set(older) - set(whole[-_RETAINED_CHECKPOINTS:]):
        shutil.rmtree(path, ignore_errors=True)


def latest(folder: Path, job: str | None = None) -> dict[str, Any] | None:
    """Return what :func:`keep` was given last; None where there is no checkpoint.

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
    name = saved.get(_FOLDER)
    if not isinstance(name, str) or "/" in name or not name.startswith(name_of(saved["clock"], "")):
        return None
    return {**{key: saved[key] for key in _SAVED}, _FOLDER: name}


def unwritable(folder: Path) -> str | None:
    """Return why no checkpoint can be written there, for a person; None: one can."""
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


def discard(folder: Path, job: str) -> None:
    """Remove a checkpoint of a job that failed, unless it counts."""
    named = [latest(folder.parent), latest(folder.parent, job)]
    if _clock(folder.name, job) is not None and all(saved is None or saved[_FOLDER] != folder.name for saved in named):
        shutil.rmtree(folder, ignore_errors=True)


def mark(folder: Path, job: str) -> None:
    """Leave a file by which other hosts of the job know the folder, and remove those of jobs that were killed.

    A job marks the folder again whenever a reliable host joins, so that it misses no file that another job removed.

    :raises OSError: it cannot be written.
    """
    own = folder / _mark(job)
    own.touch(mode=0o600)
    now = own.stat().st_mtime  # by the clock of the file server, as the others' times
    for path in folder.glob(_mark("*")):
        with contextlib.suppress(OSError):
            if now - path.stat().st_mtime > _MARK_EXPIRY_S:
                path.unlink()


def unmark(folder: Path, job: str) -> None:
    """Remove the file of :func:`mark`; fine where there is none."""
    with contextlib.suppress(OSError):
        (folder / _mark(job)).unlink()


def check_mark(folder: Path, job: str) -> None:
    """Wait some seconds for the file of :func:`mark` to be seen here.

    :raises InputError: it is not.
    """
    if _missing([folder / _mark(job)]):
        raise InputError(str(folder), "it is not the folder of the other reliable hosts, which must share one")


def _missing(files: Sequence[Path]) -> list[Path]:
    until = time.monotonic() + _VISIBLE_S
    while (missing := [path for path in files if not path.is_file()]) and time.monotonic() < until:
        time.sleep(_POLL_S)
    return missing


def _mark(job: str) -> str:
    return f".shared-{job}"


def _own(job: str) -> str:
    return f"latest-{job}.json"


def _clock(name: str, job: str) -> int | None:
    """Return the clock of a checkpoint of that job; None for any other name."""
    clock = name.removeprefix("clock-").removesuffix(f"-{job}")
    return int(clock) if clock.isdecimal() and name == name_of(int(clock), job) else None
