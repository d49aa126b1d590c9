"""Records of jobs, a folder each under ``.plink/runs``: request, verified placement, result, and every rank's
output."""

import contextlib
import errno
import fcntl
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO, TypeVar

from plink.errors import InputError, PlinkError, UsageError
from plink.model.codec import convert
from plink.model.hosts import Hosts, hosts_from_json
from plink.model.storage import JsonObject, read_document, write_document

T = TypeVar("T")
D = TypeVar("D")

SCHEMA = "plink.run/1"
_FILE = "run.json"
LAST = "last"
ELASTIC = "elastic"  # the backend of an elastic job
_MAX_OPEN_FILES = 128  # at a time: a process may have 1,024, and a job thousands of ranks
_FLUSH_INTERVAL_S = 1.0
_ROOM_BYTES = 1 << 18  # more than the result of a job of thousands of ranks needs


@dataclass(frozen=True)
class Run:
    """A recorded run. ``content``: of its file, or what is wrong with that; the folder counts all the same, for what is
    rented for the run, and its logs."""

    folder: Path
    content: JsonObject | InputError

    @property
    def document(self) -> JsonObject:
        """``plink.run/1``; its ``exit_code`` is None while it runs, and for good where plink itself was killed.

        :raises InputError: when the file is damaged or missing.
        """
        if isinstance(self.content, InputError):
            raise self.content
        return self.content

    @property
    def id(self) -> str:
        """Its id, which is its folder's name."""
        return self.folder.name

    @property
    def started(self) -> str:
        """Its start in UTC (ISO 8601); of a damaged file its last change, empty without one."""
        if isinstance(self.content, InputError):
            path = self.folder / _FILE
            changed_s = path.stat().st_mtime if path.exists() else None
            return (
                "" if changed_s is None else datetime.fromtimestamp(changed_s, UTC).isoformat(timespec="milliseconds")
            )
        return str(self.document.get("started", ""))

    @property
    def state(self) -> str:
        """``ended`` with an exit code; else ``running`` while the plink that started it is there, ``killed`` once that
        is not, ``unknown`` where files have no locks."""
        if self.document.get("exit_code") is not None:
            return "ended"
        try:
            folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return "unknown"
        try:
            fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return "running" if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else "unknown"
        finally:
            os.close(folder)
        return "killed"

    def hosts(self) -> Hosts:
        """Return its hosts in rank order.

        :raises InputError: when the file does not tell.
        """
        location = str(self.folder / _FILE)
        return hosts_from_json(self.document.get("hosts"), self.document.get("lab"), location)

    def value(self, kind: type[T], key: str) -> T:
        """Return a value of the document.

        :raises InputError: when that is not there, or of another type.
        """
        return convert(kind, self.document.get(key), str(self.folder / _FILE), key)

    def optional(self, kind: type[T], key: str, default: D) -> T | D:
        """Return a value of the document, ``default`` where that is null or not there.

        :raises InputError: when it is of another type.
        """
        return default if self.document.get(key) is None else self.value(kind, key)

    def machines(self) -> dict[str, JsonObject]:
        """Return the hosts' identities when they were measured; empty where the file has none."""
        value = self.document.get("machines")
        identities = value if isinstance(value, dict) else {}
        return {name: machine for name, machine in identities.items() if isinstance(machine, dict)}


class Record:
    """Writer of a run's record. The first write error is kept in ``write_error``; the job goes on."""

    def __init__(self, folder: Path, request: JsonObject, logs: Path | None = None) -> None:
        """:raises PlinkError: when the folder cannot be made."""
        self.folder = folder
        self._write_error: str | None = None
        try:
            folder.mkdir(parents=True, mode=0o700)  # what was given by --env may be nobody else's business
        except OSError as error:
            raise PlinkError(f"cannot keep the run in {folder}: {error.strerror}") from None
        self.logs = logs or folder / "logs"
        self._logs = Logs(self.logs)
        # Of a run that never gets any further the file says so.
        self._request = request | {"schema": SCHEMA, "id": folder.name, "exit_code": None, "seconds": None,
                               "proof": None, "failure": None}  # fmt: skip
        # While this process lives, however it ends (flock(2)).
        self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # there are file systems without locks
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write_document(folder / _FILE, self._request)

    def add(self, more: JsonObject) -> None:
        """Record what is there before the result."""
        self._request |= more
        try:
            write_document(self.folder / _FILE, self._request)
        except (PlinkError, OSError) as error:
            self._write_error = f"the run's file is not complete: {error}"

    @property
    def write_error(self) -> str | None:
        """The first write error of the logs, and that of the result; None without any."""
        return "; ".join(error for error in (self._logs.write_error, self._write_error) if error) or None

    def line(self, rank: int | None, stream: str, line: str) -> None:
        """Record one line of a rank, or (rank None) of the launcher."""
        self._logs.line(rank, stream, line)

    def finish(self, result: JsonObject) -> None:
        """Record the result, as of :meth:`runners.job.placement.RunResult.to_json`, and close the logs.

        Where logs have filled the disk, their end makes room for it.
        """
        self._logs.close()
        self._write(result)
        os.close(self._lock)

    def _write(self, result: JsonObject) -> None:
        for room_bytes in (0, _ROOM_BYTES):
            try:
                if room_bytes:
                    self._logs.shorten(room_bytes)
                write_document(self.folder / _FILE, self._request | result | {"id": self.folder.name})
                self._write_error = None
                return
            except (PlinkError, OSError) as error:
                self._write_error = f"the result of the run is not recorded: {error}"


