"""Proof that a schedule does what its name says: every rank ends with every contribution exactly once.

The schedule is run on counts: for every rank and chunk, how often each rank's contribution is in what stands there.
Rounds are run as :mod:`plink.schedule` defines them, so whatever passes is right for every vector and every associative
and commutative operation. An all-reduce over N ranks takes N counts a chunk and rank.
"""

import dataclasses
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from plink.schedule import Schedule, dependencies, expanded

_BLOCK_BYTES = 1 << 26
_ENOUGH = 20  # errors; more of them tell nobody more

Counts = npt.NDArray[np.uint16]


def verify(schedule: Schedule) -> list[str]:
    """What is wrong with a schedule, each with the transfer that is to blame; empty when it is proven right.

    ``contributors`` among the schedule's details, if there, are the ranks that have something to add and want the
    result (servers of their own neither add nor want anything).
    """
    errors = _impossible(schedule) or (_out_of_order(schedule) + _wrong_results(schedule))
    return errors[:_ENOUGH]


def contributors_of(schedule: Schedule) -> npt.NDArray[np.int64]:
    """The ranks that add something, in ascending order."""
    named = schedule.details.get("contributors")
    return np.arange(schedule.ranks) if named is None else np.unique(np.array(named, dtype=np.int64))


def _impossible(schedule: Schedule) -> list[str]:
    """Ranks and chunks that there are none of, and transfers that wait for what comes no sooner."""
    n, ends = schedule.ranks, schedule.first.astype(np.int64) + schedule.count
    wrong = (
        (schedule.source == schedule.target)
        | (np.minimum(schedule.source, schedule.target) < 0)
        | (np.maximum(schedule.source, schedule.target) >= n)
        | (schedule.first < 0)
        | (schedule.count < 1)
        | (ends > schedule.chunks)
    )
    errors = [
        f"{schedule.describe(int(m))}: there are ranks 0 to {n - 1} and chunks 0 to {schedule.chunks - 1}, "
        "and nobody sends to itself"
        for m in np.flatnonzero(wrong)[:_ENOUGH]
    ]
    if (np.diff(schedule.round) < 0).any():
        errors.append("the transfers are not in the order of their rounds")
    outside = [rank for rank in contributors_of(schedule).tolist() if not 0 <= rank < n]
    if outside:
        errors.append(f"contributors: there is no rank {outside[0]}")
    if schedule.after is not None:
        offsets, needed = schedule.after
        waiting = np.repeat(np.arange(len(schedule)), np.diff(offsets))
        late = np.flatnonzero(schedule.round[needed] >= schedule.round[waiting])
        errors += [
            f"{schedule.describe(int(waiting[k]))} waits for transfer {needed[k]}, which is no earlier: a deadlock"
            for k in late[:_ENOUGH]
        ]
    return errors


def _out_of_order(schedule: Schedule) -> list[str]:
    """What a file's own ``after`` forgets: to wait for what is sent on, or for what is overwritten."""
    if schedule.after is None:
        return []
    offsets, needed = dependencies(schedule)
    reader = np.repeat(np.arange(len(schedule)), np.diff(offsets))
    errors = [
        f"{schedule.describe(later)} sends what transfer {sooner} writes and does not wait for it"
        for later, sooner in _not_awaited(schedule, reader, needed)
    ]
    transfer, chunk = expanded(schedule)
    cell = schedule.target[transfer].astype(np.int64) * schedule.chunks + chunk
    order = np.argsort(cell, kind="stable")  # within a cell the order of rounds
    cell, writer = cell[order], transfer[order]
    pair = (cell[1:] == cell[:-1]) & (schedule.copies[writer[1:]] | schedule.copies[writer[:-1]])
    pair &= schedule.round[writer[1:]] != schedule.round[writer[:-1]]  # those of one round are found by running it
    return errors + [
        f"{schedule.describe(later)} and transfer {sooner} write the same chunk in no order: one of them copies"
        for later, sooner in _not_awaited(schedule, writer[1:][pair], writer[:-1][pair])
    ]


def _not_awaited(
    schedule: Schedule, later: npt.NDArray[np.integer], sooner: npt.NDArray[np.integer]
) -> list[tuple[int, int]]:
    """Pairs of which the later one does not wait for the sooner one, not even by way of others."""
    assert schedule.after is not None
    offsets, needed = schedule.after
    n = len(schedule)
    direct = np.repeat(np.arange(n), np.diff(offsets)) * n + needed
    asked = np.unique(later.astype(np.int64) * n + sooner)
    found: list[tuple[int, int]] = []
    for key in asked[~np.isin(asked, direct)].tolist():
        top, wanted = divmod(key, n)
        stack, seen = [top], {top}
        while stack and wanted not in seen:
            at = stack.pop()
            for k in needed[offsets[at] : offsets[at + 1]].tolist():
                if k not in seen and schedule.round[k] >= schedule.round[wanted]:
                    seen.add(k)
                    stack.append(k)
        if wanted not in seen:
            found.append((top, wanted))
            if len(found) == _ENOUGH:
                break
    return found


