"""BML on BCube(n, k): k exchanges at once, each on another level (Wang et al., NeurIPS 2018, section 3)."""

import numpy as np

from plink.model.schedule import Schedule, forward_and_reverse, make_schedule
from solvers.schedules.bcube import exchanges, levels_of


def bml(ranks: int, base: int) -> Schedule:
    """The all-reduce over N = n^k ranks (n the base): 2k rounds.

    A BCube server has k interfaces, one a level, and the k threads never use the same one in a round; so it takes
    2(N-1)/(kN) of the time in which one interface sends the whole vector.

    :raises UsageError: for a number of ranks that is no power of the base.
    """
    return forward_and_reverse(bml_reduce_scatter(ranks, base))


def bml_reduce_scatter(ranks: int, base: int) -> Schedule:
    """The aggregation stage, k rounds: the vector is cut into kN chunks, thread t has the chunks t * N to t * N + N - 1
    and exchanges in round w with the ranks that differ in digit (w + t) mod k only, n^(k-w-1) chunks with each of them.

    Every rank ends with one chunk of each thread. The paper numbers a thread's chunks by the rank that ends with them;
    here they are in the order in which a thread goes through the digits, so that what is sent together is contiguous.

    :raises UsageError: for a number of ranks that is no power of the base.
    """
    levels = levels_of("bml", ranks, base)
    rows, owners = [], []
    for thread in range(levels):
        own, ends = exchanges(ranks, base, [(w + thread) % levels for w in range(levels)])
        own[:, 3] += thread * ranks
        rows.append(own)
        owners.append(ends)
    return make_schedule("bml", ranks, levels * ranks, np.concatenate(rows), "reduce-scatter", np.concatenate(owners))
