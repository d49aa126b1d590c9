"""Read schedules from files; every transfer is validated. Schedules by size of message (``plink.aggregation/2``), and
what is computed of one (``plink.verification/1``, ``plink.count/1``)."""

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from plink.errors import InputError
from plink.model.codec import decode
from plink.model.document import UNSET, Document, Part, Unset
from plink.model.schedule import Indices, Schedule, ScheduledTransfer, ScheduleFile
from plink.model.storage import name_of, read_document
from plink.model.types import Count, Name, NonNegative

_PerRank = Annotated[tuple[NonNegative, ...], Meta(min_length=2)]
# Transfers times their chunks: two arrays of that length are made of it. Halving-doubling of 4,096 ranks has 2**25.
MAX_MOVES = 1 << 26
_MAX_LISTED_TRANSFERS = 12  # transfers of a cycle that a message lists
_Bytes = Annotated[int, Meta(ge=1, le=1 << 40)]


class ScheduleVerification(Document, frozen=True, kw_only=True, tag="plink.verification/1"):
    """Whether a schedule does what its name says.

    Printed by `plink schedule verify --json`.
    """

    valid: bool
    """Whether every rank ends with every contribution exactly once, without deadlock and without unordered writes."""
    errors: Annotated[tuple[Name, ...], Meta(max_length=20)]
    """What is wrong, each naming the transfer to blame; the first 20. Empty when it is valid."""
    contributors: tuple[Count, ...] = ()
    """The ranks that add something and want the result; servers of their own do neither."""


class ScheduleCount(Document, frozen=True, kw_only=True, tag="plink.count/1"):
    """What a schedule moves.

    Printed by `plink schedule count --json`.
    """

    rounds: Count
    """How many rounds."""
    transfers: Count
    """How many transfers."""
    bytes_on_wire: NonNegative
    """Bytes sent by all ranks together."""
    sent_bytes: _PerRank
    """Bytes that each rank sends."""
    received_bytes: _PerRank
    """Bytes that each rank receives."""
    cross_group_bytes: NonNegative | None
    """Bytes between ranks of different groups; null without groups."""


class SizeClassEntry(Part, frozen=True, kw_only=True):
    """The schedule of messages up to a size."""

    up_to_bytes: Annotated[int, Meta(ge=1, le=1 << 62)] | None
    """The largest message of the class; null for the last class, which has no limit."""
    algo: str
    """A name for it; gloo where there is no schedule."""
    schedule: ScheduleFile | Unset | None = UNSET
    """A plink.schedule/1 document of an all-reduce, of as many ranks in every class; null: Gloo does it."""


class AggregationFile(Document, frozen=True, kw_only=True, tag="plink.aggregation/2"):
    """By which schedule ranks all-reduce which messages.

    By which schedule the ranks of a group all-reduce messages of which size (docs/aggengine.md). Read where
    PLINK_PLAN names it.
    """

    channels: Annotated[int, Meta(ge=1, le=16)] | Unset = UNSET
    """Channels per rank, each a thread with its own connections, that share an all-reduce; default 2."""
    chunk_bytes: _Bytes | Unset = UNSET
    """Minimum bytes of a chunk of the schedule while a message has several; default 16384."""
    segment_bytes: _Bytes | Unset = UNSET
    """Bytes of a large message in one segment of all its chunks; default 1048576."""
    segments: Annotated[int, Meta(ge=1, le=1048576)] | Unset = UNSET
    """Segments of a smaller message, while each has min_segment_bytes; default 8."""
    min_segment_bytes: _Bytes | Unset = UNSET
    """Minimum bytes of each segment of such a message; default 262144."""
    smallest_bytes: Annotated[int, Meta(ge=0, le=1 << 62)] | Unset | None = UNSET
    """Smaller messages go to Gloo. Null, or not there: from which size on the schedules are faster is measured when a
    group begins."""
    ring: Annotated[tuple[Count, ...], Meta(extra_json_schema={"uniqueItems": True})] | Unset = UNSET
    """All ranks in the sequence in which Gloo's ring is to go round them, so that large messages go by it where a
    measurement finds that faster. Empty, or not there, or with smallest_bytes: it is not tried."""
    classes: Annotated[tuple[SizeClassEntry, ...], Meta(min_length=1)]
    """By size, ascending."""


def schedule_from_json(document: Mapping[str, Any], location: str) -> Schedule:
    """Return a schedule from its JSON document, anybody's.

    :raises InputError: as :func:`schedule_from`.
    """
    return schedule_from(decode(ScheduleFile, document, location), location)


