"""Lower bound of a ring's longest hop: every ring is 2-connected, so the pairs up to this length must be."""

from typing import Any

import numpy as np

from plink.model.network import Matrix
from solvers.compilation import njit


@njit(cache=True)
def _two_connected(cost: Any, threshold: Any) -> Any:
    """Return whether the graph of the pairs within the threshold is 2-connected.

    One depth-first search (Hopcroft and Tarjan 1973): a host is an articulation point if a child's subtree reaches no
    higher than the host.
    """
    n = len(cost)
    depth, lowest = np.full(n, -1), np.zeros(n, np.int64)
    parent, next_neighbour, stack = np.full(n, -1), np.zeros(n, np.int64), np.empty(n, np.int64)
    depth[0] = 0
    stack[0] = 0
    top, visited, children = 0, 1, 0
    while top >= 0:
        host = stack[top]
        if next_neighbour[host] == n:
            top -= 1
            if top < 0:
                break
            above = stack[top]
            if above != 0 and lowest[host] >= depth[above]:
                return False
            lowest[above] = min(lowest[above], lowest[host])
            continue
        k = next_neighbour[host]
        next_neighbour[host] += 1
        if k == host or k == parent[host] or cost[host, k] > threshold:
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
        parent[k] = host
        top += 1
        stack[top] = k
        visited += 1
    return visited == n


def two_connected_threshold(cost: Matrix) -> float:
    """Return the least threshold at which the pairs are 2-connected: no ring has only shorter hops.

    :param cost: shape (N, N), symmetric, complete, N at least 3. The result is in the same unit.
    """
    cost = np.ascontiguousarray(cost, dtype=np.float64)
    n = len(cost)
    second = np.partition(cost + np.diag(np.full(n, np.inf)), 1, axis=1)[:, 1].max()  # each host has two neighbours
    values = np.unique(cost[np.triu_indices(n, 1)])
    low, high = int(np.searchsorted(values, second)), len(values) - 1
    while low < high:
        middle = (low + high) // 2
        if _two_connected(cost, values[middle]):
            high = middle
        else:
            low = middle + 1
    return float(values[low])
