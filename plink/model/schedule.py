"""One collective as data: which rank sends which chunks to which rank, and when (``plink.schedule/1``).

Rounds are what gives a schedule its meaning. A transfer of round t carries what stood at its source when all
transfers of the rounds before t were done, and is applied at its target after everything that the target itself sends
in round t has been read (as with ``MPI_Sendrecv``). Nobody has to wait for a whole round: :func:`dependencies` says
which transfers each one really waits for, and a rank applies and reads one chunk in the order of rounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from msgspec import Meta, field

from plink.errors import UsageError
from plink.model.document import UNSET, Document, Part, Unset
from plink.model.storage import JsonObject
from plink.model.types import Count, PositiveInt

Collective = Literal["all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce"]
Operation = Literal["reduce", "copy"]
Timing = Literal["rounds", "chain", "pipeline"]
COLLECTIVES: tuple[Collective, ...] = get_args(Collective)
OPERATIONS: tuple[Operation, ...] = get_args(Operation)

Indices = npt.NDArray[np.int32]
_MAX_RANKS = 1 << 20
_Rank = Annotated[int, Meta(ge=0, lt=_MAX_RANKS)]
_Round = Annotated[int, Meta(ge=0, le=2147483646)]


class ScheduledTransfer(Part, frozen=True, kw_only=True, omit_defaults=True):
    """What one rank sends to another in a round."""

    id: int | str | Unset = UNSET
    """How others name it; its place in this list when missing."""
    round: _Round | Unset = UNSET
    """When; missing in all transfers: the longest chain of `after` that leads to it."""
    source: _Rank = field(name="from")
    """The rank that sends."""
    target: _Rank = field(name="to")
    """The rank that receives, another one."""
    chunk: Count
    """The first chunk that is sent."""
    chunks: PositiveInt = 1
    """How many, from there on."""
    op: Operation
    """reduce: added to what stands at the target; copy: replaces it."""
    after: Sequence[int | str] | None = None
    """The transfers that it waits for: those that wrote what it carries, and where it adds to a copy, that copy. Null
    where there are rounds: what follows from these."""


class ScheduleFile(Document, frozen=True, kw_only=True, tag="plink.schedule/1"):
    """Who sends what to whom, and when.

    Written by `plink schedule`, read by `plink schedule verify` and `count`; anybody's are welcome. A transfer of
    round t carries what stood at its source when all rounds before t were done, and is applied after everything
    that its target itself sends in round t has been read. Ranks and chunks count from 0.
    """

    algo: str = "unnamed"
    """Name of the algorithm."""
    collective: Collective = "all-reduce"
    """What it does."""
    ranks: Annotated[int, Meta(ge=2, le=_MAX_RANKS)]
    """How many take part."""
    chunks: Annotated[int, Meta(ge=1, le=1048576)]
    """Into how many chunks of equal size the vector is cut."""
    owners: Annotated[list[_Rank], Meta(min_length=1)] | Unset | None = UNSET
    """For every chunk the rank that has it at the beginning (all-gather, broadcast) or ends with it (reduce-scatter,
    reduce); not needed for an all-reduce."""
    contributors: (
        Annotated[Sequence[_Rank], Meta(min_length=1, extra_json_schema={"uniqueItems": True})] | Unset | None
    ) = UNSET
    """The ranks that have something to add and want the result; all of them when missing or null. What stands at the
    others in the beginning is zero."""
    groups: Sequence[Sequence[_Rank]] | Unset | None = UNSET
    """For two-level aggregation: the ranks of each group."""
    fan_out: PositiveInt | Unset = UNSET
    """For a tree: children of a node."""
    timing: Timing | Unset = UNSET
    """How its rounds add up under the cost model latency; rounds when missing."""
    transfers: list[ScheduledTransfer]
    """The transfers, in any order."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """M transfers among N ranks of a vector cut into C chunks of equal size, in the order of their rounds.

    ``round``, ``source``, ``target``, ``first``, ``count``, shape (M,): transfer m moves the chunks ``first[m]`` to
    ``first[m] + count[m] - 1`` in that round; ``copies[m]`` tells whether it replaces what stands at the target or is
    added to it. ``owners``, shape (C,): for every chunk the rank that has it at the beginning (all-gather, broadcast)
    or ends with it (reduce-scatter, reduce); None for an all-reduce. ``after``: what a file said each transfer waits
    for, as (offsets of shape (M + 1,), transfers); None when that follows from the rounds. The rest is as in
    :class:`ScheduleFile`.
    """

    algo: str
    collective: Collective
    ranks: int
    chunks: int
    round: Indices
    source: Indices
    target: Indices
    first: Indices
    count: Indices
    copies: npt.NDArray[np.bool_]
    owners: Indices | None = None
    after: tuple[npt.NDArray[np.int64], Indices] | None = None
    contributors: Sequence[int] | None = None
    groups: Sequence[Sequence[int]] | None = None
    fan_out: int | None = None
    timing: Timing | None = None

    def __len__(self) -> int:
        return len(self.round)

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return int(self.round.max()) + 1 if len(self) else 0

    def round_slices(self) -> list[slice]:
        """Return the transfers of each round."""
        ends = np.searchsorted(self.round, np.arange(self.rounds + 1))
        return [slice(int(a), int(b)) for a, b in pairwise(ends)]

    def describe(self, m: int) -> str:
        """Return transfer m in words, for messages."""
        first, last = int(self.first[m]), int(self.first[m] + self.count[m]) - 1
        what = f"chunk {first}" if first == last else f"chunks {first}-{last}"
        operation = OPERATIONS[int(self.copies[m])]
        return f"transfer {m} (round {self.round[m]}, rank {self.source[m]} -> {self.target[m]}, {what}, {operation})"

    def file(self, with_waits: bool = True) -> ScheduleFile:
        """Return the document. ``with_waits``: it says what transfers wait for where that follows from the rounds.
        That takes half of its bytes, and seconds to find."""
        waits = awaited(self) if with_waits and self.after is None else self.after
        columns = (self.round, self.source, self.target, self.first, self.count, self.copies)
        return ScheduleFile(
            algo=self.algo,
            collective=self.collective,
            ranks=self.ranks,
            chunks=self.chunks,
            owners=UNSET if self.owners is None else self.owners.tolist(),
            contributors=UNSET if self.contributors is None else self.contributors,
            groups=UNSET if self.groups is None else self.groups,
            fan_out=UNSET if self.fan_out is None else self.fan_out,
            timing=UNSET if self.timing is None else self.timing,
            transfers=[
                ScheduledTransfer(
                    id=m,
                    round=when,
                    source=source,
                    target=target,
                    chunk=chunk,
                    chunks=count,
                    op=OPERATIONS[copy],
                    after=None if waits is None else waits[1][waits[0][m] : waits[0][m + 1]].tolist(),
                )
                for m, (when, source, target, chunk, count, copy) in enumerate(
                    zip(*(column.tolist() for column in columns), strict=True)
                )
            ],
        )

    def to_json(self) -> JsonObject:
        """Return the document as written to disk, one transfer a line."""
        return self.file().to_json()

    def write(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        self.file().write(path)


def make_schedule(
    algo: str,
    ranks: int,
    chunks: int,
    transfers: npt.ArrayLike,
    collective: Collective = "all-reduce",
    owners: Indices | None = None,
    **more: Any,
) -> Schedule:
    """Return a schedule from (round, source, target, first chunk, number of chunks, copy?) rows, or from an array of
    shape (M, 6); sorted by round, order kept within one. ``more``: other fields of the schedule.

    :raises UsageError: for fewer than two ranks.
    """
    if ranks < 2:
        raise UsageError(f"a collective needs two ranks or more, not {ranks}")
    rows = np.asarray(transfers, dtype=np.int32).reshape(-1, 6)
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    when, source, target, first, count = (np.ascontiguousarray(rows[:, k]) for k in range(5))
    copies = rows[:, 5] != 0
    return Schedule(algo, collective, ranks, chunks, when, source, target, first, count, copies, owners, **more)


def mirrored(schedule: Schedule) -> Schedule:
    """Return the reverse schedule: the same transfers from target to source, last first, all of them copies.

    What a reduce-scatter or reduce gathered at the owners of the chunks, its mirror image hands out again.
    """
    back = slice(None, None, -1)
    return replace(
        schedule,
        collective="all-gather" if schedule.collective == "reduce-scatter" else "broadcast",
        round=(schedule.rounds - 1 - schedule.round[back]).astype(np.int32),
        source=schedule.target[back].copy(),
        target=schedule.source[back].copy(),
        first=schedule.first[back].copy(),
        count=schedule.count[back].copy(),
        copies=np.ones(len(schedule), dtype=bool),
        after=None,
    )


def forward_and_reverse(reduction: Schedule, back: Schedule | None = None) -> Schedule:
    """Return the all-reduce of a reduce-scatter (or reduce) and its reverse, or of another all-gather ``back``."""
    back = back or mirrored(reduction)
    joined: JsonObject = {
        name: np.concatenate([getattr(reduction, name), getattr(back, name)])
        for name in ("source", "target", "first", "count", "copies")
    }
    rounds = np.concatenate([reduction.round, back.round + np.int32(reduction.rounds)])
    return replace(reduction, collective="all-reduce", round=rounds, owners=None, after=None, **joined)


def expanded(schedule: Schedule) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return every (transfer, chunk) that is moved, two arrays of shape (sum of counts,), in the order of the
    transfers."""
    counts = schedule.count.astype(np.int64)
    transfer = np.repeat(np.arange(len(schedule)), counts)
    start = np.repeat(np.cumsum(counts) - counts, counts)
    return transfer, schedule.first[transfer] + np.arange(len(transfer)) - start