def runs_in(folder: Path) -> Iterator[Run]:
    """Yield the recorded runs in a folder, the latest first, also those whose file is damaged or missing."""
    runs = [Run(path, _content(path / _FILE)) for path in folder.glob("*/")]
    yield from sorted(runs, key=lambda run: (run.started, run.id), reverse=True)


def _content(path: Path) -> JsonObject | InputError:
    try:
        return read_document(path)
    except InputError as error:
        return error


def run_named(folder: Path, name: str) -> Run:
    """Return the run whose id begins so, or the latest one (``last``).

    :raises UsageError: when there is none, or more than one.
    """
    if not name:
        raise UsageError("the run's id is empty; `plink runs` lists them")
    matches = [run for run in runs_in(folder) if name == LAST or run.id.startswith(name)]
    if not matches:
        raise UsageError(f"no run {name} in {folder}; `plink runs` lists them")
    if len(matches) > 1 and name != LAST and matches[0].id != name:
        exact = [run for run in matches if run.id == name]
        if not exact:
            raise UsageError(
                f"{name} is the beginning of {len(matches)} runs: {', '.join(run.id for run in matches[:4])}"
            )
        return exact[0]
    return matches[0]


class Logs:
    """Log files of a run: ``rank-R.out``, ``rank-R.err`` and ``all.log`` in a folder. Files of an earlier run are
    overwritten.

    What cannot be written is told once, by ``trouble``, and the job goes on without. Lines are in the files a second
    after they were printed, so that they can be watched, and most are there when plink itself is killed.
    """

    def __init__(self, folder: Path) -> None:
        """:raises PlinkError: when the folder cannot be made."""
        self.folder = folder
        self.write_error: str | None = None
        self._files: OrderedDict[Path, TextIO] = OrderedDict()
        self._started: set[Path] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PlinkError(f"cannot keep logs in {folder}: {error.strerror}") from None

    def line(self, rank: int | None, stream: str, line: str) -> None:
        """Write one line of a rank, or (rank None) of the launcher."""
        if self.write_error is not None:
            return
        source = "launcher" if rank is None else f"rank-{rank}"
        with self._lock:
            if not self._started:  # nothing has to be flushed before
                threading.Thread(target=self._flush_periodically, daemon=True, name="plink-logs").start()
            try:
                self._file(self.folder / f"{source}.{stream}").write(f"{line}\n")
                self._file(self.folder / "all.log").write(f"[{'-' if rank is None else rank}] {line}\n")
            except OSError as error:
                self.write_error = f"the logs in {self.folder} end here: {error.strerror}"

    def close(self) -> None:
        """Write what is buffered and close the files."""
        self._closed.set()
        with self._lock:
            for file in self._files.values():
                try:
                    file.close()
                except OSError as error:
                    self.write_error = (
                        self.write_error or f"the logs in {self.folder} are not complete: {error.strerror}"
                    )
            self._files.clear()

    def shorten(self, size_bytes: int) -> None:
        """Cut the end of ``all.log``, whose lines the logs of ranks have, too. :raises OSError: as it goes wrong."""
        path = self.folder / "all.log"
        if path.exists():
            os.truncate(path, max(0, path.stat().st_size - size_bytes))

    def _flush_periodically(self) -> None:
        while not self._closed.wait(_FLUSH_INTERVAL_S):
            with self._lock:
                try:
                    for file in self._files.values():
                        file.flush()
                except OSError as error:
                    self.write_error = self.write_error or f"the logs in {self.folder} end here: {error.strerror}"

    def _file(self, path: Path) -> TextIO:
        file = self._files.pop(path, None)
        if file is None:
            if len(self._files) >= _MAX_OPEN_FILES:
                self._files.popitem(last=False)[1].close()
            file = path.open("a" if path in self._started else "w", encoding="utf-8", errors="surrogateescape")
            self._started.add(path)
        self._files[path] = file
        return file