def schedule_from(file: ScheduleFile, location: str) -> Schedule:
    """Return a schedule from its document; ``location`` names the file in errors.

    ``round`` may be missing: it is then the longest chain of ``after`` that leads to a transfer. ``after`` may be
    missing if there are rounds.

    :raises InputError: naming the transfer that is wrong: an unknown rank or chunk, a cycle, an unknown ``after``.
    """
    ranks, chunks, rows = file.ranks, file.chunks, file.transfers
    owners = _owners(file, location)
    contributors = file.contributors or []
    if len(set(contributors)) < len(contributors) or any(rank >= ranks for rank in contributors):
        raise InputError(f"{location}: contributors", f"expected ranks from 0 to {ranks - 1}, each once")
    ids: dict[int | str, int] = {}
    for m, row in enumerate(rows):
        name = m if row.id is UNSET else row.id
        if name in ids:
            raise InputError(f"{location}: transfers[{m}].id", f"{name!r} is taken")
        ids[name] = m
    moves = [_move(row, f"{location}: transfers[{m}]", ranks, chunks) for m, row in enumerate(rows)]
    after = [_after(row, ids, f"{location}: transfers[{m}]") for m, row in enumerate(rows)]
    rounds = _rounds(rows, after, location)
    order = np.argsort(rounds, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    table = np.array(moves, dtype=np.int32).reshape(-1, 5)[order]
    explicit = None
    if any(line is not None for line in after):
        listed = [sorted(place[k] for k in after[m] or []) for m in order]
        offsets = np.concatenate([[0], np.cumsum([len(line) for line in listed])]).astype(np.int64)
        explicit = (offsets, np.array([k for line in listed for k in line], dtype=np.int32))
    if (moves_in_all := int(table[:, 3].sum(dtype=np.int64))) > MAX_MOVES:
        raise InputError(
            f"{location}: transfers", f"they move {moves_in_all} chunks in all, {MAX_MOVES} at most are read"
        )
    source, target, first, count = (np.ascontiguousarray(table[:, k]) for k in range(4))
    return Schedule(
        file.algo,
        file.collective,
        ranks,
        chunks,
        np.array(rounds, dtype=np.int32)[order],
        source,
        target,
        first,
        count,
        table[:, 4] != 0,
        owners,
        explicit,
        file.contributors or None,
        file.groups or None,
        file.fan_out or None,
        file.timing or None,
    )


def read_schedule(path: str | Path) -> Schedule:
    """Return a schedule from a file (``-``: standard input, ``.gz``: compressed).

    :raises InputError: as :func:`schedule_from_json`, and when the file cannot be read.
    """
    return schedule_from_json(read_document(path), name_of(path))


def _owners(file: ScheduleFile, location: str) -> Indices | None:
    if file.collective == "all-reduce":
        return None
    owners = file.owners or []
    if len(owners) != file.chunks or any(rank >= file.ranks for rank in owners):
        reason = f"a {file.collective} needs the owner of each chunk, {file.chunks} ranks"
        raise InputError(f"{location}: owners", reason)
    return np.array(owners, dtype=np.int32)


def _move(row: ScheduledTransfer, location: str, ranks: int, chunks: int) -> tuple[int, int, int, int, bool]:
    for key, value, limit in (("from", row.source, ranks), ("to", row.target, ranks), ("chunk", row.chunk, chunks)):
        if value >= limit:
            raise InputError(f"{location}.{key}", f"{value} is not a number from 0 to {limit - 1}")
    if row.source == row.target:
        raise InputError(location, f"rank {row.source} sends to itself")
    if row.chunk + row.chunks > chunks:
        raise InputError(f"{location}.chunks", f"{row.chunks} is not a number from 1 to {chunks - row.chunk}")
    return row.source, row.target, row.chunk, row.chunks, row.op == "copy"


def _after(row: ScheduledTransfer, ids: dict[int | str, int], location: str) -> list[int] | None:
    if row.after is None:
        return None
    if unknown := [name for name in row.after if name not in ids]:
        raise InputError(f"{location}.after", f"there is no transfer {unknown[0]!r}")
    return [ids[name] for name in row.after]


def _rounds(rows: list[ScheduledTransfer], after: list[list[int] | None], location: str) -> list[int]:
    """Return the given rounds, or the longest chain; with both, a transfer must be later than what it waits for."""
    waits = [line or [] for line in after]
    rounds = [row.round for row in rows if row.round is not UNSET]
    if len(rounds) == len(rows):
        for m, line in enumerate(waits):
            late = next((k for k in line if rounds[k] >= rounds[m]), None)
            if late is not None:
                raise InputError(
                    f"{location}: transfers[{m}]",
                    f"it is in round {rounds[m]} and waits for transfers[{late}], which is in round {rounds[late]}: "
                    "it would wait for ever",
                )
        # Numbers with gaps are the same order.
        return [int(k) for k in np.unique(rounds, return_inverse=True)[1]] if rounds else []
    if rounds or any(line is None for line in after):
        m = next(m for m, row in enumerate(rows) if (row.round is UNSET if rounds else row.after is None))
        raise InputError(f"{location}: transfers[{m}]", "give `round` in all transfers, or `after` in all of them")
    levels = [0] * len(rows)
    try:
        for m in TopologicalSorter(dict(enumerate(waits))).static_order():
            levels[m] = 1 + max((levels[k] for k in waits[m]), default=-1)
    except CycleError as error:
        names = [f"transfers[{m}]" for m in reversed(error.args[1][1:])]
        shown = names if len(names) <= _MAX_LISTED_TRANSFERS else [*names[:_MAX_LISTED_TRANSFERS], "..."]
        reason = f"waits for itself: {' after '.join([*shown, names[0]])}"
        raise InputError(f"{location}: {names[0]}", reason) from None
    return levels
