"""Made price histories, from a seed.

The price of a market is the sum of a base, which moves slowly (an AR(1) process in its logarithm and the time of day),
small changes that come in bursts, and spikes: a Poisson process of sudden rises that last minutes to hours. Spikes of a
type come in several zones at once by a share. The kinds below are set by what EC2's prices did in 2015: how often they
changed, their level, how long spikes lasted, and the odds of an eviction within the hour by bid.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plink.model.spot.prices import HOUR_S, Floats, Market, Prices, PriceTrace

_STEP_S = 600.0  # of the base
_BASE_DEVIATION, _BASE_HOURS, _DAY_SHARE = 0.03, 12.0, 0.05
_SHARED = 0.3  # of the spikes: all markets of one type have them at the same time
_QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True)
class MarketKind:
    """How the prices of a market behave.

    ``level``: the median price by the on-demand price; ``step``: a small change by the median price; ``bursts``: of
    small changes per hour, each of ``changes`` on average; ``spikes``: per hour, more than each of ``heights`` (money,
    increasing), decreasing; ``minutes``: that spikes last, at 25, 50, 75 and 95 % of them.
    """

    level: float
    step: float
    bursts: float
    changes: float
    heights: tuple[float, ...]
    spikes: tuple[float, ...]
    minutes: tuple[float, float, float, float]


def _rates(odds: Sequence[float]) -> tuple[float, ...]:
    """Return the rates per hour at which the odds within an hour are these."""
    return tuple(float(-np.log1p(-beta)) for beta in odds)


_HEIGHTS = (0.0042, 0.014, 0.048, 0.16, 0.4)
KINDS = {
    "c3-a": MarketKind(0.175, 0.014, 1.40, 8.0, _HEIGHTS, _rates((0.51, 0.41, 0.31, 0.24, 0.15)), (3, 4, 6, 48)),
    "c3-b": MarketKind(0.174, 0.006, 0.40, 18.0, _HEIGHTS, _rates((0.22, 0.16, 0.03, 0.01, 0.003)), (4, 4, 6, 92)),
    "g2-a": MarketKind(0.12, 0.006, 0.60, 9.0, _HEIGHTS, _rates((0.18, 0.11, 0.05, 0.03, 0.03)), (7, 15, 50, 320)),
    "r3-a": MarketKind(0.115, 0.010, 0.50, 9.0, _HEIGHTS, _rates((0.15, 0.09, 0.05, 0.01, 0.01)), (7, 13, 50, 400)),
    "d2-a": MarketKind(0.13, 0.010, 0.30, 6.0, _HEIGHTS, _rates((0.36, 0.29, 0.24, 0.17, 0.11)), (6, 10, 28, 400)),
}


@dataclass(frozen=True)
class MadeMarket:
    """One market to make: its kind, and its on-demand price."""

    market: Market
    kind: MarketKind
    on_demand: float


def make_prices(markets: Sequence[MadeMarket], days: float, seed: int, start: float = 0.0) -> Prices:
    """Return histories of so many days from ``start`` on, seconds since 1970."""
    prices: Prices = {}
    for number, each in enumerate(markets):
        first = next(i for i, other in enumerate(markets) if other.market.type == each.market.type)
        common = np.random.default_rng((seed, 1, first))
        own = np.random.default_rng((seed, 2, number))
        spikes = [_spikes(each.kind, days, rng, share) for rng, share in ((common, _SHARED), (own, 1 - _SHARED))]
        prices[each.market] = _trace(each, days, own, np.concatenate(spikes, axis=1), start)
    return prices


def _spikes(kind: MarketKind, days: float, rng: np.random.Generator, share: float) -> Floats:
    """Return spikes as from, until (seconds), height: shape (3, K)."""
    count = rng.poisson(kind.spikes[0] * share * days * 24)
    begin = rng.uniform(0, days * 86400, count)
    shares = np.array(kind.spikes) / kind.spikes[0]  # of heights above each
    ends = np.append(shares, 0.0)[::-1]
    heights = np.exp(np.interp(rng.uniform(0, 1, count), ends, np.log([*kind.heights, 4 * kind.heights[-1]])[::-1]))
    minutes = (0.5 * kind.minutes[0], *kind.minutes, 1.5 * kind.minutes[-1])
    lasts = np.exp(np.interp(rng.uniform(0, 1, count), _QUANTILES, np.log(minutes)))
    return np.stack([begin, begin + 60 * lasts, heights])


def _trace(made: MadeMarket, days: float, rng: np.random.Generator, spikes: Floats, start: float) -> PriceTrace:
    kind, span = made.kind, days * 86400
    small = _burst_times(kind, span, rng)
    median = made.on_demand * kind.level
    level = _base(span, rng)(small) * median * (1 + kind.step * rng.uniform(-1, 1, len(small)) * 1.5)
    times = np.unique(np.concatenate([small, spikes[0], np.minimum(spikes[1], span)]))
    times = times[times < span]
    above = np.zeros(len(times))
    for begin, end, height in spikes.T:
        inside = slice(*np.searchsorted(times, (begin, end)))
        above[inside] = np.maximum(above[inside], height)
    prices = np.round(level[np.searchsorted(small, times, side="right") - 1] + above, 4)
    prices = np.maximum(prices, 0.0001)
    changed = np.concatenate([[True], prices[1:] != prices[:-1]])
    return PriceTrace(start + times[changed], prices[changed], start + span)


def _burst_times(kind: MarketKind, span: float, rng: np.random.Generator) -> Floats:
    """Return the times of small changes, the first at 0."""
    starts = rng.uniform(0, span, rng.poisson(kind.bursts * span / HOUR_S))
    counts = rng.geometric(1 / kind.changes, len(starts))
    after = [np.cumsum(rng.exponential(90.0, count)) for count in counts]
    times = np.concatenate([[0.0], *(begin + more for begin, more in zip(starts, after, strict=True))])
    return np.unique(times[times < span])


class _Base:
    """The slow part of a price, by the time in seconds; around 1."""

    def __init__(self, factors: Floats) -> None:
        self._factors = factors

    def __call__(self, times: Floats) -> Floats:
        """Return it at these times."""
        factors: Floats = self._factors[np.minimum((times / _STEP_S).astype(int), len(self._factors) - 1)]
        return factors


def _base(span: float, rng: np.random.Generator) -> _Base:
    """Return an AR(1) process of 3 % and 12 hours, and 5 % by the time of day."""
    from scipy.signal import lfilter

    count = int(span / _STEP_S) + 1
    memory = float(np.exp(-_STEP_S / HOUR_S / _BASE_HOURS))
    noise = rng.normal(0, _BASE_DEVIATION * np.sqrt(1 - memory**2), count)
    log = lfilter([1.0], [1.0, -memory], noise)
    day = _DAY_SHARE * np.sin(2 * np.pi * np.arange(count) * _STEP_S / 86400)
    return _Base(np.exp(log) * (1 + day))
