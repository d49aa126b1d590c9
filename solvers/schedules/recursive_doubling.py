"""Recursive doubling: the whole vector to a partner twice as far away each time (Thakur, Rabenseifner, Gropp 2005)."""

import numpy as np

from plink.model.schedule import Schedule, make_schedule


def recursive_doubling(ranks: int) -> Schedule:
    """The all-reduce: log2(N) rounds where N is a power of two, else floor(log2(N)) + 2; the whole vector in each.

    With p the largest power of two that fits and r = N - p, the even ones of the first 2r ranks give their vector to
    the next rank and get the result from it in the end, as MPICH and Open MPI do. The r odd ranks and the N - 2r last
    ones are numbered 0 to p - 1 and exchange with the number that differs in bit t, in round t.

    :raises UsageError: for fewer than two ranks.
    """
    power = 1 << max(0, max(0, ranks).bit_length() - 1)
    extra = max(0, ranks - power)
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
