"""Rates of evictions: published buckets, what was seen, and availability histories."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.model.spot.prices import AvailabilityTrace
from solvers.spot.odds import (
    ExponentialEvictions,
    Interruptions,
    advisor_rate,
    observed,
    prior,
    spells,
)


def availability(*counts: int, gap_s: float = 600) -> AvailabilityTrace:
    return AvailabilityTrace(gap_s, np.array(counts))


def test_published_rates() -> None:
    """7.5 % of instances interrupted a month."""
    assert 1 - math.exp(-730 * advisor_rate(1)) == pytest.approx(0.075)
    assert all(advisor_rate(bucket) < advisor_rate(bucket + 1) for bucket in range(4))


def test_a_prior_counts_as_24_hours() -> None:
    """Gamma: (rate x 24 + count) / (24 + hours)."""
    belief = prior(0.01) + Interruptions(3, 96)
    assert belief.rate == pytest.approx((0.24 + 3) / 120)
    assert prior(0.01).rate == pytest.approx(0.01)


def test_falls_of_counts_are_interruptions() -> None:
    """Three and one instances are lost, in 6 + 16 + 16 + 4 + 5 + 4 samples of ten minutes."""
    seen = observed(availability(6, 16, 16, 4, 5, 4))
    assert (seen.count, seen.hours) == (13, pytest.approx(47 / 6))
    assert observed(availability(0, 0, 0)).rate == 0


def test_spells() -> None:
    held = spells(availability(0, 1, 1, 1, 0, 0, 1))
    assert held.share == pytest.approx(4 / 7)
    assert held.hours == pytest.approx((0.5, 1 / 6))


@given(st.floats(0, 10), st.floats(0.01, 2))
def test_exponential_evictions_are_their_integrals(rate: float, hours: float) -> None:
    """P(T < h) and E[T; T < h], integrated."""
    probability, partial = ExponentialEvictions(rate).within(hours)
    t = np.linspace(0, hours, 20_001)
    density = rate * np.exp(-rate * t)
    assert probability == pytest.approx(np.trapezoid(density, t), abs=1e-5)
    assert partial == pytest.approx(np.trapezoid(t * density, t), abs=1e-5)
