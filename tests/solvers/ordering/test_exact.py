"""Proofs of small orders: the best of all that are allowed, bounds that no order is below, the same every time."""

import dataclasses
import itertools

import numpy as np
import pytest

from solvers.costs.by_name import cost_function_for
from solvers.ordering.constraints import PlacementConstraints
from solvers.ordering.exact import ExactBudget, solve_exactly
from solvers.ordering.problem import OrderingProblem, OrderingResult, SearchBudget
from solvers.ordering.ring import longest_hop
from solvers.ordering.search import search
from solvers.ordering.smt_windows import EPSILON
from solvers.schedules.catalogue import Options
from tests.solvers.costs.test_cost_models import fabric
from tests.solvers.ordering.instances import allowed_orders, given_order, is_allowed
from tests.solvers.synthetic import Tour, loop_cost

SIZE = 4e6
PAIRS = [[0, 3], [1, 4], [2, 5]]
SAME_WORK = ExactBudget(None, lambda: True)


def task_of(
    slots: list[int], constraints: PlacementConstraints, algo: str, model: str, seed: int, objective: str = "auto"
) -> OrderingProblem:
    result = fabric(len(slots), seed)
    return OrderingProblem(result, given_order(slots, seed), algo, Options(), SIZE, model, objective, constraints)


def begun(task: OrderingProblem) -> OrderingResult:
    """The dearest order that is allowed, nothing known of any other."""
    slots = np.bincount(task.baseline).tolist()
    cost_of = cost_function_for(task.algo, len(task.baseline), task.options, task.fabric, task.size_bytes, task.model)
    orders = list(allowed_orders(slots, task.constraints))
    if task.objective == "bottleneck":
        order = max(orders, key=lambda item: longest_hop(task.fabric.rtt_us, item))
        cost = longest_hop(task.fabric.rtt_us, order)
        also = {"sum": cost_of(order)}
    else:
        order = max(orders, key=cost_of)
        cost, also = cost_of(order), {}
    return OrderingResult(order, cost, None, None, cost, cost, 0, task.objective, also)


def least(task: OrderingProblem) -> float:
    slots = np.bincount(task.baseline).tolist()
    cost_of = cost_function_for(task.algo, len(task.baseline), task.options, task.fabric, task.size_bytes, task.model)
    return min(cost_of(order) for order in allowed_orders(slots, task.constraints))


def is_sound(result: OrderingResult, task: OrderingProblem, best: float) -> None:
    """An allowed order and its cost; a bound that is not above the best; proven only what is so."""
    slots = np.bincount(task.baseline).tolist()
    cost_of = cost_function_for(task.algo, len(task.baseline), task.options, task.fabric, task.size_bytes, task.model)
    assert is_allowed(result.order, slots, task.constraints)
    assert result.cost == pytest.approx(cost_of(result.order), rel=1e-9)
    if result.lower_bound is not None:
        assert result.lower_bound <= best * (1 + 2 * EPSILON)
    if result.is_optimal:
        assert result.cost <= best * (1 + 2 * EPSILON)


@pytest.mark.parametrize(
    ("algo", "model"),
    [
        ("ring", "latency"),
        ("ring", "contention"),
        ("halving-doubling", "latency"),
        ("halving-doubling", "alpha-beta"),
        ("tree", "latency"),
        ("double-binary-tree", "latency"),
    ],
)
def test_the_worst_start_becomes_the_proven_best(algo: str, model: str) -> None:
    for n in (3, 5):
        task = task_of([1] * n, PlacementConstraints(), algo, model, n)
        first, second = (solve_exactly(task, begun(task), 1, SAME_WORK) for _ in range(2))
        is_sound(first, task, least(task))
        assert first.is_optimal
        assert first.bound_by == ("subtours" if (algo, model) == ("ring", "latency") else "z3")
        assert first.order.tolist() == second.order.tolist()
        assert dataclasses.asdict(first) | {"order": 0} == dataclasses.asdict(second) | {"order": 0}


