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
from solvers.schedules.apportionment import Vector, apportioned, nested

Groups = Sequence[Sequence[int]]
Indices = npt.NDArray[np.int32]


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
