"""A lower bound for rings: the dearest 1-tree over all penalties of hosts (Held and Karp 1970, 1971).

A 1-tree is a spanning tree with one more edge at one host; every ring is one. A penalty pi of a host makes each of its
edges dearer, and every ring by exactly twice the sum of all penalties: for any pi ``cheapest 1-tree - 2 sum(pi)`` is
a bound. Penalties that raise it are found by subgradient steps (Helsgaun 2000, section 4.1: hosts with more than two
edges are made dearer, leaves cheaper). They also say which edges good rings use: alpha(i, j) is what the cheapest
1-tree costs more when it must contain (i, j) (section 4.2).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from plink.model.network import Matrix
from solvers.latency import ring_cost

_ROUNDING = 1e-12  # a sum of thousands of hops is known to a few parts in 10^13
_MOST_WORK = 1.2e9  # pairs looked at: at 4,096 hosts 70 trees, a few seconds


@dataclass(frozen=True)
class OneTree:
    """The bound (in the unit of the costs), the penalties, shape (N,), and the 1-tree: parent of each host in the
    spanning tree (-1 at its root), hosts in the order in which they joined it."""

    bound: float
    penalty: npt.NDArray[np.float64]
    parent: npt.NDArray[np.int64]
    joined: npt.NDArray[np.int64]


@njit(cache=True)
def _tree(cost: Any, penalty: Any, parent: Any, joined: Any, degree: Any, nearest: Any) -> Any:
    """Cheapest 1-tree by Prim (dense: N^2); its length. The extra edge is the cheapest second edge of a leaf that costs
    most, which makes the bound as large as one tree allows."""
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
        mine = penalty[host]
        for m in range(count):
            k = outside[m]
            value = cost[host, k] + mine + penalty[k]
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
def _climb(cost: Any, penalty: Any, last: Any, best: Any, state: Any, steps: Any) -> Any:
    """``steps`` subgradient steps; state: (bound, step length, steps left in the period, period, grown yet)."""
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
            now = degree[k] - 2
            penalty[k] += state[1] * (0.7 * now + 0.3 * last[k])
            last[k] = now
        state[2] -= 1
        if state[2] <= 0:
            state[3] = max(1.0, math.floor(state[3] / 2))
            state[2] = state[3]
            state[1] /= 2
            state[4] = 1
    return state[3] == 0 or state[1] < 1e-6


def one_tree(cost: Matrix, keep_going: Callable[[], bool]) -> OneTree:
    """The bound after as many subgradient steps, of halving length, as help; with many hosts, as there is time for.

    :param cost: shape (N, N), symmetric, complete, never negative, N at least 3. Not necessarily metric.
    """
    n = len(cost)
    cost = np.ascontiguousarray(cost, dtype=np.float64)
    most_steps = max(10, int(_MOST_WORK / (n * n)))
    period = max(4, min(max(n // 2, 50), most_steps // 5))
    penalty, last, best = np.zeros(n), np.zeros(n), np.zeros(n)
    mean = float(cost.sum()) / (n * (n - 1))
    state = np.array([-1e300, 0.01 * mean, float(period), float(period), 0.0])
    at_once, done = max(1, 20_000_000 // (n * n)), 1
    ended = _climb(cost, penalty, last, best, state, 1)
    while not ended and done < most_steps and keep_going():
        ended = _climb(cost, penalty, last, best, state, at_once)
        done += at_once
    parent, joined = np.empty(n, np.int64), np.empty(n, np.int64)
    _tree(cost, best, parent, joined, np.empty(n, np.int64), np.empty(n))
    # penalties are added and taken off again: what rounding leaves is in proportion to them, also where the bound is 0
    slack = _ROUNDING * (abs(float(state[0])) + 2 * float(np.abs(best).sum()))
    return OneTree(max(float(state[0]) - slack, 0.0), best, parent, joined)


def ring_bound(cost: Matrix) -> float:
    """No ring costs less; shape (N, N) as in :func:`one_tree`, any N. Three hosts and fewer make one ring only."""
    if len(cost) < 4:
        return ring_cost(cost, np.arange(len(cost)))
    return one_tree(cost, lambda: True).bound


@njit(cache=True)
def _candidates(cost: Any, penalty: Any, parent: Any, joined: Any, width: Any) -> Any:
    """For each host the ``width`` others of least alpha, ties by penalised cost; shape (N, width)."""
    n = len(cost)
    near = np.empty((n, width), np.int64)
    beta, mark = np.empty(n), np.full(n, -1)
    alpha, value = np.empty(width), np.empty(width)
    for host in range(n):
        # beta[k]: the dearest edge on the tree's path from host to k; first up to the root, then down in order.
        beta[host] = -np.inf
        mark[host] = host
        below = host
        while parent[below] >= 0:
            above = parent[below]
            edge = cost[below, above] + penalty[below] + penalty[above]
            beta[above] = max(beta[below], edge)
            mark[above] = host
            below = above
        found = 0
        for m in range(n):
            k = joined[m]
            if mark[k] != host:
                above = parent[k]
                beta[k] = max(beta[above], cost[k, above] + penalty[k] + penalty[above])
            if k == host:
                continue
            price = cost[host, k] + penalty[host] + penalty[k]
            a = price - beta[k]
            if found == width and (a > alpha[width - 1] or (a == alpha[width - 1] and price >= value[width - 1])):
                continue
            at = found if found < width else width - 1
            while at > 0 and (alpha[at - 1] > a or (alpha[at - 1] == a and value[at - 1] > price)):
                alpha[at], value[at], near[host, at] = alpha[at - 1], value[at - 1], near[host, at - 1]
                at -= 1
            alpha[at], value[at], near[host, at] = a, price, k
            found = min(found + 1, width)
    return near


def candidates(cost: Matrix, tree: OneTree, width: int) -> npt.NDArray[np.int64]:
    """For each host the hosts that rings are likely to put beside it: least alpha first; shape (N, width)."""
    found: npt.NDArray[np.int64] = _candidates(
        np.ascontiguousarray(cost, dtype=np.float64), tree.penalty, tree.parent, tree.joined, min(width, len(cost) - 1)
    )
    return found
