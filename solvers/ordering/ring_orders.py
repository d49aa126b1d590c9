"""Rank orders for rings under ``latency``: a tour through the hosts, rotated so that it meets the constraints."""

from dataclasses import replace

import numpy as np

from plink.errors import UsageError
from plink.model.network import Matrix
from solvers.costs.closed_forms import CostFunction
from solvers.ordering.constraints import FeasibleOrders
from solvers.ordering.problem import Order, OrderingProblem, OrderingResult, expand_slots
from solvers.ordering.progress import SearchBudget, SearchProgress
from solvers.ordering.ring import EXHAUSTIVE_SEARCH_MAX_HOSTS, Ring, search_bottleneck, search_ring

_CROSSING_PENALTY = 10  # times the longest hop, added to hops between groups, so that a ring enters each group once
_EPSILON = 1e-9


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
    metrics = {"sum": ring.cost, "sum_lower_bound": ring.lower_bound} if bottleneck else {
        "bottleneck": ring.longest, "bottleneck_lower_bound": ring.longest_bound
    }  # fmt: skip
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
