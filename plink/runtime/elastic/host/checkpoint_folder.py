"""Checkpoints in a folder that a job's reliable hosts share, and perhaps other jobs: ``clock-K-JOB/partition-P``.

Which is the latest stands in ``latest.json`` for whoever goes on from any, and in ``latest-JOB.json`` for the job
itself. A checkpoint counts for the job when the latter names it, which is written first: whoever finds the two at odds,
after a crash, completes the former. What either names is not removed.

``.shared-JOB`` shows the hosts of a job that they see one folder.
"""

import contextlib
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from plink.errors import InputError
from plink.model.checkpoint_names import name_of, partition_file
from plink.model.elastic.fields import Index, SavedCheckpoint
from plink.runtime.whole_file import NO_ROOM, whole_file

_LATEST = "latest.json"
_VISIBLE_S = 3.0  # after which a network file system shows what another host has written
_POLL_S = 0.1
_MARK_EXPIRY_S = 86400.0
_NAMING = threading.Lock()  # held while this host names a checkpoint
_RETAINED_CHECKPOINTS = 2  # the latest and the one before, should somebody be reading that; where a disk is full, one


class _Named(Struct):
    """Content of a file that names a checkpoint."""

    clock: Index
    partitions: Index
    folder: str
    job: str | None = None


def keep(folder: Path, saved: SavedCheckpoint, job: str) -> None:
    """Name a checkpoint as the latest, and remove those of the job before the one before it.

    :param job: whose it is.
    :raises InputError: a partition's file is not there, because the hosts that wrote them do not share the folder, say.
    :raises OSError: it cannot be named, or for the job alone.
    """
    try:
        with _NAMING:
            _name(folder, saved, job)
    finally:
        if latest(folder, job) == saved:
            _remove_older(folder, saved, job)


def _remove_older(folder: Path, saved: SavedCheckpoint, job: str) -> None:
    retained = {folder / name for name in _named(folder, job)}
    clocks = sorted((clock, path) for path in folder.iterdir() if (clock := _clock(path.name, job)) is not None)
    older = [path for clock, path in clocks if clock <= saved.clock]
    names = [partition_file(number) for number in range(saved.partitions)]
    whole = [path for path in older if all((path / name).is_file() for name in names)]
    for path in set(older) - set(whole[-_RETAINED_CHECKPOINTS:]) - retained:
        shutil.rmtree(path, ignore_errors=True)


def _name(folder: Path, saved: SavedCheckpoint, job: str) -> None:
    files = [folder / saved.folder / partition_file(number) for number in range(saved.partitions)]
    if missing := _missing(files):
        raise InputError(
            str(missing[0]),
            f"not there ({len(missing)} of {len(files)} files): the reliable hosts must share the folder",
        )
    content = json.dumps({**structs.asdict(saved), "job": job}).encode()

    def write() -> None:
        with whole_file(folder / _LATEST, 0o644) as for_anybody, whole_file(folder / _own(job), 0o644) as for_job:
            for_anybody.write(content)
            for_job.write(content)

    with_room(folder / saved.folder, job, write)


def with_room(checkpoint: Path, job: str, write: Callable[[], None]) -> None:
    """Write; where there is no room, once more without the other checkpoints of the job that are not named.

    :param checkpoint: the folder that is being written, by other hosts, too.
    :raises OSError: it cannot be written, or there is no room then either.
    """
    folder = checkpoint.parent
    retained = {checkpoint.name, *_named(folder, job)}
    try:
        write()
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        retained |= _named(folder, job)
        for path in folder.iterdir():
            if path.name not in retained and _clock(path.name, job) is not None:
                shutil.rmtree(path, ignore_errors=True)  # another host may do so, too
        write()


