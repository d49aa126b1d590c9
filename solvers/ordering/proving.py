"""From a good order to a proof: exact methods that improve it, or say that nothing does (PLink thesis, 5.2.3).

Rings under ``latency`` go to CP-SAT, everything else to Z3: the whole order up to about ten hosts, beyond that windows
and groups, which can improve it but prove nothing about the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from solvers.costs.by_name import MIXED, pattern_for
from solvers.costs.closed_forms import PricingProblem
from solvers.ordering.circuit import CircuitEffort, prove_ring
from solvers.ordering.neighbourhoods import improve
from solvers.ordering.progress import SearchBudget
from solvers.ordering.ring import least_sum, longest_hop
from solvers.ordering.rings import can_turn, ordered, with_tolls
from solvers.ordering.smt import Effort
from solvers.ordering.task import Found, Task

WHOLE = 10  # ranks: up to here Z3 is asked about the whole order
_PROVEN = 1e-6  # a share of the cost: what "proven" leaves open
_DISTURBANCES = 1000  # of a ring, a host
_QUESTIONS = 40  # to Z3, where no clock ends them
_ONE_QUESTION = 0.25  # of the time for a question, at most
_STEPS = 20_000_000  # of Z3's, a question: a few seconds


@dataclass(frozen=True)
class Budget:
    """``seconds`` to spend at most; None: a fixed amount of work. ``keep_going`` is asked between
    questions, and meanwhile."""

    seconds: float | None
    keep_going: Callable[[], bool]


def proven(found: Found) -> bool:
    """Whether no order costs less, by more than a millionth."""
    return found.gap is not None and found.gap <= _PROVEN


def prove(task: Task, found: Found, seed: int, budget: Budget) -> Found:
    """The same order or a cheaper one, and a lower bound, if it could be raised; ``bound_by`` says by whom."""
    seats = task.seats
    if proven(found) or task.algo in MIXED or len(task.hosts) < 3:
        return found
    pattern = pattern_for(task.algo, len(task.given), task.options)
    if pattern.everyone:
        return found
    if task.by_hops and (seats.free or can_turn(seats)):
        return _by_circuit(task, found, seed, budget)
    if found.objective == "bottleneck":
        return found
    # Several questions: none of them may take all the time there is.
    effort = Effort(
        _STEPS,
        None if budget.seconds is None else max(1, int(budget.seconds * 1000 * _ONE_QUESTION)),
        budget.keep_going,
    )
    classes = [one.units for one in seats.classes(found.order)]
    problem = PricingProblem(pattern, task.fabric, task.size_bytes, task.model)
    better = improve(problem, found.order, classes, effort, seed, _QUESTIONS)
    asked = {**found.also, "questions": float(better.asked)}
    # Uneven hosts or groups could follow each other in ways that no exchange of equals makes.
    if better.proved and len(set(seats.slots[seats.hosts].tolist())) == 1 and seats.even_groups:
        return replace(found, order=better.order, cost=better.cost, lower_bound=better.cost, bound_by="z3", also=asked)
    return replace(found, order=better.order, cost=better.cost, also=asked)


def _by_circuit(task: Task, found: Found, seed: int, budget: Budget) -> Found:
    hosts = task.hosts
    cost, toll = with_tolls(task)
    place = {host: k for k, host in enumerate(hosts.tolist())}
    ring = np.array([place[host] for host in dict.fromkeys(found.order.tolist())], dtype=np.intp)
    twice = found.objective == "bottleneck"  # asked about the longest hop, then about the sum
    share = None if budget.seconds is None else budget.seconds / (1 + twice)
    effort = CircuitEffort(seed=seed % (1 << 31), time_limit_s=share, keep_going=budget.keep_going)
    if twice:
        proof = prove_ring(cost, ring, effort, bottleneck=True)
        # CP-SAT looks at the longest hop alone: the sum is made good afterwards.
        sums_budget = SearchBudget(_DISTURBANCES * len(cost), lambda progress: budget.keep_going())
        least = least_sum(cost, proof.order, proof.cost, seed, sums_budget)
        second = prove_ring(cost, least, effort, longest=proof.cost)
        order = ordered(task, hosts[second.order])
        bound = max(proof.lower_bound, found.lower_bound or 0.0)
        sums = {"sum": second.cost}
        if bound >= proof.cost:  # rings with a shorter longest hop, if there were any, might have another sum
            sums["sum_lower_bound"] = max(second.lower_bound, found.also.get("sum_lower_bound", 0.0))
        also = {**found.also, **sums}
        return replace(found, order=order, cost=proof.cost, lower_bound=bound, bound_by="cp-sat", also=also)
    proof = prove_ring(cost, ring, effort)
    bound, value = proof.lower_bound - toll, proof.cost - toll
    if value >= found.cost * (1 - 1e-12):
        order, value = found.order, found.cost
    else:
        order = ordered(task, hosts[proof.order])
    also = {} if toll else {**found.also, "bottleneck": longest_hop(task.fabric.rtt_us, order)}
    if found.lower_bound is not None and bound <= found.lower_bound:
        return replace(found, order=order, cost=value, also=also)
    return replace(found, order=order, cost=value, lower_bound=min(bound, value), bound_by="cp-sat", also=also)
