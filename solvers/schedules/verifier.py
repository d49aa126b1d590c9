"""Proof that a schedule does what its name says: every rank ends with every contribution exactly once.

The schedule is run on counts: for every rank and chunk, how often each rank's contribution is in what stands there.
Rounds are run as :mod:`plink.model.schedule` defines them, so whatever passes is right for every vector and every
associative and commutative operation. An all-reduce over N ranks takes N counts a chunk and rank.
"""

import dataclasses
import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from plink.errors import UsageError
from plink.model.schedule import Indices, Schedule, dependencies, expanded, overwritten

_BLOCK_BYTES = 1 << 26
_MAX_BYTES = 1 << 31  # of the counts of one chunk: 32,768 ranks
_ANCESTORS_BYTES = 1 << 28
_MAX_REPORTED_ERRORS = 20

Counts = npt.NDArray[np.uint16]
Places = npt.NDArray[np.int64]
Describe = Callable[[int], str]


def verify(schedule: Schedule) -> list[str]:
    """What is wrong with a schedule, each with the transfer that is to blame; empty when it is proven right.

    ``contributors`` of the schedule, if there, are the ranks that have something to add and want the
    result (servers of their own neither add nor want anything).

    :raises UsageError: for more ranks than can be counted here.
    """
    errors = _impossible(schedule)
    if not errors:
        merged, starts = _merged(schedule)
        errors = _out_of_order(merged, schedule.describe) + _wrong_results(merged, starts, schedule.describe)
    return errors[:_MAX_REPORTED_ERRORS]


def contributors_of(schedule: Schedule) -> npt.NDArray[np.int64]:
    """The ranks that add something, in ascending order."""
    named = schedule.contributors
    return np.arange(schedule.ranks) if named is None else np.unique(np.array(named, dtype=np.int64))


def _merged(schedule: Schedule) -> tuple[Schedule, Places]:
    """The same schedule with neighbouring chunks that always go together as one, and where each of these begins."""
    first = schedule.first.astype(np.int64)
    ends = first + schedule.count
    owners = np.zeros(1, dtype=np.int32) if schedule.owners is None else schedule.owners
    handed = np.flatnonzero(np.diff(owners)) + 1
    starts = np.unique(np.concatenate([[0], first, ends[ends < schedule.chunks], handed])).astype(np.int64)
    place = np.searchsorted(starts, first)
    return dataclasses.replace(
        schedule,
        chunks=len(starts),
        first=place.astype(np.int32),
        count=(np.searchsorted(starts, ends) - place).astype(np.int32),
        owners=None if schedule.owners is None else schedule.owners[starts],
    ), starts


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
        for m in np.flatnonzero(wrong)[:_MAX_REPORTED_ERRORS]
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
            for k in late[:_MAX_REPORTED_ERRORS]
        ]
    return errors


def _out_of_order(schedule: Schedule, describe: Describe) -> list[str]:
    """What a file's own ``after`` forgets: to wait for what is sent on, or for what is overwritten."""
    if schedule.after is None:
        return []
    offsets, needed = dependencies(schedule)
    reader = np.repeat(np.arange(len(schedule)), np.diff(offsets))
    errors = [
        f"{describe(later)} sends what transfer {sooner} writes and does not wait for it"
        for later, sooner in _not_awaited(schedule, reader, needed)
    ]
    return errors + [
        f"{describe(later)} and transfer {sooner} write the same chunk in no order: one of them copies"
        for later, sooner in _not_awaited(schedule, *overwritten(schedule))
    ]