def dependencies(schedule: Schedule) -> tuple[npt.NDArray[np.int64], Indices]:
    """Return the transfers that each one waits for, those that wrote what it carries, as (offsets of shape (M + 1,),
    transfers).

    Of one chunk at one rank these are the writers of earlier rounds, back to (and with) the last that replaced it.
    """
    transfer, chunk = expanded(schedule)
    cells = schedule.chunks
    written = schedule.target[transfer].astype(np.int64) * cells + chunk
    read = schedule.source[transfer].astype(np.int64) * cells + chunk
    order = np.lexsort((schedule.round[transfer], written))  # by cell, then by round
    cell, writer = written[order], transfer[order]
    rounds = schedule.round[writer].astype(np.int64)
    span = schedule.rounds + 1
    keys = cell * span + rounds
    # Where each reader's cell begins, and where the writers of its round or later do.
    end = np.searchsorted(keys, read * span + schedule.round[transfer])
    begin = np.searchsorted(keys, read * span)
    # The last copy at or before every place, if it is in the same cell, supersedes what stands before it.
    places = np.where(schedule.copies[writer], np.arange(len(writer)), -1)
    last = np.maximum.accumulate(places) if len(places) else places
    superseded = np.where(end > 0, last[np.maximum(end - 1, 0)] if len(last) else 0, -1)
    begin = np.where(superseded >= begin, superseded, begin)
    lengths = end - begin
    reader = np.repeat(transfer, lengths)
    offset = np.repeat(np.cumsum(lengths) - lengths, lengths)
    needed = writer[np.repeat(begin, lengths) + np.arange(len(reader)) - offset]
    pairs = np.sort(reader * max(1, len(schedule)) + needed)
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]  # five times as fast as np.unique
    reader, needed = pairs // max(1, len(schedule)), pairs % max(1, len(schedule))
    return np.searchsorted(reader, np.arange(len(schedule) + 1)), needed.astype(np.int32)


