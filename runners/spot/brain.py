"""What a driver asks: what to request now, and whether to renew what is held."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from plink.model.spot.prices import Market
from solvers.spot.deciding import Quote
from solvers.spot.ledger import Ledger


@dataclass(frozen=True)
class RentalChoice:
    """What to request, and why; ``count`` is 0 where nothing is to be requested. ``is_urgent``: something should be,
    and cannot."""

    reason: str
    market: Market | None = None
    count: int = 0
    bid: float = 0.0
    is_urgent: bool = False


class Brain(Protocol):
    """The decisions of :mod:`solvers.spot.deciding`, by a ledger."""

    def observe(self, market: Market, since_s: float, price: float) -> None:
        """Take a change of a price."""
        ...

    def choose(self, ledger: Ledger, quotes: Mapping[Market, Quote], now: float) -> RentalChoice:
        """Return what to request now."""
        ...

    def reason_to_end(self, ledger: Ledger, token: str, quotes: Mapping[Market, Quote], now: float) -> str:
        """Return why the instances of a request are not to be renewed for another hour; empty where they are."""
        ...