@pytest.mark.parametrize(
    ("slots", "constraints", "provable", "algo", "model"),
    [
        ([1] * 6, PlacementConstraints({2: 0}), True, "ring", "latency"),
        ([1] * 6, PlacementConstraints({2: 0}), True, "tree", "latency"),
        ([1] * 6, PlacementConstraints({4: 0, 1: 5}), True, "ring", "latency"),
        ([1] * 6, PlacementConstraints({4: 0, 1: 5}), True, "ring", "alpha-beta"),
        ([1] * 5, PlacementConstraints({}, [[k] for k in range(5)]), True, "ring", "contention"),
        ([1] * 4, PlacementConstraints({0: 0}, [[0, 1], [2, 3]]), True, "tree", "contention"),
        ([1] * 6, PlacementConstraints({}, PAIRS), False, "ring", "latency"),
        ([1] * 6, PlacementConstraints({}, PAIRS), False, "tree", "latency"),
        ([1] * 6, PlacementConstraints({4: 2}, PAIRS), False, "ring", "latency"),
        ([2] * 4, PlacementConstraints(), True, "ring", "latency"),
        ([2] * 4, PlacementConstraints(), True, "tree", "alpha-beta"),
        ([2] * 4, PlacementConstraints({1: 2}), True, "ring", "contention"),
    ],
)
def test_certificates_are_of_feasible_orders(
    slots: list[int], constraints: PlacementConstraints, provable: bool, algo: str, model: str
) -> None:
    task = task_of(slots, constraints, algo, model, 7)
    start = begun(task)
    result = solve_exactly(task, start, 1, SAME_WORK)
    is_sound(result, task, least(task))
    assert result.cost <= start.cost
    if provable or (task.is_latency_ring and not constraints.pinned_ranks):
        assert result.is_optimal


@pytest.mark.parametrize(
    ("slots", "constraints", "algo", "model"),
    [
        ([3, 1, 1], PlacementConstraints(), "ring", "contention"),
        ([3, 1, 2, 2, 1], PlacementConstraints(), "ring", "latency"),
        ([3, 1, 2, 2, 1], PlacementConstraints(), "tree", "latency"),
        ([3, 1, 2, 1], PlacementConstraints({2: 0}), "halving-doubling", "latency"),
        ([3, 1, 2, 1], PlacementConstraints({2: 0}), "ring", "alpha-beta"),
        ([1, 3, 2, 2], PlacementConstraints({}, [[0, 1], [2, 3]]), "ring", "latency"),
        ([1, 3, 2, 2], PlacementConstraints({}, [[0, 1], [2, 3]]), "halving-doubling", "alpha-beta"),
        ([1] * 5, PlacementConstraints({}, [[0, 1], [2, 3, 4]]), "tree", "contention"),
        ([1] * 5, PlacementConstraints({}, [[0], [1, 2, 3, 4]]), "ring", "latency"),
    ],
)
def test_uneven_hosts_and_groups_are_not_proven_wrongly(
    slots: list[int], constraints: PlacementConstraints, algo: str, model: str
) -> None:
    """The exact methods look at exchanges of equals alone."""
    task = task_of(slots, constraints, algo, model, 7)
    is_sound(solve_exactly(task, begun(task), 1, SAME_WORK), task, least(task))


@pytest.mark.parametrize(
    ("slots", "constraints"),
    [
        ([1] * 6, PlacementConstraints()),
        ([1] * 6, PlacementConstraints({3: 2})),
        ([2, 1, 3, 1], PlacementConstraints()),
    ],
)
def test_the_longest_hop_is_proven_too(slots: list[int], constraints: PlacementConstraints) -> None:
    task = task_of(slots, constraints, "ring", "latency", 5, "bottleneck")
    result = solve_exactly(task, begun(task), 1, SAME_WORK)
    rtt = task.fabric.rtt_us
    assert is_allowed(result.order, slots, constraints)
    assert result.cost == longest_hop(rtt, result.order)
    assert result.cost == min(longest_hop(rtt, order) for order in allowed_orders(slots, constraints))
    assert result.is_optimal
    assert result.metrics["sum"] == pytest.approx(loop_cost(rtt, result.order))
    shortest = min(
        loop_cost(rtt, order) for order in allowed_orders(slots, constraints) if longest_hop(rtt, order) <= result.cost
    )
    assert result.metrics["sum"] == pytest.approx(shortest)
    assert result.metrics["sum_lower_bound"] == pytest.approx(shortest)


