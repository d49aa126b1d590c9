"""Exact solving: improve a good order with CP-SAT or Z3, or prove that it is optimal (PLink thesis, 5.2.3).

Rings under ``latency`` go to CP-SAT, all else to Z3: the whole order up to about ten hosts. Beyond that Z3 solves
windows and groups, which can improve an order but gives no certificate for the whole.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from plink.model.network import Matrix
from solvers.costs.by_name import MIXED, pattern_for
from solvers.costs.closed_forms import CostProblem
from solvers.ordering.circuit import CircuitLimits, solve_circuit
from solvers.ordering.neighbourhoods import improve
from solvers.ordering.problem import Order, OrderingProblem, OrderingResult
from solvers.ordering.progress import SearchBudget
from solvers.ordering.ring import least_sum, longest_hop
from solvers.ordering.ring_orders import is_rotation_enough, penalised_costs, rotate_to_constraints
from solvers.ordering.smt import SmtLimits

_PERTURBATIONS_PER_HOST = 1000
_MAX_QUERIES = 40  # to Z3, where there is no time limit
_QUERY_TIME_SHARE = 0.25  # of the time limit, for one query
_QUERY_STEPS = 20_000_000  # of Z3's resource counter: a few seconds


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
    limits = CircuitLimits(seed=seed % (1 << 31), time_limit_s=time_limit_s, keep_going=budget.keep_going)
    if bottleneck:
        return _solve_bottleneck_ring(problem, result, cost, ring, seed, limits)
    solution = solve_circuit(cost, ring, limits)
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
    return replace(improved, lower_bound=min(bound, ring_cost), bound_by="cp-sat")


def _solve_bottleneck_ring(
    problem: OrderingProblem, result: OrderingResult, cost: Matrix, ring: Order, seed: int, limits: CircuitLimits
) -> OrderingResult:
    longest = solve_circuit(cost, ring, limits, bottleneck=True)
    # CP-SAT minimised the longest hop alone: local search gives a good sum for the second solve to start from.
    sum_budget = SearchBudget(_PERTURBATIONS_PER_HOST * len(cost), lambda progress: limits.keep_going())
    start = least_sum(cost, longest.order, longest.cost, seed, sum_budget)
    total = solve_circuit(cost, start, limits, longest=longest.cost)
    order = rotate_to_constraints(problem, problem.hosts[total.order])
    bound = max(longest.lower_bound, result.lower_bound or 0.0)
    metrics = {**result.metrics, "sum": total.cost}
    if bound >= longest.cost:  # the bound of the sum holds for rings with this longest hop only
        metrics["sum_lower_bound"] = max(total.lower_bound, result.metrics.get("sum_lower_bound", 0.0))
    return replace(result, order=order, cost=longest.cost, lower_bound=bound, bound_by="cp-sat", metrics=metrics)
