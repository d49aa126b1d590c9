"""A ring of hosts as an order of ranks: rotated to the constraints, each group entered once, without penalties."""

import dataclasses
import itertools
from functools import partial

import numpy as np
import pytest

from solvers.ordering.constraints import PlacementConstraints
from solvers.ordering.problem import OrderingProblem, OrderingResult, SearchBudget, SearchProgress
from solvers.ordering.ring import (
    is_rotation_enough,
    penalised_costs,
    ring_lower_bound,
    rotate_to_constraints,
    search_ring_order,
)
from solvers.ordering.search import search
from solvers.schedules.catalogue import Options
from tests.solvers.costs.test_cost_models import fabric
from tests.solvers.synthetic import Tour, brute_force, loop_cost, random_costs

SIZE = 1e6


def task_of(
    values: list[int], constraints: PlacementConstraints, hosts: int = 0, objective: str = "auto", seed: int = 3
) -> OrderingProblem:
    result = fabric(hosts or max(values) + 1, seed)
    return OrderingProblem(result, np.array(values), "ring", Options(), SIZE, "latency", objective, constraints)


def test_ring_rotates_to_groups_or_to_one_pin() -> None:
    pairs = [[0, 1], [2, 3]]
    for values, constraints, can in (
        ([0, 1, 2, 2], PlacementConstraints(), True),
        ([0, 0, 1, 1], PlacementConstraints({1: 2}), True),
        ([0, 1, 1], PlacementConstraints({1: 0}), False),  # uneven: a turn moves the ranks where others begin
        ([0, 1, 2], PlacementConstraints({1: 2, 0: 0}), False),
        ([0, 1, 2, 3], PlacementConstraints({}, pairs), True),
        ([0, 1, 2, 3], PlacementConstraints({1: 0}, pairs), False),
    ):
        assert is_rotation_enough(task_of(values, constraints).feasible) is can, (values, constraints)


def test_hops_between_groups_cost_ten_of_the_longest_more() -> None:
    """Of the hosts that have ranks, as they update_chain each other; a ring pays one toll for each group."""
    values, groups = [5, 2, 7, 0, 3], [[5, 0], [2, 7], [3]]
    task = task_of(values, PlacementConstraints({}, groups), hosts=8)
    cost, apart = penalised_costs(task)
    longest = max(task.fabric.rtt_us[a, b] for a, b in itertools.combinations(values, 2))
    for (i, a), (k, b) in itertools.product(enumerate(values), repeat=2):
        together = any(a in group and b in group for group in groups)
        assert cost[i, k] == task.fabric.rtt_us[a, b] + (0.0 if together else 10 * longest)
    assert apart == 3 * 10 * longest
    for one_group in (None, [values]):
        task = task_of(values, PlacementConstraints({}, one_group))
        cost, apart = penalised_costs(task)
        assert cost.tolist() == task.fabric.rtt_us[np.ix_(values, values)].tolist()
        assert apart == 0.0


def test_a_ring_is_rotated_to_the_constraints() -> None:
    groups = PlacementConstraints({}, [[0, 1, 2], [3, 4]])
    for values, constraints, ring, order in (
        ([0, 1, 2, 3], PlacementConstraints(), [2, 0, 3, 1], [2, 0, 3, 1]),
        ([0, 1, 2, 3], PlacementConstraints({3: 1}), [2, 0, 3, 1], [0, 3, 1, 2]),
        ([0, 0, 1, 1, 2, 2], PlacementConstraints({0: 4}), [0, 1, 2], [1, 1, 2, 2, 0, 0]),
        ([0, 0, 1, 1, 2, 2, 3, 3], PlacementConstraints({3: 4}), [3, 1, 0, 2], [0, 0, 2, 2, 3, 3, 1, 1]),
        ([0, 1, 2, 2, 2], PlacementConstraints(), [1, 2, 0], [1, 2, 2, 2, 0]),
        # From the first host of the first group that begins inside: none is cut in two.
        ([0, 1, 2, 3, 4], groups, [1, 2, 3, 4, 0], [3, 4, 0, 1, 2]),
        ([0, 1, 2, 3, 4], groups, [0, 2, 1, 4, 3], [0, 2, 1, 4, 3]),
        # A ring that enters a group twice: hosts by their groups, each as the ring has them.
        ([0, 1, 2, 3, 4], groups, [4, 2, 3, 0, 1], [2, 0, 1, 4, 3]),
        ([0, 1, 2], PlacementConstraints({}, [[0, 1, 2]]), [1, 2, 0], [1, 2, 0]),
    ):
        task = task_of(values, constraints)
        assert rotate_to_constraints(task, np.array(ring)).tolist() == order, (values, constraints, ring)


def begun(task: OrderingProblem) -> OrderingResult:
    cost = loop_cost(task.fabric.rtt_us, task.baseline)
    return OrderingResult(task.baseline, cost, None, None, cost, 2 * cost, 0, "sum")


def ring_cost_of(task: OrderingProblem, order: Tour) -> float:
    return loop_cost(task.fabric.rtt_us, order)


