"""Rank correlation, calibration and gain: by hand, and how often the interval holds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.errors import NoAnswer
from solvers.checking import (
    MAX_SPEARMAN_LOSS,
    Correlation,
    calibration,
    gain_of_best,
    rank_correlation,
    ranks_worse,
    slower,
)


def test_by_hand() -> None:
    """1 - 6 sum d^2 / (n (n^2 - 1)), of five orders with two neighbours changed over: 1 - 12 / 120."""
    result = rank_correlation([1, 2, 3, 4, 5], [10, 30, 20, 40, 50])
    assert result.spearman == pytest.approx(0.9)
    half = 1.959964 * math.sqrt((1 + 0.405) / 2)
    assert result.low == pytest.approx(math.tanh(math.atanh(0.9) - half), abs=1e-4)
    assert result.high == pytest.approx(math.tanh(math.atanh(0.9) + half), abs=1e-4)


@pytest.mark.parametrize("n", [4, 10])
def test_a_perfect_one_is_as_sure_as_orders_are_many(n: int) -> None:
    result = rank_correlation(list(range(n)), list(range(n)))
    assert (result.spearman, result.high) == (pytest.approx(1), 1)
    assert result.low is not None
    assert result.low < 1
    reverse = rank_correlation(list(range(n)), list(range(n))[::-1])
    assert (reverse.low, reverse.high) == (-1, pytest.approx(-result.low))
    if n > 4:
        fewer = rank_correlation(list(range(n - 1)), list(range(n - 1)))
        assert fewer.low is not None
        assert fewer.low < result.low


@pytest.mark.parametrize("n", [4, 5, 9, 15, 100])
def test_what_is_exactly_a_limit_is_not_below_it(n: int) -> None:
    """Also where adding up leaves something: a perfect ranking, its reverse, and two neighbours changed over."""
    up = list(range(n))
    perfect, reverse, next_ = (rank_correlation(up, other) for other in (up, up[::-1], [1, 0, *up[2:]]))
    assert (perfect.spearman, perfect.high) == (1, 1)
    assert (reverse.spearman, reverse.low) == (-1, -1)
    assert next_.spearman == pytest.approx(1 - 12 / (n * (n * n - 1)), abs=1e-12)
    assert next_.high is not None
    assert next_.high < 1
    if n in (5, 9, 15):
        assert next_.spearman >= {5: 0.9, 9: 0.9833333333, 15: 0.9964285714}[n]


def test_costs_no_clock_tells_apart_are_ties() -> None:
    """Levels of 2, 3, 3 and 2 orders, as of two racks of four: by hand sqrt((990 - 60) / 990), in whatever order times
    of one level come."""
    costs = [k + 1e-7 * j for k, size in enumerate((2, 3, 3, 2), 1) for j in range(size)]
    for times in (range(10), [1, 0, 4, 3, 2, 7, 6, 5, 9, 8]):
        result = rank_correlation(costs, list(times))
        assert result.spearman == result.attainable == pytest.approx(math.sqrt(930 / 990))
    assert rank_correlation([1, 1.002, 3], [1, 2, 3]).attainable == 1


def test_one_order_of_another_cost_proves_nothing() -> None:
    """It is the slowest of six by chance in one of six."""
    correlation = rank_correlation([100.0] * 5 + [200.0], [1, 2, 3, 4, 5, 6])
    assert (correlation.spearman, correlation.low) == (correlation.attainable, None)


def test_three_orders_have_no_interval() -> None:
    result = rank_correlation([1, 2, 3], [1, 3, 2])
    assert (result.spearman, result.low, result.high) == (pytest.approx(0.5), None, None)


@pytest.mark.parametrize(("predicted", "measured"), [([1], [1]), ([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [4, 4, 4])])
def test_nothing_to_rank(predicted: list[float], measured: list[float]) -> None:
    with pytest.raises(NoAnswer, match="two orders or more that differ"):
        rank_correlation(predicted, measured)


@pytest.mark.parametrize("true", [0.0, 0.9])
def test_the_interval_holds_what_many_orders_show(true: float) -> None:
    """Of pairs of normal numbers Spearman's correlation is 6 / pi asin(r / 2): in 95 % of samples of ten it is within;
    of 1,000 samples at least 92 %, which Pearson's variance, 1 / (n - 3), does not reach at 0.9 (90 %)."""
    rng = np.random.default_rng(5)
    wanted, held = 6 / math.pi * math.asin(true / 2), 0
    for _ in range(1000):
        first = rng.normal(size=10)
        second = true * first + math.sqrt(1 - true * true) * rng.normal(size=10)
        result = rank_correlation(first.tolist(), second.tolist())
        assert result.low is not None
        assert result.high is not None
        held += result.low <= wanted <= result.high
    assert 0.92 <= held / 1000 <= 0.98


