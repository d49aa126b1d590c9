"""The gain of one order over another: its value, its interval, and how often the interval holds the truth."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.gain import paired_gain

FIGURES = st.lists(st.floats(0.01, 1e6), min_size=2, max_size=8)


def test_twice_as_fast_every_time() -> None:
    result = paired_gain([4.0, 6.0, 2.0], [2.0, 3.0, 1.0])
    assert result.gain == pytest.approx(2.0)
    assert (result.low, result.high) == (pytest.approx(2.0), pytest.approx(2.0))
    assert paired_gain([4.0, 6.0], [2.0, 3.0], higher_is_better=True).gain == pytest.approx(0.5)


def test_one_pair_has_no_spread() -> None:
    result = paired_gain([3.0], [2.0])
    assert (result.gain, result.low, result.high) == (pytest.approx(1.5), None, None)


def test_the_interval_is_students() -> None:
    """Two pairs, ratios 1 and e: mean 1/2, standard error 1/2, and t of one degree of freedom is 12.706."""
    result = paired_gain([1.0, math.e], [1.0, 1.0])
    assert result.low is not None
    assert result.high is not None
    assert math.log(result.low) == pytest.approx(0.5 - 12.7062 / 2, rel=1e-4)
    assert math.log(result.high) == pytest.approx(0.5 + 12.7062 / 2, rel=1e-4)


@given(FIGURES, st.data())
def test_the_other_way_round_it_is_the_inverse(first: list[float], data: st.DataObject) -> None:
    second = data.draw(st.lists(st.floats(0.01, 1e6), min_size=len(first), max_size=len(first)))
    item, other = paired_gain(first, second), paired_gain(second, first)
    assert item.gain == pytest.approx(1 / other.gain)
    assert item.low is not None
    assert other.high is not None
    assert item.low == pytest.approx(1 / other.high)
    assert item.low <= item.gain * (1 + 1e-12)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    generator, held = np.random.default_rng(1), 0
    for _ in range(1000):
        second = generator.lognormal(0, 0.3, 5)
        drift = generator.lognormal(0, 1, 5)  # which both runs of a pair see
        first = 1.4 * drift * generator.lognormal(0, 0.1, 5)
        result = paired_gain(list(first), list(drift * second))
        assert result.low is not None
        assert result.high is not None
        held += result.low <= 1.4 <= result.high
    assert 930 <= held <= 970


@pytest.mark.parametrize(
    ("first", "second"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([1.0], [float("nan")]), ([-1.0], [1.0])]
)
def test_what_makes_no_pairs(first: list[float], second: list[float]) -> None:
    with pytest.raises(ValueError, match=r"figures"):
        paired_gain(first, second)
