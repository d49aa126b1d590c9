"""The least threshold at which a ring could exist: every ring is 2-connected, so the pairs within it must be."""

from typing import Any

import numpy as np
from numba import njit

from plink.model.network import Matrix


@njit(cache=True)
def _two_connected(cost: Any, threshold: Any) -> Any:
    """Whether the graph of the pairs within the threshold is connected and stays so without any one host (Hopcroft and
    Tarjan 1973: one depth-first search; a host cuts if a child's subtree reaches no higher than the host)."""
    n = len(cost)
    depth, lowest = np.full(n, -1), np.zeros(n, np.int64)
    above, at, stack = np.full(n, -1), np.zeros(n, np.int64), np.empty(n, np.int64)
    depth[0] = 0
    stack[0] = 0
    top, seen, children = 0, 1, 0
    while top >= 0:
        host = stack[top]
        if at[host] == n:
            top -= 1
            if top < 0:
                break
            up = stack[top]
            if up != 0 and lowest[host] >= depth[up]:
                return False
            lowest[up] = min(lowest[up], lowest[host])
            continue
        k = at[host]
        at[host] += 1
        if k == host or k == above[host] or cost[host, k] > threshold:
            continue
        if depth[k] >= 0:
            lowest[host] = min(lowest[host], depth[k])
            continue
        if host == 0:
            children += 1
            if children > 1:
                return False
        depth[k] = depth[host] + 1
        lowest[k] = depth[k]
        above[k] = host
        top += 1
        stack[top] = k
        seen += 1
    return seen == n


def two_connected_threshold(cost: Matrix) -> float:
    """No ring has all its hops below this; in the unit of the costs.

    :param cost: shape (N, N), symmetric, complete, N at least 3.
    """
    cost = np.ascontiguousarray(cost, dtype=np.float64)
    n = len(cost)
    second = np.partition(cost + np.diag(np.full(n, np.inf)), 1, axis=1)[:, 1].max()  # everyone has two neighbours
    values = np.unique(cost[np.triu_indices(n, 1)])
    low, high = int(np.searchsorted(values, second)), len(values) - 1
    while low < high:
        middle = (low + high) // 2
        if _two_connected(cost, values[middle]):
            high = middle
        else:
            low = middle + 1
    return float(values[low])
