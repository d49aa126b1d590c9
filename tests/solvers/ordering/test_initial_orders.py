"""Orders to begin with: by group, by the hierarchy's leaves, along a line; the given one first, none twice."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.ordering.annealing import initial_orders
from tests.solvers.costs.test_cost_models import fabric
from tests.solvers.synthetic import Matrix, random_costs


def on_a_line(places: list[float]) -> Matrix:
    """Hosts as far from each other as their places are."""
    there = np.array(places)
    apart: Matrix = np.abs(there[:, None] - there[None, :])
    return apart


@settings(max_examples=40)
@given(st.integers(2, 14), st.integers(0, 999), st.booleans())
def test_orders_to_begin_with_are_orders(n: int, seed: int, several: bool) -> None:
    """Of some of the hosts there are, in groups of many sizes; a host's ranks stay together, one order is by groups."""
    rng = np.random.default_rng(seed)
    result = dataclasses.replace(fabric(n + 4, seed, groups=4), rtt_us=random_costs(n + 4, seed, 10, 1000))
    hosts = rng.permutation(n + 4)[:n]
    baseline = np.repeat(hosts, rng.integers(1, 4, n)) if several else hosts
    orders = initial_orders(result, baseline)
    assert orders[0].tolist() == baseline.tolist()
    assert len({order.tobytes() for order in orders}) == len(orders)
    for order in orders:
        assert sorted(order.tolist()) == sorted(baseline.tolist())
        assert 1 + int((np.diff(order) != 0).sum()) == n
    group = result.group_of[baseline]
    assert min(1 + int((np.diff(result.group_of[order]) != 0).sum()) for order in orders) == len(set(group.tolist()))


def test_groups_are_sorted_by_size_then_hierarchy() -> None:
    """Hosts 0 to 7 on a line; groups of 1, 3, 2 and 2 of them, as they update_chain each other."""
    result = dataclasses.replace(
        fabric(8), rtt_us=on_a_line([0, 10, 21, 33, 46, 60, 75, 91]), group_of=np.array([0, 1, 1, 1, 2, 2, 3, 3])
    )
    last = initial_orders(result, np.array([7, 0, 2, 5, 4, 1, 3, 6]))[-1].tolist()
    assert sorted(last[:3]) == [1, 2, 3]
    assert {frozenset(last[3:5]), frozenset(last[5:7])} == {frozenset([4, 5]), frozenset([6, 7])}
    assert last[7] == 0


@pytest.mark.parametrize("unit", [1e-3, 1e6])
def test_hosts_on_a_line_are_found_in_their_order(unit: float) -> None:
    """By the second eigenvector of the graph of who is near; who is farthest from the others comes last."""
    for line in ([3.0, 0.0, 9.0, 1.0, 2.0], [7.0, 10.0, 1.0, 9.0, 8.0]):
        result = dataclasses.replace(fabric(5), rtt_us=on_a_line(line) * unit)
        assert [1, 3, 4, 0, 2] in [order.tolist() for order in initial_orders(result, np.arange(5))]
    places = np.random.default_rng(4).permutation(12).astype(float)
    result = dataclasses.replace(fabric(12), rtt_us=10 * on_a_line(places.tolist()))
    orders = [np.abs(np.diff(places[order])).tolist() for order in initial_orders(result, np.arange(12))]
    assert [1.0] * 11 in orders


def test_hosts_at_no_distance_from_each_other_have_orders_too() -> None:
    """The median round trip is 0 and no unit of length; one host is off."""
    result = dataclasses.replace(fabric(5), rtt_us=on_a_line([0.0, 0.0, 5.0, 0.0, 0.0]))
    assert any(order[-1] == 2 for order in initial_orders(result, np.arange(5)))


def test_start_orders_do_not_depend_on_the_eigensolver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A vector and its negative are the same answer, and libraries differ in which one they give."""
    import scipy.linalg

    result, order, eigh = fabric(12, 3), np.random.default_rng(3).permutation(12), scipy.linalg.eigh

    def other_way(*arguments: Any, **more: Any) -> Any:
        values, vectors = eigh(*arguments, **more)
        return values, -vectors

    item = [begun.tolist() for begun in initial_orders(result, order)]
    monkeypatch.setattr(scipy.linalg, "eigh", other_way)
    assert [begun.tolist() for begun in initial_orders(result, order)] == item
