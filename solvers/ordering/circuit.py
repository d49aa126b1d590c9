"""The cheapest ring with proof, or as good a bound as the effort buys: CP-SAT with one circuit constraint.

For the sum of the hops the edges are thinned first. Where the 1-tree bound (:mod:`solvers.ordering.one_tree`) with an
edge forced into it is more than the given order costs, no cheaper ring has that edge. On three tiers with noise and an
order 1 to 2 % above the best, proofs took 0.05 s for 32 hosts, 0.5 s for 64 and 1 to 7 s for 100. Constants between
groups that must stay together leave nearly all edges in; proofs for 64 hosts took 0.4 to 6 s. For the longest hop
CP-SAT is asked which thresholds have a ring, from the least at which the pairs are 2-connected.

Costs are whole numbers, rounded down, so that a bound in them is a bound in microseconds.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.ordering.biconnected import two_connected_threshold
from solvers.ordering.interruptible import interruptible
from solvers.ordering.one_tree import one_tree

Order = npt.NDArray[np.intp]
Whole = npt.NDArray[np.int64]
Arcs = npt.NDArray[np.bool_]

_EPSILON = 1e-6
_BITS = 30  # of the given order's cost, scaled; with 33 some proofs for 100 hosts took 3 to 5 times as long
_FAR = 1 << 61  # twice that still is a number of 64 bits


@dataclass(frozen=True)
class CircuitEffort:
    """When CP-SAT gives up: after so many of its deterministic seconds, with one worker (the same answer on any
    machine), or after ``time_limit_s`` seconds, with two workers, whichever is first; or when ``keep_going``,
    which is asked meanwhile, says no."""

    deterministic_s: float = 30.0
    seed: int = 0
    time_limit_s: float | None = None
    keep_going: Callable[[], bool] = lambda: True


@dataclass(frozen=True)
class Proved:
    """The order, shape (N,), its cost and a lower bound of any order's, in the unit of the costs; ``optimal``: they
    are the same but for a share of 1e-6."""

    order: Order
    cost: float
    lower_bound: float
    optimal: bool


def prove_ring(
    cost: Matrix, order: Order, effort: CircuitEffort, bottleneck: bool = False, longest: float | None = None
) -> Proved:
    """The order of all hosts with the least ``sum over i of cost[order[i], order[i + 1]]``, ranks modulo N.

    :param cost: shape (N, N), complete, not negative. Where it is not symmetric the hop goes from row to column: from
        a rank to the next one.
    :param order: shape (N,), a permutation to begin with; the result is never worse.
    :param bottleneck: the least longest hop in place of the sum.
    :param longest: for the sum: only orders whose hops all cost this or less, the given one among them (the least
        longest hop first, the least sum second). The lower bound then is of these orders.
    """
    n = len(cost)
    assert cost.shape == (n, n), "a cost for every pair"
    assert sorted(order.tolist()) == list(range(n)), "an order of all hosts"
    others = cost[~np.eye(n, dtype=bool)]
    assert np.isfinite(others).all(), "pairs without a cost"
    assert (others >= 0).all(), "costs below 0"
    assert longest is None or (not bottleneck and _price(cost, order, True) <= longest), "a hop that is not allowed"
    now = _price(cost, order, bottleneck)
    if n < 3 or (n == 3 and np.array_equal(cost, cost.T)) or now == 0:
        return Proved(order, now, now, True)
    allowed = ~np.eye(n, dtype=bool) & (cost <= (np.inf if longest is None else longest))
    found = _least_longest(cost, order, effort) if bottleneck else _least_sum(cost, allowed, order, effort)
    best = min((order, found[0]), key=lambda one: _price(cost, one, bottleneck))
    price = _price(cost, best, bottleneck)
    bound = float(min(found[1], price))
    return Proved(best, price, bound, bound >= price * (1 - _EPSILON))


def _price(cost: Matrix, order: Order, bottleneck: bool) -> float:
    hops = cost[order, np.roll(order, -1)]
    return float(hops.max() if bottleneck else hops.sum())


def _least_sum(cost: Matrix, allowed: Arcs, order: Order, effort: CircuitEffort) -> tuple[Order, float]:
    now = _price(cost, order, False)
    if now == 0:
        return order, 0.0
    # A power of two: whole costs stay whole.
    scale = 2.0 ** np.floor(_BITS - np.log2(now))
    most = int(np.ceil(now * scale)) + 1
    # A pair that is not allowed is dearer than the given order, so the bound is of the orders that are.
    whole = np.floor(np.where(allowed, np.minimum(cost * scale, most + 1), most + 1)).astype(np.int64)
    np.fill_diagonal(whole, 0)
    arcs = allowed & (whole <= most)
    bound = 0
    if np.array_equal(whole, whole.T):
        bound, needed = _needed(whole, most)
        arcs &= needed
    model, literals = _circuit(arcs, order)
    model.minimize(sum(int(whole[i, j]) * literal for (i, j), literal in literals.items()))
    tour, proved, rest = _solve(model, literals, len(cost), effort)
    assert proved < np.inf, "the given order is a ring"
    bound_us = max(bound, proved) / scale
    if tour is None or rest is None or _price(cost, tour, False) > now / 2:
        return order if tour is None else tour, bound_us
    # Far below the given order: the same again, rounded to what it costs.
    tour, again = _least_sum(cost, allowed, tour, rest)
    return tour, max(bound_us, again)


def _circuit(arcs: Arcs, order: Order | None) -> tuple[Any, dict[tuple[int, int], Any]]:
    """A model of a ring over the arcs, shape (N, N), and the literal of each; a hint if an order is given."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    literals = {(i, j): model.new_bool_var(f"{i}_{j}") for i, j in np.argwhere(arcs).tolist()}
    model.add_circuit([(i, j, literal) for (i, j), literal in literals.items()])
    if order is not None:
        used = set(zip(order.tolist(), np.roll(order, -1).tolist(), strict=True))
        for pair, literal in literals.items():
            model.add_hint(literal, pair in used)
    return model, literals


