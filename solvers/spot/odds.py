"""The odds of an eviction, from price histories (Harlap thesis, 4.3.1).

For a bid of price + delta, beta(delta, h) is the share of instants from which the price exceeds the bid within h hours.
A price is a step function, so that this is exact, without sampling. Let segment s be [a, b) with price p_s, and
T_s(delta) the first later change to a price above p_s + delta. A start u in it is evicted within h if T_s - u <= h:

    beta(delta, h) = sum_s |{u in s: T_s - u <= h}| / sum_s |s| = sum_s clip(b - max(a, T_s - h), 0, |s|) / sum_s |s|

The time to eviction from a start of segment s is spread evenly over [T_s - b, T_s - a], so that beta(delta, .) is
piecewise linear in h and has its bends at those ends: the curve is kept by its bends, and quantiles are read off it.

Starts count where an eviction would be seen: up to the longest horizon before a hole or the end of what is known.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plink.model.spot.prices import HOUR_S, Floats, PriceTrace
from solvers.spot.odds_kernels import first_exceedances, odds_within

# Bids above the market price, in money per hour: none, and those of the thesis, $0.0001 to $0.4.
DELTAS: Floats = np.concatenate([[0.0], np.geomspace(0.0001, 0.4, 24)])
HORIZON_S = HOUR_S
_GRID = 120  # intervals of the horizon in a table


@dataclass(frozen=True, eq=False)
class EvictionCurve:
    """The share of starts that are evicted within a time, exactly: linear between bends.

    ``seconds``, ``shares``, shape (B,): where the bends are, increasing, and the curve there.
    """

    seconds: Floats
    shares: Floats

    def within(self, seconds: float) -> float:
        """Return beta: the share evicted within so many seconds, at most the horizon."""
        return float(np.interp(seconds, self.seconds, self.shares))

    def median(self, seconds: float) -> float:
        """Return the median time to eviction of those evicted within so many seconds; NaN where none is."""
        half = self.within(seconds) / 2
        if half <= 0:
            return float("nan")
        place = int(np.searchsorted(self.shares, half))
        (a, b), (low, high) = self.seconds[place - 1 : place + 1], self.shares[place - 1 : place + 1]
        return float(a + (b - a) * (half - low) / (high - low))


def eviction_curves(
    trace: PriceTrace, deltas: Floats = DELTAS, max_price: float = np.inf, horizon_s: float = HORIZON_S
) -> list[EvictionCurve]:
    """Return the curve of each delta, shape (D,), increasing; an empty list where no start counts.

    :param max_price: starts at a higher price are left out, for nobody acquires there (on-demand costs less).
    """
    ends = trace.ends
    last_start = np.zeros(len(ends))  # of each segment: from later starts an eviction would not be seen
    for begin, end in trace.stretches:
        inside = (trace.times >= begin) & (trace.times < end)
        last_start[inside] = np.minimum(ends[inside], end - horizon_s)
    lengths = np.where(trace.prices <= max_price, np.maximum(0.0, last_start - trace.times), 0.0)
    total = lengths.sum()
    if total <= 0:
        return []
    exceeded = first_exceedances(trace.times, trace.prices, ends, deltas, horizon_s)
    used = lengths > 0
    begins, stops = trace.times[used], (trace.times + lengths)[used]
    return [_curve(times - stops, times - begins, total, horizon_s) for times in exceeded[used].T]


def _curve(earliest: Floats, latest: Floats, total: float, horizon_s: float) -> EvictionCurve:
    """Return the curve of times to eviction that are spread evenly from ``earliest`` to ``latest``, shape (S,) each."""
    within = earliest < horizon_s
    earliest, latest = earliest[within], latest[within]
    bends = np.concatenate([earliest, latest])
    slopes = np.concatenate([np.ones(len(earliest)), -np.ones(len(latest))])
    order = np.argsort(bends, kind="stable")
    bends, slopes = bends[order], np.cumsum(slopes[order])
    seconds = np.concatenate([[0.0], bends])
    rates = np.concatenate([[0.0], slopes])  # after each of them
    shares = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(seconds))]) / total
    whole = float(np.interp(horizon_s, seconds, shares))
    count = int(np.searchsorted(seconds, horizon_s))
    return EvictionCurve(np.append(seconds[:count], horizon_s), np.append(shares[:count], whole))


@dataclass(frozen=True, eq=False)
class EvictionOdds:
    """What decisions read: the curves of one market, at equal steps of time.

    ``deltas``, shape (D,): increasing, from 0; ``table``, shape (2, D, T): at each step of time, the share that is
    evicted by then, and that share times its median time to eviction in seconds; ``step_s``: of time.
    """

    deltas: Floats
    table: Floats
    step_s: float

    def at(self, delta: float) -> "EvictionsOfBid":
        """Return the evictions of a bid of the price and so much more."""
        return EvictionsOfBid(self, delta)


@dataclass(frozen=True, eq=False)
class EvictionsOfBid:
    """Evictions by the market price, of a bid that is ``delta`` above the price now."""

    odds: EvictionOdds
    delta: float

    def within(self, hours: float) -> tuple[float, float]:
        """Return beta within so many hours, and beta times the median time to eviction in hours: with it
        omega = (1 - beta) t + beta min(t, m) of eq. 4.2."""
        odds = self.odds
        beta, evicted_s = odds_within(odds.deltas, odds.table, odds.step_s, self.delta, hours * HOUR_S)
        return beta, evicted_s / HOUR_S


def odds_table(curves: Sequence[EvictionCurve], deltas: Floats = DELTAS, horizon_s: float = HORIZON_S) -> EvictionOdds:
    """Return the table of the curves, one for each delta."""
    steps = np.linspace(0, horizon_s, _GRID + 1)
    table = np.zeros((2, len(curves), len(steps)))
    for row, curve in enumerate(curves):
        beta = np.interp(steps, curve.seconds, curve.shares)
        high = np.clip(np.searchsorted(curve.shares, beta / 2), 1, len(curve.shares) - 1)
        rise = curve.shares[high] - curve.shares[high - 1]
        share = np.divide(beta / 2 - curve.shares[high - 1], rise, out=np.zeros_like(rise), where=rise > 0)
        median = curve.seconds[high - 1] + share * (curve.seconds[high] - curve.seconds[high - 1])
        table[:, row] = beta, beta * median
    return EvictionOdds(deltas, table, float(steps[1]))


def mean_hours_to_eviction(traces: Sequence[PriceTrace], bid_of: Sequence[float]) -> float:
    """Return how long such bids last on average: the hours in which the price is not above the bid, by how often it
    comes to be above it; 30 days where it never does.

    :param bid_of: the bid in each market.
    """
    hours = exceeded = 0.0
    for trace, bid in zip(traces, bid_of, strict=True):
        below = trace.prices <= bid
        hours += float(((trace.ends - trace.times) * below).sum()) / HOUR_S
        exceeded += float((below[:-1] & ~below[1:]).sum())
    return hours / exceeded if exceeded else 720.0
