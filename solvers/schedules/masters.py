"""Local and global masters of two-level aggregation, in proportion to weights (PLink thesis, 4.2.2).

Each group is global master of a share of the chunks in proportion to its weight, and of these each member in proportion
to its own; in every group each member is local master of a share of all chunks in proportion to its weight. A chunk's
global master is one of its local masters, so what a member masters globally counts among what it masters locally.

The answer is two arrays over C chunks and G groups: ``local_masters``, shape (C, G), the rank that aggregates a chunk
in each group, and ``global_group``, shape (C,), the group whose local master of that chunk is its global master.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.errors import UsageError
from solvers.spanning.least_time import alike_both_ways, work
from solvers.spanning.tier_tree import TierTree

Groups = Sequence[Sequence[int]]
Indices = npt.NDArray[np.int32]
Vector = npt.NDArray[np.float64]
Counts = npt.NDArray[np.intp]
_NOTHING = 1e-5  # of a vector, as work
_ROUNDING = 1e-12  # of all chunks: a share that is so near to a whole number of them is that number


@dataclass(frozen=True)
class Weights:
    """What each group, shape (G,), and each of N ranks, shape (N,), can take; only proportions count.

    A rank of weight 0 is no master.

    :raises UsageError: for a weight that is no number of 0 or more, or where all are 0.
    """

    groups: Vector
    ranks: Vector

    def __post_init__(self) -> None:
        for values in (self.groups, self.ranks):
            if not (np.isfinite(values).all() and (values >= 0).all() and (values > 0).any()):
                raise UsageError("weights: every group and every rank needs a number, 0 or more, and one above 0")


def size_weights(groups: Groups) -> Weights:
    """A group weighs as much as it has ranks, all ranks the same: so a host counts by its slots."""
    sizes = np.array([len(group) for group in groups], dtype=np.float64)
    return Weights(sizes, np.ones(int(sizes.sum())))


def work_weights(tree: TierTree, groups: Groups) -> Weights:
    """The weights with which two-level aggregation takes the least time on a tree of hosts in these groups: work for
    others, ``o T / S - 1`` at most (:func:`solvers.spanning.least_time.work`), of a host in equal parts for its ranks.
    So they go by what a host's link has left, not by its rate: one whose own chunks fill it masters none.

    :param tree: ranks below hosts, level 1, below groups (:func:`solvers.spanning.tier_tree.regrouped`).
    """
    host_work = work(alike_both_ways(tree), dissolve=False)
    leaf = np.flatnonzero(tree.rank >= 0)
    above = tree.parent[leaf]
    host = np.empty(len(leaf), dtype=np.intp)  # of each rank
    host[tree.rank[leaf]] = np.where(tree.level[above] == 1, above, leaf)
    ranks = np.maximum(host_work[host] / np.bincount(host)[host], 0.0)
    of_groups = np.zeros(len(groups))
    for number, group in enumerate(groups):
        members = np.asarray(group)
        first = int(host[members[0]])
        of_groups[number] = max(0.0, host_work[tree.parent[first] if tree.parent[first] > 0 else first])
        if ranks[members].sum() <= _NOTHING:
            ranks[members] = 1.0
    # Two groups send each other the same, whoever masters.
    return Weights(of_groups if of_groups.sum() > _NOTHING else size_weights(groups).groups, ranks)


def equal_chunks(groups: Groups, chunks: int, weights: Weights | None = None) -> tuple[Indices, Indices]:
    """Masters of chunks of equal size: (``local_masters``, ``global_group``), each number of chunks within one of its
    share. Without weights, by size.

    The chunks go round the groups, and those that a rank masters are contiguous as far as the sizes of the groups
    allow, so that they travel together.

    :raises UsageError: when the groups are not those of the ranks 0 to N-1, weights are missing, or there is no chunk.
    """
    weights = _checked(groups, weights)
    if chunks < 1:
        raise UsageError(f"{chunks} chunks: at least 1 is needed")
    number = apportioned(chunks, weights.groups)
    counts = [
        nested(int(own), chunks, weights.ranks[np.asarray(line)]) for own, line in zip(number, groups, strict=True)
    ]
    # Where the middle of what each chunk's global master masters lies, from 0 to 1 in every group.
    middle = [
        np.repeat((np.cumsum(globally) - globally / 2) / max(1, globally.sum()), globally) for globally, _ in counts
    ]
    group = np.repeat(np.arange(len(groups)), number)
    global_group = group[np.lexsort((group, np.concatenate(middle)))].astype(np.int32)
    local_masters = np.empty((chunks, len(groups)), dtype=np.int32)
    for g, (line, (globally, locally)) in enumerate(zip(groups, counts, strict=True)):
        own = global_group == g
        local_masters[own, g] = np.repeat(np.asarray(line), globally)
        local_masters[~own, g] = np.repeat(np.asarray(line), locally - globally)
    return local_masters, global_group


def check_groups(groups: Groups) -> int:
    """How many ranks the groups have.

    :raises UsageError: when a rank is missing, comes twice, or a group has none.
    """
    everyone = sorted(rank for group in groups for rank in group)
    if everyone != list(range(len(everyone))) or not all(len(group) for group in groups):
        raise UsageError("groups: every rank from 0 up belongs to exactly one group, and no group is empty")
    if len(everyone) < 2:
        raise UsageError(f"a collective needs two ranks or more, not {len(everyone)}")
    return len(everyone)


def _checked(groups: Groups, weights: Weights | None) -> Weights:
    ranks = check_groups(groups)
    weights = weights or size_weights(groups)
    if weights.groups.shape != (len(groups),) or weights.ranks.shape != (ranks,):
        raise UsageError(f"weights: {len(groups)} groups and {ranks} ranks need one each")
    if not all(weights.ranks[np.asarray(group)].any() for group in groups):
        raise UsageError("weights: every group needs a rank with a number above 0")
    return weights


def apportioned(chunks: int, weights: Vector) -> Counts:
    """How many of the chunks each takes, by largest remainders (Hamilton's method): its share ``chunks * w / sum(w)``
    rounded down or up, up where the remainder is largest, the first of equals first.

    :param weights: shape (M,), 0 or more, not all 0. :returns: shape (M,), adding up to ``chunks``.
    """
    shares = _shares(chunks, weights)
    counts = np.floor(shares)
    return _raised(counts, _largest(shares - counts, round(chunks - counts.sum())))


def nested(part: int, chunks: int, weights: Vector) -> tuple[Counts, Counts]:
    """How many of the first ``part`` chunks, and how many of all of them, each takes: both numbers are its share
    rounded down or up, and the second is not below the first.

    Largest remainders twice would not do: with shares of 0.4 of the part and 0.5 of all, one may be rounded up inside
    and down outside. Who has the same whole number in both and is rounded up inside must be so outside; as few as
    possible are chosen inside of those. That this is few enough follows from there being a house-monotone
    apportionment that satisfies quota (Balinski and Young, "The quota method of apportionment", Amer. Math. Monthly
    82, 1975): what it gives for ``part`` and for ``chunks`` is a pair of this kind.

    :param weights: shape (M,), 0 or more, not all 0. :returns: two arrays of shape (M,).
    """
    inner, outer = _shares(part, weights), _shares(chunks, weights)
    low, high = np.floor(inner), np.floor(outer)
    over, above = inner - low, outer - high
    tight = low == high
    raised = _largest(over + (~tight & (over > 0)), round(part - low.sum()))  # remainders are below one
    return _raised(low, raised), _raised(high, _largest(above + (raised & tight), round(chunks - high.sum())))


def _shares(chunks: int, weights: Vector) -> Vector:
    shares: Vector = chunks * (weights / weights.sum())
    whole = np.rint(shares)
    return np.where(np.abs(shares - whole) <= _ROUNDING * chunks, whole, shares)


def _largest(values: Vector, number: int) -> npt.NDArray[np.bool_]:
    """The places of so many of the largest values, the first of equals first."""
    chosen = np.zeros(len(values), dtype=np.bool_)
    chosen[np.argsort(-values, kind="stable")[:number]] = True
    return chosen


def _raised(counts: Vector, chosen: npt.NDArray[np.bool_]) -> Counts:
    return (counts + chosen).astype(np.intp)
