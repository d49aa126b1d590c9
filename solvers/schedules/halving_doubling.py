"""Recursive halving and doubling: exchanges with partners at distances of powers of two."""

import numpy as np

from plink.model.schedule import Indices, Schedule, forward_and_reverse, make_schedule
from solvers.schedules.bcube import exchanges

_NAME = "halving-doubling"


def halving_doubling(ranks: int) -> Schedule:
    """The all-reduce (Rabenseifner 2004; Thakur, Rabenseifner and Gropp 2005), as Open MPI does it: 2 log2(N) rounds
    where N is a power of two, else 2 floor(log2(N)) + 3.

    The vector is halved while the distance doubles: the first exchange, of half of the vector, is with rank xor 1, as
    in the PLink thesis, 5.2.1.

    :raises UsageError: for fewer than two ranks.
    """
    return forward_and_reverse(halving_reduce_scatter(ranks), doubling_all_gather(ranks))


def halving_reduce_scatter(ranks: int) -> Schedule:
    """Recursive halving among p = 2^floor(log2(N)) ranks, which end with 1/p of the vector each.

    The r = N - p others are the odd ones of the first 2r, and do no more than help at first: rank 2i + 1 adds up the
    second half of the vector of both and hands it to rank 2i, which has added up the first half meanwhile. Then these r
    even ranks and the N - 2r last ones are numbered 0 to p - 1.

    :raises UsageError: for fewer than two ranks.
    """
    power, extra = _parts(ranks)
    rows, owners = _halvings(ranks)
    even, half, none = 2 * np.arange(extra), power // 2, np.zeros(extra, dtype=np.int64)
    fold = [
        (none, even, even + 1, none + half, none + half, none),
        (none, even + 1, even, none, none + half, none),
        (none + 1, even + 1, even, none + half, none + half, none + 1),
    ]
    rows[:, 0] += 2 if extra else 0
    everything = np.concatenate([*(np.stack(part, axis=1) for part in fold), rows])
    return make_schedule(_NAME, ranks, power, everything, "reduce-scatter", owners)


def doubling_all_gather(ranks: int) -> Schedule:
    """The exchanges of the halving backwards; in one more round the ranks that only helped get the whole vector.

    :raises UsageError: for fewer than two ranks.
    """
    power, extra = _parts(ranks)
    rows, owners = _halvings(ranks)
    last = power.bit_length() - 1
    rows = rows[::-1, [0, 2, 1, 3, 4, 5]]
    rows[:, 0] = last - 1 - rows[:, 0]
    rows[:, 5] = 1
    even = 2 * np.arange(extra)
    parts = np.broadcast_arrays(last, even, even + 1, 0, power, 1)
    everything = np.concatenate([rows, np.stack(parts, axis=1)])
    return make_schedule(_NAME, ranks, power, everything, "all-gather", owners)


def recursive_doubling(ranks: int) -> Schedule:
    """The all-reduce, with a partner twice as far away each time (Thakur, Rabenseifner and Gropp 2005): log2(N) rounds
    where N is a power of two, else floor(log2(N)) + 2; the whole vector in each.

    With p the largest power of two that fits and r = N - p, the even ones of the first 2r ranks give their vector to
    the next rank and get the result from it in the end, as MPICH and Open MPI do. The r odd ranks and the N - 2r last
    ones are numbered 0 to p - 1 and exchange with the number that differs in bit t, in round t.

    :raises UsageError: for fewer than two ranks.
    """
    power, extra = _parts(ranks)
    number = np.arange(power)
    rank = np.where(number < extra, 2 * number + 1, number + extra)
    even, steps, before = 2 * np.arange(extra), power.bit_length() - 1, 1 if extra else 0
    moves = [(0, even, even + 1, 0)]
    moves += [(before + t, rank, rank[number ^ (1 << t)], 0) for t in range(steps)]
    moves += [(before + steps, even + 1, even, 1)]
    rows = [
        np.stack(np.broadcast_arrays(when, source, target, 0, 1, copies), axis=1)
        for when, source, target, copies in moves
    ]
    return make_schedule("recursive-doubling", ranks, 1, np.concatenate(rows))


def lightgbm_reduce_scatter(ranks: int) -> Schedule:
    """Recursive halving whose first exchange, of half of the vector, is with the farthest rank; rank r ends with chunk
    r, 1/N of the vector.

    Read in src/network/linker_topo.cpp and network.cpp of microsoft/LightGBM. The other way round than Open MPI's, so
    it wants another order: ranks half of all apart in one rack.

    Where N is no power of two, the last 2(N - p) ranks are pairs, p = 2^floor(log2(N)): the second of a pair hands all
    it has to the first, which takes part for both and hands it its chunk at the end.

    :raises UsageError: for fewer than two ranks.
    """
    power, extra = _parts(ranks)
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


def _parts(ranks: int) -> tuple[int, int]:
    """The largest power of two that fits, and how many ranks are left over."""
    power = 1 << max(0, max(0, ranks).bit_length() - 1)
    return power, max(0, ranks - power)


def _halvings(ranks: int) -> tuple[Indices, Indices]:
    """Rows and owners of the reduce-scatter among the p ranks that stay."""
    power, extra = _parts(ranks)
    rows, owners = exchanges(power, 2, range(power.bit_length() - 1))
    stays = np.arange(power, dtype=np.int32)
    stays = np.where(stays < extra, 2 * stays, stays + extra).astype(np.int32)
    rows[:, 1:3] = stays[rows[:, 1:3]]
    return rows, stays[owners]
