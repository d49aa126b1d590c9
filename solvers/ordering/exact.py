"""Exact solving: improve a good order, or prove that it is optimal (PLink thesis, 5.2.3).

Rings under ``latency`` go to branch and cut, all else to Z3: the whole order up to about ten hosts. Beyond that Z3
solves windows and groups, which can improve an order but gives no certificate for the whole: large-neighbourhood search
(Shaw, CP 1998). A window has few enough units that :func:`solvers.ordering.smt.find_cheaper` decides over all ways of
exchanging their contents. A window without an improvement is not searched again until the order changes.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.costs.by_name import MESH, MIXED, pattern_for
from solvers.costs.closed_forms import CostProblem, closed_form
from solvers.costs.evaluator import pair_rates
from solvers.costs.fabric import BYTES_PER_US
from solvers.costs.patterns import Pattern
from solvers.latency import ring_cost
from solvers.ordering.one_tree import two_connected_threshold
from solvers.ordering.problem import Order, OrderingProblem, OrderingResult, SearchBudget
from solvers.ordering.ring import is_rotation_enough, least_sum, longest_hop, penalised_costs, rotate_to_constraints
from solvers.ordering.smt import SmtLimits, find_cheaper, symmetries

_MIN_WINDOW_UNITS, _MAX_WINDOW_UNITS = 5, 8
_SLOW_HOP_SHARE = 2 / 3  # of the windows are around a slow hop
_MAX_WINDOW_DRAWS = 50  # that were all searched before: then the search ends
_EXACT_MAX_UNITS = 10  # solved at once, one more where a symmetry fixes one
_PERTURBATIONS_PER_HOST = 1000
_MAX_QUERIES = 40  # to Z3, where there is no time limit
_QUERY_TIME_SHARE = 0.25  # of the time limit, for one query
_EPSILON = 1e-6
_BRANCH_NODES = 20_000  # of each search tree
_QUERY_STEPS = 20_000_000  # of Z3's resource counter: a few seconds


@dataclass(frozen=True)
class ImprovedOrder:
    """An order, shape (N,), its cost in microseconds and the number of Z3 queries that it took.

    ``proved_optimal``: no order that the classes allow costs less by more than a share of ``EPSILON``.
    """

    order: Order
    cost: float
    proved_optimal: bool
    queries: int


def improve(
    problem: CostProblem,
    order: Order,
    classes: Sequence[Sequence[Sequence[int]]],
    limits: SmtLimits,
    seed: int,
    max_queries: int,
) -> ImprovedOrder:
    """Improve an order by Z3 queries for ``cost < current``; never worse than ``order``.

    Queries are of the whole order while that is small enough, else of windows.

    :param order: shape (N,), the host at each rank.
    :param classes: of units that may be exchanged. Each is a list of units (lists of ranks, all of one length) whose
        contents may be permuted: single ranks, hosts' ranks, racks.
    :param limits: of one query; ``keep_going`` is called before every query too. Where it always returns True the
        result depends on the seed alone.
    :raises UsageError: for an unknown model or a size that is not positive.
    :raises NoAnswer: when the order has no cost.
    """
    cost_of = closed_form(*problem)
    cost, queries = cost_of(order), 0
    classes = [units for units in classes if len(units) > 1]
    whole = _solvable_class(classes, problem.pattern, problem.model)
    searched: set[frozenset[int]] = set()
    windows = _Windows(problem, classes, np.random.default_rng(seed))
    while queries < max_queries and limits.keep_going() and classes:
        units = whole if whole is not None else windows.next(order, searched)
        if units is None:
            break
        queries += 1
        answer = find_cheaper(problem, order, units, cost, limits)
        if answer.order is not None:
            order, cost = answer.order, cost_of(answer.order)
            searched.clear()
        elif whole is None:
            searched.add(_ranks(units))
        elif answer.proved_none:
            return ImprovedOrder(order, cost, True, queries)
        else:
            whole = None
    return ImprovedOrder(order, cost, not classes, queries)


def _ranks(units: Sequence[Sequence[int]]) -> frozenset[int]:
    return frozenset(rank for unit in units for rank in unit)


def _solvable_class(
    classes: Sequence[Sequence[Sequence[int]]], pattern: Pattern, model: str
) -> Sequence[Sequence[int]] | None:
    """Return the one class that covers all exchanges, if it is small enough to be solved at once."""
    moved = _ranks([unit for units in classes for unit in units])
    for units in classes:
        if len(classes) == 1 or (len(units[0]) == 1 and _ranks(units) == moved):
            number = len(units)
            if (
                number == _EXACT_MAX_UNITS + 1 == pattern.ranks
                and len({int(s[0]) for s in symmetries(pattern, model)}) == number
            ):
                number -= 1
            if number <= _EXACT_MAX_UNITS:
                return units
    return None


class _Windows:
    """Windows to solve: first every class of few units, then random windows, two of three of them around slow hops."""

    def __init__(
        self, problem: CostProblem, classes: Sequence[Sequence[Sequence[int]]], rng: np.random.Generator
    ) -> None:
        pattern, fabric, size_bytes, model = problem
        self._rng, self._rtt = rng, fabric.rtt_us
        self._classes = classes
        weight = pattern.reduce_repeat if model == "latency" else pattern.repeat
        is_timed = weight[pattern.round] > 0
        self._source, self._target = pattern.source[is_timed], pattern.target[is_timed]
        self._round, self._weight = pattern.round[is_timed], weight[pattern.round[is_timed]]
        self._transfer = np.zeros(int(is_timed.sum()))
        if model != "latency":
            self._transfer = pattern.share[is_timed] * size_bytes / BYTES_PER_US
            self._slow = np.nan_to_num(1 / pair_rates(fabric), nan=0.0)

    def next(self, order: Order, searched: set[frozenset[int]]) -> Sequence[Sequence[int]] | None:
        """Return units that were not searched since the order last changed; None: no draw found such units."""
        for units in self._classes:
            if len(units) <= _MAX_WINDOW_UNITS and _ranks(units) not in searched:
                return units
        large = [units for units in self._classes if len(units) > _MAX_WINDOW_UNITS]
        for _ in range(_MAX_WINDOW_DRAWS if large else 0):
            units = large[int(self._rng.integers(len(large)))]
            chosen = self._draw(order, units)
            if _ranks(chosen) not in searched:
                return chosen
        return None

    def _draw(self, order: Order, units: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
        size, count = int(self._rng.integers(_MIN_WINDOW_UNITS, _MAX_WINDOW_UNITS + 1)), len(units)
        unit_of = np.full(len(order), -1)
        for u, unit in enumerate(units):
            unit_of[list(unit)] = u
        start = int(self._rng.integers(count))
        centre = [start]
        if self._rng.random() < _SLOW_HOP_SHARE and len(self._source):
            hops = self._slowest_hops(order)
            hop = int(hops[int(len(hops) * self._rng.random() ** 3)])
            ends = [int(unit_of[self._source[hop]]), int(unit_of[self._target[hop]])]
            centre = [u for u in dict.fromkeys(ends) if u >= 0] or centre
        # Candidates to exchange with the ends: neighbours in the order, hosts near theirs, partners, any.
        first_hosts = order[[unit[0] for unit in units]]
        chosen = dict.fromkeys(centre)
        while len(chosen) < size:
            unit_a = centre[int(self._rng.integers(len(centre)))]
            distance = 1 + int((count - 1) * self._rng.random() ** 3)
            kind = int(self._rng.integers(4))
            if kind == 0:
                chosen[(unit_a + distance * (1 if self._rng.random() < 0.5 else -1)) % count] = None
            elif kind == 1:
                chosen[
                    int(
                        np.argsort(self._rtt[first_hosts[unit_a], first_hosts], kind="stable")[min(distance, count - 1)]
                    )
                ] = None
            elif kind == 2:
                partners = self._target[np.isin(self._source, units[unit_a])]
                partners = unit_of[partners][unit_of[partners] >= 0]
                if len(partners):
                    chosen[int(self._rng.choice(partners))] = None
            else:
                chosen[int(self._rng.integers(count))] = None
        return [units[u] for u in sorted(chosen)]

    def _slowest_hops(self, order: Order) -> Order:
        """Return the hops, slowest first: by time as a share of the longest in their round, then by time."""
        source, target = order[self._source], order[self._target]
        time_us = self._rtt[source, target]
        if self._transfer.any():
            time_us = time_us / 2 + np.where(source == target, 0.0, self._transfer * self._slow[source, target])
        longest = np.zeros(int(self._round.max()) + 1)
        np.maximum.at(longest, self._round, time_us)
        share = time_us / np.where(longest > 0, longest, 1.0)[self._round]
        return np.lexsort((-time_us * self._weight, -np.round(share, 2)))


@dataclass(frozen=True)
class ExactBudget:
    """Time limit in seconds (None: a fixed amount of work); ``keep_going`` returns False to end the solvers early."""

    time_limit_s: float | None
    keep_going: Callable[[], bool]


def solve_exactly(problem: OrderingProblem, result: OrderingResult, seed: int, budget: ExactBudget) -> OrderingResult:
    """Return the same order or a cheaper one, with a higher lower bound where the solver of ``bound_by`` proved one."""
    overhead_us = problem.overhead_us
    return _solve(problem.without_overhead(), result.plus(-overhead_us), seed, budget).plus(overhead_us)


def _solve(problem: OrderingProblem, result: OrderingResult, seed: int, budget: ExactBudget) -> OrderingResult:
    feasible = problem.feasible
    if result.is_optimal or problem.algo in MIXED or len(problem.hosts) < 3:
        return result
    if problem.algo == MESH and problem.model == "contention":
        from solvers.ordering.mesh_bounds import ASSIGNMENT, assignment_bound  # it imports Numba

        bound = assignment_bound(problem, result.cost, budget.time_limit_s, budget.keep_going)
        return result.with_bound(min(bound, result.cost), ASSIGNMENT)
    pattern = pattern_for(problem.algo, len(problem.baseline), problem.priced_options)
    if pattern.all_to_all_share:
        return result
    if problem.is_latency_ring and (feasible.unconstrained or is_rotation_enough(feasible)):
        return _solve_ring(problem, result, seed, budget)
    if result.objective == "bottleneck":
        return result
    timeout_s = None if budget.time_limit_s is None else budget.time_limit_s * _QUERY_TIME_SHARE
    timeout_ms = None if timeout_s is None else max(1, int(timeout_s * 1000))
    limits = SmtLimits(_QUERY_STEPS, timeout_ms, budget.keep_going)
    classes = [item.units for item in feasible.exchange_classes(result.order)]
    cost_problem = CostProblem(pattern, problem.fabric, problem.size_bytes, problem.model)
    improved = improve(cost_problem, result.order, classes, limits, seed, _MAX_QUERIES)
    metrics = {**result.metrics, "questions": float(improved.queries)}
    result = replace(result, order=improved.order, cost=improved.cost, metrics=metrics)
    # Exchanges reach every order only where all hosts and all groups are equally large.
    equal_slots = len(set(feasible.slots[feasible.hosts].tolist())) == 1
    if improved.proved_optimal and equal_slots and feasible.has_equal_groups:
        return replace(result, lower_bound=improved.cost, bound_by="z3")
    return result


def _solve_ring(problem: OrderingProblem, result: OrderingResult, seed: int, budget: ExactBudget) -> OrderingResult:
    hosts = problem.hosts
    cost, penalty = penalised_costs(problem)
    local_index = {host: k for k, host in enumerate(hosts.tolist())}
    ring = np.array([local_index[host] for host in dict.fromkeys(result.order.tolist())], dtype=np.intp)
    bottleneck = result.objective == "bottleneck"
    solves = 2 if bottleneck else 1  # the longest hop, then the sum
    time_limit_s = None if budget.time_limit_s is None else budget.time_limit_s / solves
    limits = ExactBudget(time_limit_s, budget.keep_going)
    if bottleneck:
        return _solve_bottleneck_ring(problem, result, cost, ring, seed, limits)
    solution = least_ring(cost, ring, limits)
    bound, ring_cost = solution.lower_bound - penalty, solution.cost - penalty
    if ring_cost >= result.cost * (1 - 1e-12):
        order, ring_cost = result.order, result.cost
    else:
        order = rotate_to_constraints(problem, hosts[solution.order])
    longest = longest_hop(problem.fabric.rtt_us, order)
    metrics = {} if penalty else {**result.metrics, "bottleneck": longest}
    improved = replace(result, order=order, cost=ring_cost, metrics=metrics)
    if result.lower_bound is not None and bound <= result.lower_bound:
        return improved
    return replace(improved, lower_bound=min(bound, ring_cost), bound_by="subtours")


def _solve_bottleneck_ring(
    problem: OrderingProblem, result: OrderingResult, cost: Matrix, ring: Order, seed: int, limits: ExactBudget
) -> OrderingResult:
    longest = least_bottleneck_ring(cost, ring, limits)
    # That minimised the longest hop alone: local search gives a good sum for the second solve to start from.
    sum_budget = SearchBudget(_PERTURBATIONS_PER_HOST * len(cost), lambda progress: limits.keep_going())
    start = least_sum(cost, longest.order, longest.cost, seed, sum_budget)
    total = least_ring(cost, start, limits, longest.cost)
    order = rotate_to_constraints(problem, problem.hosts[total.order])
    bound = max(longest.lower_bound, result.lower_bound or 0.0)
    metrics = {**result.metrics, "sum": total.cost}
    if bound >= longest.cost:  # the bound of the sum holds for rings with this longest hop only
        metrics["sum_lower_bound"] = max(total.lower_bound, result.metrics.get("sum_lower_bound", 0.0))
    return replace(result, order=order, cost=longest.cost, lower_bound=bound, bound_by="subtours", metrics=metrics)


@dataclass(frozen=True)
class ProvenRing:
    """A ring, shape (N,), its cost and a lower bound of any ring's, in the unit of the costs."""

    order: Order
    cost: float
    lower_bound: float

    @property
    def is_optimal(self) -> bool:
        """Whether the two differ by at most a millionth."""
        return self.lower_bound >= self.cost * (1 - _EPSILON)


