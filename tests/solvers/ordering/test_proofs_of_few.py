"""Proofs beside what was known before: an order as good is kept, a bound as good too, the rest is left alone."""

import dataclasses
import itertools

import numpy as np
import pytest

from solvers.ordering.proving import Budget, prove, proven
from solvers.ordering.ring import longest_hop
from solvers.ordering.seats import Wishes
from solvers.ordering.task import Found, Task
from solvers.schedules.catalogue import Options
from tests.solvers.costs.test_cost_models import fabric
from tests.solvers.synthetic import Tour, loop_cost

N = 6
WORK = Budget(None, lambda: True)
ORDERS = [np.array(order) for order in itertools.permutations(range(N))]


def ring_task(wishes: Wishes | None = None, objective: str = "auto", seed: int = 3) -> Task:
    return Task(fabric(N, seed), np.arange(N), "ring", Options(), 1e6, "latency", objective, wishes=wishes or Wishes())


def found_of(task: Task, order: Tour, bound: float | None = None) -> Found:
    rtt = task.fabric.rtt_us
    longest = task.objective == "bottleneck"
    cost = longest_hop(rtt, order) if longest else loop_cost(rtt, order)
    return Found(
        order, cost, bound, None if bound is None else "1-tree", cost, cost, 0, "bottleneck" if longest else "sum"
    )


def best_and_dearest(task: Task) -> tuple[Tour, Tour]:
    by_sum = sorted(ORDERS, key=lambda order: loop_cost(task.fabric.rtt_us, order))
    return by_sum[0], by_sum[-1]


@pytest.mark.parametrize("turn", [0, 2, 5])
def test_the_cheapest_ring_is_left_as_it_is_written_and_proven(turn: int) -> None:
    """Whichever host it begins with, and either way round."""
    task = ring_task()
    order = np.roll(best_and_dearest(task)[0][::-1], turn)
    result = prove(task, found_of(task, order), 1, WORK)
    assert result.order.tolist() == order.tolist()
    assert result.bound_by == "cp-sat"
    assert proven(result)
    assert result.lower_bound is not None
    assert result.cost * (1 - 1e-6) <= result.lower_bound <= result.cost == loop_cost(task.fabric.rtt_us, order)


@pytest.mark.parametrize(("share", "by"), [(0.5, "cp-sat"), (1.0, "1-tree")])
def test_a_bound_as_good_as_the_proof_stays_and_one_that_is_not_is_raised(share: float, by: str) -> None:
    task = ring_task()
    best, dearest = best_and_dearest(task)
    least = loop_cost(task.fabric.rtt_us, best)
    result = prove(task, found_of(task, dearest, share * least), 1, WORK)
    assert result.cost == pytest.approx(least)
    assert (result.bound_by, proven(result)) == (by, True)
    assert result.lower_bound == pytest.approx(least, rel=1e-6)
    assert result.also["bottleneck"] == longest_hop(task.fabric.rtt_us, result.order)


def test_a_ring_through_groups_is_proven_without_the_tolls() -> None:
    """Three pairs of hosts, each entered once: the least of all such rings, and nothing said of its longest hop."""
    groups = [[0, 3], [1, 4], [2, 5]]
    task, group = ring_task(Wishes({}, groups)), np.array([0, 1, 2, 0, 1, 2])
    rtt = task.fabric.rtt_us
    allowed = [order for order in ORDERS if (group[order][::2] == group[order][1::2]).all()]
    dearest = max(allowed, key=lambda order: loop_cost(rtt, order))
    least = min(loop_cost(rtt, order) for order in allowed)
    result = prove(task, dataclasses.replace(found_of(task, dearest), also={"bottleneck": 1.0}), 1, WORK)
    assert result.cost == pytest.approx(least)
    assert result.lower_bound == pytest.approx(least, rel=2e-5)
    assert result.lower_bound is not None
    assert result.lower_bound <= result.cost
    assert any(np.array_equal(result.order, order) for order in allowed)
    assert result.also == {}


@pytest.mark.parametrize("known", [None, 0.5, 1.0])
def test_of_rings_with_the_shortest_longest_hop_the_least_sum_is_proven(known: float | None) -> None:
    task = ring_task(objective="bottleneck")
    rtt = task.fabric.rtt_us
    shortest = min(longest_hop(rtt, order) for order in ORDERS)
    worst = max(ORDERS, key=lambda order: longest_hop(rtt, order))
    start = found_of(task, worst, None if known is None else known * shortest)
    result = prove(task, start, 1, WORK)
    least = min(loop_cost(rtt, order) for order in ORDERS if longest_hop(rtt, order) == shortest)
    assert (result.cost, result.lower_bound, result.bound_by) == (shortest, shortest, "cp-sat")
    assert result.also["sum"] == pytest.approx(least)
    assert result.also["sum_lower_bound"] == pytest.approx(least, rel=1e-6)
    assert longest_hop(rtt, result.order) == shortest


def test_a_bound_of_the_sum_that_was_known_is_not_lost() -> None:
    """Nor made smaller: the larger of the two is the better."""
    task = ring_task(objective="bottleneck")
    rtt = task.fabric.rtt_us
    worst = max(ORDERS, key=lambda order: longest_hop(rtt, order))
    for known in (0.0, 1e9):
        start = dataclasses.replace(found_of(task, worst), also={"sum": 1.0, "sum_lower_bound": known})
        result = prove(task, start, 1, WORK)
        assert result.also["sum_lower_bound"] == (known if known else pytest.approx(result.also["sum"], rel=1e-6))


@pytest.mark.parametrize("seconds", [None, 600.0])
@pytest.mark.parametrize("objective", ["auto", "bottleneck"])
def test_time_that_is_not_needed_changes_no_proof(seconds: float | None, objective: str) -> None:
    task = ring_task(objective=objective)
    start = found_of(task, max(ORDERS, key=lambda order: longest_hop(task.fabric.rtt_us, order)))
    result = prove(task, start, 1, Budget(seconds, lambda: True))
    assert proven(result)
    assert result.cost == prove(task, start, 1, WORK).cost


def test_the_longest_hop_of_a_ring_that_cannot_be_turned_is_left() -> None:
    task = ring_task(Wishes({0: 0, 3: 1}), "bottleneck")
    start = found_of(task, np.array([0, 3, 1, 2, 4, 5]))
    assert prove(task, start, 1, WORK) is start


def test_it_is_said_how_many_questions_were_asked() -> None:
    """A tree of six is one question until nothing is cheaper, and whatever was said besides is kept."""
    task = Task(fabric(N, 3), np.arange(N), "tree", Options(), 1e6, "latency")
    start = dataclasses.replace(found_of(task, np.arange(N)), cost=1e9, also={"bottleneck": 7.0})
    result = prove(task, start, 1, WORK)
    assert result.also["bottleneck"] == 7.0
    assert result.also["questions"] >= 1
    assert result.lower_bound == result.cost
    again = prove(task, dataclasses.replace(result, lower_bound=None), 1, WORK)
    assert again.also["questions"] == 1
    assert again.order.tolist() == result.order.tolist()


@pytest.mark.parametrize("algo", ["tree", "ring"])
def test_three_hosts_are_enough_for_a_proof_and_two_are_not(algo: str) -> None:
    for n, changed in ((2, False), (3, True)):
        task = Task(fabric(n, 2), np.arange(n), algo, Options(), 1e6, "latency")
        start = Found(np.arange(n), 1e9, None, None, 1e9, 1e9, 0, "sum" if algo == "ring" else "time")
        assert (prove(task, start, 1, WORK) is not start) is changed
