"""Log of an elastic run, ``elastic.jsonl``: one JSON line per event, written as it happens.

Every line has ``at`` (seconds since the run began) and ``what``; the classes here are the other keys of each ``what``.
The first line names the schema where :class:`ElasticLog` wrote it. A ``what`` that is not known is passed over: later
versions may tell more.
"""

import json
import math
import threading
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import msgspec
from msgspec import Meta, Struct, field

from plink.errors import InputError, PlinkError
from plink.model.codec import convert, schema_name
from plink.model.elastic.fields import UpdateCounts
from plink.model.storage import JsonObject, json_lines
from plink.model.types import Quantity

SCHEMA = "plink.elastic-log/1"
NAME = "elastic.jsonl"
SOCKET = "elastic.json"  # beside it: where the job takes requests while it runs
_MAX_LINE_BYTES = 1 << 20  # characters of a line
_HEAD = "log"

Total = Annotated[int, Meta(ge=0, lt=1 << 62)]
Finite = Annotated[float, Meta(gt=-1e300, lt=1e300)]
Tier = Literal["reliable", "transient"]
HostEventName = Literal["joined", "warned", "left", "failed", "released"]


class Entry(Struct, frozen=True, tag_field="what", tag=""):
    """Line of a log, written ``at`` seconds since the run began."""

    at: Quantity

    @property
    def what(self) -> str:
        """Its kind, as the file has it."""
        return schema_name(type(self))


class HostEvent(Entry, frozen=True, tag="host"):
    """A host joined, left or was warned. ``number``: of its joining, never reused; ``price``: money per hour;
    ``seconds``: the grace period of a warning."""

    host: str
    number: Total
    tier: Tier
    slots: Total
    event: HostEventName
    price: Quantity | None = None
    seconds: Quantity | None = None
    why: str = ""


class StageChange(Entry, frozen=True, tag="stage"):
    """The stage that begins (Harlap thesis, 4.2.2)."""

    stage: Literal[1, 2, 3]
    why: str = ""


class Iteration(Entry, frozen=True, tag="iteration"):
    """An iteration ended after ``seconds``; ``workers`` did its last ``clock``. ``work``: seconds that a host's workers
    computed and waited for others, and their steps, by host. ``moved``: the share of the work that workers did for
    others; ``help``: by host which share of its work workers of which hosts did for it. ``objective``: None where it is
    not known, or not yet (:class:`ObjectiveLogEntry`)."""

    iteration: Total
    seconds: Quantity
    stage: Literal[1, 2, 3]
    workers: Total
    clock: Total
    objective: Finite | None = None
    work: dict[str, tuple[Quantity, Quantity, Total]] = field(default_factory=dict)
    moved: Quantity = 0.0
    help: dict[str, dict[str, Quantity]] = field(default_factory=dict)


class ObjectiveLogEntry(Entry, frozen=True, tag="objective"):
    """The objective of an iteration that was written without it, as it was not known yet."""

    iteration: Total
    objective: Finite | None = None


class ActionLogEntry(Entry, frozen=True, tag="action"):
    """An action of the controller, as the decisions of ``solvers/elastic`` name it."""

    action: str
    why: str = ""


class RollBackLogEntry(Entry, frozen=True, tag="rolled back"):
    """A roll-back to ``clock``; ``redone``: how many clocks it undid."""

    clock: Total
    generation: Total
    redone: Total


class ControllerEvent(Entry, frozen=True, tag="controller"):
    """The controller started or restarted. ``rule``: of consistency; ``shares``: whether the data goes by ``slots`` or
    ``speed``; ``rebalance``: whether workers help each other; ``shards``: of the data; ``optimisers``: whether tables
    have some; ``divergence``: its bound."""

    event: Literal["started", "restarted"]
    why: str = ""
    rule: str | None = None
    shares: str | None = None
    shards: Total | None = None
    optimisers: bool = False
    divergence: str = ""
    rebalance: bool = False