def least_ring(cost: Matrix, order: Order, budget: ExactBudget, longest: float = np.inf) -> ProvenRing:
    """Minimise the sum of a ring's hops by branch and cut (:func:`solvers.ordering.subtours.branch`).

    :param cost: shape (N, N), symmetric, complete, not negative. :param order: shape (N,), the start order; the result
        is never worse. :param longest: allow only rings without a longer hop, of which the start order is one; the
        bound then is of these.
    """
    start_cost = ring_cost(cost, order)
    if len(cost) < 4 or start_cost == 0 or budget.time_limit_s == 0:
        return ProvenRing(order, start_cost, start_cost if len(cost) < 4 else 0.0)
    deadline = None if budget.time_limit_s is None else time.monotonic() + budget.time_limit_s
    # Costs over the start order's, so that tolerances fit; a hop that is not allowed costs more than the start order.
    allowed = cost <= longest
    relative = np.where(allowed, np.minimum(cost / start_cost, 2.0), 2.0)
    tour, bound = _branched(relative, 1.0, allowed, order, deadline, budget.keep_going)
    best = min((order, *([] if tour is None else [tour])), key=lambda candidate: ring_cost(cost, candidate))
    return ProvenRing(best, ring_cost(cost, best), min(bound * start_cost, ring_cost(cost, best)))


