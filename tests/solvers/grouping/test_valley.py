"""Where the innermost tier ends: at the first valley that is deep enough, with enough pairs on either side.

Heights are drawn on steps of a hundredth of their logarithm, the kernel's own grid, so that the smoothed density can be
written down: ``count`` pairs at step ``s`` make it ``count * exp(-((step - s) * 0.01 / bandwidth)^2 / 2)``, and nothing
beyond four bandwidths.
"""

import math

import numpy as np
import numpy.typing as npt
import pytest

from solvers.grouping.valley import innermost_tier_us

NEAR = 30.0


def at(*tiers: tuple[int, int]) -> npt.NDArray[np.float64]:
    """(step, count): so many pairs at ``NEAR`` times e to so many hundredths."""
    return np.concatenate([np.full(count, NEAR * math.exp(0.01 * step)) for step, count in tiers])


def density(step: int, tiers: tuple[tuple[int, int], ...], bandwidth: float) -> float:
    """As smoothed by the kernel, written out."""
    steps_a_bandwidth = bandwidth / 0.01
    return sum(
        count * math.exp(-0.5 * ((step - where) / steps_a_bandwidth) ** 2)
        for where, count in tiers
        if abs(step - where) <= 4 * steps_a_bandwidth + 1e-9
    )


@pytest.mark.parametrize(("bandwidth", "steps"), [(0.02, 8), (0.04, 16), (0.08, 32)])
def test_far_beyond_a_tier_the_valley_begins_where_the_kernel_ends(bandwidth: float, steps: int) -> None:
    """Four bandwidths above the near tier the density falls to nothing: there, a step on, is the lowest place."""
    heights = at((0, 50), (230, 50))
    assert innermost_tier_us(heights, bandwidth) == pytest.approx(NEAR * math.exp(0.01 * (steps + 1)), rel=1e-9)


def test_the_kernel_is_a_twentyfifth_of_the_height_wide() -> None:
    heights = at((0, 50), (230, 50))
    assert innermost_tier_us(heights) == innermost_tier_us(heights, 0.04)


@pytest.mark.parametrize("counts", [(40, 40), (100, 10), (10, 100), (30, 8), (8, 30)])
@pytest.mark.parametrize("bandwidth", [0.04, 0.06])
def test_a_valley_counts_from_half_the_lower_peak_down_and_is_where_the_density_is_least(
    counts: tuple[int, int], bandwidth: float
) -> None:
    """Two tiers farther and farther from each other: none at first, then one, as the formula says; both happen."""
    found = []
    for apart in range(8, 40):
        tiers = ((0, counts[0]), (apart, counts[1]))
        seen = [density(step, tiers, bandwidth) for step in range(apart + 1)]
        deep = [k for k, low in enumerate(seen) if low < 0.5 * min(max(seen[: k + 1]), max(seen[k:]))]
        valley = NEAR * math.exp(0.01 * min(deep, key=lambda k: seen[k])) if deep else 0.0
        assert innermost_tier_us(at(*tiers), bandwidth) == pytest.approx(valley, rel=1e-9)
        found.append(bool(deep))
    assert found == sorted(found)
    assert set(found) == {False, True}


@pytest.mark.parametrize(("few", "stands_out"), [(9, False), (10, True)])
@pytest.mark.parametrize("few_are_near", [True, False])
def test_of_ten_thousand_pairs_ten_are_a_tier(few: int, stands_out: bool, few_are_near: bool) -> None:
    """One in a thousand, below the valley and above."""
    many = 10_000 - few
    heights = at((0, few), (230, many)) if few_are_near else at((0, many), (230, few))
    expected = NEAR * math.exp(0.17) if stands_out else 0.0
    assert innermost_tier_us(heights) == pytest.approx(expected)


def test_a_valley_with_too_little_below_it_does_not_hide_the_next_one() -> None:
    """Strays nearer than all, then two tiers: the valley is the one between the tiers."""
    heights = at((-200, 4), (0, 50), (230, 50))
    assert innermost_tier_us(heights) == pytest.approx(NEAR * math.exp(0.17))


def test_a_rising_slope_is_one_peak() -> None:
    """Tiers that overlap, each larger than the one before: the valley is behind the last of them."""
    heights = at((0, 10), (6, 20), (12, 40), (230, 60))
    assert innermost_tier_us(heights) == pytest.approx(NEAR * math.exp(0.01 * (12 + 17)))


def test_of_several_valleys_the_first_counts_though_others_are_deeper() -> None:
    heights = at((0, 50), (16, 50), (230, 50))
    first = innermost_tier_us(heights)
    assert first == pytest.approx(NEAR * math.exp(0.08))
    assert first == innermost_tier_us(at((0, 50), (16, 50)))


def test_the_first_peak_may_be_lower_than_those_behind_it() -> None:
    """What a valley has to undercut is the lower of the two peaks beside it, not the highest one there is."""
    heights = at((0, 6), (40, 600), (300, 6))
    assert innermost_tier_us(heights) == pytest.approx(NEAR * math.exp(0.17))


def test_pairs_that_take_no_time_are_a_tier_a_millionth_of_the_longest() -> None:
    heights = np.concatenate([np.zeros(20), np.full(20, 100.0)])
    assert innermost_tier_us(heights) == pytest.approx(100e-6 * math.exp(0.17))


@pytest.mark.parametrize("factor", [1e-3, 2.0, 1e6])
def test_the_cut_grows_with_the_heights(factor: float) -> None:
    heights = at((0, 30), (60, 40), (230, 50))
    assert innermost_tier_us(heights * factor) == pytest.approx(factor * innermost_tier_us(heights))


def test_the_order_of_the_pairs_does_not_matter() -> None:
    heights = at((0, 30), (60, 40), (230, 50))
    shuffled = np.random.default_rng(0).permutation(heights)
    assert innermost_tier_us(shuffled) == innermost_tier_us(heights)