def test_ring_metrics_are_of_the_better_ring() -> None:
    """Also where the bound was known before."""
    task = task_of([1] * 6, PlacementConstraints(), "ring", "latency", 3)
    rtt = task.fabric.rtt_us
    start = begun(task)
    start = dataclasses.replace(start, metrics={"bottleneck": longest_hop(rtt, start.order)})
    for bound in (None, 0.0, least(task)):
        result = solve_exactly(task, dataclasses.replace(start, lower_bound=bound, bound_by="1-tree"), 1, SAME_WORK)
        assert result.cost < start.cost
        assert result.metrics["bottleneck"] == longest_hop(rtt, result.order)


def test_what_is_proven_or_has_no_exact_method_is_left_as_it_is() -> None:
    for algo, model in (("ring", "latency"), ("nccl", "latency"), ("flat", "alpha-beta")):
        task = task_of([1] * 5, PlacementConstraints(), algo, model, 2)
        result = search(task, 1, SearchBudget(1000))
        assert solve_exactly(task, result, 1, SAME_WORK) is result
    two = task_of([1, 1], PlacementConstraints(), "tree", "contention", 2)
    start = begun(two)
    assert solve_exactly(two, start, 1, SAME_WORK) is start


def test_proof_is_the_same_by_time_or_by_work() -> None:
    """Seconds are a limit for Z3, which counts in milliseconds: ten minutes are none for six hosts."""
    task = task_of([1] * 6, PlacementConstraints(), "tree", "latency", 3)
    first, second = (
        solve_exactly(task, begun(task), 1, budget) for budget in (SAME_WORK, ExactBudget(600.0, lambda: True))
    )
    assert second.is_optimal
    assert (second.order.tolist(), second.cost) == (first.order.tolist(), first.cost)


N = 6
ORDERS = [np.array(order) for order in itertools.permutations(range(N))]


def ring_task(
    constraints: PlacementConstraints | None = None, objective: str = "auto", seed: int = 3
) -> OrderingProblem:
    return OrderingProblem(
        fabric(N, seed),
        np.arange(N),
        "ring",
        Options(),
        1e6,
        "latency",
        objective,
        constraints=constraints or PlacementConstraints(),
    )


def found_of(task: OrderingProblem, order: Tour, bound: float | None = None) -> OrderingResult:
    rtt = task.fabric.rtt_us
    longest = task.objective == "bottleneck"
    cost = longest_hop(rtt, order) if longest else loop_cost(rtt, order)
    return OrderingResult(
        order, cost, bound, None if bound is None else "1-tree", cost, cost, 0, "bottleneck" if longest else "sum"
    )


def best_and_worst(task: OrderingProblem) -> tuple[Tour, Tour]:
    by_sum = sorted(ORDERS, key=lambda order: loop_cost(task.fabric.rtt_us, order))
    return by_sum[0], by_sum[-1]


def test_the_cheapest_ring_is_left_as_it_is_written_and_proven() -> None:
    """Whichever host it begins with, and either way round."""
    task = ring_task()
    for turn in (0, 5):
        order = np.roll(best_and_worst(task)[0][::-1], turn)
        result = solve_exactly(task, found_of(task, order), 1, SAME_WORK)
        assert result.order.tolist() == order.tolist()
        assert result.bound_by == "subtours"
        assert result.is_optimal
        assert result.lower_bound is not None
        assert result.cost * (1 - 1e-6) <= result.lower_bound <= result.cost == loop_cost(task.fabric.rtt_us, order)


