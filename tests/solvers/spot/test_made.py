"""Made prices: the same by seed, and like those of 2015 that they are set by."""

import numpy as np
import pytest

from plink.model.spot.prices import Market
from solvers.spot.made import KINDS, MadeMarket, make_prices
from solvers.spot.odds import eviction_curves

_DELTAS = np.array([0.0001, 0.0012, 0.0042, 0.014, 0.048, 0.16, 0.4])
# beta within an hour by these deltas, changes an hour, on-demand price: of EC2 in 2015 (design 3d).
_REAL = {
    "c3-a": ((0.80, 0.64, 0.51, 0.41, 0.31, 0.24, 0.15), 11.8, 0.21),
    "c3-b": ((0.40, 0.25, 0.22, 0.16, 0.03, 0.01, 0.00), 7.4, 0.21),
    "g2-a": ((0.47, 0.26, 0.18, 0.11, 0.05, 0.03, 0.03), 5.5, 0.65),
    "r3-a": ((0.40, 0.21, 0.15, 0.09, 0.05, 0.01, 0.01), 4.5, 0.175),
    "d2-a": ((0.46, 0.42, 0.36, 0.29, 0.24, 0.17, 0.11), 2.2, 5.52),
}


@pytest.mark.parametrize("kind", KINDS)
def test_odds_are_those_of_2015_within_a_tenth(kind: str) -> None:
    betas, changes, on_demand = _REAL[kind]
    made = MadeMarket(Market("z", kind), KINDS[kind], on_demand)
    trace = make_prices([made], 60, seed=1)[made.market]
    curves = eviction_curves(trace, _DELTAS, on_demand)
    assert [curve.within(3600) for curve in curves] == pytest.approx(betas, abs=0.1)
    assert (len(trace.times) - 1) / (60 * 24) == pytest.approx(changes, rel=0.25)
    assert trace.quantile(0.5) / on_demand == pytest.approx(KINDS[kind].level, rel=0.1)


def test_seeds_and_zones() -> None:
    """Zones differ, but share spikes of their type."""
    both = [MadeMarket(Market(zone, "t"), KINDS["d2-a"], 5.0) for zone in "ab"]
    first, again, other = (make_prices(both, 20, seed) for seed in (1, 1, 2))
    for each in both:
        assert np.array_equal(first[each.market].prices, again[each.market].prices)
        assert not np.array_equal(first[each.market].prices[:50], other[each.market].prices[:50])
    a, b = (first[each.market] for each in both)
    assert len(np.intersect1d(a.times, b.times)) > 20
