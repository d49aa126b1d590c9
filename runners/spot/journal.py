"""Read and write the journal of a run's instances: JSON lines, each on disk before the next act.

Each line ends with a checksum (CRC-32) of what is before it: what was altered on disk must not decide about money.
"""

import fcntl
import json
import os
import re
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from msgspec.structs import asdict

from plink.errors import InputError, PlinkError, UsageError
from plink.model.codec import convert
from plink.model.spot.journal import (
    KINDS,
    SCHEMA,
    InstanceGranted,
    JournalEntry,
    JournalOpened,
    RequestClosed,
)
from plink.runtime.whole_file import sync_folder
from solvers.spot.ledger import Ledger

FOLDER = "spot"  # below the run's
NAME = "journal.jsonl"
MARKET_COPY = "market.toml"
JOB_END = "job-ended"  # exists once the job of the run is over, whatever its record says
_RELEASE_MARK = "release-requested"
_LOCK = "driver.lock"
_CHECKSUM = re.compile(rb', "crc32": "([0-9a-f]{8})"}\Z')
_LOCK_ATTEMPTS, _LOCK_INTERVAL_S = 10, 0.1


class JournalError(PlinkError):
    """An entry of a journal could not be written."""


class Journal:
    """Writer of a journal. :meth:`add` returns when the entry is on disk; an entry that cannot be written is an error,
    and the act that it announces must not follow. It holds the lock of the run: one driver at a time."""

    def __init__(self, folder: Path) -> None:
        """:raises UsageError: when another driver holds the lock. :raises PlinkError: when it cannot be written."""
        self.path = folder / NAME
        self._failed: str | None = None
        try:
            new = not folder.exists()
            folder.mkdir(mode=0o700, exist_ok=True)
            self._lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise PlinkError(f"cannot keep a journal in {folder}: {error.strerror}") from None
        if not _locked(self._lock):
            owner = os.pread(self._lock, 20, 0).decode("ascii", "replace").strip()
            os.close(self._lock)
            raise UsageError(
                f"another driver (process {owner or 'unknown'}) manages the instances of this run; end it first"
            ) from None
        with suppress(OSError):  # a full disk; the lock holds without a number in it
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, str(os.getpid()).encode(), 0)
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._drop_torn_line()
            sync_folder(folder)
            if new:
                sync_folder(folder.parent)
        except OSError as error:
            os.close(self._lock)
            raise PlinkError(f"cannot write {self.path}: {error.strerror}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def add(self, entry: JournalEntry) -> None:
        """Append an entry and wait until it is on disk.

        :raises JournalError: when it cannot be; nothing can be added after that, for the line may be torn.
        """
        if self._failed is not None:
            raise JournalError(self._failed)
        line = json.dumps({"what": entry.what} | asdict(entry)).encode()[:-1]
        line += b', "crc32": "%08x"}\n' % zlib.crc32(line)
        try:
            while line:
                line = line[os.write(self._file, line) :]
            os.fsync(self._file)
        except OSError as error:
            self._failed = f"cannot write {self.path}: {error.strerror}; nothing is requested without a journal"
            raise JournalError(self._failed) from None

    def close(self) -> None:
        """Close the journal and give up the lock."""
        os.close(self._file)
        os.close(self._lock)

    def _drop_torn_line(self) -> None:
        """Remove a last line without an end: its act did not follow."""
        data = self.path.read_bytes()
        complete = data.rfind(b"\n") + 1
        if complete < len(data):
            os.ftruncate(self._file, complete)
            os.fsync(self._file)


def _locked(lock: int) -> bool:
    """Return whether the lock could be had; who only looks whether a driver runs holds it for a moment."""
    for attempt in range(_LOCK_ATTEMPTS):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if attempt + 1 < _LOCK_ATTEMPTS:
                time.sleep(_LOCK_INTERVAL_S)
        else:
            return True
    return False


def driver_of(folder: Path) -> int | None:
    """Return the process that holds the lock of a run's journal, None where no driver runs."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        text = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
        return int(text) if text.isdecimal() else 0
    finally:
        os.close(lock)
    return None


def request_release(folder: Path) -> bool:
    """Have the driver of a run release everything and end, and no driver be started again by the job; return False
    where that cannot be written."""
    try:
        (folder / _RELEASE_MARK).touch()
    except OSError:
        return False
    return True


def release_is_requested(folder: Path) -> bool:
    """Return whether everything is to be released although the job goes on."""
    return (folder / _RELEASE_MARK).exists()


def withdraw_release(folder: Path) -> None:
    """Rent again, as a new `plink spot drive` asks for."""
    (folder / _RELEASE_MARK).unlink(missing_ok=True)


def read_journal(folder: Path) -> Sequence[JournalEntry]:
    """Return all entries of a journal in order, without a last line that was torn; none where there is no journal.

    :raises InputError: naming the line that is none of a journal, or was altered: nothing may be requested by half a
        journal. Journals of older versions have no checksums.
    """
    path = folder / NAME
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(str(path), error.strerror or "cannot be read") from None
    ledger, entries, is_summed = Ledger(), [], False
    for number, line in enumerate(lines, 1):
        entry = _entry(line, f"{path}:{number}", is_summed)
        _check_order(ledger, entry, f"{path}:{number}")
        entries.append(entry)
        is_summed = is_summed or _CHECKSUM.search(line) is not None
    return entries


def read_opening(folder: Path) -> JournalOpened | None:
    """Return the first entry of a journal, None where that cannot be read."""
    path = folder / NAME
    try:
        first = _entry(path.read_bytes().partition(b"\n")[0], f"{path}:1")
    except (OSError, InputError):
        return None
    return first if isinstance(first, JournalOpened) else None


def _check_order(ledger: Ledger, entry: JournalEntry, location: str) -> None:
    """Apply the next entry. :raises InputError: it is of something that the journal does not have."""
    missing = "" if ledger.opened or isinstance(entry, JournalOpened) else "opened"
    try:
        ledger.apply(entry)
    except KeyError as error:
        kind = "request" if isinstance(entry, InstanceGranted | RequestClosed) else "instance"
        missing = missing or f"{kind} {error.args[0]}"
    if isinstance(entry, InstanceGranted) and not missing:
        market = ledger.requests[entry.token].entry.market
        missing = "" if ledger.latest_price(market) else f"price of {market}"
    if missing:
        raise InputError(location, f"the journal has no {missing} before this line")


def _entry(line: bytes, location: str, is_summed: bool = False) -> JournalEntry:
    """:param is_summed: lines before have checksums, so that one without any was altered."""
    checksum = _CHECKSUM.search(line)
    if is_summed if checksum is None else zlib.crc32(line[: checksum.start()]) != int(checksum[1], 16):
        raise InputError(location, "this line was altered or torn: its checksum is another one")
    try:
        document: Any = json.loads(line)
    except (ValueError, RecursionError):
        document = None
    what = document.get("what") if isinstance(document, dict) else None
    if not isinstance(what, str) or what not in KINDS:
        raise InputError(location, f"no line of a journal of instances ({SCHEMA})")
    entry: JournalEntry = convert(KINDS[what], document, location)
    return entry