@pytest.mark.parametrize("groups", [None, [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9, 10]]])
def test_progress_is_of_the_ring_without_penalties(groups: list[list[int]] | None) -> None:
    """Of the given order first, which enters every group once; then of cheaper ones, with bounds below them."""
    task = task_of(list(range(11)), PlacementConstraints({}, groups))
    messages: list[SearchProgress] = []

    def watch(progress: SearchProgress) -> bool:
        messages.append(progress)
        return True

    result = search_ring_order(
        task, begun(task), partial(ring_cost_of, task), 1, SearchBudget(3000, watch, exhaustive=False)
    )
    assert messages[0].cost == pytest.approx(ring_cost_of(task, task.baseline))
    assert all(result.cost <= item.cost * (1 + 1e-9) for item in messages)
    assert result.lower_bound is not None
    bounds = [item.lower_bound for item in messages if item.lower_bound is not None]
    assert bounds or groups is None  # it may be met before anything is tried
    assert all(0.5 * result.cost < bound <= result.lower_bound * (1 + 1e-9) for bound in bounds)
    assert result.bound_by == "1-tree"
    assert result.moves >= messages[-1].moves
    assert bool(result.metrics) is (groups is None)


def test_through_groups_no_ring_is_cheaper_than_any_ring() -> None:
    """The larger of two bounds: with tolls, which they are taken off, and of all rings."""
    for seed in range(4):
        task = task_of(list(range(12)), PlacementConstraints({}, [[k, k + 6] for k in range(6)]), seed=seed)
        result = search_ring_order(
            task, begun(task), partial(ring_cost_of, task), 1, SearchBudget(500, exhaustive=False)
        )
        assert result.lower_bound is not None
        assert ring_lower_bound(task) <= result.lower_bound <= result.cost


@pytest.mark.parametrize("n", [4, 10])
def test_of_few_hosts_the_bound_is_the_cheapest_of_all_rings(n: int) -> None:
    task = task_of(list(range(n)), PlacementConstraints())
    result = search_ring_order(task, begun(task), partial(ring_cost_of, task), 1, SearchBudget(500, exhaustive=False))
    best = brute_force(task.fabric.rtt_us)
    assert result.cost == pytest.approx(best)
    assert result.lower_bound == pytest.approx(best)
    assert result.bound_by == "all rings"
    assert result.metrics["bottleneck_lower_bound"] <= result.metrics["bottleneck"]


def test_one_more_host_is_bounded_by_trees() -> None:
    task = task_of(list(range(11)), PlacementConstraints())
    result = search_ring_order(task, begun(task), partial(ring_cost_of, task), 1, SearchBudget(500, exhaustive=False))
    assert result.bound_by == "1-tree"
    longest = search_ring_order(
        task, dataclasses.replace(begun(task), objective="bottleneck"),
        lambda item: float(task.fabric.rtt_us[item, np.roll(item, 1)].max()), 1, SearchBudget(500, exhaustive=False),
    )  # fmt: skip
    assert longest.bound_by == "2-connected threshold"
    assert longest.metrics["sum"] == pytest.approx(ring_cost_of(task, longest.order))


def test_feasible_baseline_stays_where_no_ring_is_cheaper() -> None:
    """All hops cost the same; a pin that the given order does not have is kept all the same."""
    values = [3, 1, 4, 0, 2, 5, 8, 7, 6]
    for constraints, same in (
        (PlacementConstraints(), True),
        (PlacementConstraints({3: 0}), True),
        (PlacementConstraints({4: 0}), False),
    ):
        task = task_of(values, constraints)
        task = dataclasses.replace(task, fabric=dataclasses.replace(task.fabric, rtt_us=50.0 * ~np.eye(9, dtype=bool)))
        result = search(task, 1, SearchBudget(500))
        assert (result.order.tolist() == values) is same
        assert result.cost == result.baseline_cost == 9 * 50.0
        assert result.lower_bound == pytest.approx(9 * 50.0)
        for host, rank in constraints.pinned_ranks.items():
            assert result.order[rank] == host


def test_no_ring_of_the_hosts_that_have_ranks_costs_less_than_its_bound() -> None:
    """The others, nearer or not, play no part; three hosts make one ring."""
    task = task_of([4, 1, 6], PlacementConstraints(), hosts=7)
    assert ring_lower_bound(task) == loop_cost(task.fabric.rtt_us, np.array([4, 1, 6]))
    near = dataclasses.replace(task.fabric, rtt_us=random_costs(7, 5, 10, 20))
    near.rtt_us[:, 6] = near.rtt_us[6, :] = 0.0
    of_six = OrderingProblem(near, np.arange(6), "ring", Options(), SIZE, "latency")
    assert ring_lower_bound(of_six) == pytest.approx(ring_lower_bound(dataclasses.replace(of_six, size_bytes=1.0)))
    assert 60 <= ring_lower_bound(of_six) <= brute_force(near.rtt_us[:6, :6])
