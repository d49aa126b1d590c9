"""The odds of an eviction, from price histories (Harlap thesis, 4.3.1).

For a bid of price + delta, beta(delta, h) is the share of instants from which the price exceeds the bid within h hours.
A price is a step function, so that this is exact, without sampling. Let segment s be [a, b) with price p_s, and
T_s(delta) the first later change to a price above p_s + delta. A start u in it is evicted within h if T_s - u <= h:

    beta(delta, h) = sum_s |{u in s: T_s - u <= h}| / sum_s |s| = sum_s clip(b - max(a, T_s - h), 0, |s|) / sum_s |s|

The time to eviction from a start of segment s is spread evenly over [T_s - b, T_s - a], so that beta(delta, .) is
piecewise linear in h and has its bends at those ends: the curve is kept by its bends, and quantiles are read off it.

Starts count where an eviction would be seen: up to the longest horizon before a hole or the end of what is known.

Where no bid decides (today's clouds), capacity is taken back at a rate per instance-hour: the mean of a Gamma
distribution, with a prior from what the provider publishes, worth 24 instance-hours, updated by own interruptions and
by availability histories.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plink.model.spot.prices import HOUR_S, AvailabilityTrace, Floats, PriceTrace
from solvers.compilation import njit, njit_inner
from solvers.ordering.move_kernels import copy_into

HOURS_OF_MONTH = 730.0
PRIOR_HOURS = 24.0
# Shares of a month by bucket of the Spot Instance Advisor: < 5, 5-10, 10-15, 15-20, > 20 %; the middle of each.
ADVISOR_SHARES = (0.025, 0.075, 0.125, 0.175, 0.30)


# Bids above the market price, in money per hour: none, and those of the thesis, $0.0001 to $0.4.
DELTAS: Floats = np.concatenate([[0.0], np.geomspace(0.0001, 0.4, 24)])
HORIZON_S = HOUR_S
_GRID = 120  # intervals of the horizon in a table


def advisor_rate(bucket: int) -> float:
    """Return the interruptions per instance-hour of a bucket (0 to 4) of the Spot Instance Advisor."""
    return -math.log1p(-ADVISOR_SHARES[bucket]) / HOURS_OF_MONTH


@dataclass(frozen=True)
class Interruptions:
    """How often instances were taken back: ``count`` in ``hours`` instance-hours."""

    count: float
    hours: float

    def __add__(self, other: "Interruptions") -> "Interruptions":
        return Interruptions(self.count + other.count, self.hours + other.hours)

    @property
    def rate(self) -> float:
        """Per instance-hour; 0 where nothing was held."""
        return self.count / self.hours if self.hours > 0 else 0.0


def prior(rate: float) -> Interruptions:
    """Return what a published rate counts for."""
    return Interruptions(rate * PRIOR_HOURS, PRIOR_HOURS)


def observed(trace: AvailabilityTrace) -> Interruptions:
    """Return the interruptions in an availability history of those who hold all that there is: each fall of the count
    takes that many instances."""
    falls = np.maximum(0, -np.diff(trace.counts)).sum()
    return Interruptions(float(falls), float(trace.counts[:-1].sum()) * trace.gap_s / HOUR_S)


@dataclass(frozen=True)
class Spells:
    """``share``: of the time in which an instance could be held; ``hours``: how long each spell lasted."""

    share: float
    hours: tuple[float, ...]


def spells(trace: AvailabilityTrace) -> Spells:
    """Return the spells in which an instance could be held, the unfinished last one included."""
    held = np.concatenate([[False], trace.counts >= 1, [False]])
    edges = np.flatnonzero(held[1:] != held[:-1])
    lengths = (edges[1::2] - edges[::2]) * trace.gap_s / HOUR_S
    return Spells(float((trace.counts >= 1).mean()), tuple(lengths.tolist()))


@dataclass(frozen=True)
class ExponentialEvictions:
    """Evictions at a constant rate per hour: T ~ Exp(rate)."""

    rate: float

    def within(self, hours: float) -> tuple[float, float]:
        """Return P(T < hours), and E[T; T < hours] in hours."""
        if self.rate <= 0:
            return 0.0, 0.0
        x = self.rate * hours
        return -math.expm1(-x), (-math.expm1(-x) - x * math.exp(-x)) / self.rate


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


def eviction_curves(trace: PriceTrace, deltas: Floats = DELTAS, max_price: float = np.inf) -> list[EvictionCurve]:
    """Return the curve of each delta, shape (D,), increasing; an empty list where no start counts.

    :param max_price: starts at a higher price are left out, for nobody acquires there (on-demand costs less).
    """
    ends = trace.ends
    last_start = np.zeros(len(ends))  # of each segment: from later starts an eviction would not be seen
    for begin, end in trace.stretches:
        inside = (trace.times >= begin) & (trace.times < end)
        last_start[inside] = np.minimum(ends[inside], end - HORIZON_S)
    lengths = np.where(trace.prices <= max_price, np.maximum(0.0, last_start - trace.times), 0.0)
    total = lengths.sum()
    if total <= 0:
        return []
    exceeded = first_exceedances(trace.times, trace.prices, ends, deltas, HORIZON_S)
    used = lengths > 0
    begins, stops = trace.times[used], (trace.times + lengths)[used]
    return [_curve(times - stops, times - begins, total) for times in exceeded[used].T]


def _curve(earliest: Floats, latest: Floats, total: float) -> EvictionCurve:
    """Return the curve of times to eviction that are spread evenly from ``earliest`` to ``latest``, shape (S,) each."""
    within = earliest < HORIZON_S
    earliest, latest = earliest[within], latest[within]
    bends = np.concatenate([earliest, latest])
    slopes = np.concatenate([np.ones(len(earliest)), -np.ones(len(latest))])
    order = np.argsort(bends, kind="stable")
    bends, slopes = bends[order], np.cumsum(slopes[order])
    seconds = np.concatenate([[0.0], bends])
    rates = np.concatenate([[0.0], slopes])  # after each of them
    shares = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(seconds))]) / total
    whole = float(np.interp(HORIZON_S, seconds, shares))
    count = int(np.searchsorted(seconds, HORIZON_S))
    return EvictionCurve(np.append(seconds[:count], HORIZON_S), np.append(shares[:count], whole))


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


def odds_table(curves: Sequence[EvictionCurve], deltas: Floats = DELTAS) -> EvictionOdds:
    """Return the table of the curves, one for each delta."""
    steps = np.linspace(0, HORIZON_S, _GRID + 1)
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


@njit(cache=True)
def first_exceedances(times: Any, prices: Any, ends: Any, deltas: Any, limit: Any) -> Any:
    """Return when each start is evicted, shape (S, D): the first change after segment s, at most ``limit`` seconds
    after its end and before a hole, to a price above that of s by more than the delta; infinite where there is none.

    ``times``, ``prices``, ``ends``, shape (S,): where segments begin, what they cost, where they end; ``deltas``, shape
    (D,): increasing.
    """
    segments, count = len(times), len(deltas)
    result = np.full((segments, count), np.inf)
    for s in range(segments):
        place = 0
        following = s + 1
        while place < count and following < segments:
            if ends[following - 1] < times[following] or times[following] > ends[s] + limit:
                break
            while place < count and prices[following] > prices[s] + deltas[place]:
                result[s, place] = times[following]
                place += 1
            following += 1
    return result


@njit(cache=True)
def next_above(times: Any, prices: Any, start: Any, bid: Any) -> Any:
    """Return the first time after ``start`` at which the price is above ``bid``; infinite where it never is."""
    for place in range(np.searchsorted(times, start, side="right"), len(times)):
        if prices[place] > bid:
            return times[place]
    return np.inf


@njit(cache=True)
def odds_within(deltas: Any, table: Any, step_s: Any, delta: Any, seconds: Any) -> Any:
    """Return beta, and beta times the median time to eviction in seconds, for a bid of price + delta.

    ``table``, shape (2, D, T): beta and that product at steps of ``step_s`` seconds; linear between, and ends hold
    beyond them.
    """
    row = min(max(delta, 0.0), deltas[-1])
    high = min(max(1, np.searchsorted(deltas, row)), len(deltas) - 1)
    upper = (row - deltas[high - 1]) / (deltas[high] - deltas[high - 1])
    place = min(max(0.0, seconds / step_s), table.shape[2] - 1.0)
    column = min(int(place), table.shape[2] - 2)
    later = place - column
    pair = np.zeros(2)
    for k in range(2):
        low_row = table[k, high - 1, column] * (1 - later) + table[k, high - 1, column + 1] * later
        high_row = table[k, high, column] * (1 - later) + table[k, high, column + 1] * later
        pair[k] = low_row * (1 - upper) + high_row * upper
    return pair[0], pair[1]


@njit(cache=True)
def cost_per_work(held: Any, application: Any, pause_h: Any) -> Any:
    """Return the expected cost per unit of work of a footprint (Harlap thesis, eq. 4.4); infinite without work.

    ``held``, shape (4, n): expected cost, useful hours, probability to survive, cores; ``application``: as of
    :meth:`solvers.spot.footprint.Application.numbers`; ``pause_h``: hours lost to a change of the footprint.
    """
    survival = 1.0
    cores = 0.0
    cost = 0.0
    for i in range(held.shape[1]):
        cost += held[0, i]
        survival *= held[2, i]
        cores += held[3, i]
    lost = (1 - survival) * application[4] + pause_h
    hours = 0.0
    for i in range(held.shape[1]):
        hours += held[3, i] * max(0.0, held[1, i] - lost)
    work = hours * _efficiency(cores, application)
    return cost / work if work > 0 else np.inf


@njit_inner()
def _efficiency(cores: Any, application: Any) -> Any:
    """Return the share of linear scaling that is left with so many cores: b / (b + a n + c n^2)."""
    a, b, c = application[0], application[1], application[2]
    return b / (b + a * cores + c * cores * cores)


@njit(cache=True)
def costs_with(held: Any, application: Any, book: Any, market_of: Any, rows: Any) -> Any:
    """Return the cost per work of the footprint with each candidate added, shape (C,); infinite where it cannot be.

    ``book``, shape (4, C): of one instance in its first hour, the cost for a price of 1, useful hours, probability to
    survive, and how much is bid above the price; ``market_of``, shape (C,): rows of ``rows``; ``rows``, shape (M, 4):
    price, count, cores of an instance, highest bid. A count of 0 leaves a market out.
    """
    n = held.shape[1]
    added = np.empty((4, n + 1))
    for row in range(4):
        copy_into(held[row], added[row])
    result = np.full(book.shape[1], np.inf)
    for c in range(book.shape[1]):
        price, count, cores, max_bid = rows[market_of[c]]
        if count <= 0 or price + book[3, c] > max_bid:
            continue
        added[0, n] = book[0, c] * price * count
        added[1, n] = book[1, c]
        added[2, n] = book[2, c]
        added[3, n] = count * cores
        result[c] = cost_per_work(added, application, application[3])
    return result