def _wrong_results(schedule: Schedule) -> list[str]:
    """Run the schedule, some chunks at a time."""
    transfer, chunk = expanded(schedule)
    contributors = contributors_of(schedule)
    whole = schedule.collective in ("all-gather", "broadcast")
    width = 1 if whole else len(contributors)
    block = max(1, _BLOCK_BYTES // (2 * schedule.ranks * width))
    errors: list[str] = []
    for start in range(0, schedule.chunks, block):
        stop = min(schedule.chunks, start + block)
        inside = (chunk >= start) & (chunk < stop)
        run = _Run(schedule, contributors, start, stop, whole)
        run.go(transfer[inside], chunk[inside])
        errors += run.errors or run.missing()
        if len(errors) >= _ENOUGH:
            break
    return errors


@dataclasses.dataclass
class _Run:
    """One run over the chunks ``start`` to ``stop`` - 1; ``whole``: what is handed out counts as one thing."""

    schedule: Schedule
    contributors: npt.NDArray[np.int64]
    start: int
    stop: int
    whole: bool

    def __post_init__(self) -> None:
        ranks, chunks = self.schedule.ranks, self.stop - self.start
        self.errors: list[str] = []
        self.written = np.full((ranks, chunks), -1, dtype=np.int64)  # by which transfer last
        if self.whole:
            self.state: Counts = np.zeros((ranks, chunks, 1), dtype=np.uint16)
            assert self.schedule.owners is not None
            self.state[self.schedule.owners[self.start : self.stop], np.arange(chunks)] = 1
        else:
            self.state = np.zeros((ranks, chunks, len(self.contributors)), dtype=np.uint16)
            self.state[self.contributors, :, np.arange(len(self.contributors))] = 1

    def go(self, transfer: npt.NDArray[np.int64], chunk: npt.NDArray[np.int64]) -> None:
        """All rounds, or those until something is wrong."""
        rounds = self.schedule.round[transfer]
        ends = np.searchsorted(rounds, np.arange(self.schedule.rounds + 1))
        for begin, end in pairwise(ends):
            self._round(transfer[begin:end], chunk[begin:end] - self.start)
            if self.errors:
                return

    def _round(self, transfer: npt.NDArray[np.int64], chunk: npt.NDArray[np.int64]) -> None:
        schedule = self.schedule
        source, target = schedule.source[transfer], schedule.target[transfer]
        carried = self.state[source, chunk]
        empty = np.flatnonzero(~carried.any(axis=1))
        if len(empty):
            self._blame(transfer[empty], chunk[empty], "sends chunk {chunk} before it is there")
            return
        copies = schedule.copies[transfer]
        cell = target.astype(np.int64) * (self.stop - self.start) + chunk
        _, place, number = np.unique(cell, return_inverse=True, return_counts=True)
        shared = np.flatnonzero(copies & (number[place] > 1))
        if len(shared):
            self._blame(
                transfer[shared], chunk[shared], "writes chunk {chunk} in the same round as another: unordered writes"
            )
            return
        adds = ~copies
        if (number == 1).all():
            self.state[target[adds], chunk[adds]] += carried[adds]
        else:
            np.add.at(self.state, (target[adds], chunk[adds]), carried[adds])
        twice = np.flatnonzero(adds & (self.state[target, chunk] > 1).any(axis=1))
        if len(twice):
            # Of several that came at once the last is told: with the ones before it, it is one too many.
            k = int(twice[np.flatnonzero(cell[twice] == cell[twice[0]])[-1]])
            who = self.contributors[int(np.argmax(self.state[target[k], chunk[k]] > 1))] if not self.whole else None
            of = "the result" if who is None else f"what rank {who} contributed"
            self._blame(transfer[[k]], chunk[[k]], f"adds {of} to chunk {{chunk}} a second time")
            return
        self.state[target[copies], chunk[copies]] = carried[copies]
        self.written[target, chunk] = transfer

    def _blame(self, transfer: npt.NDArray[np.int64], chunk: npt.NDArray[np.int64], what: str) -> None:
        for m in np.unique(transfer)[:_ENOUGH].tolist():
            where = int(chunk[np.flatnonzero(transfer == m)[0]]) + self.start
            self.errors.append(f"{self.schedule.describe(m)} {what.format(chunk=where)}")

    def missing(self) -> list[str]:
        """What is not where it should be in the end."""
        chunks: npt.NDArray[np.integer] = np.arange(self.stop - self.start)
        ranks: npt.NDArray[np.integer]
        if self.schedule.collective in ("reduce-scatter", "reduce"):
            assert self.schedule.owners is not None
            ranks = self.schedule.owners[self.start : self.stop]
        else:
            ranks, chunks = (axis.ravel() for axis in np.meshgrid(self.contributors, chunks, indexing="ij"))
        there = self.state[ranks, chunks]
        errors = []
        for k in np.flatnonzero((there != 1).any(axis=1))[:_ENOUGH]:
            rank, chunk = int(ranks[k]), int(chunks[k])
            what = "it" if self.whole else f"what rank {self.contributors[int(np.argmax(there[k] != 1))]} contributed"
            last = int(self.written[rank, chunk])
            by = "nobody sends it any" if last < 0 else f"the last to write it was {self.schedule.describe(last)}"
            errors.append(f"rank {rank} ends without {what} in chunk {chunk + self.start}; {by}")
        return errors
