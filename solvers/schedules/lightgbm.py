"""LightGBM's reduce-scatter: recursive halving whose first exchange, of half of the vector, is with the farthest rank.

Read in src/network/linker_topo.cpp and network.cpp of microsoft/LightGBM. The other way round than Open MPI's
(:mod:`solvers.schedules.halving_doubling`), so it wants another order: ranks half of all apart in one rack.
"""

import numpy as np

from plink.model.schedule import Schedule, make_schedule


def lightgbm_reduce_scatter(ranks: int) -> Schedule:
    """Rank r ends with chunk r, 1/N of the vector.

    Where N is no power of two, the last 2(N - p) ranks are pairs, p = 2^floor(log2(N)): the second of a pair hands all
    it has to the first, which takes part for both and hands it its chunk at the end.

    :raises UsageError: for fewer than two ranks.
    """
    power = 1 << (max(ranks, 1).bit_length() - 1)
    extra = ranks - power
    group = np.arange(power)
    leader = np.where(group < power - extra, group, 2 * group - (power - extra))
    start = np.append(leader, ranks)  # a group's chunks are those of its ranks
    second = leader[power - extra :] + 1
    none = np.zeros_like(second)
    rows = [np.stack([none, second, second - 1, none, none + ranks, none], axis=1)]
    distances = [power >> (step + 1) for step in range(power.bit_length() - 1)]
    for step, distance in enumerate(distances, start=1):
        partner = group ^ distance
        begin = partner // distance * distance
        first, count = start[begin], start[begin + distance] - start[begin]
        rows.append(np.stack([group * 0 + step, leader, leader[partner], first, count, group * 0], axis=1))
    rows.append(np.stack([none + len(distances) + 1, second - 1, second, second, none + 1, none + 1], axis=1))
    together = np.concatenate(rows)
    together[:, 0] = np.unique(together[:, 0], return_inverse=True)[1]
    return make_schedule("lightgbm", ranks, ranks, together, "reduce-scatter", np.arange(ranks, dtype=np.int32))
