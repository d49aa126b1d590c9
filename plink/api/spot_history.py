"""The history of prices that a driver's odds begin with, where it comes from the provider."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from plink.model.spot.prices import Market
from runners.spot.provider import ListedInstance, PricePoint, Provider, RentalOrder


@dataclass
class HistoryFirst:
    """A provider whose first answer about prices goes back to ``since_s``: ``observe`` gets all of that answer.

    A driver whose provider gives no prices at its start so gets the history later, with the first that there are.
    """

    provider: Provider
    observe: Callable[[Market, float, float], None]
    since_s: float
    _is_observed: bool = False

    def account(self) -> str:
        """As the provider."""
        return self.provider.account()

    def prices(self, since_s: float) -> Sequence[PricePoint]:
        """As the provider; the first time the history is observed, too."""
        if self._is_observed:
            return self.provider.prices(since_s)
        points = self.provider.prices(min(since_s, self.since_s))
        self._is_observed = True
        at_start: dict[Market, PricePoint] = {}
        for point in points:
            self.observe(point.market, point.since_s, point.price)
            if point.since_s <= since_s:
                at_start[point.market] = point
        return [*at_start.values(), *(point for point in points if point.since_s > since_s)]

    def acquire(self, order: RentalOrder) -> Sequence[ListedInstance]:
        """As the provider."""
        return self.provider.acquire(order)

    def listing(self) -> Sequence[ListedInstance]:
        """As the provider."""
        return self.provider.listing()

    def release(self, ids: Sequence[str]) -> None:
        """As the provider."""
        self.provider.release(ids)

    def renew(self, ids: Sequence[str], until_s: float) -> None:
        """As the provider."""
        self.provider.renew(ids, until_s)
