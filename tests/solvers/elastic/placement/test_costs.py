"""What a run cost: prices by the time hosts were held, what is left out, what cannot be."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.errors import UsageError
from solvers.elastic.placement.costs import Cost, Held, cost_of

STRETCH = st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(lambda ends: (min(ends), max(ends)))


def test_a_reliable_host_all_along_and_a_transient_one_twice() -> None:
    hosts = [Held("a", 1.0, ((0, 7200),)), Held("b", 0.36, ((100, 200), (3000, 3100)))]
    cost = cost_of(hosts, 50)
    assert cost.by_host == pytest.approx({"a": 2.0, "b": 0.02})
    assert cost.total == pytest.approx(2.02)
    assert cost.per_unit == pytest.approx(2.02 / 50)
    assert cost.without_price == ()


def test_hosts_without_a_price_are_named_and_left_out() -> None:
    hosts = [Held("a", 3600.0, ((0, 10),)), Held("b", None, ((0, 10),)), Held("b", None, ((20, 30),))]
    assert cost_of(hosts, 2) == Cost(10.0, 5.0, {"a": 10.0}, ("b",))
    assert cost_of(hosts[1:], 2) == Cost(None, None, {}, ("b",))


def test_what_is_free_costs_nothing_and_no_work_has_no_price() -> None:
    assert cost_of([Held("a", 0.0, ((0, 10),))], 5) == Cost(0.0, 0.0, {"a": 0.0})
    assert cost_of([Held("a", 1.0, ())], 0) == Cost(0.0, None, {"a": 0.0})
    assert cost_of([], 5) == Cost(None, None)


def test_one_name_twice_counts_for_both() -> None:
    assert cost_of([Held("a", 3600.0, ((0, 1),)), Held("a", 7200.0, ((5, 6),))], 1).total == 3.0


@given(st.lists(STRETCH, max_size=8))
def test_no_second_is_paid_twice(stretches: list[tuple[int, int]]) -> None:
    held = {second for begin, end in stretches for second in range(begin, end)}
    assert Held("a", 1.0, tuple(stretches)).seconds == len(held)


@pytest.mark.parametrize(
    ("price", "stretch", "expected"),
    [
        (-1.0, (0, 1), "-1.0 is no price"),
        (math.nan, (0, 1), "no price"),
        (math.inf, (0, 1), "no price"),
        (1.0, (2, 1), "from 2 s to 1 s"),
        (1.0, (0, math.inf), "from 0 s to inf s"),
        (None, (math.nan, 1), "from nan s"),
    ],
)
def test_numbers_that_cannot_be(price: float | None, stretch: tuple[float, float], expected: str) -> None:
    with pytest.raises(UsageError, match=f"host a: .*{expected}"):
        Held("a", price, (stretch,))


def test_work_that_cannot_be() -> None:
    for work in (-1, math.nan, math.inf):
        with pytest.raises(UsageError, match="no amount of work"):
            cost_of([], work)
