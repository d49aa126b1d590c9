"""Solve rings exactly: the cheapest ring, or a lower bound within the limits.

Symmetric sums go to branch and cut first (:func:`solvers.ordering.subtours.branch`), and what it does not solve, and
all else, to CP-SAT with one circuit constraint.

For the sum of the hops, edges are eliminated first. Where the 1-tree bound (:mod:`solvers.ordering.one_tree`) with an
edge forced into it is more than the start order costs, no cheaper ring has that edge; nor where the bound of the
subtour relaxation (:mod:`solvers.ordering.subtours`) and the edge's reduced cost are. For the longest hop CP-SAT
decides by bisection which thresholds have a ring, from the least at which the pairs are 2-connected.

Costs are integers, rounded down, so that a bound in them is a bound in microseconds.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.ordering.one_tree import one_tree, two_connected_threshold
from solvers.ordering.smt import interruptible

Order = npt.NDArray[np.intp]
IntegerCosts = npt.NDArray[np.int64]
Arcs = npt.NDArray[np.bool_]

_EPSILON = 1e-6
_COST_BITS = 30  # of the start order's cost, scaled; with 33 some proofs for 100 hosts took 3 to 5 times as long
_SUBTOUR_MIN_HOSTS = 9  # of fewer CP-SAT has the answer at once
_BRANCH_SHARE, _BRANCH_NODES = 0.6, 20_000  # of the time limit, and of each search tree, before CP-SAT
_ROUNDING = 1e-9  # relative error of a bound in floating point
_INFINITE_COST = 1 << 61  # twice that still fits 64 bits


@dataclass(frozen=True)
class CircuitLimits:
    """Limits of CP-SAT: its deterministic seconds, wall-clock seconds, and ``keep_going``, whichever ends it first.

    Without ``time_limit_s`` it runs one worker, which gives the same answer on any machine; else two. ``keep_going``
    is polled meanwhile and returns False to stop.
    """

    deterministic_s: float = 30.0
    seed: int = 0
    time_limit_s: float | None = None
    keep_going: Callable[[], bool] = lambda: True


@dataclass(frozen=True)
class CircuitSolution:
    """A ring, shape (N,), its cost and a lower bound of any ring's, in the unit of the costs.

    ``optimal``: the two differ by at most a millionth.
    """

    order: Order
    cost: float
    lower_bound: float
    optimal: bool


def solve_circuit(
    cost: Matrix, order: Order, limits: CircuitLimits, bottleneck: bool = False, longest: float | None = None
) -> CircuitSolution:
    """Minimise ``sum over i of cost[order[i], order[i + 1]]``, ranks modulo N, over the orders of all hosts.

    :param cost: shape (N, N), complete, not negative. Where it is not symmetric a hop goes from row to column: from
        a rank to the next one.
    :param order: shape (N,), the start order, a permutation; the result is never worse.
    :param bottleneck: minimise the longest hop instead of the sum.
    :param longest: for the sum: allow only orders without a longer hop, of which the start order is one. The lower
        bound then is of these orders.
    """
    n = len(cost)
    assert cost.shape == (n, n), "a cost for every pair"
    assert sorted(order.tolist()) == list(range(n)), "an order of all hosts"
    others = cost[~np.eye(n, dtype=bool)]
    assert np.isfinite(others).all(), "pairs without a cost"
    assert (others >= 0).all(), "costs below 0"
    assert longest is None or (not bottleneck and _ring_cost(cost, order, True) <= longest), "a hop that is not allowed"
    start_cost = _ring_cost(cost, order, bottleneck)
    if n < 3 or (n == 3 and np.array_equal(cost, cost.T)) or start_cost == 0:
        return CircuitSolution(order, start_cost, start_cost, True)
    allowed = ~np.eye(n, dtype=bool) & (cost <= (np.inf if longest is None else longest))
    solution = _minimise_longest(cost, order, limits) if bottleneck else _minimise_sum(cost, allowed, order, limits)
    best = min((order, solution[0]), key=lambda candidate: _ring_cost(cost, candidate, bottleneck))
    best_cost = _ring_cost(cost, best, bottleneck)
    bound = float(min(solution[1], best_cost))
    return CircuitSolution(best, best_cost, bound, bound >= best_cost * (1 - _EPSILON))


def _ring_cost(cost: Matrix, order: Order, bottleneck: bool) -> float:
    hops = cost[order, np.roll(order, -1)]
    return float(hops.max() if bottleneck else hops.sum())


def _minimise_sum(cost: Matrix, allowed: Arcs, order: Order, limits: CircuitLimits) -> tuple[Order, float]:
    start_cost = _ring_cost(cost, order, False)
    if start_cost == 0:
        return order, 0.0
    # A power of two: integer costs stay exact.
    scale = 2.0 ** np.floor(_COST_BITS - np.log2(start_cost))
    limit = int(np.ceil(start_cost * scale)) + 1
    # A hop that is not allowed costs more than the start order: the bound is of orders without such hops.
    integer_costs = np.floor(np.where(allowed, np.minimum(cost * scale, limit + 1), limit + 1)).astype(np.int64)
    np.fill_diagonal(integer_costs, 0)
    arcs = allowed & (integer_costs <= limit)
    bound = 0
    if np.array_equal(integer_costs, integer_costs.T):
        bound, useful = _bound_and_useful_arcs(integer_costs, limit)
        arcs &= useful
        if len(cost) >= _SUBTOUR_MIN_HOSTS and limits.time_limit_s != 0:
            began = time.monotonic()
            from solvers.ordering.subtours import BranchLimits, branch, subtour_bound  # it imports SciPy

            subtours = subtour_bound(integer_costs.astype(float), order, limits.keep_going)
            bound = max(bound, int(np.ceil(subtours.bound - _ROUNDING * limit)))
            arcs &= subtours.reduced <= limit - subtours.bound + _ROUNDING * limit
            deadline = None if limits.time_limit_s is None else began + limits.time_limit_s * _BRANCH_SHARE
            tree_limits = BranchLimits(_BRANCH_NODES, deadline, limits.keep_going)
            float_cost = _ring_cost(integer_costs.astype(float), order, False)
            tour, branch_bound = branch(integer_costs.astype(float), float_cost, arcs & arcs.T, subtours, tree_limits)
            bound = max(bound, int(np.floor(branch_bound)))
            if limits.time_limit_s is not None:
                limits = replace(limits, time_limit_s=max(0.1, limits.time_limit_s - (time.monotonic() - began)))
            if tour is not None and _ring_cost(cost, tour, False) > start_cost / 2:
                return tour, bound / scale
            if tour is not None:  # far below the start order: again, with integer costs scaled to the new cost
                again, second_bound = _minimise_sum(cost, allowed, tour, limits)
                return again, max(bound / scale, second_bound)
    model, literals = _circuit_model(arcs, order)
    model.minimize(sum(int(integer_costs[i, j]) * literal for (i, j), literal in literals.items()))
    tour, solver_bound, remaining = _solve(model, literals, len(cost), limits)
    assert solver_bound < np.inf, "the start order is a ring"
    bound_us = max(bound, solver_bound) / scale
    if tour is None or remaining is None or _ring_cost(cost, tour, False) > start_cost / 2:
        return order if tour is None else tour, bound_us
    # Far below the start order: solve again, with integer costs scaled to the new cost.
    tour, second_bound = _minimise_sum(cost, allowed, tour, remaining)
    return tour, max(bound_us, second_bound)


def _circuit_model(arcs: Arcs, order: Order | None) -> tuple[Any, dict[tuple[int, int], Any]]:
    """Return a CP-SAT model of a ring over the arcs, shape (N, N), and each arc's literal; ``order`` is its hint."""
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
    model: Any, literals: dict[tuple[int, int], Any], n: int, limits: CircuitLimits
) -> tuple[Order | None, float, CircuitLimits | None]:
    """Return the order (None: no solution), the bound (infinite: no ring exists) and the limits that remain, if any."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.random_seed = limits.seed
    solver.parameters.max_deterministic_time = limits.deterministic_s
    solver.parameters.num_workers = 1
    # All linear relaxations, with cuts: a ring of 32 took 62 s without them and 0.02 s with them.
    solver.parameters.linearization_level = 2
    if limits.time_limit_s is not None:
        solver.parameters.max_time_in_seconds = limits.time_limit_s
        solver.parameters.num_workers = 2
    solver.parameters.catch_sigint_signal = False  # else CP-SAT takes the signal from the program
    status = interruptible(lambda: solver.solve(model), solver.stop_search, limits.keep_going)
    remaining_s = limits.deterministic_s - solver.response_proto.deterministic_time
    remaining_wall_s = None if limits.time_limit_s is None else limits.time_limit_s - solver.wall_time
    is_spent = remaining_s <= 0 or (remaining_wall_s is not None and remaining_wall_s <= 0)
    remaining = None if is_spent else replace(limits, deterministic_s=remaining_s, time_limit_s=remaining_wall_s)
    if status == cp_model.INFEASIBLE:
        return None, np.inf, remaining
    bound = float(np.ceil(solver.best_objective_bound - 1e-6)) if model.has_objective() else 0.0
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, bound, remaining
    successor = dict(pair for pair, literal in literals.items() if solver.boolean_value(literal))
    tour = [0]
    while len(tour) < n:
        tour.append(successor[tour[-1]])
    return np.array(tour, dtype=np.intp), bound, remaining


def _bound_and_useful_arcs(integer_costs: IntegerCosts, limit: int) -> tuple[int, Arcs]:
    """Return a lower bound of any ring's cost, and the edges, shape (N, N), that a ring up to ``limit`` can have.

    The penalties are rounded to integers, and the 1-tree is computed again in integers: any penalties give a bound,
    and no edge is eliminated because of rounding.
    """
    n = len(integer_costs)
    tree = one_tree(integer_costs.astype(float), lambda: True)
    penalty = np.rint(tree.penalty).astype(np.int64)
    penalised = integer_costs + penalty[:, None] + penalty[None, :]
    np.fill_diagonal(penalised, _INFINITE_COST)
    # Prim's tree; with each host that joins it, the highest-cost edge on the path to every other: an edge between the
    # two would replace it.
    highest_on_path = np.full((n, n), -_INFINITE_COST)
    parent, nearest, outside = np.zeros(n, dtype=np.intp), penalised[0].copy(), np.arange(n) > 0
    joined, degree, cost = [0], np.zeros(n, dtype=np.int64), -2 * int(penalty.sum())
    while len(joined) < n:
        host = int(np.argmin(np.where(outside, nearest, _INFINITE_COST)))
        neighbour = int(parent[host])
        highest_on_path[host, joined] = np.maximum(highest_on_path[neighbour, joined], penalised[host, neighbour])
        highest_on_path[joined, host] = highest_on_path[host, joined]
        cost += int(penalised[host, neighbour])
        degree[[host, neighbour]] += 1
        outside[host] = False
        joined.append(host)
        is_nearer = outside & (penalised[host] < nearest)
        nearest[is_nearer], parent[is_nearer] = penalised[host, is_nearer], host
    # The tree less a leaf still is the cheapest of the other hosts, so any leaf may be the host that has two edges.
    second_nearest = np.partition(penalised, 1, axis=1)[:, 1]
    leaf = int(np.argmax(np.where(degree == 1, second_nearest, -_INFINITE_COST)))
    cost += int(second_nearest[leaf])
    increase = penalised - highest_on_path
    increase[leaf] = increase[:, leaf] = np.maximum(penalised[leaf] - second_nearest[leaf], 0)
    return max(0, cost), increase <= limit - cost


def _minimise_longest(cost: Matrix, order: Order, limits: CircuitLimits) -> tuple[Order, float]:
    """Minimise the longest hop: try the least threshold that a ring can have first, then bisect."""
    n = len(cost)
    values = np.unique(cost[~np.eye(n, dtype=bool)])
    values = values[values <= _ring_cost(cost, order, True)]
    # values[high] has a ring; every ring's longest hop is values[low] or more, in whichever direction its hops go.
    low, high = int(np.searchsorted(values, two_connected_threshold(np.minimum(cost, cost.T)))), len(values) - 1
    from scipy.sparse.csgraph import connected_components

    # Asymmetric costs need strong connectivity: without this test 64 hosts took 27 s, with it 0.1 s.
    while low < high:
        middle = (low + high) // 2
        connected = connected_components(cost <= values[middle], connection="strong")[0] == 1
        low, high = (low, middle) if connected else (middle + 1, high)
    best, high, remaining, probe = order, len(values) - 1, limits, low
    while low < high:
        arcs = (cost <= values[probe]) & ~np.eye(n, dtype=bool)
        model, literals = _circuit_model(arcs, None)
        tour, bound, rest_limits = _solve(model, literals, n, remaining)
        if tour is not None:
            best = tour
            high = int(np.searchsorted(values, _ring_cost(cost, tour, True)))
        elif bound == np.inf:
            low = probe + 1
        else:
            break
        if rest_limits is None:
            break
        remaining, probe = rest_limits, (low + high) // 2
    return best, float(values[low])
