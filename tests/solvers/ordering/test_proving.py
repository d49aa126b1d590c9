"""Proofs of small orders: the best of all that are allowed, bounds that no order is below, the same every time."""

import dataclasses

import numpy as np
import pytest

from solvers.costs.by_name import pricing_for
from solvers.costs.evaluator import MODELS
from solvers.ordering.proving import Budget, prove, proven
from solvers.ordering.ring import longest_hop
from solvers.ordering.search import search
from solvers.ordering.seats import Wishes
from solvers.ordering.smt_windows import EPSILON
from solvers.ordering.task import Found, Task
from solvers.schedules.catalogue import Options
from tests.solvers.costs.test_cost_models import fabric
from tests.solvers.ordering.test_seats import is_allowed
from tests.solvers.ordering.test_wishes import PAIRS, SIZE, allowed_orders, given_order
from tests.solvers.synthetic import loop_cost

ALGORITHMS = ["ring", "halving-doubling", "tree", "double-binary-tree"]
SAME_WORK = Budget(None, lambda: True)


def task_of(slots: list[int], wishes: Wishes, algo: str, model: str, seed: int, objective: str = "auto") -> Task:
    found = fabric(len(slots), seed)
    return Task(found, given_order(slots, seed), algo, Options(), SIZE, model, objective, wishes)


def begun(task: Task) -> Found:
    """The dearest order that is allowed, nothing known of any other."""
    slots = np.bincount(task.given).tolist()
    price = pricing_for(task.algo, len(task.given), task.options, task.fabric, task.size_bytes, task.model)
    orders = list(allowed_orders(slots, task.wishes))
    if task.objective == "bottleneck":
        order = max(orders, key=lambda one: longest_hop(task.fabric.rtt_us, one))
        cost = longest_hop(task.fabric.rtt_us, order)
        also = {"sum": price(order)}
    else:
        order = max(orders, key=price)
        cost, also = price(order), {}
    return Found(order, cost, None, None, cost, cost, 0, task.objective, also)


def least(task: Task) -> float:
    slots = np.bincount(task.given).tolist()
    price = pricing_for(task.algo, len(task.given), task.options, task.fabric, task.size_bytes, task.model)
    return min(price(order) for order in allowed_orders(slots, task.wishes))


def is_sound(result: Found, task: Task, best: float) -> None:
    """An allowed order and its price; a bound that is not above the best; proven only what is so."""
    slots = np.bincount(task.given).tolist()
    price = pricing_for(task.algo, len(task.given), task.options, task.fabric, task.size_bytes, task.model)
    assert is_allowed(result.order, slots, task.wishes)
    assert result.cost == pytest.approx(price(result.order), rel=1e-9)
    if result.lower_bound is not None:
        assert result.lower_bound <= best * (1 + 2 * EPSILON)
    if proven(result):
        assert result.cost <= best * (1 + 2 * EPSILON)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_dearest_order_becomes_the_cheapest_and_is_proven(algo: str, model: str) -> None:
    for n in (3, 5):
        task = task_of([1] * n, Wishes(), algo, model, n)
        first, second = (prove(task, begun(task), 1, SAME_WORK) for _ in range(2))
        is_sound(first, task, least(task))
        assert proven(first)
        assert first.bound_by == ("cp-sat" if (algo, model) == ("ring", "latency") else "z3")
        assert first.order.tolist() == second.order.tolist()
        assert dataclasses.replace(first, order=task.given) == dataclasses.replace(second, order=task.given)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("algo", ["ring", "tree"])
@pytest.mark.parametrize(
    ("slots", "wishes", "provable"),
    [
        ([1] * 6, Wishes({2: 0}), True),
        ([1] * 6, Wishes({4: 0, 1: 5}), True),
        ([1] * 5, Wishes({}, [[k] for k in range(5)]), True),
        ([1] * 4, Wishes({0: 0}, [[0, 1], [2, 3]]), True),
        ([1] * 6, Wishes({}, PAIRS), False),
        ([1] * 6, Wishes({4: 2}, PAIRS), False),
        ([2] * 4, Wishes(), True),
        ([2] * 4, Wishes({1: 2}), True),
    ],
)
def test_wishes_are_kept_and_proofs_are_of_orders_that_keep_them(
    slots: list[int], wishes: Wishes, provable: bool, algo: str, model: str
) -> None:
    task = task_of(slots, wishes, algo, model, 7)
    start = begun(task)
    result = prove(task, start, 1, SAME_WORK)
    is_sound(result, task, least(task))
    assert result.cost <= start.cost
    if provable or (task.by_hops and not wishes.pins):
        assert proven(result)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("algo", ["ring", "tree", "halving-doubling"])
