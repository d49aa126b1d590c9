"""beta and the median time to eviction: by hand, by definition, and by closed forms."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.model.spot.prices import PriceTrace
from solvers.spot.odds import eviction_curves, mean_hours_to_eviction, odds_table
from tests.solvers.spot.histories import evicted_after, histories, history


def test_one_rise_by_hand() -> None:
    """Price 1 for two hours, 2 for one, 1 again for two: starts count until hour 4. Evicted within the hour are those
    of the second hour; half of them within 30 minutes."""
    (curve,) = eviction_curves(history((0, 1), (2, 2), (3, 1), until=5), np.array([0.5]))
    assert curve.within(3600) == pytest.approx(1 / 4)
    assert curve.within(1800) == pytest.approx(1 / 8)
    assert curve.median(3600) == pytest.approx(1800)
    assert curve.median(900) == pytest.approx(450)


def test_a_bid_at_the_next_price_is_not_evicted() -> None:
    """The instance runs while the price is at most the bid."""
    at, below = eviction_curves(history((0, 1), (2, 2), (3, 1), until=5), np.array([0.999, 1.0]))
    assert (at.within(3600) > 0, below.within(3600)) == (True, 0)
    assert math.isnan(below.median(3600))


def test_a_constant_price_evicts_nobody() -> None:
    (curve,) = eviction_curves(history((0, 1), until=50), np.array([0.0]))
    assert (curve.within(3600), math.isnan(curve.median(3600))) == (0, True)


def test_starts_above_on_demand_do_not_count() -> None:
    """Without the hour at 2, starts are of hours 0 to 2 and 3 to 4."""
    (curve,) = eviction_curves(history((0, 1), (2, 2), (3, 1), until=5), np.array([0.5]), max_price=1.5)
    assert curve.within(3600) == pytest.approx(1 / 3)


def test_odds_do_not_go_across_a_hole() -> None:
    """A rise after a hole evicts nobody before it, and starts in the hour before it do not count."""
    trace = history((0, 1), (20, 5), (24, 1), until=30, holes=((10, 20),))
    (curve,) = eviction_curves(trace, np.array([0.5]))
    assert curve.within(3600) == 0
    solid = history((0, 1), (20, 5), (24, 1), until=30)
    assert eviction_curves(solid, np.array([0.5]))[0].within(3600) == pytest.approx(1 / 29)


def test_a_history_of_less_than_an_hour_has_no_odds() -> None:
    assert eviction_curves(history((0, 1), until=0.9), np.array([0.1])) == []


@given(histories(), st.sampled_from([0.0, 0.05, 0.3]), st.sampled_from([600.0, 1800.0, 3600.0]))
def test_beta_is_the_share_of_sampled_starts(trace: PriceTrace, delta: float, horizon: float) -> None:
    """Starts at the middle of 4,000 equal parts, each followed change by change."""
    (curve,) = eviction_curves(trace, np.array([delta]))
    parts = 4000
    starts = (np.arange(parts) + 0.5) / parts * (trace.until - 3600)
    after = np.array([evicted_after(trace, start, delta) for start in starts[::10]])
    evicted = after[after <= horizon]
    edges = 2 * len(trace.times) / len(after)  # each bend of the curve can put one start on the wrong side
    assert curve.within(horizon) == pytest.approx(len(evicted) / len(after), abs=edges)
    assert 0 <= curve.within(horizon) <= 1 + 1e-9
    if len(evicted):
        share = curve.within(curve.median(horizon))
        assert share == pytest.approx(curve.within(horizon) / 2, abs=1e-9)


@given(histories())
def test_beta_grows_with_time_and_falls_with_the_bid(trace: PriceTrace) -> None:
    curves = eviction_curves(trace, np.array([0.0, 0.05, 0.3]))
    table = np.array([[curve.within(seconds) for seconds in np.linspace(0, 3600, 40)] for curve in curves])
    assert np.all(np.diff(table, axis=1) >= -1e-12)
    assert np.all(np.diff(table, axis=0) <= 1e-12)


def test_poisson_spikes_give_the_closed_form() -> None:
    """Spikes of rate r an hour and height 1: beta(delta, h) = 1 - exp(-r h) for delta < 1, 0 above it."""
    rng, rate, hours = np.random.default_rng(5), 0.7, 20_000
    starts = np.sort(rng.uniform(0, hours, rng.poisson(rate * hours)))
    changes = [(0.0, 1.0)]
    for start in starts:
        if start > changes[-1][0]:
            changes += [(start, 2.0), (start + 1e-6, 1.0)]
    low, high = eviction_curves(history(*changes, until=hours), np.array([0.5, 1.5]))
    for seconds in (900, 3600):
        assert low.within(seconds) == pytest.approx(1 - math.exp(-rate * seconds / 3600), abs=0.01)
    assert high.within(3600) == 0


@given(histories(), st.floats(0, 0.4), st.floats(1, 3600))
def test_the_table_is_the_curves_between_its_steps(trace: PriceTrace, delta: float, seconds: float) -> None:
    deltas = np.array([0.0, 0.05, 0.3, 0.5])
    curves = eviction_curves(trace, deltas)
    beta, evicted = odds_table(curves, deltas).at(delta).within(seconds / 3600)
    row = max(1, int(np.searchsorted(deltas, delta)))
    step = 30.0  # the table's
    around = [c.within(t) for c in curves[row - 1 : row + 1] for t in (max(0, seconds - step), seconds + step)]
    assert min(around) - 1e-9 <= beta <= max(around) + 1e-9
    assert -1e-12 <= evicted <= beta * seconds / 3600 + 1e-9 + step / 3600


def test_mean_time_to_eviction() -> None:
    """9 h at or below the bid, exceeded twice."""
    trace = history((0, 1), (4, 3), (5, 1), (8, 3), (9, 1), until=11)
    assert mean_hours_to_eviction([trace], [2.0]) == pytest.approx(4.5)
    assert mean_hours_to_eviction([trace], [3.0]) == 720
