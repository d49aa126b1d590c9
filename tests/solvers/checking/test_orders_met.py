"""Which orders are met on the way from the cheapest to the dearest, and which of these are chosen."""

import numpy as np
import pytest

from plink.errors import NoAnswer
from solvers.checking.orders import Order, orders_between, spread


def test_an_order_as_near_as_a_two_hundredth_of_the_range_is_as_good() -> None:
    """Of costs from 0 to 1000 and 500 wanted: what is at most 5 farther than the nearest, at either side, at random."""
    costs = np.array([0.0, 1000.0, 498.0, 502.0, 493.0, 507.0, 492.0, 508.0, 250.0])
    seen = {spread(costs, 3, np.random.default_rng(seed))[1] for seed in range(60)}
    assert {costs[place] for place in seen} == {498.0, 502.0, 493.0, 507.0}


def test_the_range_of_costs_is_counted_from_the_lowest() -> None:
    """From 1000 to 1100: a two hundredth of 100 is a half, not five and a half."""
    costs = np.array([1000.0, 1100.0, 1050.0, 1051.0, 1054.0])
    assert {spread(costs, 3, np.random.default_rng(seed))[1] for seed in range(30)} == {2}


def test_orders_that_are_met_begin_with_the_best_and_reach_every_one_of_few() -> None:
    seen: list[list[int]] = []

    def price(order: Order) -> float:
        seen.append(order.tolist())
        return float(10 * order[0] + order[1] + 1)

    found = orders_between(np.array([2, 2, 0, 1, 1]), np.array([1, 2, 2], dtype=np.intp), price, 99, 0)
    assert seen[0] == [2, 2, 0, 1, 1]
    assert len(found) == 6


def test_an_order_that_was_met_again_is_not_another_one() -> None:
    """Whatever it costs by then."""
    count = iter(range(10**6))
    found = orders_between(np.arange(2), np.ones(2, np.intp), lambda order: 1.0 + next(count), 9, 0)
    assert len(found) == 2
    assert (found[0][0].tolist(), found[0][1]) == ([0, 1], 1.0)


def test_two_orders_with_a_price_are_enough() -> None:
    """Of six."""

    def price(order: Order) -> float:
        if order[0]:
            raise NoAnswer("that pair was not measured")
        return float(order[1])

    found = orders_between(np.arange(3), np.ones(3, np.intp), price, 6, 0)
    assert [order.tolist() for order, _ in found] == [[0, 1, 2], [0, 2, 1]]


@pytest.mark.parametrize(("more", "flat"), [(0.5e-6, True), (2e-6, False)])
def test_a_range_of_a_millionth_is_none(more: float, flat: bool) -> None:
    def price(order: Order) -> float:
        return 7.0 * (1 + more) if order[0] == 2 else 7.0

    if flat:
        with pytest.raises(NoAnswer, match="costs the same"):
            orders_between(np.arange(4), np.ones(4, np.intp), price, 6, 0)
    else:
        assert len(orders_between(np.arange(4), np.ones(4, np.intp), price, 6, 0)) == 6


def test_orders_that_cost_nothing_cost_the_same_and_one_that_is_dearer_makes_a_difference() -> None:
    with pytest.raises(NoAnswer, match="costs the same"):
        orders_between(np.arange(4), np.ones(4, np.intp), lambda order: 0.0, 6, 0)
    found = orders_between(np.arange(4), np.ones(4, np.intp), lambda order: float(order.tolist() == [3, 1, 0, 2]), 6, 0)
    assert [cost for _, cost in found] == [0, 0, 0, 0, 0, 1]


def test_the_dearest_are_looked_for_swap_by_swap_where_random_orders_do_not_come() -> None:
    """The cost is the number of hosts at their own place: one or two in random orders, none in the cheapest known. A
    climb keeps every swap that is no cheaper, and gets far above these."""
    best = np.roll(np.arange(12), 1)
    found = orders_between(best, np.ones(12, np.intp), lambda order: float((order == np.arange(12)).sum()), 12, 3)
    assert found[0][1] == 0
    assert found[-1][1] >= 9


def test_a_climb_goes_on_from_a_swap_that_is_no_cheaper_and_from_no_other() -> None:
    """Of the last orders that were priced each is one swap away from the last one kept."""
    seen: list[tuple[list[int], float]] = []

    def price(order: Order) -> float:
        cost = float((order == np.arange(8)).sum() // 2)
        seen.append((order.tolist(), cost))
        return cost

    orders_between(np.arange(8), np.ones(8, np.intp), price, 4, 1)
    climb = seen[-101:]  # where a climb begins, and its hundred swaps
    kept, kept_cost = climb[0]
    costs = {kept_cost}
    for order, cost in climb[1:]:
        assert sum(one != other for one, other in zip(kept, order, strict=True)) <= 2
        if cost >= kept_cost:
            kept, kept_cost = order, cost
            costs.add(cost)
    assert len(costs) > 1


def test_a_climb_that_begins_without_a_price_takes_the_first_that_has_one() -> None:
    """A pair of three is not measured, so that most orders have no price, and a climb does not end there."""
    prices: list[float | None] = []

    def price(order: Order) -> float:
        if order[0] in (1, 2, 3, 4, 5):
            prices.append(None)
            raise NoAnswer("that pair was not measured")
        prices.append(float(order[1]) + 1)
        return float(order[1]) + 1

    found = orders_between(np.arange(7), np.ones(7, np.intp), price, 9, 5)
    assert {order[0] for order, _ in found} == {0, 6}
    climbs = [prices[-101 * k : -101 * (k - 1) or None] for k in (1, 2, 3)]
    late = [climb for climb in climbs if climb[0] is None]
    assert late, "one of the three begins without a price"
    for climb in late:
        priced = [cost for cost in climb if cost is not None]
        assert max(priced) >= priced[0]
