"""Search for the cheapest ring: a travelling salesman's tour, by the sum of its hops or by its longest hop first.

Iterated local search: 2-opt and 3-opt moves over candidate lists, repeated after the tour was perturbed in one place
(Martin, Otto and Felten 1991). Candidates come from 1-trees, which give a bound of the sum as well (Helsgaun 2000). The
subtour relaxation raises it (:mod:`solvers.ordering.subtours`): up to 300 hosts with a little branching, up to 1,500
where another engine searches meanwhile.

A rank order under ``latency`` is such a tour through the hosts, rotated so that it meets the constraints.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from plink.errors import UsageError
from plink.model.network import Matrix
from solvers.costs.closed_forms import CostFunction
from solvers.latency import ring_cost
from solvers.ordering.constraints import FeasibleOrders
from solvers.ordering.problem import (
    Order,
    OrderingProblem,
    OrderingResult,
    ProgressCallback,
    SearchBudget,
    SearchProgress,
    expand_slots,
)

Tour = npt.NDArray[np.intp]
EXHAUSTIVE_SEARCH_MAX_HOSTS = 10
_CANDIDATES = 5
_SERIES_PERTURBATIONS_PER_HOST = 20
_BATCH_PERTURBATIONS = 20_000  # between two calls of keep_going
_INITIAL_TEMPERATURE = 0.3  # of the median hop: the mean increase of cost that is accepted when a series begins
_MAX_IDLE_SERIES = 40  # without an improvement, unless the search is exhaustive
_THRESHOLD_PENALTY = 10  # times the longest of all hops, added to hops above the threshold
_RING_ENGINE_MIN_HOSTS = 100  # smaller rings are optimal in a second
_RING_ENGINE_S_PER_HOST = 0.01  # not exhaustive: it has so much time
_MAX_SUBTOUR_HOSTS = 1500  # half a minute
_MAX_BRANCH_HOSTS = 300  # one to three seconds
_BRANCH_NODES, _BRANCH_IDLE_SERIES = 200, 2
_EPSILON = 1e-9
_ROUNDING = 1e-12  # relative error of a hop in other units
_CROSSING_PENALTY = 10  # times the longest hop, added to hops between groups, so that a ring enters each group once


@dataclass(frozen=True)
class Ring:
    """A ring of N hosts and its bounds.

    ``order``, shape (N,); ``cost``: the sum of its hops; ``longest``: its longest hop. ``lower_bound``: no ring costs
    less (where the longest hop comes first: no ring with as short a longest hop). ``longest_bound``: no ring has only
    hops below it. ``perturbations``: how many were tried. ``bound_by``: the method of the lower bound.
    """

    order: Tour
    cost: float
    longest: float
    lower_bound: float
    longest_bound: float
    perturbations: int
    bound_by: str = "1-tree"


def search_ring(cost: Matrix, seed: int, budget: SearchBudget) -> Ring:
    """Search for the ring with the least sum of hops; it never costs more than the hosts in order of their numbers.

    :param cost: shape (N, N), symmetric, complete.
    :param budget: its moves are perturbations; ``keep_going`` is called between batches of them. With a deadline
        its ring engine searches beside, from 100 hosts on, and the better ring is taken: until the deadline, or, where
        the search is not exhaustive, for a time by the number of hosts.
    """
    longest_bound = _longest_hop_bound(cost)  # before the search, which may use all the time
    if len(cost) <= EXHAUSTIVE_SEARCH_MAX_HOSTS:
        order = _search_all_rings(cost, longest_first=False)
        return _make_ring(cost, order, ring_cost(cost, order), longest_bound, 0)
    with contextlib.ExitStack() as ending:
        engine = None
        if budget.ring_engine and budget.deadline is not None and len(cost) >= _RING_ENGINE_MIN_HOSTS:
            usual_end = np.inf if budget.exhaustive else time.monotonic() + _RING_ENGINE_S_PER_HOST * len(cost)
            engine = budget.ring_engine(cost, min(budget.deadline, usual_end))
            ending.callback(engine.end)
        tour = _Tour(cost, np.arange(len(cost)), seed, budget.keep_going)
        idle_series = _BRANCH_IDLE_SERIES if len(cost) <= _MAX_BRANCH_HOSTS else None
        if engine is not None and _MAX_BRANCH_HOSTS < len(cost) <= _MAX_SUBTOUR_HOSTS:
            idle_series = 0  # it searches meanwhile
        tour.improve(budget.max_moves, budget.exhaustive, bound_after=idle_series)
        if engine is not None:
            tour.join(engine.tour)
    ring = _make_ring(cost, tour.order, tour.bound, longest_bound, tour.perturbations)
    return replace(ring, bound_by=tour.bound_by)


def search_bottleneck(cost: Matrix, seed: int, budget: SearchBudget) -> Ring:
    """Search for the ring with the shortest longest hop and, among these, the one with the least sum.

    Hops above a threshold get a penalty, so that the search for the least sum avoids them. The first threshold is the
    least at which a ring could exist (:mod:`solvers.ordering.one_tree`). Then bisection: the next one is halfway
    between the last threshold without a ring and the longest hop of the best ring.

    :param cost: and the others: as in :func:`search_ring`; the progress is that of the longest hop.
    """
    from solvers.ordering.one_tree import one_tree

    n = len(cost)
    if n <= EXHAUSTIVE_SEARCH_MAX_HOSTS:
        order = _search_all_rings(cost, longest_first=True)
        return _make_ring(cost, order, ring_cost(cost, order), longest_hop(cost, order), 0)
    lengths = np.unique(cost[np.triu_indices(n, 1)])
    longest_bound = failed_threshold = threshold = _longest_hop_bound(cost)
    best, perturbations, max_perturbations = np.arange(n), 0, budget.max_moves

    def may_continue(progress: SearchProgress) -> bool:
        return budget.keep_going(SearchProgress(longest_hop(cost, best), longest_bound, perturbations + progress.moves))

    while perturbations < max_perturbations:
        tour = _Tour(_penalise_long_hops(cost, threshold), best, seed, may_continue)
        tour.improve((max_perturbations - perturbations + 1) // 2, False, threshold)
        perturbations += tour.perturbations
        best = min(best, tour.order, key=lambda order: (longest_hop(cost, order), ring_cost(cost, order)))
        if longest_hop(cost, best) > threshold:
            failed_threshold = threshold
        untried = lengths[(lengths > failed_threshold) & (lengths < longest_hop(cost, best))]
        if not len(untried) or not may_continue(SearchProgress(0.0, None, 0)):
            break
        threshold = float(untried[len(untried) // 2])
    final = _tour_below(cost, best, longest_hop(cost, best), seed, may_continue)
    final.improve(max(0, max_perturbations - perturbations), budget.exhaustive)
    if longest_hop(cost, final.order) <= longest_hop(cost, best):
        best = final.order
    # A lower bound of all rings holds for rings of short hops too: the larger of the two is better.
    sum_bound = one_tree(cost, lambda: may_continue(SearchProgress(0.0, None, 0))).bound
    return _make_ring(cost, best, max(final.bound, sum_bound), longest_bound, perturbations + final.perturbations)


def least_sum(cost: Matrix, order: Tour, longest: float, seed: int, budget: SearchBudget) -> Tour:
    """Search for the ring with the least sum and no hop above ``longest``, starting from such a ring."""
    if 3 < len(cost) <= EXHAUSTIVE_SEARCH_MAX_HOSTS:
        return _cheapest_ring(np.where(cost <= longest, cost, np.inf), np.add)
    tour = _tour_below(cost, order, longest, seed, budget.keep_going)
    tour.improve(budget.max_moves, False)
    return tour.order if longest_hop(cost, tour.order) <= longest else order


def _tour_below(cost: Matrix, order: Tour, longest: float, seed: int, keep_going: ProgressCallback) -> "_Tour":
    return _Tour(_penalise_long_hops(cost, longest), order, seed, keep_going)


def longest_hop(cost: Matrix, order: Tour) -> float:
    """Return the longest hop of a ring, in the unit of the costs; 0 for a single host."""
    return float(cost[order, np.roll(order, 1)].max())


def canonical(order: Tour) -> Tour:
    """Return the ring's unique form: it starts at host 0, towards the lower-numbered of its neighbours."""
    order = np.roll(order, -int(np.flatnonzero(order == 0)[0]))
    return order if len(order) < 3 or order[1] < order[-1] else np.roll(order[::-1], 1)


