"""Pattern of a schedule: rounds of (source, target, share), each distinct round once, which determine its cost.

A ring over 4,096 ranks is 33 million transfers, but one round of 4,096 hops, repeated.

Patterns of aggregation by masters, made directly: two-level, and parameter servers on hosts of their own.

Their schedules have as many transfers as ranks times masters, one row each; hops with shares need far fewer.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from plink.model.schedule import Indices, Schedule, dependencies
from solvers.costs.evaluator import Messages, chain_ends, reduce_phase, timing_of
from solvers.costs.fabric import Vector
from solvers.schedules.hierarchical import two_level_masters
from solvers.schedules.masters import Groups
from solvers.schedules.multi_ring import ring_tours
from solvers.spanning.tier_tree import TierTree

Edges = npt.NDArray[np.intp]
_Hops = tuple[Edges, Edges, Vector]  # source, target, share of the vector


@dataclass(frozen=True)
class Level:
    """Edges of a chain that begin when others have ended: ``edges`` of the pattern.

    Edge k of them waits for ``waits[starts[k]:starts[k + 1]]``, indices among all edges of ``chain``. Edges without
    dependencies form a level of their own, with no waits.
    """

    edges: Edges
    places: Edges
    waits: Edges
    starts: Edges


@dataclass(frozen=True)
class Pattern:
    """Hops of a schedule: E between N ranks in R distinct rounds.

    ``round``, ``source``, ``target``, ``share``, shape (E,), sorted by round: in that round source sends target this
    share of the vector. ``repeat``, shape (R,): how often a round occurs; ``reduce_repeat``, shape (R,): how often in
    the reduce phase (see :mod:`solvers.costs.evaluator`, ``latency``). ``timing``: the timing model; ``chain``: its
    levels, for the model ``chain`` only. ``all_to_all_share``: not 0 when every rank sends every other one this share
    of the vector in every round; the N (N - 1) hops are not listed then.
    """

    ranks: int
    round: Edges
    source: Edges
    target: Edges
    share: Vector
    repeat: Vector
    reduce_repeat: Vector
    timing: str = "rounds"
    chain: tuple[Level, ...] = ()
    all_to_all_share: float = 0.0

    @property
    def starts(self) -> Edges:
        """Index of the first hop of each round."""
        return np.searchsorted(self.round, np.arange(len(self.repeat))).astype(np.intp)

    @cached_property
    def messages(self) -> Messages:
        """The messages that are worked on one after the other."""
        if self.all_to_all_share:
            number = (self.ranks - 1) * float(self.repeat.sum())
            return Messages(number, number)
        return Messages.of(self.repeat, *(column.astype(np.int64) for column in (self.round, self.source, self.target)))


def pattern_of(schedule: Schedule) -> Pattern:
    """Return the pattern of any schedule: hops of a pair in one round are merged, and so are equal rounds."""
    ranks = schedule.ranks
    hop = (schedule.round.astype(np.int64) * ranks + schedule.source) * ranks + schedule.target
    keys, place = np.unique(hop, return_inverse=True)
    share = np.bincount(place, schedule.count) / schedule.chunks
    pair, when = keys % (ranks * ranks), keys // (ranks * ranks)
    ends = np.searchsorted(when, np.arange(schedule.rounds + 1))
    last_reduce_round = schedule.round[reduce_phase(schedule)][-1] if len(schedule) else -1
    distinct: dict[bytes, int] = {}
    steps: list[slice] = []
    repeat: list[int] = []
    reduce_repeat: list[int] = []
    for number in range(schedule.rounds):
        part = slice(int(ends[number]), int(ends[number + 1]))
        k = distinct.setdefault(pair[part].tobytes() + share[part].tobytes(), len(distinct))
        if k == len(steps):
            steps.append(part)
            repeat.append(0)
            reduce_repeat.append(0)
        repeat[k] += 1
        reduce_repeat[k] += int(number <= last_reduce_round)
    chosen = np.concatenate([np.arange(part.start, part.stop) for part in steps]) if steps else np.zeros(0, np.intp)
    lengths = np.array([part.stop - part.start for part in steps], dtype=np.intp)
    return Pattern(
        ranks,
        np.repeat(np.arange(len(steps)), lengths),
        (pair[chosen] // ranks).astype(np.intp),
        (pair[chosen] % ranks).astype(np.intp),
        share[chosen],
        np.array(repeat, dtype=np.float64),
        np.array(reduce_repeat, dtype=np.float64),
        timing_of(schedule),
        _chain(schedule) if timing_of(schedule) == "chain" else (),
    )


def _chain(schedule: Schedule) -> tuple[Level, ...]:
    """Return the transfers that a reduction is or waits for, level by level, with their dependencies."""
    used = reduce_phase(schedule)
    offsets, needed = dependencies(schedule)
    counts = _precede(chain_ends(schedule), offsets, needed)
    levels = []
    for part in schedule.round_slices():
        members = np.arange(part.start, min(part.stop, used.stop))
        if not len(members):
            break
        members = members[counts[members]]
        pair = schedule.source[members].astype(np.intp) * schedule.ranks + schedule.target[members]
        number = offsets[members + 1] - offsets[members]
        for chosen in (number == 0, number > 0):
            if chosen.any():
                m, length = members[chosen], number[chosen]
                waits = np.concatenate([needed[offsets[k] : offsets[k + 1]] for k in m.tolist()])
                starts = np.cumsum(length) - length
                levels.append(Level(pair[chosen], m, waits.astype(np.intp), starts.astype(np.intp)))
    return tuple(levels)


def _precede(ends: Edges, offsets: npt.NDArray[np.int64], needed: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Return which transfers are among ``ends`` or have one wait for them, shape (M,)."""
    precedes = np.zeros(len(offsets) - 1, dtype=bool)
    precedes[ends] = True
    later = np.repeat(np.arange(len(precedes)), np.diff(offsets))
    while True:
        new = needed[precedes[later]]
        if precedes[new].all():
            return precedes
        precedes[new] = True