@pytest.mark.parametrize(("share", "by"), [(0.5, "subtours"), (1.0, "1-tree")])
def test_a_bound_as_good_as_the_proof_stays_and_one_that_is_not_is_raised(share: float, by: str) -> None:
    task = ring_task()
    best, worst = best_and_worst(task)
    least = loop_cost(task.fabric.rtt_us, best)
    result = solve_exactly(task, found_of(task, worst, share * least), 1, SAME_WORK)
    assert result.cost == pytest.approx(least)
    assert (result.bound_by, result.is_optimal) == (by, True)
    assert result.lower_bound == pytest.approx(least, rel=1e-6)
    assert result.metrics["bottleneck"] == longest_hop(task.fabric.rtt_us, result.order)


def test_a_ring_through_groups_is_proven_without_penalties() -> None:
    """Three pairs of hosts, each entered once: the least of all such rings, and nothing said of its longest hop."""
    task, group = ring_task(PlacementConstraints({}, PAIRS)), np.array([0, 1, 2, 0, 1, 2])
    rtt = task.fabric.rtt_us
    allowed = [order for order in ORDERS if (group[order][::2] == group[order][1::2]).all()]
    worst = max(allowed, key=lambda order: loop_cost(rtt, order))
    least = min(loop_cost(rtt, order) for order in allowed)
    start = dataclasses.replace(found_of(task, worst), metrics={"bottleneck": 1.0})
    result = solve_exactly(task, start, 1, SAME_WORK)
    assert result.cost == pytest.approx(least)
    assert result.lower_bound == pytest.approx(least, rel=2e-5)
    assert result.lower_bound is not None
    assert result.lower_bound <= result.cost
    assert any(np.array_equal(result.order, order) for order in allowed)
    assert result.metrics == {}


def test_of_rings_with_the_shortest_longest_hop_the_least_sum_is_proven() -> None:
    """Whatever bounds were known before; the larger bound of the sum stays."""
    task = ring_task(objective="bottleneck")
    rtt = task.fabric.rtt_us
    shortest = min(longest_hop(rtt, order) for order in ORDERS)
    worst = max(ORDERS, key=lambda order: longest_hop(rtt, order))
    least = min(loop_cost(rtt, order) for order in ORDERS if longest_hop(rtt, order) == shortest)
    for cached in (None, 0.5, 1.0):
        start = found_of(task, worst, None if cached is None else cached * shortest)
        result = solve_exactly(task, start, 1, SAME_WORK)
        assert (result.cost, result.lower_bound, result.bound_by) == (shortest, shortest, "subtours")
        assert result.metrics["sum"] == pytest.approx(least)
        assert result.metrics["sum_lower_bound"] == pytest.approx(least, rel=1e-6)
        assert longest_hop(rtt, result.order) == shortest
    start = dataclasses.replace(found_of(task, worst), metrics={"sum": 1.0, "sum_lower_bound": 1e9})
    assert solve_exactly(task, start, 1, SAME_WORK).metrics["sum_lower_bound"] == 1e9


@pytest.mark.parametrize("objective", ["auto", "bottleneck"])
def test_time_that_is_not_needed_changes_no_proof(objective: str) -> None:
    task = ring_task(objective=objective)
    start = found_of(task, max(ORDERS, key=lambda order: longest_hop(task.fabric.rtt_us, order)))
    result = solve_exactly(task, start, 1, ExactBudget(600.0, lambda: True))
    assert result.is_optimal
    assert result.cost == solve_exactly(task, start, 1, SAME_WORK).cost


def test_longest_hop_of_a_fixed_ring_is_left() -> None:
    task = ring_task(PlacementConstraints({0: 0, 3: 1}), "bottleneck")
    start = found_of(task, np.array([0, 3, 1, 2, 4, 5]))
    assert solve_exactly(task, start, 1, SAME_WORK) is start