class _Tour:
    """Iterated local search of one tour, with the lower bound of its 1-tree."""

    def __init__(self, cost: Matrix, start: Tour, seed: int, keep_going: ProgressCallback) -> None:
        from solvers.ordering.one_tree import candidates, one_tree
        from solvers.ordering.ring_kernels import Neighbours

        # Costs over the median hop: then the same epsilon fits near and far hosts.
        self._unit = float(np.median(cost[cost > 0])) if (cost > 0).any() else 1.0
        self._cost = np.ascontiguousarray(cost, dtype=np.float64) / self._unit
        self.order, self.perturbations, self._keep_going = start, 0, keep_going
        self._value, self._bound = ring_cost(self._cost, start), -np.inf
        tree = one_tree(self._cost, self._may_continue)
        self._bound, self.bound_by = tree.bound, "1-tree"
        near = candidates(self._cost, tree, _CANDIDATES)
        nearest_first = np.argsort(np.take_along_axis(self._cost, near, 1), axis=1, kind="stable")
        self._graph = Neighbours(self._cost, np.take_along_axis(near, nearest_first, 1).copy())
        self._state = np.array([seed], dtype=np.uint64)

    def improve(
        self, max_perturbations: int, exhaustive: bool, target: float = -np.inf, bound_after: int | None = None
    ) -> None:
        """Run series of perturbations until the bound is met, no hop is longer than ``target``, or the budget ends.

        :param bound_after: solve the subtour relaxation, and branch a little, once so many series have brought nothing.
        """
        from solvers.ordering.ring_kernels import Perturbations, perturb

        n, cost = len(self._cost), self._cost
        hosts = self.order.astype(np.int64)
        perturb(self._graph, hosts, hosts.copy(), Perturbations(0, 0.0, 0.0, to_local_optimum=True), self._state)
        self._accept_if_cheaper(hosts)
        temperature = _INITIAL_TEMPERATURE * float(np.median(cost[hosts, np.roll(hosts, 1)]))
        idle_series = 0
        while self.perturbations < max_perturbations and self._value > self._bound * (1 + _EPSILON):
            if longest_hop(cost, self.order) <= target / self._unit * (1 + _ROUNDING):
                return
            if not self._may_continue() or (idle_series >= _MAX_IDLE_SERIES and not exhaustive):
                return
            idle_series = (
                0
                if self._run_series(
                    min(_SERIES_PERTURBATIONS_PER_HOST * n, max_perturbations - self.perturbations), temperature
                )
                else idle_series + 1
            )
            is_open = self._value > self._bound * (1 + _EPSILON)
            if bound_after is not None and idle_series >= bound_after and is_open:
                bound_after = None
                self._raise_bound()

    def join(self, tour_of: Callable[[Callable[[], bool]], npt.NDArray[np.int64] | None]) -> None:
        """Wait for another engine's tour unless this one is optimal, improve it, and take the cheaper one."""
        from solvers.ordering.ring_kernels import Perturbations, perturb

        hosts = None if self._value <= self._bound * (1 + _EPSILON) else tour_of(self._may_continue)
        if hosts is not None:
            perturb(self._graph, hosts, hosts.copy(), Perturbations(0, 0.0, 0.0, to_local_optimum=True), self._state)
            self._accept_if_cheaper(hosts)

    def _raise_bound(self) -> None:
        from solvers.ordering.subtours import BranchLimits, branch, subtour_bound  # it imports SciPy

        relaxation = subtour_bound(self._cost, self.order, self._may_continue)
        bound = relaxation.bound
        if len(self._cost) <= _MAX_BRANCH_HOSTS:
            everywhere = np.ones(self._cost.shape, dtype=bool)
            limits = BranchLimits(_BRANCH_NODES, None, self._may_continue)
            tour, bound = branch(self._cost, self._value, everywhere, relaxation, limits)
            if tour is not None:
                self._accept_if_cheaper(tour.astype(np.int64))
        if bound > self._bound:
            self._bound, self.bound_by = bound, "subtours"

    def _run_series(self, perturbations: int, temperature: float) -> bool:
        """Perturb the best tour, at first accepting higher costs; return whether a cheaper tour was found."""
        from solvers.ordering.ring_kernels import Perturbations, perturb

        hosts = self.order.astype(np.int64)
        improved, best, done = False, np.empty_like(hosts), 0
        while done < perturbations and (done == 0 or self._may_continue()):
            batch = min(_BATCH_PERTURBATIONS, perturbations - done)
            begin_temperature, end_temperature = (temperature * (1 - k / perturbations) for k in (done, done + batch))
            perturb(self._graph, hosts, best, Perturbations(batch, begin_temperature, end_temperature), self._state)
            done += batch
            self.perturbations += batch
            improved |= self._accept_if_cheaper(best)
        return improved

    def _accept_if_cheaper(self, hosts: npt.NDArray[np.int64]) -> bool:
        value = ring_cost(self._cost, hosts)
        if value >= self._value * (1 - _EPSILON):
            return False
        self.order, self._value = hosts.astype(np.intp), value
        return True

    @property
    def bound(self) -> float:
        """Lower bound of every tour's cost."""
        return self._bound * self._unit

    def _may_continue(self) -> bool:
        bound = self.bound if np.isfinite(self._bound) else None
        return self._keep_going(SearchProgress(self._value * self._unit, bound, self.perturbations))


