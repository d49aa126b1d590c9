"""Quicktune and Finetune: masters dealt anew by what ranks were seen to carry, then moved away from the most
blamed rank, more the longer it is the same (PLink thesis, 4.2.3)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from solvers.autotune.observed import MasterAssignment, ObservedTraffic, Vector
from solvers.schedules.masters import equal_chunks, work_weights
from solvers.spanning.tier_tree import tree_of

_MAX_MOVES = 1 << 16


@dataclass(frozen=True)
class FinetuneSettings:
    """Settings of Finetune. ``beta`` and ``gamma``: weights of a rank's load and time in its blame.

    ``epsilon``: largest ratio of the largest blame to the least at which no master moves.
    """

    beta: float = 1.0
    gamma: float = 1.0
    epsilon: float = 1.05


@dataclass(frozen=True)
class FinetuneState:
    """State between steps: the rank blamed last, and how many of its masters moved then."""

    blamed: int | None = None
    moves: int = 1


@dataclass(frozen=True)
class FinetuneResult:
    """Result of a step. ``moved``: (chunk, from, to, ``global`` or ``local``) of each master; ``reason``: one line."""

    assignment: MasterAssignment
    step: FinetuneState
    moved: tuple[tuple[int, int, int, str], ...]
    reason: str


def blame(observed: ObservedTraffic, settings: FinetuneSettings) -> Vector:
    """Return how far each rank delays the others, shape (N,): ``beta * l + gamma * t``.

    ``t``, in units of its mean: the worst round trip plus the bytes sent over the bandwidths, ``max_j RTT(i, j) + sum_j
    D(i, j) / sum_j BW(i, j)``. ``l``: the bytes sent, from 0 (the least of all ranks) to 1 (the most); 0 for all where
    all sent the same within ``epsilon``.
    """
    load = observed.sent_bytes.sum(axis=1)
    rate = np.nansum(np.where(observed.sent_bytes > 0, observed.bytes_per_s, np.nan), axis=1)
    sending = np.divide(load, rate, out=np.zeros(len(load)), where=rate > 0)
    times = np.nan_to_num(np.where(observed.sent_bytes > 0, observed.rtt_s, 0.0)).max(axis=1) + sending
    spread = load.max() - load.min()
    # Scaling to 0..1 would exaggerate any difference: loads within epsilon of each other count as equal.
    shares = (load - load.min()) / spread if load.max() > settings.epsilon * load.min() else np.zeros(len(load))
    blamed: Vector = settings.beta * shares + settings.gamma * times / max(float(times.mean()), 1e-300)
    return blamed


def finetune(
    assignment: MasterAssignment,
    observed: ObservedTraffic,
    step: FinetuneState,
    settings: FinetuneSettings | None = None,
) -> FinetuneResult:
    """Move masters from the rank with the most blame to the one with the least, a global one first, else a local one.

    Nothing moves where these two are within ``epsilon``. A global master may go to any rank; a local one only to the
    least blamed member of its group. Where several move they are spread over the less blamed ranks (the thesis names
    only the least blamed one). If the same rank is blamed again, twice as many masters move.
    """
    settings = settings or FinetuneSettings()
    blamed = blame(observed, settings)
    smallest = float(blamed.min())
    # A rank without masters cannot be relieved; the thesis continues with the others (6.2.6).
    masters = np.isin(np.arange(len(blamed)), assignment.local_masters)
    worst = int(np.where(masters, blamed, -np.inf).argmax())
    if blamed[worst] <= settings.epsilon * smallest:
        return FinetuneResult(
            assignment, FinetuneState(), (), f"every rank's blame is within {settings.epsilon:g} of every other's"
        )
    count = min(2 * step.moves, _MAX_MOVES) if step.blamed == worst else 1
    result, moved = assignment, []
    for k in range(count):
        if (move := _move(result, worst, blamed, k)) is None:
            break
        result, change = move
        moved.append(change)
    ratio = f"{blamed[worst] / smallest:.2f} times the least" if smallest > 0 else "others none"
    reason = f"rank {worst} is to blame most ({ratio}): {len(moved)} of its masters move"
    return FinetuneResult(result, FinetuneState(worst, count), tuple(moved), reason)


def _move(
    assignment: MasterAssignment, worst: int, blamed: Vector, offset: int
) -> tuple[MasterAssignment, tuple[int, int, int, str]] | None:
    """Return the assignment with one master of that rank moved; None when it has none that can move."""
    own_group = next(g for g, members in enumerate(assignment.groups) if worst in members)
    local, global_group = assignment.local_masters.copy(), assignment.global_group.copy()
    if (chunks := np.flatnonzero(assignment.global_masters == worst)).size:
        chunk, receiver, kind = int(chunks[0]), _less_blamed(blamed, range(len(blamed)), worst, offset), "global"
        group = next(g for g, members in enumerate(assignment.groups) if receiver in members)
        local[chunk, group], global_group[chunk] = receiver, group
    else:
        chunks = np.flatnonzero(assignment.local_masters[:, own_group] == worst)
        if len(assignment.groups[own_group]) < 2 or not chunks.size:
            return None
        chunk, receiver, kind = (
            int(chunks[0]),
            _less_blamed(blamed, assignment.groups[own_group], worst, offset),
            "local",
        )
        local[chunk, own_group] = receiver
    return replace(assignment, local_masters=local, global_group=global_group), (chunk, worst, receiver, kind)


def _less_blamed(blamed: Vector, ranks: Sequence[int], excluded: int, offset: int) -> int:
    """Return the least blamed rank, or the next ones below the mean where several masters move in one step.

    All of them on one rank would make it the most blamed next.
    """
    candidates = sorted((rank for rank in ranks if rank != excluded), key=lambda rank: float(blamed[rank]))
    below = [rank for rank in candidates if blamed[rank] <= blamed[candidates].mean()]
    return (below or candidates)[offset % len(below or candidates)]


def quicktune(
    assignment: MasterAssignment, observed: ObservedTraffic, alike: float = 0.0, recovered: bool = False
) -> MasterAssignment:
    """Deal all masters anew: the same groups and as many chunks, of equal size, in proportion to what each rank can
    work for others in the least possible time.

    The thesis deals them in proportion to rates, which leaves a rank that has no time but for its own chunks the
    slowest of all (docs/optimal.md).

    :param alike: rates no further than this share from their median are taken for equal to it: what two runs on the
        same network differ by is no reason to load one rank more than another.
    :param recovered: throughput has risen: what ranks can carry that send less than others do is not known, and they
        are taken for as fast as the median.
    """
    rates = observed.rates()
    middle, load = float(np.median(rates)), observed.sent_bytes.sum(axis=1)
    if recovered:
        rates = np.where(load < np.median(load), np.maximum(rates, middle), rates)
    rates = np.where(np.abs(rates - middle) <= alike * middle, middle, rates)
    ranks, free = np.arange(len(rates)), np.full(len(assignment.groups), np.inf)
    group_of = np.empty(len(rates), dtype=np.intp)
    for number, line in enumerate(assignment.groups):
        group_of[list(line)] = number
    own = [""] * len(rates)
    tree = tree_of(
        [ranks, ranks, group_of], [(rates, rates), (rates, rates), (free, free)], [own, own, [""] * len(free)]
    )
    weights = work_weights(tree, assignment.groups)
    local_masters, global_group = equal_chunks(assignment.groups, len(assignment.global_group), weights)
    return MasterAssignment(assignment.groups, local_masters, global_group)
