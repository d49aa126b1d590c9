"""Which pairs that could not be measured share a cause, and which are scattered as by chance."""

import math

import numpy as np

from solvers.changes.causes import Mask
from solvers.changes.noise import FALSE_ALARMS

_FEW = 2
_RARE = 1e-3  # of the pairs at most: how often one fails by itself where no other did


def scattered(failed: Mask, tried: Mask) -> Mask:
    """Return the failed pairs that are like failures by chance, shape (N, N), symmetric.

    Others are in a cycle of four failed pairs, as two hosts on either side of a cut make, or have a host of which more
    pairs failed than do by chance.

    :param failed, tried: symmetric, False on the diagonal, shape (N, N).
    """
    hosts = np.flatnonzero(failed.any(axis=1))
    links = failed[np.ix_(hosts, hosts)].astype(np.float32)
    degree = links.sum(axis=1)
    in_cycle = links @ links @ links > degree[:, None] + degree - 0.5  # walks of three pairs but those that turn back
    single = (links > 0) & ~in_cycle
    counts, pairs = single.sum(axis=1), int(tried.sum()) // 2
    is_center = np.zeros(len(hosts), dtype=bool)
    for k in np.flatnonzero(counts > 1).tolist():
        count = int(counts[k])
        choices = math.log(len(failed)) + log_choices(int(tried[hosts[k]].sum()), count)
        is_center[k] = not is_by_chance(count, choices, int(counts.sum()) // 2 - count, pairs)
    result = np.zeros_like(failed)
    result[np.ix_(hosts, hosts)] = single & ~is_center & ~is_center[:, None]
    return result


def is_by_chance(count: int, choices: float, others: int, pairs: int) -> bool:
    """Return whether ``count`` given pairs may all have failed by chance (a union bound).

    :param choices: the logarithm of how many sets of so many pairs there are.
    :param others: how many other pairs failed by chance, of ``pairs`` that were tried.
    """
    rate = max(1, others) / max(1, pairs)
    if others <= _FEW:  # of a few nobody can tell how often pairs fail
        rate = min(rate, _RARE * 10 if others else _RARE)
    return choices + count * math.log(rate) > math.log(FALSE_ALARMS)


def log_choices(n: int, *sizes: int) -> float:
    """Return the logarithm of how many ways there are to choose disjoint sets of these sizes out of n."""
    rest = n - sum(sizes)
    return math.lgamma(n + 1) - sum(math.lgamma(size + 1) for size in (*sizes, rest))