def _make_ring(cost: Matrix, order: Tour, bound: float, longest_bound: float, perturbations: int) -> Ring:
    order = canonical(order)
    ring_sum = ring_cost(cost, order)
    return Ring(
        order,
        ring_sum,
        longest_hop(cost, order),
        min(bound, ring_sum),
        min(longest_bound, longest_hop(cost, order)),
        perturbations,
    )


def _longest_hop_bound(cost: Matrix) -> float:
    from solvers.ordering.one_tree import two_connected_threshold

    return two_connected_threshold(cost) if len(cost) > 2 else longest_hop(cost, np.arange(len(cost)))


def _penalise_long_hops(cost: Matrix, threshold: float) -> Matrix:
    return np.where(cost <= threshold, cost, cost + _THRESHOLD_PENALTY * cost.max())


def _search_all_rings(cost: Matrix, longest_first: bool) -> Tour:
    """Return the cheapest of all rings; of equals, the hosts in order of their numbers if that is one."""
    n, numbered = len(cost), np.arange(len(cost))
    if n < 4:
        return numbered
    order = _cheapest_ring(cost, np.maximum if longest_first else np.add)
    if longest_first:
        longest = longest_hop(cost, order)
        order = _cheapest_ring(np.where(cost <= longest, cost, np.inf), np.add)
        if longest_hop(cost, numbered) > longest:
            return order
    return numbered if ring_cost(cost, numbered) <= ring_cost(cost, order) else order