def test_calibration() -> None:
    result = calibration([1, 2, 4], [2, 2, 6])
    assert (result.factor, result.low, result.high) == (1.5, 1.0, 2.0)


def test_gain_against_the_median_order() -> None:
    """By repetitions: 4 / 2 and 9 / 3 times, their geometric mean."""
    samples = np.array([[2.0, 3.0], [4.0, 9.0], [5.0, 10.0]])
    result = gain_of_best([10, 30, 20], samples)
    assert result.gain == pytest.approx(math.sqrt(6))
    assert gain_of_best([30, 10, 20], samples).gain == pytest.approx(1)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=6), st.floats(0, 1))
def test_the_same_times_are_not_slower(times: list[float], share: float) -> None:
    assert slower(times, times, share) is None


def test_ranks_worse_beyond_tolerance_and_noise() -> None:
    """Of four orders two neighbours change over without that meaning anything; of thirty that many do not."""
    assert ranks_worse(Correlation(0.98, None, None, 3), 0.92)
    assert not ranks_worse(Correlation(0.98, None, None, 3), 0.94)
    assert ranks_worse(Correlation(0.98, 0.95, 0.99, 30), 0.92)
    assert not ranks_worse(Correlation(0.98, 0.91, 0.99, 10), 0.92)
    assert not ranks_worse(rank_correlation([1, 2, 3, 4], [1, 2, 3, 4]), 0.8)
    ten = list(range(10))
    assert ranks_worse(rank_correlation(ten, ten), 0.9)


def test_a_time_for_each_prediction_is_needed() -> None:
    with pytest.raises(ValueError, match="3 predicted and 2 measured"):
        rank_correlation([1, 2, 3], [1, 2])


# Exactly at what is tolerated


def test_exactly_the_tolerance_or_the_worst_before_is_not_slower() -> None:
    """Medians 1 and 1.5, of a tolerance of a half; and a median of 3 where it took 3 once before."""
    assert slower([1.0, 1.0], [1.5, 1.5], 0.5) is None
    assert slower([1.0, 1.0], [1.5, 1.5], 0.49) == 1.5
    assert slower([1.0, 1.0, 3.0], [3.0, 3.0, 2.0], 0.5) is None
    assert slower([1.0, 1.0, 2.9], [3.0, 3.0, 2.0], 0.5) == 3.0
    assert slower([2.0], [1.0], 0.0) is None
    assert slower([2.0], [6.0], 0.0) == 3.0


def test_exactly_the_tolerance_or_the_end_of_the_interval_ranks_no_worse() -> None:
    before = Correlation(1.0, None, None, 3)
    assert not ranks_worse(before, 1.0 - MAX_SPEARMAN_LOSS)
    assert ranks_worse(before, 0.999 - MAX_SPEARMAN_LOSS)
    cached = Correlation(0.75, 0.25, 0.9, 9)
    assert not ranks_worse(cached, 0.25)
    assert ranks_worse(cached, 0.249)
