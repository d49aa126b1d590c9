"""Equations 4.1 to 4.4, worked out by hand, and the thesis's toy of three phases (Figures 4.4 and 4.5)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.spot.billing import Hourly2016
from solvers.spot.footprint import Application, Outlook, Prospect, Scaling, cost_per_core_hour, expected_work, reliable

LINEAR = Application(Scaling(0, 1, 0), start_s=0, add_s=0, evict_s=360)


class Evicted:
    """Evicted within the hour with probability beta, after the same time; hours."""

    def __init__(self, beta: float, after: float) -> None:
        self._beta, self._after = beta, after

    def within(self, hours: float) -> tuple[float, float]:
        return (self._beta, self._beta * self._after) if hours >= self._after else (0.0, 0.0)


def test_one_allocation_by_hand() -> None:
    """4 instances of 8 cores at 0.1, beta 0.25 after half an hour: C = 0.75 x 0.1 x 4; omega = 0.75 + 0.25 / 2;
    Dt = omega - 0.25 x 0.1; W = 32 Dt."""
    unit = Outlook(Hourly2016()).prospect(0.1, 0.0, 1.0, Evicted(0.25, 0.5))
    prospect = unit.times(4, 8)
    assert (prospect.cost, prospect.hours, prospect.survival) == pytest.approx((0.3, 0.875, 0.75))
    assert expected_work([prospect], LINEAR, changed=False) == pytest.approx(32 * 0.85)
    assert cost_per_core_hour([prospect], LINEAR, changed=False) == pytest.approx(0.3 / (32 * 0.85))


def test_evictions_of_any_allocation_cost_all_of_them() -> None:
    """P(any) = 1 - 0.75 x 0.5; the reliable machine works too."""
    parts = [reliable(0.2, 1, 4), Prospect(0.3, 0.9, 0.75, 8), Prospect(0.1, 0.6, 0.5, 8)]
    lost = (1 - 0.375) * 0.1
    work = 4 * (1 - lost) + 8 * (0.9 - lost) + 8 * (0.6 - lost)
    assert expected_work(parts, LINEAR, changed=False) == pytest.approx(work)
    assert cost_per_core_hour(parts, LINEAR, changed=False) == pytest.approx(0.6 / work)


def test_expected_replacements_bring_work_and_are_paid() -> None:
    """Evicted after a quarter of an hour, replaced a quarter later: half an hour of work, paid."""
    unit = Outlook(Hourly2016(), replacement_h=0.25).prospect(0.1, 0.0, 1.0, Evicted(1.0, 0.25))
    assert (unit.cost, unit.hours) == pytest.approx((0.05, 0.75))


def test_toy_of_three_phases() -> None:
    """Figure 4.5. Red: one reliable machine that does not work. Phase 1: with yellow. Phase 2: green is added; it costs
    more now and less per work, for red is needed for a shorter time. Phase 3: yellow is evicted."""
    red = reliable(0.199)
    yellow, green = Prospect(0.06, 0.9, 0.8, 8), Prospect(0.075, 0.95, 0.9, 8)
    first, second, third = ([red, yellow], [red, yellow, green], [red, green])
    costs = [sum(part.cost for part in phase) for phase in (first, second, third)]
    per_work = [cost_per_core_hour(phase, LINEAR, changed=False) for phase in (first, second, third)]
    assert costs[1] > costs[0]
    assert per_work[1] < per_work[0]
    assert per_work[1] < per_work[2]
    # Blocks add up to the whole: each allocation's cost by the work of its phase.
    work = expected_work(second, LINEAR, changed=False)
    assert sum(part.cost / work for part in second) == pytest.approx(per_work[1])
    assert red.cost / work < red.cost / expected_work(first, LINEAR, changed=False)


prospects = st.lists(
    st.builds(Prospect, st.floats(0, 5), st.floats(0, 1), st.floats(0.01, 1), st.floats(0, 64)), min_size=1, max_size=5
)


@given(prospects, st.floats(0, 0.01), st.floats(0, 1e-4))
def test_the_compiled_loop_is_the_formula(parts: list[Prospect], a: float, c: float) -> None:
    application = Application(Scaling(a, 1, c), add_s=60, evict_s=300)
    cost, work = sum(part.cost for part in parts), expected_work(parts, application, changed=True)
    expected = cost / work if work > 0 else math.inf
    assert cost_per_core_hour(parts, application, changed=True) == pytest.approx(expected, rel=1e-9)


@given(st.floats(0, 0.1), st.floats(1e-6, 1e-3), st.integers(1, 500))
def test_scaling_falls_with_cores(a: float, c: float, cores: int) -> None:
    """A constant phi would cancel, and growth had no end; and W = 3600 / t(n) up to a factor."""
    scaling = Scaling(a, 1.0, c)
    assert scaling.efficiency(cores + 1) < scaling.efficiency(cores) <= 1
    assert scaling.speed(cores) == pytest.approx(1 / scaling.seconds(cores))
