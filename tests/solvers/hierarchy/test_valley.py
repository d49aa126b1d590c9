"""Where the innermost tier ends: at the first valley that is deep enough, with enough pairs on either side.

Heights are drawn on steps of a hundredth of their logarithm, the kernel's own grid, so that the smoothed density can be
written down: ``count`` pairs at step ``s`` make it ``count * exp(-((step - s) / 4)^2 / 2)``, and nothing beyond 16.
"""

import math

import numpy as np
import numpy.typing as npt
import pytest

from solvers.prediction.tiered import innermost_tier_us

NEAR = 30.0


def at(*tiers: tuple[int, int]) -> npt.NDArray[np.float64]:
    """(step, count): so many pairs at ``NEAR`` times e to so many hundredths."""
    return np.concatenate([np.full(count, NEAR * math.exp(0.01 * step)) for step, count in tiers])


def density(step: int, tiers: tuple[tuple[int, int], ...]) -> float:
    """As smoothed by the kernel, written out."""
    return sum(count * math.exp(-0.5 * ((step - where) / 4) ** 2) for where, count in tiers if abs(step - where) <= 16)


@pytest.mark.parametrize("counts", [(40, 40), (100, 10), (8, 30)])
def test_a_valley_is_where_the_density_falls_below_half_the_lower_peak(counts: tuple[int, int]) -> None:
    """Two tiers farther and farther from each other: none at first, then one, as the formula says; both happen."""
    result = []
    for apart in range(8, 40):
        tiers = ((0, counts[0]), (apart, counts[1]))
        seen = [density(step, tiers) for step in range(apart + 1)]
        deep = [k for k, low in enumerate(seen) if low < 0.5 * min(max(seen[: k + 1]), max(seen[k:]))]
        valley = NEAR * math.exp(0.01 * min(deep, key=lambda k: seen[k])) if deep else 0.0
        assert innermost_tier_us(at(*tiers)) == pytest.approx(valley, rel=1e-9)
        result.append(bool(deep))
    assert result == sorted(result)
    assert set(result) == {False, True}


@pytest.mark.parametrize(("few", "stands_out"), [(9, False), (10, True)])
def test_of_ten_thousand_pairs_ten_are_a_tier(few: int, stands_out: bool) -> None:
    """One in a thousand, below the valley and above."""
    expected = NEAR * math.exp(0.17) if stands_out else 0.0
    assert innermost_tier_us(at((0, few), (230, 10_000 - few))) == pytest.approx(expected)
    assert innermost_tier_us(at((0, 10_000 - few), (230, few))) == pytest.approx(expected)


def test_a_valley_with_too_little_below_it_does_not_hide_the_next_one() -> None:
    """Strays nearer than all, then two tiers: the valley is the one between the tiers."""
    heights = at((-200, 4), (0, 50), (230, 50))
    assert innermost_tier_us(heights) == pytest.approx(NEAR * math.exp(0.17))