def least_bottleneck_ring(cost: Matrix, order: Order, budget: ExactBudget) -> ProvenRing:
    """Minimise a ring's longest hop: try the least threshold at which pairs are 2-connected first, then bisect.

    Parameters as of :func:`least_ring`. A threshold has a ring if one costs nothing where longer hops cost 1.
    """
    if len(cost) < 4:
        return ProvenRing(order, longest_hop(cost, order), longest_hop(cost, order))
    deadline = None if budget.time_limit_s is None else time.monotonic() + budget.time_limit_s
    values = np.unique(cost[np.triu_indices(len(cost), 1)])
    values = values[values <= longest_hop(cost, order)]
    # values[high] has a ring; every ring's longest hop is values[low] or more.
    low, high = int(np.searchsorted(values, two_connected_threshold(cost))), len(values) - 1
    best, probe = order, low
    while low < high:
        allowed = cost <= values[probe]
        tour, bound = _branched(np.where(allowed, 0.0, 1.0), 0.0, allowed, best, deadline, budget.keep_going)
        if tour is not None:
            best, high = tour, int(np.searchsorted(values, longest_hop(cost, tour)))
        elif bound > _EPSILON:
            low = probe + 1
        else:
            break
        probe = (low + high) // 2
    return ProvenRing(best, longest_hop(cost, best), float(values[low]))


def _branched(
    cost: Matrix,
    limit: float,
    allowed: npt.NDArray[np.bool_],
    order: Order,
    deadline: float | None,
    keep_going: Callable[[], bool],
) -> tuple[Order | None, float]:
    """Return the cheapest ring up to ``limit`` of allowed hops, None without one, and a lower bound of such rings."""
    from solvers.ordering.subtours import BranchLimits, branch, subtour_bound  # it imports SciPy

    relaxation = subtour_bound(cost, order, keep_going)
    if relaxation.bound > limit + _EPSILON:
        return None, relaxation.bound
    return branch(cost, limit, allowed, relaxation, BranchLimits(_BRANCH_NODES, deadline, keep_going))
