"""A lower bound for rings: the maximum over host penalties of the cheapest 1-tree (Held and Karp 1970, 1971).

A 1-tree is a spanning tree with one more edge at one host; every ring is one. A penalty pi of a host is added to each
of its edges, and so exactly twice the sum of all penalties to every ring: for any pi ``cheapest 1-tree - 2 sum(pi)`` is
a bound. Subgradient steps raise it (Helsgaun 2000, section 4.1: hosts with more than two edges get a higher penalty,
leaves a lower one). The penalties also tell which edges good rings use: alpha(i, j) is the increase of the cheapest
1-tree when it must contain (i, j) (section 4.2).

Lower bound of a ring's longest hop: every ring is 2-connected, so the pairs up to this length must be.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.compilation import njit
from solvers.latency import ring_cost

_ROUNDING = 1e-12  # relative error; a sum of thousands of hops has a few parts in 10^13
_MAX_EVALUATED_PAIRS = 1.2e9  # at 4,096 hosts 70 trees, a few seconds
_MAX_BOUNDS = 16
_BOUNDS: dict[bytes, float] = {}  # of ring_bound, by the costs
_BATCH_PAIRS = 20_000_000  # between two calls of keep_going


@dataclass(frozen=True)
class OneTree:
    """The lower bound (in the unit of the costs), the penalties, shape (N,), and the 1-tree's spanning tree.

    ``parent`` of each host (-1 at the root); ``joined``: the hosts in the order in which they joined the tree.
    """

    bound: float
    penalty: npt.NDArray[np.float64]
    parent: npt.NDArray[np.int64]
    joined: npt.NDArray[np.int64]


@njit(cache=True)
def _tree(cost: Any, penalty: Any, parent: Any, joined: Any, degree: Any, nearest: Any) -> Any:
    """Compute the cheapest 1-tree by Prim's algorithm (dense: N^2) and return its length.

    The extra edge is that of the leaf whose second-cheapest edge costs most, which gives the largest bound.
    """
    n = len(cost)
    outside = np.arange(1, n)
    count = n - 1
    for k in range(n):
        degree[k] = 0
    parent[0] = -1
    joined[0] = 0
    for k in range(1, n):
        nearest[k] = cost[0, k] + penalty[0] + penalty[k]
        parent[k] = 0
    total = 0.0
    step = 1
    while count > 0:
        low, at = np.inf, 0
        for m in range(count):
            if nearest[outside[m]] < low:
                low, at = nearest[outside[m]], m
        host = outside[at]
        count -= 1
        outside[at] = outside[count]
        joined[step] = host
        step += 1
        total += low
        degree[host] += 1
        degree[parent[host]] += 1
        host_penalty = penalty[host]
        for m in range(count):
            k = outside[m]
            value = cost[host, k] + host_penalty + penalty[k]
            if value < nearest[k]:
                nearest[k] = value
                parent[k] = host
    extra, end_a, end_b = -np.inf, 0, 0
    for leaf in range(n):
        if degree[leaf] != 1:
            continue
        inner = parent[leaf]
        if inner < 0:
            inner = joined[1]
        low, at = np.inf, -1
        for k in range(n):
            if k not in (leaf, inner):
                value = cost[leaf, k] + penalty[leaf] + penalty[k]
                if value < low:
                    low, at = value, k
        if at >= 0 and low > extra:
            extra, end_a, end_b = low, leaf, at
    degree[end_a] += 1
    degree[end_b] += 1
    return total + extra


@njit(cache=True)
def _ascend(cost: Any, penalty: Any, last: Any, best: Any, state: Any, steps: Any) -> Any:
    """Take subgradient steps; state: (bound, step length, steps left in the period, period, whether growth ended)."""
    n = len(cost)
    parent, joined = np.empty(n, np.int64), np.empty(n, np.int64)
    degree, nearest = np.empty(n, np.int64), np.empty(n)
    for _ in range(steps):
        length, norm = _tree(cost, penalty, parent, joined, degree, nearest), 0
        for k in range(n):
            length -= 2 * penalty[k]
            norm += abs(degree[k] - 2)
        if length > state[0] + 1e-9 * abs(state[0]):
            state[0] = length
            for k in range(n):
                best[k] = penalty[k]
            if state[4] == 0:
                state[1] *= 2  # the first climb: longer steps while they help
            elif state[2] <= 1:
                state[2] += state[3]
        else:
            state[4] = 1
        if norm == 0 or state[1] < 1e-6:
            state[3] = 0  # a ring: the bound is what it costs
            break
        for k in range(n):
            excess = degree[k] - 2
            penalty[k] += state[1] * (0.7 * excess + 0.3 * last[k])
            last[k] = excess
        state[2] -= 1
        if state[2] <= 0:
            state[3] = max(1.0, math.floor(state[3] / 2))
            state[2] = state[3]
            state[1] /= 2
            state[4] = 1
    return state[3] == 0 or state[1] < 1e-6


def one_tree(cost: Matrix, keep_going: Callable[[], bool]) -> OneTree:
    """Return the bound after subgradient steps of halving length, until these do not help or the time is up.

    :param cost: shape (N, N), symmetric, complete, never negative, N at least 3. Not necessarily metric.
    """
    n = len(cost)
    cost = np.ascontiguousarray(cost, dtype=np.float64)
    max_steps = max(10, int(_MAX_EVALUATED_PAIRS / (n * n)))
    period = max(4, min(max(n // 2, 50), max_steps // 5))
    penalty, last_excess, best = np.zeros(n), np.zeros(n), np.zeros(n)
    mean = float(cost.sum()) / (n * (n - 1))
    state = np.array([-1e300, 0.01 * mean, float(period), float(period), 0.0])
    batch, steps_done = max(1, _BATCH_PAIRS // (n * n)), 1
    has_converged = _ascend(cost, penalty, last_excess, best, state, 1)
    while not has_converged and steps_done < max_steps and keep_going():
        has_converged = _ascend(cost, penalty, last_excess, best, state, batch)
        steps_done += batch
    parent, joined = np.empty(n, np.int64), np.empty(n, np.int64)
    _tree(cost, best, parent, joined, np.empty(n, np.int64), np.empty(n))
    # Penalties are added and subtracted: the rounding error is in proportion to them, even where the bound is 0.
    rounding = _ROUNDING * (abs(float(state[0])) + 2 * float(np.abs(best).sum()))
    return OneTree(max(float(state[0]) - rounding, 0.0), best, parent, joined)


def ring_bound(cost: Matrix, keep_going: Callable[[], bool] = lambda: True) -> float:
    """Return a lower bound of every ring's cost; shape (N, N) as in :func:`one_tree`, any N.

    Three hosts and fewer have one ring only. A bound is kept: several searches of one network need it.
    """
    if len(cost) < 4:
        return ring_cost(cost, np.arange(len(cost)))
    key = hashlib.blake2b(np.ascontiguousarray(cost).data).digest()
    if (bound := _BOUNDS.get(key)) is None:
        bound = one_tree(cost, keep_going).bound
        if keep_going():
            if len(_BOUNDS) >= _MAX_BOUNDS:
                _BOUNDS.clear()
            _BOUNDS[key] = bound
    return bound


@njit(cache=True)
def _candidates(cost: Any, penalty: Any, parent: Any, joined: Any, width: Any) -> Any:
    """Return for each host the ``width`` others of least alpha, ties by penalised cost; shape (N, width)."""
    n = len(cost)
    near = np.empty((n, width), np.int64)
    beta, mark = np.empty(n), np.full(n, -1)
    alpha, value = np.empty(width), np.empty(width)
    for host in range(n):
        # beta[k]: highest edge cost on the tree's path from host to k; first up to the root, then down in order.
        beta[host] = -np.inf
        mark[host] = host
        child = host
        while parent[child] >= 0:
            ancestor = parent[child]
            edge = cost[child, ancestor] + penalty[child] + penalty[ancestor]
            beta[ancestor] = max(beta[child], edge)
            mark[ancestor] = host
            child = ancestor
        count = 0
        for m in range(n):
            k = joined[m]
            if mark[k] != host:
                ancestor = parent[k]
                beta[k] = max(beta[ancestor], cost[k, ancestor] + penalty[k] + penalty[ancestor])
            if k == host:
                continue
            penalised = cost[host, k] + penalty[host] + penalty[k]
            edge_alpha = penalised - beta[k]
            if count == width and (
                edge_alpha > alpha[width - 1] or (edge_alpha == alpha[width - 1] and penalised >= value[width - 1])
            ):
                continue
            at = count if count < width else width - 1
            while at > 0 and (
                alpha[at - 1] > edge_alpha or (alpha[at - 1] == edge_alpha and value[at - 1] > penalised)
            ):
                alpha[at], value[at], near[host, at] = alpha[at - 1], value[at - 1], near[host, at - 1]
                at -= 1
            alpha[at], value[at], near[host, at] = edge_alpha, penalised, k
            count = min(count + 1, width)
    return near


def candidates(cost: Matrix, tree: OneTree, width: int) -> npt.NDArray[np.int64]:
    """Return for each host its likely neighbours in good rings, least alpha first; shape (N, width)."""
    near: npt.NDArray[np.int64] = _candidates(
        np.ascontiguousarray(cost, dtype=np.float64), tree.penalty, tree.parent, tree.joined, min(width, len(cost) - 1)
    )
    return near


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
