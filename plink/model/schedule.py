"""One collective as data: which rank sends which chunks to which rank, and when (``plink.schedule/1``).

Rounds are what gives a schedule its meaning. A transfer of round t carries what stood at its source when all
transfers of the rounds before t were done, and is applied at its target after everything that the target itself sends
in round t has been read (as with ``MPI_Sendrecv``). Nobody has to wait for a whole round: :func:`dependencies` says
which transfers each one really waits for, and a rank applies and reads one chunk in the order of rounds.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from plink.errors import UsageError
from plink.model.storage import write_document

SCHEMA = "plink.schedule/1"
COLLECTIVES = ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce")
OPERATIONS = ("reduce", "copy")

Indices = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Schedule:
    """M transfers among N ranks of a vector cut into C chunks of equal size, in the order of their rounds.

    ``round``, ``source``, ``target``, ``first``, ``count``, shape (M,): transfer m moves the chunks ``first[m]`` to
    ``first[m] + count[m] - 1`` in that round; ``copies[m]`` tells whether it replaces what stands at the target or is
    added to it. ``owners``, shape (C,): for every chunk the rank that has it at the beginning (all-gather, broadcast)
    or ends with it (reduce-scatter, reduce); None for an all-reduce. ``after``: what a file said each transfer waits
    for, as (offsets of shape (M + 1,), transfers); None when that follows from the rounds.
    """

    algo: str
    collective: str
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
    details: dict[str, Any] = field(default_factory=dict)

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

    def to_json(self) -> dict[str, Any]:
        """Return the document as written to disk, one transfer a line."""
        offsets, needed = self.after if self.after is not None else awaited(self)
        columns = zip(
            *(a.tolist() for a in (self.round, self.source, self.target, self.first, self.count, self.copies)),
            strict=True,
        )
        return {
            "schema": SCHEMA,
            "algo": self.algo,
            "collective": self.collective,
            "ranks": self.ranks,
            "chunks": self.chunks,
            **({} if self.owners is None else {"owners": self.owners.tolist()}),
            **self.details,
            "transfers": [
                {"id": m, "round": t, "from": a, "to": b, "chunk": chunk}
                | ({"chunks": count} if count != 1 else {})
                | {"op": OPERATIONS[copy], "after": needed[offsets[m] : offsets[m + 1]].tolist()}
                for m, (t, a, b, chunk, count, copy) in enumerate(columns)
            ],
        }

    def write(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        write_document(path, self.to_json())


def make_schedule(
    algo: str,
    ranks: int,
    chunks: int,
    transfers: npt.ArrayLike,
    collective: str = "all-reduce",
    owners: Indices | None = None,
    **details: Any,
) -> Schedule:
    """Return a schedule from (round, source, target, first chunk, number of chunks, copy?) rows, or from an array of
    shape (M, 6); sorted by round, order kept within one.

    :raises UsageError: for fewer than two ranks.
    """
    if ranks < 2:
        raise UsageError(f"a collective needs two ranks or more, not {ranks}")
    rows = np.asarray(transfers, dtype=np.int32).reshape(-1, 6)
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    when, source, target, first, count = (np.ascontiguousarray(rows[:, k]) for k in range(5))
    copies = rows[:, 5] != 0
    return Schedule(algo, collective, ranks, chunks, when, source, target, first, count, copies, owners, None, details)


def mirrored(schedule: Schedule) -> Schedule:
    """Return the reverse schedule: the same transfers from target to source, last first, all of them copies.

    What a reduce-scatter or reduce gathered at the owners of the chunks, its mirror image hands out again.
    """
    back = slice(None, None, -1)
    return Schedule(
        schedule.algo,
        {"reduce-scatter": "all-gather", "reduce": "broadcast"}[schedule.collective],
        schedule.ranks,
        schedule.chunks,
        (schedule.rounds - 1 - schedule.round[back]).astype(np.int32),
        schedule.target[back].copy(),
        schedule.source[back].copy(),
        schedule.first[back].copy(),
        schedule.count[back].copy(),
        np.ones(len(schedule), dtype=bool),
        schedule.owners,
        None,
        schedule.details,
    )


def forward_and_reverse(reduction: Schedule, back: Schedule | None = None) -> Schedule:
    """Return the all-reduce of a reduce-scatter (or reduce) and its reverse, or of another all-gather ``back``."""
    back = back or mirrored(reduction)
    joined = [
        np.concatenate([getattr(reduction, name), getattr(back, name)])
        for name in ("source", "target", "first", "count", "copies")
    ]
    rounds = np.concatenate([reduction.round, back.round + np.int32(reduction.rounds)])
    source, target, first, count, copies = joined
    return Schedule(
        reduction.algo, "all-reduce", reduction.ranks, reduction.chunks, rounds, source, target, first, count, copies,
        None, None, reduction.details,
    )  # fmt: skip


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