@pytest.mark.parametrize(
    ("slots", "wishes"),
    [
        ([3, 1, 1], Wishes()),
        ([3, 1, 2, 2, 1], Wishes()),
        ([3, 1, 2, 1], Wishes({2: 0})),
        ([1, 3, 2, 2], Wishes({}, [[0, 1], [2, 3]])),
        ([1] * 5, Wishes({}, [[0, 1], [2, 3, 4]])),
        ([1] * 5, Wishes({}, [[0], [1, 2, 3, 4]])),
    ],
)
def test_uneven_hosts_and_groups_are_not_proven_wrongly(
    slots: list[int], wishes: Wishes, algo: str, model: str
) -> None:
    """The exact methods look at exchanges of equals alone."""
    task = task_of(slots, wishes, algo, model, 7)
    is_sound(prove(task, begun(task), 1, SAME_WORK), task, least(task))


@pytest.mark.parametrize(
    ("slots", "wishes"), [([1] * 6, Wishes()), ([1] * 6, Wishes({3: 2})), ([2, 1, 3, 1], Wishes())]
)
def test_the_longest_hop_is_proven_too(slots: list[int], wishes: Wishes) -> None:
    task = task_of(slots, wishes, "ring", "latency", 5, "bottleneck")
    result = prove(task, begun(task), 1, SAME_WORK)
    rtt = task.fabric.rtt_us
    assert is_allowed(result.order, slots, wishes)
    assert result.cost == longest_hop(rtt, result.order)
    assert result.cost == min(longest_hop(rtt, order) for order in allowed_orders(slots, wishes))
    assert proven(result)
    assert result.also["sum"] == pytest.approx(loop_cost(rtt, result.order))
    shortest = min(
        loop_cost(rtt, order) for order in allowed_orders(slots, wishes) if longest_hop(rtt, order) <= result.cost
    )
    assert result.also["sum"] == pytest.approx(shortest)
    assert result.also["sum_lower_bound"] == pytest.approx(shortest)


def test_what_else_is_said_of_a_ring_is_said_of_the_better_one() -> None:
    """Also where the bound was known before."""
    task = task_of([1] * 6, Wishes(), "ring", "latency", 3)
    rtt = task.fabric.rtt_us
    start = begun(task)
    start = dataclasses.replace(start, also={"bottleneck": longest_hop(rtt, start.order)})
    for bound in (None, 0.0, least(task)):
        result = prove(task, dataclasses.replace(start, lower_bound=bound, bound_by="1-tree"), 1, SAME_WORK)
        assert result.cost < start.cost
        assert result.also["bottleneck"] == longest_hop(rtt, result.order)


def test_what_is_proven_or_has_no_exact_method_is_left_as_it_is() -> None:
    for algo, model in (("ring", "latency"), ("nccl", "latency"), ("flat", "alpha-beta")):
        task = task_of([1] * 5, Wishes(), algo, model, 2)
        found = search(task, 1, lambda _: True, 1000)
        assert prove(task, found, 1, SAME_WORK) is found
    two = task_of([1, 1], Wishes(), "tree", "contention", 2)
    start = begun(two)
    assert prove(two, start, 1, SAME_WORK) is start


def test_with_time_enough_a_proof_is_the_one_that_a_fixed_amount_of_work_gives() -> None:
    """Seconds are a limit for Z3, which counts in milliseconds: ten minutes are none for six hosts."""
    task = task_of([1] * 6, Wishes(), "tree", "latency", 3)
    first, second = (prove(task, begun(task), 1, budget) for budget in (SAME_WORK, Budget(600.0, lambda: True)))
    assert proven(second)
    assert (second.order.tolist(), second.cost) == (first.order.tolist(), first.cost)


def test_no_question_is_asked_when_there_is_no_time() -> None:
    task = task_of([1] * 6, Wishes(), "tree", "latency", 2)
    start = begun(task)
    result = prove(task, start, 1, Budget(0.001, lambda: False))
    assert (result.order.tolist(), result.cost, result.lower_bound) == (start.order.tolist(), start.cost, None)


@pytest.mark.parametrize(
    ("cost", "bound", "is_so"),
    [(100.0, 100.0, True), (100.0, 99.99995, True), (100.0, 99.9, False), (100.0, None, False), (0.0, 0.0, True)],
)
def test_proven_is_within_a_millionth(cost: float, bound: float | None, is_so: bool) -> None:
    assert proven(Found(np.arange(2), cost, bound, None, cost, cost, 0)) is is_so
