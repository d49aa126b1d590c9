"""The cheapest ring with proof, or as good a bound as the effort buys: CP-SAT with one circuit constraint.

For the sum of the hops the edges are thinned first. The 1-tree bound (Held and Karp, Operations Research 18, 1970)
with an edge forced into it is more than the given order costs: no cheaper ring has that edge. On three tiers with noise
and an order 1 to 2 % above the best, 25 to 75 % of the edges are left; proofs took 0.1 s for 32 hosts, 0.3 s for 64 and
2 to 4 s for 100. For the longest hop CP-SAT is asked which thresholds have a ring.

Costs are whole numbers, rounded down, so that a bound in them is a bound in microseconds.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree

from plink.network import Matrix

Order = npt.NDArray[np.intp]
Whole = npt.NDArray[np.int64]
Arcs = npt.NDArray[np.bool_]

_EPSILON = 1e-6
_BITS = 30  # of the given order's cost, scaled
_STEPS = 200  # of the ascent to the 1-tree bound


@dataclass(frozen=True)
class CircuitEffort:
    """When CP-SAT gives up: after so many of its deterministic seconds, with one worker (the same answer on any
    machine), or after ``time_limit_s`` seconds, with two workers, whichever is first."""

    deterministic_s: float = 30.0
    seed: int = 0
    time_limit_s: float | None = None


@dataclass(frozen=True)
class Proved:
    """The order, shape (N,), its cost and a lower bound of any order's, in the unit of the costs; ``optimal``: they
    are the same but for a share of 1e-6."""

    order: Order
    cost: float
    lower_bound: float
    optimal: bool


def prove_ring(cost: Matrix, order: Order, effort: CircuitEffort, bottleneck: bool = False) -> Proved:
    """The order of all hosts with the least ``sum over i of cost[order[i], order[i + 1]]``, ranks modulo N.

    :param cost: shape (N, N), complete, not negative. Where it is not symmetric the hop goes from row to column: from
        a rank to the next one.
    :param order: shape (N,), a permutation to begin with; the result is never worse.
    :param bottleneck: the least longest hop in place of the sum.
    """
    n = len(cost)
    assert cost.shape == (n, n), "a cost for every pair"
    assert sorted(order.tolist()) == list(range(n)), "an order of all hosts"
    others = cost[~np.eye(n, dtype=bool)]
    assert np.isfinite(others).all(), "pairs without a cost"
    assert (others >= 0).all(), "costs below 0"
    now = _price(cost, order, bottleneck)
    if n < 3 or (n == 3 and np.array_equal(cost, cost.T)) or now == 0:
        return Proved(order, now, now, True)
    found = _least_longest(cost, order, effort) if bottleneck else _least_sum(cost, order, effort)
    best = min((order, found[0]), key=lambda one: _price(cost, one, bottleneck))
    price = _price(cost, best, bottleneck)
    bound = float(min(found[1], price))
    return Proved(best, price, bound, bound >= price * (1 - _EPSILON))


def _price(cost: Matrix, order: Order, bottleneck: bool) -> float:
    hops = cost[order, np.roll(order, -1)]
    return float(hops.max() if bottleneck else hops.sum())


def _least_sum(cost: Matrix, order: Order, effort: CircuitEffort) -> tuple[Order, float]:
    n = len(cost)
    if _price(cost, order, False) == 0:
        return order, 0.0
    # A power of two: whole costs stay whole.
    scale = 2.0 ** np.floor(_BITS - np.log2(_price(cost, order, False)))
    most = int(np.ceil(_price(cost, order, False) * scale)) + 1
    whole = np.floor(np.minimum(cost * scale, most + 1)).astype(np.int64)
    arcs = ~np.eye(n, dtype=bool) & (whole <= most)
    bound = 0
    if np.array_equal(cost, cost.T):
        bound, needed = _one_tree(whole, most)
        arcs &= needed
    model, literals = _circuit(arcs, order)
    model.minimize(sum(int(whole[i, j]) * literal for (i, j), literal in literals.items()))
    tour, proved, rest = _solve(model, literals, n, effort)
    assert proved < np.inf, "the given order is a ring"
    bound_us = max(bound, proved) / scale
    if tour is None or rest is None or _price(cost, tour, False) > _price(cost, order, False) / 2:
        return order if tour is None else tour, bound_us
    # Far below the given order: the same again, rounded to what it costs.
    tour, again = _least_sum(cost, tour, rest)
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
    status = solver.solve(model)
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


def _one_tree(whole: Whole, most: int) -> tuple[int, Arcs]:
    """(a lower bound of any ring's cost, the edges, shape (N, N), that a ring of cost ``most`` or less can have).

    A ring is a tree over all hosts but one, and two edges of that one: the cheapest such 1-tree costs no more. Prices
    on hosts change every ring's cost by the same (twice their sum), so the best prices make the best bound (subgradient
    ascent); here they are whole numbers, and what is dropped is dropped for sure.
    """
    n = len(whole)
    prices, before = np.zeros(n), np.zeros(n)
    best, best_prices, length = -np.inf, np.zeros(n, dtype=np.int64), 0.0
    for step in range(_STEPS):
        rounded = np.floor(prices).astype(np.int64)
        bound, degree, _ = _tree_at(whole, rounded)
        if bound > best:
            best, best_prices = bound, rounded
        slope = (degree - 2).astype(float)
        if not slope.any():
            break
        if step == 0:
            length = bound / (2 * n)
        # Volgenant and Jonker, European Journal of Operational Research 9, 1982: steps shrink to 0, with a memory.
        prices += length * (1 - step / _STEPS) ** 2 * (0.7 * slope + 0.3 * before)
        before = slope
    bound, _, with_edge = _tree_at(whole, best_prices)
    return max(0, bound), with_edge <= most


def _tree_at(whole: Whole, prices: Whole) -> tuple[int, Whole, Whole]:
    """The cheapest 1-tree at these prices, host 0 apart: its cost less twice the prices, the degrees of its hosts,
    and for every edge, shape (N, N), the cost of the cheapest 1-tree that has it."""
    n = len(whole)
    priced = whole + prices[:, None] + prices[None, :]
    np.fill_diagonal(priced, priced.max() + 1)
    # The sparse solver takes 0 for no edge, and doubles are exact here: 53 bits.
    lift = 1 - int(priced.min())
    tree = minimum_spanning_tree((priced[1:, 1:] + lift).astype(float))
    ends = np.array(tree.nonzero()) + 1
    first = np.argsort(priced[0, 1:], kind="stable")[:2] + 1
    degree = np.bincount(np.concatenate([*ends, first, [0, 0]]), minlength=n)
    cost = int(priced[ends[0], ends[1]].sum() + priced[0, first].sum() - 2 * prices.sum())
    # Longest edge between two hosts along the tree: what another edge between them would replace.
    longest = np.full((n - 1, n - 1), np.iinfo(np.int64).min)
    sequence, before = breadth_first_order(tree, 0, directed=False)
    for k, host in enumerate(sequence[1:].tolist(), start=1):
        parent, seen = int(before[host]), sequence[:k]
        longest[host, seen] = np.maximum(longest[parent, seen], priced[host + 1, parent + 1])
        longest[seen, host] = longest[host, seen]
    np.fill_diagonal(longest, 0)
    with_edge = priced.copy()
    with_edge[1:, 1:] -= longest
    with_edge[0, 1:] = np.maximum(0, priced[0, 1:] - priced[0, first[1]])
    with_edge[1:, 0] = with_edge[0, 1:]
    np.fill_diagonal(with_edge, 0)
    return cost, degree, with_edge + cost


def _least_longest(cost: Matrix, order: Order, effort: CircuitEffort) -> tuple[Order, float]:
    """By thresholds: the smallest that a ring can have at all first, then by halves."""
    n = len(cost)
    values = np.unique(cost[~np.eye(n, dtype=bool)])
    values = values[values <= _price(cost, order, True)]
    # values[high] has a ring; every ring's longest hop is values[low] or more.
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _may_have_ring(cost <= values[middle]) else (middle + 1, high)
    high, best, left, probe = len(values) - 1, order, effort, low
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


def _may_have_ring(arcs: Arcs) -> bool:
    """Whether the graph stays in one piece (each host reaching each) without any one of its hosts: rings do."""
    n = len(arcs)
    if connected_components(arcs, connection="strong")[0] > 1:
        return False
    return all(
        connected_components(np.delete(np.delete(arcs, k, 0), k, 1), connection="weak")[0] == 1 for k in range(n)
    )