def in_slices(pattern: Pattern, slices: int) -> Pattern:
    """Return the pattern by whose cost orders rank as in slices (:func:`solvers.costs.by_name.time_in_slices`): each
    round for one slice, and all of them at once, as the busiest resource has them, for the others.

    :param slices: P, into which the vector is cut.
    """
    rounds = len(pattern.repeat)
    if slices == 1 or rounds < 2 or pattern.all_to_all_share:
        return pattern
    pairs, place = np.unique(pattern.source * pattern.ranks + pattern.target, return_inverse=True)
    return replace(
        pattern,
        round=np.append(pattern.round, np.full(len(pairs), rounds)),
        source=np.append(pattern.source, pairs // pattern.ranks),
        target=np.append(pattern.target, pairs % pattern.ranks),
        share=np.append(pattern.share, np.bincount(place, pattern.share * pattern.repeat[pattern.round])),
        repeat=np.append(pattern.repeat / slices, 1 - 1 / slices),
        reduce_repeat=np.append(pattern.reduce_repeat, 0.0),
    )


def steady_state(pattern: Pattern) -> Pattern:
    """Return a pipelined chain by two of its rounds: that in which all of it is busy, and one for all others.

    The others have some of the first one's hops, growing and shrinking in number; the one at three quarters of the
    growth stands for them. Where the first is no more than half of all rounds, none comes before it, or there is no
    pipeline, return the pattern itself. Orders rank by the result as by all rounds (docs/results/simulation.md), with
    an eighth of the hops.
    """
    total, longest = pattern.repeat.sum(), int(np.argmax(pattern.repeat))
    if pattern.timing != "chain" or 2 * pattern.repeat[longest] <= total or longest == 0:
        return pattern
    rounds = np.array([longest * 3 // 4, longest])
    hops = np.isin(pattern.round, rounds)
    repeat, reduce_repeat = (
        np.array([each.sum() - each[longest], each[longest]]) for each in (pattern.repeat, pattern.reduce_repeat)
    )
    return replace(
        pattern,
        round=np.searchsorted(rounds, pattern.round[hops]).astype(np.intp),
        source=pattern.source[hops],
        target=pattern.target[hops],
        share=pattern.share[hops],
        repeat=repeat,
        reduce_repeat=reduce_repeat,
    )


def ring_pattern(ranks: int, step: int = 1) -> Pattern:
    """Return the pattern of :func:`solvers.schedules.ring.ring`: one round, 2(N-1) times."""
    rank = np.arange(ranks)
    order = np.argsort(rank * ranks + (rank + step) % ranks)
    return Pattern(
        ranks,
        np.zeros(ranks, dtype=np.intp),
        rank[order],
        ((rank + step) % ranks)[order],
        np.full(ranks, 1 / ranks),
        np.array([2.0 * (ranks - 1)]),
        np.array([ranks - 1.0]),
        "pipeline",
    )


def chunked_ring_pattern(ranks: int, segments: int) -> Pattern:
    """Return the pattern of :func:`solvers.schedules.ring.ring_chunked`.

    In round t every rank sends as many segments as there are ways to write t as a hop (below 2(N-1)) plus a segment
    (below P); fewer in the first and last rounds.
    """
    whole = ring_pattern(ranks)
    sent = np.convolve(np.ones(2 * (ranks - 1), dtype=np.int64), np.ones(segments, dtype=np.int64))
    # The last segment is reduced for the last time in round (N - 2) + (P - 1).
    reduce_repeat = sent[: ranks - 2 + segments]
    kinds = np.unique(sent)
    return Pattern(
        ranks,
        np.repeat(np.arange(len(kinds)), ranks),
        np.tile(whole.source, len(kinds)),
        np.tile(whole.target, len(kinds)),
        np.repeat(kinds / (ranks * segments), ranks),
        np.array([(sent == kind).sum() for kind in kinds], dtype=np.float64),
        np.array([(reduce_repeat == kind).sum() for kind in kinds], dtype=np.float64),
        "pipeline",
    )


def multi_ring_pattern(ranks: int, base: int) -> Pattern:
    """Return the pattern of :func:`solvers.schedules.multi_ring.multi_ring`: one round, 2(N-1) times.

    :raises UsageError: for a number of ranks that is no power of the base.
    """
    tours = ring_tours(ranks, base)
    hops, number = np.unique(tours.astype(np.int64) * ranks + np.roll(tours, -1, axis=1), return_counts=True)
    return Pattern(
        ranks,
        np.zeros(len(hops), dtype=np.intp),
        hops // ranks,
        hops % ranks,
        number / (len(tours) * ranks),
        np.array([2.0 * (ranks - 1)]),
        np.array([ranks - 1.0]),
        "pipeline",
    )


def all_to_all_pattern(ranks: int) -> Pattern:
    """Return the pattern of flat aggregation: 1/N of the vector to all, both phases."""
    no_hops = np.zeros(0, dtype=np.intp)
    return Pattern(
        ranks, no_hops, no_hops, no_hops, np.zeros(0), np.array([2.0]), np.array([1.0]), all_to_all_share=1 / ranks
    )


def two_level_pattern(groups: Groups, tree: TierTree | None = None) -> Pattern:
    """The pattern of the all-reduce with the masters of :func:`solvers.schedules.hierarchical.two_level_masters`.

    :raises UsageError: when the groups are not those of the ranks 0 to N-1.
    """
    local_masters, global_group = two_level_masters(groups, tree)
    if len(groups) == 1 and len(global_group) == len(groups[0]):  # by sizes: every rank is master of its part
        return all_to_all_pattern(len(global_group))
    return masters_pattern(groups, local_masters, global_group)


def masters_pattern(groups: Groups, local_masters: Indices, global_group: Indices) -> Pattern:
    """The pattern of two-level aggregation with these masters: in a group every member sends each local master the
    chunks that are its own, local masters send global masters theirs, and back.

    :param local_masters: shape (C, G), the rank that aggregates a chunk in each group. :param global_group: shape
        (C,), the group with its global master. Chunks are of equal size.
    """
    chunks, ranks = len(global_group), sum(map(len, groups))
    shares = np.full(chunks, 1 / chunks)
    inside: list[_Hops] = []
    for g, group in enumerate(groups):
        masters, place = np.unique(local_masters[:, g], return_inverse=True)
        members = np.asarray(group, dtype=np.intp)
        source, target = np.repeat(members, len(masters)), np.tile(masters.astype(np.intp), len(members))
        inside.append(_others(source, target, np.tile(_sums(place, shares), len(members))))
    final = local_masters[np.arange(chunks), global_group].astype(np.int64)
    pairs, place = np.unique(local_masters.astype(np.int64) * ranks + final[:, None], return_inverse=True)
    moved = _sums(place.ravel(), np.repeat(shares, len(groups)))
    across = _others((pairs // ranks).astype(np.intp), (pairs % ranks).astype(np.intp), moved)
    joined = tuple(np.concatenate(parts) for parts in zip(*inside, strict=True))
    return _both_phases(ranks, [(joined[0], joined[1], joined[2]), across])


def servers_pattern(workers: Edges, servers: Edges, ranks: int) -> Pattern:
    """The pattern of sharded servers: each worker sends every server its share, and gets it back."""
    source, target = np.repeat(workers, len(servers)), np.tile(servers, len(workers))
    return _both_phases(ranks, [_others(source, target, np.full(len(source), 1 / len(servers)))])


def _sums(place: Edges, shares: Vector) -> Vector:
    """The sum of the shares at every place."""
    return np.bincount(place, shares).astype(np.float64)


def _others(source: Edges, target: Edges, share: Vector) -> _Hops:
    """Without what a master would send to itself."""
    away = source != target
    return source[away], target[away], share[away]


def _both_phases(ranks: int, rounds: list[_Hops]) -> Pattern:
    """Rounds there, then the same hops the other way round, last first; a round in which nothing moves is none."""
    moving = [hops for hops in rounds if len(hops[0])]
    back = [(target, source, share) for source, target, share in reversed(moving)]
    both = [*moving, *back]
    number = len(both)
    return Pattern(
        ranks,
        np.repeat(np.arange(number), [len(hops[0]) for hops in both]),
        np.concatenate([hops[0] for hops in both]),
        np.concatenate([hops[1] for hops in both]),
        np.concatenate([hops[2] for hops in both]),
        np.ones(number),
        np.concatenate([np.ones(len(moving)), np.zeros(len(back))]),
    )