def _not_awaited(
    schedule: Schedule, later: npt.NDArray[np.integer], sooner: npt.NDArray[np.integer]
) -> list[tuple[int, int]]:
    """Return the pairs of which the later transfer does not depend on the sooner one, directly or indirectly."""
    assert schedule.after is not None
    offsets, needed = schedule.after
    n = len(schedule)
    direct = np.repeat(np.arange(n), np.diff(offsets)) * n + needed
    edges = np.unique(later.astype(np.int64) * n + sooner)
    edges = edges[~np.isin(edges, direct)]
    if not len(edges):
        return []
    # Nearly always the transfers of the chunk that both move are the way from one to the other.
    transfer, chunk = expanded(schedule)
    transfer = transfer[np.argsort(chunk, kind="stable")]
    begins = np.searchsorted(np.sort(chunk), np.arange(schedule.chunks + 1))
    shared = np.maximum(schedule.first[edges // n], schedule.first[edges % n])
    edges = edges[np.argsort(shared, kind="stable")]
    ends = np.searchsorted(np.sort(shared), np.arange(schedule.chunks + 1))
    rest: list[tuple[int, int]] = []
    for k in np.flatnonzero(np.diff(ends)).tolist():
        pairs = [divmod(edge, n) for edge in edges[ends[k] : ends[k + 1]].tolist()]
        rest += _unreached(pairs, transfer[begins[k] : begins[k + 1]].tolist(), offsets, needed)
    return [*itertools.islice(_unreached(sorted(rest), range(n), offsets, needed), _MAX_REPORTED_ERRORS)]


def _unreached(
    pairs: Sequence[tuple[int, int]], members: Sequence[int], offsets: Places, needed: Indices
) -> Iterator[tuple[int, int]]:
    """Yield the pairs (later, sooner) of which the later transfer does not depend on the sooner one by way of members.

    :param pairs: in ascending order. :param members: transfers, likewise: dependencies precede a transfer, so one pass
        finds them all for as many pairs as fit.
    """
    batch = max(1, 8 * _ANCESTORS_BYTES // len(members))
    for start in range(0, len(pairs), batch):
        some = pairs[start : start + batch]
        bits = {sooner: 1 << k for k, sooner in enumerate({sooner: None for _, sooner in some})}
        ancestors: dict[int, int] = {}  # of every member: the union of the bits of those that it depends on
        for member in members[bisect_left(members, min(bits)) : bisect_right(members, some[-1][0])]:
            union = 0
            for k in needed[offsets[member] : offsets[member + 1]].tolist():
                union |= ancestors.get(k, 0) | bits.get(k, 0)
            if union:
                ancestors[member] = union
        yield from ((later, sooner) for later, sooner in some if not ancestors.get(later, 0) & bits[sooner])


def _wrong_results(schedule: Schedule, starts: Places, describe: Describe) -> list[str]:
    """Run the schedule, some chunks at a time."""
    transfer, chunk = expanded(schedule)
    contributors = contributors_of(schedule)
    whole = schedule.collective in ("all-gather", "broadcast")
    each = 2 * schedule.ranks * (1 if whole else len(contributors))
    if each > _MAX_BYTES:
        raise UsageError(f"{schedule.ranks} ranks are too many to prove: the counts of one chunk take {each:.1e} bytes")
    block = max(1, _BLOCK_BYTES // max(1, each))
    errors: list[str] = []
    for start in range(0, schedule.chunks, block):
        stop = min(schedule.chunks, start + block)
        inside = (chunk >= start) & (chunk < stop)
        run = _Run(schedule, describe, contributors, starts[start:stop], start, stop, whole)
        run.go(transfer[inside], chunk[inside])
        errors += run.errors or run.results()
        if len(errors) >= _MAX_REPORTED_ERRORS:
            break
    return errors


@dataclasses.dataclass
class _Run:
    """One run over the chunks ``start`` to ``stop`` - 1, in messages ``named``; ``whole``: what is handed out counts as
    one thing."""

    schedule: Schedule
    describe: Describe
    contributors: npt.NDArray[np.int64]
    named: Places
    start: int
    stop: int
    whole: bool

    def __post_init__(self) -> None:
        ranks, chunks = self.schedule.ranks, self.stop - self.start
        self.errors: list[str] = []
        self.twice: dict[int, str] = {}  # harmless where it is overwritten later
        self.written = np.full((ranks, chunks), -1, dtype=np.int64)  # by which transfer last
        if self.whole:
            self.state: Counts = np.zeros((ranks, chunks, 1), dtype=np.uint16)
            assert self.schedule.owners is not None
            self.state[self.schedule.owners[self.start : self.stop], np.arange(chunks)] = 1
        else:
            self.state = np.zeros((ranks, chunks, len(self.contributors)), dtype=np.uint16)
            self.state[self.contributors, :, np.arange(len(self.contributors))] = 1

    def go(self, transfer: Places, chunk: Places) -> None:
        """All rounds, or those until something is wrong."""
        rounds = self.schedule.round[transfer]
        ends = np.searchsorted(rounds, np.arange(self.schedule.rounds + 1))
        for begin, end in pairwise(ends):
            self._round(transfer[begin:end], chunk[begin:end] - self.start)
            if self.errors:
                return

    def _round(self, transfer: Places, chunk: Places) -> None:
        schedule = self.schedule
        source, target = schedule.source[transfer], schedule.target[transfer]
        contributions = self.state[source, chunk]
        empty = np.flatnonzero(~contributions.any(axis=1))
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
        adds = np.flatnonzero(~copies)
        if self.whole:
            absent = adds[~self.state[target[adds], chunk[adds]].any(axis=1)]
            if len(absent):
                self._blame(transfer[absent], chunk[absent], "adds to chunk {chunk} before it is there")
                return
        if len(adds) == len(transfer):
            self._add(transfer, target, chunk, contributions)
        else:
            self._add(transfer[adds], target[adds], chunk[adds], contributions[adds])
            self.state[target[copies], chunk[copies]] = contributions[copies]
        self.written[target, chunk] = transfer

    def _add(self, transfer: Places, target: npt.NDArray[np.int32], chunk: Places, contributions: Counts) -> None:
        """Add up what comes to each chunk; two stands for any number above one."""
        if not len(transfer):
            return
        cell = target.astype(np.int64) * (self.stop - self.start) + chunk
        order = np.argsort(cell, kind="stable")
        first = np.flatnonzero(np.diff(cell[order], prepend=-1))
        last = np.append(first[1:], len(transfer)) - 1
        alone = len(first) == len(transfer)
        if alone:
            first = last = np.arange(len(transfer))
        else:
            transfer, target, chunk, contributions = transfer[order], target[order], chunk[order], contributions[order]
        cells = target[first], chunk[first]
        before = self.state[cells]
        wide = np.uint16 if (last - first).max() < 1 << 14 else np.uint32  # far more than N may come at once
        after = before + (contributions if alone else np.add.reduceat(contributions, first, axis=0, dtype=wide))
        if (after > 1).any():
            most = np.maximum(before, np.maximum.reduceat(contributions, first, axis=0))
            # Of several that came at once the last is told: with the ones before it, it is one too many.
            for k in np.flatnonzero(((after > 1) & (most < 2)).any(axis=1))[:_MAX_REPORTED_ERRORS].tolist():
                m, which = int(transfer[last[k]]), int(np.argmax((after[k] > 1) & (most[k] < 2)))
                of = "the result" if self.whole else f"what rank {self.contributors[which]} contributed"
                name = int(self.named[int(chunk[first[k]])])
                self.twice.setdefault(m, f"{self.describe(m)} adds {of} to chunk {name} a second time")
            after = np.minimum(after, 2)
        self.state[cells] = after

    def _blame(self, transfer: Places, chunk: Places, what: str) -> None:
        for m in np.unique(transfer)[:_MAX_REPORTED_ERRORS].tolist():
            cells = int(self.named[int(chunk[np.flatnonzero(transfer == m)[0]])])
            self.errors.append(f"{self.describe(m)} {what.format(chunk=cells)}")

    def results(self) -> list[str]:
        """What is not where it should be in the end, or is there twice."""
        chunks: npt.NDArray[np.integer] = np.arange(self.stop - self.start)
        ranks: npt.NDArray[np.integer]
        if self.schedule.collective in ("reduce-scatter", "reduce"):
            assert self.schedule.owners is not None
            ranks = self.schedule.owners[self.start : self.stop]
        else:
            ranks, chunks = (axis.ravel() for axis in np.meshgrid(self.contributors, chunks, indexing="ij"))
        there = self.state[ranks, chunks]
        errors = list(self.twice.values()) if (there > 1).any() else []
        for k in np.flatnonzero((there == 0).any(axis=1))[:_MAX_REPORTED_ERRORS]:
            rank, chunk = int(ranks[k]), int(chunks[k])
            what = "it" if self.whole else f"what rank {self.contributors[int(np.argmin(there[k]))]} contributed"
            last = int(self.written[rank, chunk])
            by = "nobody sends it any" if last < 0 else f"the last to write it was {self.describe(last)}"
            errors.append(f"rank {rank} ends without {what} in chunk {self.named[chunk]}; {by}")
        return errors