def _cheapest_ring(cost: Matrix, combine: np.ufunc) -> Tour:
    """Return the ring of the least sum, or of the shortest longest hop, by dynamic programming over sets of hosts.

    The least paths through every set from host 0 to each of its members (Held and Karp 1962).
    """
    others = len(cost) - 1
    hops, sets = cost[1:, 1:], 1 << others
    least = np.full((sets, others), np.inf)
    least[1 << np.arange(others), np.arange(others)] = cost[0, 1:]
    for members in range(1, sets - 1):
        added = np.flatnonzero(~members >> np.arange(others) & 1)
        paths = combine(least[members][:, None], hops[:, added]).min(axis=0)
        grown = members | 1 << added
        least[grown, added] = np.minimum(least[grown, added], paths)
    members, order = sets - 1, [int(np.argmin(combine(least[-1], cost[1:, 0])))]
    while members != 1 << order[-1]:
        members ^= 1 << order[-1]
        order.append(int(np.argmin(combine(least[members], hops[:, order[-1]]))))
    return np.array([0, *(host + 1 for host in order)], dtype=np.intp)


def is_rotation_enough(feasible: FeasibleOrders) -> bool:
    """Return whether some rotation of any ring meets the constraints: groups alone, or one pinned host alone."""
    pins = feasible.pinned_ranks
    if pins and feasible.host_groups is not None:
        return False
    return len(pins) == 0 or (len(pins) == 1 and len(set(feasible.slots[feasible.hosts].tolist())) == 1)


