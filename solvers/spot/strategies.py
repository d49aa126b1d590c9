"""The strategies that are compared, each able to run any job of :mod:`solvers.spot.simulating`.

=====================  ===============================================================================================
on-demand              the reference machines, on demand
young-checkpoint       all cores in the market of the lowest price per core, bid: the on-demand price, until evicted;
                       checkpoints as often as Young's formula says for the market's evictions
standard-agile         the same bids, with reliable anchors that keep the state (AgileML)
bidbrain               the thesis's BidBrain, up to 1.5 times the cores
bidbrain-replacing     expects that evicted capacity is replaced within the hour: plink's own, as advice and the driver
=====================  ===============================================================================================
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from plink.errors import NoAnswer
from plink.model.spot.market_file import Limits
from plink.model.spot.prices import HOUR_S, PriceTrace
from solvers.spot.billing import Billing
from solvers.spot.deciding import Anchors, Footprint, Offer, OfferBook, best_candidate, offer_book, should_renew
from solvers.spot.footprint import Application, Outlook
from solvers.spot.simulating import (
    DECISION_INTERVAL_S,
    Acquire,
    CheckpointPolicy,
    DeadlineFallback,
    SimulatedMarkets,
    SimulationOutcome,
    Start,
    Strategy,
    simulate_job,
    work_of,
)

CHECKPOINT_S = 60.0  # to write one
NO_ANCHORS = Anchors()
NAMES = ("on-demand", "young-checkpoint", "standard-agile", "bidbrain", "bidbrain-replacing")


FALLBACK_SLACK_S = 360.0
"""So much earlier than they have to the machines for a deadline are requested, as by `plink spot drive`: it decides
every two minutes, and a request may stay without an answer for four."""
_EPSILON_S = 1e-3
ROOM = 4.0  # so many times the reference's hours, and two more, are known of prices after each start


@dataclass(frozen=True)
class Reference:
    """The machines that a job would run on without any spot: ``count`` at ``price`` an hour with ``cores`` each."""

    count: int
    price: float
    cores: float

    @property
    def total_cores(self) -> float:
        """Of all."""
        return self.count * self.cores


@dataclass(frozen=True)
class OnDemand:
    """Run on the reference machines alone."""

    anchors: Anchors
    checkpointing: CheckpointPolicy | None = None
    is_periodic: bool = False

    def acquire(self, footprint: Footprint, prices: Sequence[float], now: float) -> Acquire | None:
        """Return nothing."""
        return None

    def renews(self, footprint: Footprint, number: int, prices: Sequence[float], now: float) -> bool:
        """Return yes."""
        return True


@dataclass(frozen=True)
class Standard:
    """Hold all cores in the market of the lowest price per core, at a bid of its on-demand price, until evicted."""

    markets: SimulatedMarkets
    cores: float
    anchors: Anchors = NO_ANCHORS
    checkpointing: CheckpointPolicy | None = None
    is_periodic: bool = False

    def acquire(self, footprint: Footprint, prices: Sequence[float], now: float) -> Acquire | None:
        """Return the market of the lowest price per core, if one is not above its on-demand price."""
        if footprint.allocations:
            return None
        choices = [m for m, price in enumerate(prices) if price <= self.markets.on_demand[m]]
        if not choices:
            return None
        best = min(choices, key=lambda m: prices[m] / self.markets.cores[m])
        return Acquire(best, math.ceil(self.cores / self.markets.cores[best]), self.markets.on_demand[best])

    def renews(self, footprint: Footprint, number: int, prices: Sequence[float], now: float) -> bool:
        """Return yes: it is kept until it is evicted."""
        return True


@dataclass(frozen=True, eq=False)
class BidBrain:
    """Decide by expected cost per work (:mod:`solvers.spot.deciding`)."""

    book: OfferBook
    limits: Limits
    anchors: Anchors
    checkpointing: CheckpointPolicy | None = None
    is_periodic: bool = True

    def acquire(self, footprint: Footprint, prices: Sequence[float], now: float) -> Acquire | None:
        """Return the best candidate if it lowers the cost per work."""
        current, best, costs, rows = best_candidate(footprint, self.book, prices, self.limits, now)
        if best < 0 or not costs[best] < current:
            return None
        market = int(self.book.market_of[best])
        return Acquire(market, int(rows[market, 1]), prices[market] + float(self.book.book[3, best]))

    def renews(self, footprint: Footprint, number: int, prices: Sequence[float], now: float) -> bool:
        """Return whether keeping it costs no more per work than ending it."""
        return should_renew(footprint, number, self.book, prices, now)[0]


@dataclass(frozen=True, eq=False)
class Comparison:
    """What all strategies have in common. ``offers``: one for each of ``markets``, with odds from before the test;
    ``hours_to_eviction``: the mean of bids of the on-demand price, from before the test too."""

    markets: SimulatedMarkets
    offers: tuple[Offer, ...]
    outlook: Outlook
    application: Application
    reference: Reference
    anchors: Anchors
    limits: Limits
    hours_to_eviction: float


def strategy_for(name: str, comparison: Comparison, has_deadline: bool = False) -> Strategy:
    """Return a strategy by its name.

    :param has_deadline: BidBrain prefers to hold two markets then. :raises KeyError: for a name that none has.
    """
    markets, cores = comparison.markets, comparison.reference.total_cores
    if name == "on-demand":
        reference = comparison.reference
        return OnDemand(Anchors(reference.count, reference.price, reference.cores))
    if name == "young-checkpoint":
        return Standard(markets, cores, checkpointing=young(comparison.hours_to_eviction))
    if name == "standard-agile":
        return Standard(markets, cores, comparison.anchors)
    if name not in NAMES:
        raise KeyError(name)
    outlook = comparison.outlook
    if name == "bidbrain-replacing":
        outlook = replacing(outlook.billing, comparison.application)
    book = offer_book(comparison.offers, outlook, comparison.application)
    return BidBrain(book, replace(comparison.limits, two_markets=has_deadline), comparison.anchors)


def replacing(billing: Billing, application: Application) -> Outlook:
    """Return the outlook of plink's own form: evicted capacity works again after a decision and a start."""
    return Outlook(billing, (DECISION_INTERVAL_S + application.start_s) / HOUR_S)