def latest(folder: Path, job: str | None = None) -> SavedCheckpoint | None:
    """Return what :func:`keep` was given last; None where there is no checkpoint.

    :param job: the last of this very job, whatever others have written in its folder since. None: anybody's last.
    """
    try:
        named = _read(folder, job)
    except OSError:
        return None
    return None if named is None else SavedCheckpoint(named.clock, named.partitions, named.folder)


def discard(folder: Path, job: str) -> SavedCheckpoint | None:
    """Remove a checkpoint of a job that failed, unless it is named; return the job's latest."""
    if _clock(folder.name, job) is not None and folder.name not in _named(folder.parent, job):
        shutil.rmtree(folder, ignore_errors=True)
    return latest(folder.parent, job)


def _read(folder: Path, job: str | None) -> _Named | None:
    try:
        text = (folder / (_LATEST if job is None else _own(job))).read_text()
        named = msgspec.json.decode(text, type=_Named)
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    if (job is not None and named.job != job) or "/" in named.folder:
        return None
    return named if named.folder.startswith(name_of(named.clock, "")) else None


def _named(folder: Path, job: str) -> set[str]:
    """Return the folders that are named, all where a file cannot be read; complete a naming that was interrupted."""
    try:
        own, last = _read(folder, job), _read(folder, None)
    except OSError:
        return {path.name for path in folder.iterdir()}
    # Another host may name a checkpoint between the two readings: the earlier one is no interrupted naming.
    if own and (last is None or (last.job == job and last.clock < own.clock)):
        with contextlib.suppress(OSError), whole_file(folder / _LATEST, 0o644) as file:
            file.write(msgspec.json.encode(own))
    return {named.folder for named in (own, last) if named}


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


@dataclass(frozen=True)
class JobCheckpoints:
    """Checkpoints of one job; for any thread.

    :param folder: that the job writes to, "": none. :param restore: that it began from, "": none. :param job: its name.
    """

    folder: str = ""
    restore: str = ""
    job: str = ""

    @cached_property
    def _restored(self) -> SavedCheckpoint | None:
        """The checkpoint that the job began from, whatever other jobs have written there since."""
        return latest(Path(self.restore)) if self.restore else None

    def on_disk(self) -> tuple[SavedCheckpoint | None, SavedCheckpoint | None]:
        """Return checkpoints that can be read here: the one that the job restores, and its own latest.

        What a controller that was killed has had named here is waited for.
        """
        with _NAMING:
            return self._restored, latest(Path(self.folder), self.job) if self.folder else None

    def unwritable(self) -> str | None:
        """Return why this host cannot write any, for a person; None: it can, or there are to be none."""
        if not self.folder:
            return None
        try:
            Path(self.folder).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as trial:
                trial.write(b"plink")
        except OSError as error:
            return error.strerror or str(error)
        return None

    def mark(self) -> None:
        """Leave a file by which other hosts of the job know the folder, and remove those of jobs that were killed.

        Other jobs may remove it after a day: then a checkpoint of the job shows the folder.

        :raises OSError: it cannot be written.
        """
        own = Path(self.folder) / _mark(self.job)
        own.touch(mode=0o600)
        now = own.stat().st_mtime  # by the clock of the file server, as the others' times
        for path in own.parent.glob(_mark("*")):
            with contextlib.suppress(OSError):
                if now - path.stat().st_mtime > _MARK_EXPIRY_S:
                    path.unlink()

    def check_mark(self) -> None:
        """Find the job's checkpoint here, or wait some seconds for another host's mark.

        :raises InputError: neither is seen, or the folder was only mounted meanwhile: this host began without it.
        """
        folder = Path(self.folder)
        if latest(folder, self.job):
            return
        if _missing([folder / _mark(self.job)]) or latest(folder, self.job):
            raise InputError(self.folder, "it is not the folder of the other reliable hosts, which must share one")

    def unmark(self) -> None:
        """Remove the mark, if there is any."""
        if self.folder:
            with contextlib.suppress(OSError):
                (Path(self.folder) / _mark(self.job)).unlink()
