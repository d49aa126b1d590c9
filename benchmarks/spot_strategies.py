"""Strategies of the theses' tables, beside those of :mod:`solvers.spot.strategies`.

=====================  ===============================================================================================
standard-checkpoint    as young-checkpoint, with checkpoints that take 17 % of the time (Harlap thesis, 4.5.2)
just-above             as standard-agile, but bids just above the price
bidbrain-same-cores    BidBrain with no more cores than the reference
clairvoyant            BidBrain that knows which bids will be evicted within the hour: a reference, no bound
=====================  ===============================================================================================
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from solvers.spot import strategies
from solvers.spot.deciding import Anchors, Footprint, offer_book
from solvers.spot.odds import EvictionOdds, next_above
from solvers.spot.simulating import Acquire, CheckpointPolicy, SimulatedMarkets, Strategy
from solvers.spot.strategies import CHECKPOINT_S, BidBrain, Comparison, Standard, strategy_for

THESIS_OVERHEAD = 0.17
JUST_ABOVE = 0.0001
NAMES = (*strategies.NAMES, "standard-checkpoint", "just-above", "bidbrain-same-cores", "clairvoyant")


class JustAbove(Standard):
    """Bid just above the price."""

    def acquire(self, footprint: Footprint, prices: Sequence[float], now: float) -> Acquire | None:
        """Return the market of the lowest price per core, as :class:`Standard`."""
        order = super().acquire(footprint, prices, now)
        return None if order is None else replace(order, bid=prices[order.market] + JUST_ABOVE)


@dataclass(frozen=True, eq=False)
class Clairvoyant:
    """BidBrain with perfect odds: it knows when each bid would be evicted within the hour to come."""

    markets: SimulatedMarkets
    bidbrain: BidBrain
    checkpointing: CheckpointPolicy | None = None
    is_periodic: bool = True

    @property
    def anchors(self) -> Anchors:
        """Those of BidBrain."""
        return self.bidbrain.anchors

    def _informed(self, now: float) -> BidBrain:
        """Return BidBrain with the odds of this moment, 0 or 1."""
        book = self.bidbrain.book
        offers = []
        for number, offer in enumerate(book.offers):
            assert isinstance(offer.risk, EvictionOdds)
            trace = self.markets.traces[number]
            price, steps = trace.price_at(now), offer.risk.step_s * np.arange(offer.risk.table.shape[2])
            after = np.array([next_above(trace.times, trace.prices, now, price + d) - now for d in offer.risk.deltas])
            beta = (after[:, None] <= steps[None, :]).astype(float)
            evicted = np.where(beta > 0, after[:, None], 0.0)
            offers.append(replace(offer, risk=replace(offer.risk, table=np.stack([beta, evicted]))))
        return replace(self.bidbrain, book=offer_book(offers, book.outlook, book.application))

    def acquire(self, footprint: Footprint, prices: Sequence[float], now: float) -> Acquire | None:
        """Return the best candidate by what will happen."""
        return self._informed(now).acquire(footprint, prices, now)

    def renews(self, footprint: Footprint, number: int, prices: Sequence[float], now: float) -> bool:
        """Return whether to keep it, by what will happen."""
        return self._informed(now).renews(footprint, number, prices, now)


def strategies_for(names: Iterable[str], comparison: Comparison, has_deadline: bool = False) -> dict[str, Strategy]:
    """Return strategies by their names; parameters and errors as of :func:`solvers.spot.strategies.strategy_for`."""
    return {name: _strategy(name, comparison, has_deadline) for name in names}


def _strategy(name: str, comparison: Comparison, has_deadline: bool) -> Strategy:
    markets, cores = comparison.markets, comparison.reference.total_cores
    if name == "standard-checkpoint":
        return Standard(markets, cores, checkpointing=CheckpointPolicy(THESIS_OVERHEAD, CHECKPOINT_S / THESIS_OVERHEAD))
    if name == "just-above":
        return JustAbove(markets, cores, comparison.anchors)
    if name == "bidbrain-same-cores":
        limited = replace(comparison, limits=replace(comparison.limits, max_cores=cores))
        return strategy_for("bidbrain", limited, has_deadline)
    if name == "clairvoyant":
        bidbrain = strategy_for("bidbrain", comparison, has_deadline)
        assert isinstance(bidbrain, BidBrain)
        return Clairvoyant(markets, bidbrain)
    return strategy_for(name, comparison, has_deadline)