def search_ring_order(
    problem: OrderingProblem, start: OrderingResult, cost_of: CostFunction, seed: int, budget: SearchBudget
) -> OrderingResult:
    """Search for the cheapest ring of hosts; consecutive ranks of one host cost nothing, so it is one of ranks too."""
    hosts = problem.hosts
    cost, penalty = penalised_costs(problem)
    bottleneck = start.objective == "bottleneck"
    if bottleneck and penalty:
        raise UsageError("--objective bottleneck: omit --groups")

    def without_penalty(progress: SearchProgress) -> bool:
        bound = None if progress.lower_bound is None else progress.lower_bound - penalty
        return budget.keep_going(replace(progress, cost=progress.cost - penalty, lower_bound=bound))

    search_tour = search_bottleneck if bottleneck else search_ring
    deadline = None if penalty else budget.deadline  # 16 bits are too few for penalties
    ring = search_tour(cost, seed, replace(budget, keep_going=without_penalty, deadline=deadline))
    order = rotate_to_constraints(problem, hosts[ring.order])
    order_cost = cost_of(order)
    bound, bound_by = _ring_bound(ring, bottleneck, penalty)
    if penalty:  # a ring through the groups costs no less than any ring
        bound = max(bound, ring_lower_bound(problem))
    metrics = (
        {"sum": ring.cost, "sum_lower_bound": ring.lower_bound}
        if bottleneck
        else {"bottleneck": ring.longest, "bottleneck_lower_bound": ring.longest_bound}
    )
    if penalty:
        metrics = {}
    is_feasible = np.array_equal(problem.feasible.materialise(hosts.tolist()), problem.baseline)
    if not bottleneck and is_feasible and order_cost >= start.baseline_cost - _EPSILON * abs(start.baseline_cost):
        order, order_cost = problem.baseline, start.baseline_cost
    result = replace(start, order=order, cost=order_cost, lower_bound=bound, bound_by=bound_by)
    return replace(result, moves=ring.perturbations, metrics=metrics)


def _ring_bound(ring: Ring, bottleneck: bool, penalty: float) -> tuple[float, str]:
    exhaustive = len(ring.order) <= EXHAUSTIVE_SEARCH_MAX_HOSTS
    if bottleneck:
        return ring.longest_bound, "all rings" if exhaustive else "2-connected threshold"
    return max(0.0, ring.lower_bound - penalty), "all rings" if exhaustive else ring.bound_by


def penalised_costs(problem: OrderingProblem) -> tuple[Matrix, float]:
    """Return the hosts' round trips, shape (H, H), with group-crossing penalties, and what these sum to in a ring.

    A penalty is so high that the cheapest ring enters every group once.
    """
    hosts, groups = problem.hosts, problem.feasible.host_groups
    cost = problem.fabric.rtt_us[np.ix_(hosts, hosts)]
    if groups is None or len(groups) < 2:
        return cost, 0.0
    group = np.array([problem.feasible.group_of[host] for host in hosts.tolist()])
    penalty = _CROSSING_PENALTY * float(cost.max())
    return cost + penalty * (group[:, None] != group[None, :]), penalty * len(groups)


def rotate_to_constraints(problem: OrderingProblem, ring: Order) -> Order:
    """Return the rank order of a ring of hosts that begins at the host that the constraints ask for."""
    feasible = problem.feasible
    if feasible.pinned_ranks:
        (host, rank), slots = next(iter(feasible.pinned_ranks.items())), int(feasible.slots[ring[0]])
        ring = np.roll(ring, rank // slots - int(np.flatnonzero(ring == host)[0]))
    elif feasible.host_groups is not None and len(feasible.host_groups) > 1:
        group = np.array([feasible.group_of[host] for host in ring.tolist()])
        enters = np.flatnonzero(group != np.roll(group, 1))
        if len(enters) > len(feasible.host_groups):  # the search ended before it had a ring that enters each once
            ring = np.array(sorted(ring.tolist(), key=lambda host: feasible.group_of[host]), dtype=np.intp)
        else:
            ring = np.roll(ring, -int(enters[0]))
    return expand_slots(ring, feasible.slots)


def ring_lower_bound(problem: OrderingProblem) -> float:
    """Return a lower bound of the sum of hops of any ring through the hosts, whatever the constraints."""
    from solvers.ordering.one_tree import ring_bound

    return ring_bound(problem.fabric.rtt_us[np.ix_(problem.hosts, problem.hosts)])
