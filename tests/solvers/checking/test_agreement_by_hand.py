"""Intervals of rank correlations at their ends, by hand."""

import math

import pytest

from solvers.checking.agreement import Correlation, rank_correlation


@pytest.mark.parametrize("n", [9, 11, 13])
def test_two_neighbours_changed_over_are_as_near_to_perfect_as_an_interval_can_be_told_for(n: int) -> None:
    """1 - 12 / (n (n^2 - 1)): its interval ends below 1, and a perfect one's begins where it does."""
    order = list(range(n))
    swapped = [1, 0, *order[2:]]
    perfect, found = rank_correlation(order, order), rank_correlation(order, swapped)
    assert found.spearman == pytest.approx(1 - 12 / (n * (n * n - 1)), abs=1e-12)
    assert found.high is not None
    assert found.spearman < found.high < 1 == perfect.high
    assert perfect.low == pytest.approx(found.low, abs=1e-11)
    reverse = rank_correlation(order, swapped[::-1])
    assert reverse.low is not None
    assert -1 < reverse.low < reverse.spearman == -found.spearman


@pytest.mark.parametrize("n", [4, 5, 12])
def test_an_interval_is_as_wide_as_its_orders_are_few(n: int) -> None:
    """Fisher's z, by hand: its middle is that of the correlation, its half width 1.96 sqrt((1 + r^2 / 2) / (n - 3))."""
    order = list(range(n))
    found = rank_correlation(order, [1, 0, 3, 2, *order[4:]])
    assert found.low is not None
    assert found.high is not None
    low, high, r = math.atanh(found.low), math.atanh(found.high), found.spearman
    assert (low + high) / 2 == pytest.approx(math.atanh(r))
    assert (high - low) / 2 == pytest.approx(1.959964 * math.sqrt((1 + r * r / 2) / (n - 3)), rel=1e-5)
    assert found.orders == n


def test_two_orders_that_differ_have_a_correlation() -> None:
    found = rank_correlation([1, 2], [5, 9])
    assert found == Correlation(found.spearman, None, None, 2)
    assert found.spearman == pytest.approx(1)
    assert rank_correlation([1, 2], [9, 5]).spearman == pytest.approx(-1)


def test_a_time_for_each_prediction_is_needed() -> None:
    with pytest.raises(ValueError, match="3 predicted and 2 measured"):
        rank_correlation([1, 2, 3], [1, 2])
