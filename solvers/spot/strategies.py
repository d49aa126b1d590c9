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
from collections.abc import Sequence
from dataclasses import dataclass, replace

from plink.model.spot.market_file import Limits
from plink.model.spot.prices import HOUR_S
from solvers.spot.billing import Billing
from solvers.spot.deciding import (
    Anchors,
    Footprint,
    Offer,
    OfferBook,
    best_candidate,
    offer_book,
    should_renew,
)
from solvers.spot.footprint import Outlook
from solvers.spot.scaling import Application
from solvers.spot.simulating import DECISION_INTERVAL_S, Acquire, CheckpointPolicy, SimulatedMarkets, Strategy

CHECKPOINT_S = 60.0  # to write one
NO_ANCHORS = Anchors()
NAMES = ("on-demand", "young-checkpoint", "standard-agile", "bidbrain", "bidbrain-replacing")


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
