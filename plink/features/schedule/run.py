"""Make a collective's schedule."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from plink.errors import UsageError
from plink.features.order.algorithms import options_of
from plink.features.schedule.request import ScheduleRequest
from plink.model.schedule import Schedule
from solvers.schedules.catalogue import ALGORITHMS, RING_SEGMENTS, schedule_for

_MAX_BUILT_TRANSFERS = 50_000_000
# Algorithms whose transfers do not grow with the square of the ranks.
_LOG_ALGORITHMS = (
    "halving-doubling", "recursive-doubling", "tree", "double-binary-tree", "nccl-tree", "openmpi-rabenseifner",
    "openmpi-recursive-doubling", "bcube",
)  # fmt: skip


def schedule(request: ScheduleRequest) -> Schedule:
    """Return a collective's schedule.

    :raises UsageError: for an algorithm, option or collective that there is none of, or too many transfers.
    """
    algo, ranks, groups = request.algo, request.ranks, request.groups
    if algo is None:
        raise UsageError("--algo is missing: plink schedule --algo ring --ranks 4")
    if groups is None:
        groups = _groups_with_hubs(ranks, request.options.get("servers")) if algo == "phub-2l" else _neighbours(ranks)
    elif algo in ALGORITHMS and "groups" not in ALGORITHMS[algo].options:
        raise UsageError(f"--groups: {algo} takes no groups")
    group_of_ranks(groups, ranks)
    options = options_of(request.options, [algo], [list(group) for group in groups])
    is_log = algo in _LOG_ALGORITHMS
    most_transfers = 2 * ranks * (options.segments_or(1) if is_log else ranks * options.segments_or(RING_SEGMENTS))
    if algo in ALGORITHMS and most_transfers > _MAX_BUILT_TRANSFERS:
        raise UsageError(f"{algo} among {ranks} ranks has too many transfers to make; `plink cost` needs none")
    return schedule_for(algo, ranks, options, request.collective)


def _neighbours(ranks: int) -> list[list[int]]:
    size = max(1, round(ranks**0.5))
    return [list(range(start, min(ranks, start + size))) for start in range(0, ranks, size)]


def _groups_with_hubs(ranks: int, hubs: int | None) -> list[list[int]]:
    """Return groups of workers that are neighbours, each with some of the last ranks, which are hubs: by default the
    square root of all, one for each group."""
    hubs = max(1, min(ranks // 2, round(ranks**0.5))) if hubs is None else min(hubs, ranks)
    number = max(1, min(hubs, ranks - hubs))
    parts = (np.array_split(each, number) for each in (np.arange(ranks - hubs), np.arange(ranks - hubs, ranks)))
    return [np.concatenate(members).tolist() for members in zip(*parts, strict=True)]


def group_of_ranks(groups: Sequence[Sequence[int]], ranks: int) -> npt.NDArray[np.intp]:
    """Return the number of each rank's group, shape (ranks,).

    :raises UsageError: for groups that do not have each rank once.
    """
    if sorted(rank for group in groups for rank in group) != list(range(ranks)):
        raise UsageError(f"--groups: every rank from 0 to {ranks - 1} belongs to exactly one group")
    group_of = np.zeros(ranks, dtype=np.intp)
    for number, members in enumerate(groups):
        group_of[list(members)] = number
    return group_of