def _solve(
    model: Any, literals: dict[tuple[int, int], Any], n: int, effort: CircuitEffort
) -> tuple[Order | None, float, CircuitEffort | None]:
    """The order found, the bound (infinite when no ring exists), and what is left of the effort, if anything."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.random_seed = effort.seed
    solver.parameters.max_deterministic_time = effort.deterministic_s
    solver.parameters.num_workers = 1
    # All linear relaxations, with cuts: a ring of 32 took 62 s without and 0.02 s with them.
    solver.parameters.linearization_level = 2
    if effort.time_limit_s is not None:
        solver.parameters.max_time_in_seconds = effort.time_limit_s
        solver.parameters.num_workers = 2
    solver.parameters.catch_sigint_signal = False  # it would take the signal away from the program
    status = interruptible(lambda: solver.solve(model), solver.stop_search, effort.keep_going)
    left = effort.deterministic_s - solver.response_proto.deterministic_time
    seconds = None if effort.time_limit_s is None else effort.time_limit_s - solver.wall_time
    spent = left <= 0 or (seconds is not None and seconds <= 0)
    rest = None if spent else replace(effort, deterministic_s=left, time_limit_s=seconds)
    if status == cp_model.INFEASIBLE:
        return None, np.inf, rest
    bound = float(np.ceil(solver.best_objective_bound - 1e-6)) if model.has_objective() else 0.0
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, bound, rest
    after = dict(pair for pair, literal in literals.items() if solver.boolean_value(literal))
    tour = [0]
    while len(tour) < n:
        tour.append(after[tour[-1]])
    return np.array(tour, dtype=np.intp), bound, rest


def _needed(whole: Whole, most: int) -> tuple[int, Arcs]:
    """(a lower bound of any ring's cost, the edges, shape (N, N), that a ring of cost ``most`` or less can have).

    The penalties are rounded to whole numbers, and one 1-tree is computed with them anew, in whole numbers: any
    penalties give a bound, and nothing is dropped because of rounding.
    """
    n = len(whole)
    found = one_tree(whole.astype(float), lambda: True)
    penalty = np.rint(found.penalty).astype(np.int64)
    priced = whole + penalty[:, None] + penalty[None, :]
    np.fill_diagonal(priced, _FAR)
    # Prim's tree, and with each host that joins it the dearest edge on the path to every other: what an edge between
    # the two would replace.
    dearest = np.full((n, n), -_FAR)
    parent, nearest, outside = np.zeros(n, dtype=np.intp), priced[0].copy(), np.arange(n) > 0
    joined, degree, cost = [0], np.zeros(n, dtype=np.int64), -2 * int(penalty.sum())
    while len(joined) < n:
        host = int(np.argmin(np.where(outside, nearest, _FAR)))
        above = int(parent[host])
        dearest[host, joined] = np.maximum(dearest[above, joined], priced[host, above])
        dearest[joined, host] = dearest[host, joined]
        cost += int(priced[host, above])
        degree[[host, above]] += 1
        outside[host] = False
        joined.append(host)
        closer = outside & (priced[host] < nearest)
        nearest[closer], parent[closer] = priced[host, closer], host
    # Without a leaf the tree still is the cheapest of the others, so any leaf may be the host that has two edges.
    second = np.partition(priced, 1, axis=1)[:, 1]
    leaf = int(np.argmax(np.where(degree == 1, second, -_FAR)))
    cost += int(second[leaf])
    more = priced - dearest
    more[leaf] = more[:, leaf] = np.maximum(priced[leaf] - second[leaf], 0)
    return max(0, cost), more <= most - cost


def _least_longest(cost: Matrix, order: Order, effort: CircuitEffort) -> tuple[Order, float]:
    """By thresholds: the smallest that a ring can have at all first, then by halves."""
    n = len(cost)
    values = np.unique(cost[~np.eye(n, dtype=bool)])
    values = values[values <= _price(cost, order, True)]
    # values[high] has a ring; every ring's longest hop is values[low] or more, whichever way its hops go.
    low, high = int(np.searchsorted(values, two_connected_threshold(np.minimum(cost, cost.T)))), len(values) - 1
    from scipy.sparse.csgraph import connected_components

    # Where the way matters each host has to reach each: without this 64 hosts took 27 s, and 0.1 s with it.
    while low < high:
        middle = (low + high) // 2
        whole = connected_components(cost <= values[middle], connection="strong")[0] == 1
        low, high = (low, middle) if whole else (middle + 1, high)
    best, high, left, probe = order, len(values) - 1, effort, low
    while low < high:
        arcs = (cost <= values[probe]) & ~np.eye(n, dtype=bool)
        model, literals = _circuit(arcs, None)
        tour, bound, rest = _solve(model, literals, n, left)
        if tour is not None:
            best = tour
            high = int(np.searchsorted(values, _price(cost, tour, True)))
        elif bound == np.inf:
            low = probe + 1
        else:
            break
        if rest is None:
            break
        left, probe = rest, (low + high) // 2
    return best, float(values[low])