def young(hours: float) -> CheckpointPolicy:
    """Return checkpoints at the interval of Young's formula, sqrt(2 C M), for a mean time to eviction in hours."""
    interval = math.sqrt(2 * CHECKPOINT_S * hours * HOUR_S)
    return CheckpointPolicy(CHECKPOINT_S / (interval + CHECKPOINT_S), interval)


@dataclass(frozen=True)
class StrategyResult:
    """The outcomes of one strategy, one for each start."""

    name: str
    outcomes: tuple[SimulationOutcome, ...]

    @property
    def unfinished(self) -> int:
        """How many jobs were not done when prices ended."""
        return sum(not outcome.finished for outcome in self.outcomes)

    @property
    def money(self) -> float:
        """What a job cost, mean."""
        return float(np.mean([outcome.money for outcome in self.outcomes]))

    @property
    def seconds(self) -> float:
        """What a job took, mean."""
        return float(np.mean([outcome.seconds for outcome in self.outcomes]))

    @property
    def evictions(self) -> float:
        """Allocations that a job lost, mean."""
        return float(np.mean([outcome.evictions for outcome in self.outcomes]))

    def missed(self, deadline_s: float) -> int:
        """Return how many jobs were not done in so many seconds."""
        late = [not each.finished or each.seconds > deadline_s + _EPSILON_S for each in self.outcomes]
        return int(np.count_nonzero(late))

    @property
    def fell_back(self) -> float:
        """The share of the jobs that needed on-demand machines for the deadline."""
        return float(np.mean([outcome.fell_back for outcome in self.outcomes]))

    def share(self, kind: str) -> float:
        """Return the share of machine hours that were ``anchor`` (on demand), ``paid`` or ``free``."""
        hours = {k: sum(getattr(each, f"{k}_s") for each in self.outcomes) for k in ("anchor", "paid", "free")}
        return float(hours[kind] / sum(hours.values()))


def draw_starts(traces: Sequence[PriceTrace], hours: float, count: int, seed: int) -> list[Start]:
    """Return random starts of jobs, evenly over the time in which all markets have prices for long enough after it.

    :raises NoAnswer: when no such time exists.
    """
    room = (ROOM * hours + 2) * HOUR_S
    common = [(begin, end) for begin, end in _common([trace.stretches for trace in traces]) if end - begin > room]
    if not common:
        raise NoAnswer(
            f"no time with {room / HOUR_S:g} h of prices in all markets, which jobs of {hours:g} h need; "
            "give longer histories, or fewer --hours"
        )
    lengths = np.array([end - begin - room for begin, end in common])
    edges = np.concatenate([[0.0], np.cumsum(lengths)])
    places = np.random.default_rng(seed).uniform(0, edges[-1], count)
    which = np.searchsorted(edges, places, side="right") - 1
    return [Start(common[w][0] + p - edges[w], common[w][1]) for w, p in zip(which, places, strict=True)]


def _common(stretches: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    """Return the times that are inside of a stretch of each market."""
    result = list(stretches[0])
    for other in stretches[1:]:
        result = [(max(a, c), min(b, d)) for a, b in result for c, d in other if max(a, c) < min(b, d)]
    return result


def fallback_of(comparison: Comparison, deadline_s: float | None) -> DeadlineFallback | None:
    """Return the reference machines as those that a deadline falls back to; None without a deadline."""
    reference = comparison.reference
    if deadline_s is None:
        return None
    return DeadlineFallback(deadline_s, reference.count, reference.price, reference.cores, FALLBACK_SLACK_S)


def compare(
    strategies: Mapping[str, Strategy],
    comparison: Comparison,
    hours: float,
    starts: Sequence[Start],
    progress: Callable[[int, int], None] = lambda done, total: None,
    deadline_s: float | None = None,
) -> list[StrategyResult]:
    """Return how jobs of so many hours on the reference machines go by each strategy.

    :param strategies: by name; with a deadline those of :func:`solvers.spot.strategies.strategy_for` with one.
    :param deadline_s: from each start: the reference machines are requested on demand when they have to be.
    """
    work = work_of(hours, comparison.reference.total_cores, comparison.application)
    fallback = fallback_of(comparison, deadline_s)
    results: list[StrategyResult] = []
    for place, (name, strategy) in enumerate(strategies.items()):
        net = fallback if name != "on-demand" else None
        outcomes = []
        for number, start in enumerate(starts):
            outcomes.append(simulate_job(comparison.markets, strategy, comparison.application, start, work, net))
            progress(place * len(starts) + number + 1, len(strategies) * len(starts))
        results.append(StrategyResult(name, tuple(outcomes)))
    return results