def overwritten(schedule: Schedule) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return pairs (later, sooner) of writers of one chunk at one rank, of different rounds, that must not change
    places: every copy and what was written since the last one (with it), and whatever is added to a copy."""
    transfer, chunk = expanded(schedule)
    cell = schedule.target[transfer].astype(np.int64) * schedule.chunks + chunk
    order = np.argsort(cell, kind="stable")  # within a cell the order of rounds
    cell, writer = cell[order], transfer[order]
    place, copies = np.arange(len(writer)), schedule.copies[writer]
    begin = np.searchsorted(cell, cell)
    copied = np.maximum.accumulate(np.where(copies, place, -1))
    since = np.maximum(np.concatenate([[-1], copied])[:-1], begin)
    length = np.where(copies, place - since, copies[since] & (since < place))
    later = np.repeat(writer, length)
    within = np.arange(len(later)) - np.repeat(np.cumsum(length) - length, length)
    sooner = writer[np.repeat(since, length) + within]
    apart = schedule.round[later] != schedule.round[sooner]
    return later[apart], sooner[apart]


def awaited(schedule: Schedule) -> tuple[npt.NDArray[np.int64], Indices]:
    """Return the transfers that each one waits for in a file: its :func:`dependencies`, and where something is added
    to a copy, that copy, because the file alone does not order what one rank receives from two. A copy itself waits
    for what it replaces by way of what it carries, wherever that is of any use."""
    offsets, needed = dependencies(schedule)
    reader = np.repeat(np.arange(len(schedule)), np.diff(offsets))
    later, sooner = overwritten(schedule)
    added = ~schedule.copies[later]
    most = max(1, len(schedule))
    pairs = np.unique(np.concatenate([reader * most + needed, later[added] * most + sooner[added]]))
    return np.searchsorted(pairs // most, np.arange(len(schedule) + 1)), (pairs % most).astype(np.int32)
