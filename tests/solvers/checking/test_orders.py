"""Orders all along the range of costs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.errors import NoAnswer
from solvers.checking import Order, orders_between, spread


def crossings(order: Order) -> float:
    """How often a ring leaves a group of four."""
    groups = order // 4
    return float((groups != np.roll(groups, 1)).sum())


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(2, 12))
def test_orders_are_sorted_by_cost(seed: int, number: int) -> None:
    """Sixteen hosts in four groups: a ring leaves one 4 to 16 times, and both ends are met."""
    result = orders_between(np.arange(16), np.ones(16, dtype=np.intp), crossings, number, seed)
    costs = [cost for _, cost in result]
    assert len(result) == number
    assert costs == sorted(costs)
    assert (costs[0], costs[-1]) == (4, 16)
    assert len({order.tobytes() for order, _ in result}) == number
    for order, cost in result:
        assert sorted(order.tolist()) == list(range(16))
        assert crossings(order) == cost
    gaps = np.diff(costs)
    assert gaps.max() <= 12 / (number - 1) + 1


def test_the_same_seed_gives_the_same_orders() -> None:
    first, again, other = (
        [order.tolist() for order, _ in orders_between(np.arange(9), np.ones(9, np.intp), crossings, 5, seed)]
        for seed in (3, 3, 4)
    )
    assert first == again != other


def test_hosts_keep_their_slots_together() -> None:
    slots = np.array([2, 1, 3, 1, 1], dtype=np.intp)
    for order, _ in orders_between(np.array([0, 0, 1, 2, 2, 2, 3, 4]), slots, lambda order: float(order[0]), 5, 0):
        seen = order[np.sort(np.unique(order, return_index=True)[1])]
        assert order.tolist() == np.repeat(seen, slots[seen]).tolist()


def test_fewer_different_orders_than_requested() -> None:
    result = orders_between(np.arange(3), np.ones(3, np.intp), lambda order: float(order[0] + 1), 10, 0)
    assert len(result) == 6


def test_orders_without_a_cost_are_skipped() -> None:
    def cost_of(order: Order) -> float:
        if order[0] == 2:
            raise NoAnswer("that pair was not measured")
        return float(order[0] + 1)

    result = orders_between(np.arange(4), np.ones(4, np.intp), cost_of, 6, 0)
    assert {cost for _, cost in result} <= {1, 2, 4}

    def nothing(order: Order) -> float:
        raise NoAnswer("nothing was measured")

    with pytest.raises(NoAnswer, match="fewer than two orders"):
        orders_between(np.arange(4), np.ones(4, np.intp), nothing, 6, 0)


def test_hosts_that_are_all_alike() -> None:
    with pytest.raises(NoAnswer, match="costs the same"):
        orders_between(np.arange(4), np.ones(4, np.intp), lambda order: 7.0, 6, 0)


@given(st.lists(st.floats(1, 1e9), min_size=2, max_size=40), st.integers(2, 50))
def test_places_are_different_and_in_order(costs: list[float], number: int) -> None:
    chosen = spread(np.array(costs), number, np.random.default_rng(0))
    assert len(set(chosen)) == len(chosen) == min(number, len(costs))
    assert [costs[place] for place in chosen] == sorted(costs[place] for place in chosen)


def test_positions_are_at_even_steps_of_the_cost() -> None:
    costs = np.random.default_rng(0).permutation(np.concatenate([np.linspace(1, 5, 41), np.full(1000, 5.0)]))
    chosen = spread(costs, 5, np.random.default_rng(0))
    assert costs[chosen].tolist() == pytest.approx([1, 2, 3, 4, 5])
    assert len(set(spread(np.ones(20), 12, np.random.default_rng(0)))) == 12


def test_swaps_reach_costs_that_random_orders_do_not() -> None:
    """The cost is the number of hosts at their own place: one or two in random orders, none in the cheapest known. A
    climb keeps every swap that is no cheaper, and gets far above these."""
    best = np.roll(np.arange(12), 1)
    result = orders_between(best, np.ones(12, np.intp), lambda order: float((order == np.arange(12)).sum()), 12, 3)
    assert result[0][1] == 0
    assert result[-1][1] >= 9
