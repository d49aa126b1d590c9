"""Patterns of aggregation by masters, made directly: two-level, and parameter servers on hosts of their own.

Their schedules have as many transfers as ranks times masters, one row each; hops with shares need far fewer.
"""

import numpy as np

from plink.model.schedule import Indices
from solvers.costs.fabric import Vector
from solvers.costs.patterns import Edges, Pattern
from solvers.schedules.hierarchical import balanced_masters
from solvers.schedules.masters import Groups

_Hops = tuple[Edges, Edges, Vector]  # source, target, share of the vector


def two_level_pattern(groups: Groups) -> Pattern:
    """The pattern of the all-reduce with the masters of :func:`balanced_masters`.

    :raises UsageError: when the groups are not those of the ranks 0 to N-1.
    """
    return masters_pattern(groups, *balanced_masters(groups))


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