class CheckpointLogEntry(Entry, frozen=True, tag="checkpoint"):
    """A checkpoint of a clock was written."""

    clock: Total
    seconds: Quantity
    bytes: Total


class TrafficLogEntry(Entry, frozen=True, tag="traffic"):
    """Bytes that a host has sent and received so far; ``updates``: of asynchronous workers, applied and dropped."""

    host: str
    sent: Total
    received: Total
    updates: UpdateCounts | None = None


class ReplicationLogEntry(Entry, frozen=True, tag="replication"):
    """Rounds of replication, and bytes pushed in them, since the last such entry; the largest distance so far of the
    parameters to replicas, 0 where it is not bounded."""

    rounds: Total
    bytes: Total
    largest_distance: Quantity = 0.0


class EndLogEntry(Entry, frozen=True, tag="end"):
    """The run ended. ``code``: plink's exit code."""

    seconds: Quantity
    code: int
    why: str = ""


KINDS = {schema_name(kind): kind for kind in Entry.__subclasses__()}


class ElasticLog:
    """Writer of the log, from any thread, a line at a time. It appends to an existing log, without a last line that
    was cut off. The first write error is kept in ``write_error``; the run goes on without a log."""

    def __init__(self, path: Path) -> None:
        """:raises PlinkError: when it cannot be written."""
        self.write_error: str | None = None
        self._path = path
        self._lock = threading.Lock()
        try:
            self._file: BinaryIO = path.open("ab+")
            empty = _drop_cut_line(self._file) == 0
        except OSError as error:
            raise PlinkError(f"cannot write {path}: {error.strerror}") from None
        if empty:
            self._write({"at": 0, "what": _HEAD, "schema": SCHEMA})

    def add(self, entry: Entry) -> None:
        """Write one entry; it is in the file when this returns."""
        self._write({"at": 0} | msgspec.to_builtins(entry) | {"at": round(entry.at, 6)})

    def _write(self, line: JsonObject) -> None:
        text = json.dumps({key: _number(value) for key, value in line.items()}) + "\n"
        with self._lock:
            if self.write_error is not None:
                return
            try:
                self._file.write(text.encode())
                self._file.flush()
            except (OSError, ValueError) as error:  # ValueError: it is closed
                self.write_error = f"{self._path} ends here: {getattr(error, 'strerror', None) or error}"

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            try:
                self._file.close()
            except OSError as error:
                self.write_error = self.write_error or f"{self._path} is not complete: {error.strerror}"


def _number(value: object) -> object:
    """Replace NaN and infinity (a diverged objective), which JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _drop_cut_line(file: BinaryIO) -> int:
    """Remove a last line that was cut off, and return the file's length."""
    length = file.seek(0, 2)
    file.seek(max(0, length - _MAX_LINE_BYTES))
    tail = file.read()
    complete = length - len(tail) + tail.rfind(b"\n") + 1
    if _is_object(tail[tail.rfind(b"\n") + 1 :]):  # only the end of the line is missing: readers have told it
        file.write(b"\n")
        return length + 1
    if complete < length:
        file.truncate(complete)
    return complete


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def read_elastic_log(path: str | Path) -> tuple[Entry, ...]:
    """Read all entries of a log in order, without a last line that was cut off.

    :raises InputError: when it cannot be read, tells nothing, is of another schema, or a line is none of its lines.
    """
    entries: list[Entry] = []
    for number, line in json_lines(Path(path), _MAX_LINE_BYTES):
        location = f"{path}:{number}"
        if number == 1 and line.get("schema", SCHEMA) != SCHEMA:
            raise InputError(location, f"schema: expected {SCHEMA!r}, got {str(line['schema'])[:40]!r}")
        what = line.get("what")
        if not isinstance(what, str):
            raise InputError(location, f'no line of an elastic run\'s log ({SCHEMA}): it has no "what"')
        if what in KINDS:
            entries.append(convert(KINDS[what], line, location))
    if not entries:
        raise InputError(str(path), "it tells nothing yet; has the run begun?")
    return tuple(entries)
