"""Prices that a driver decides by, and those that its journal needs to say what instances cost."""

import math
from collections.abc import Callable, Iterable

from plink.model.spot import journal
from plink.model.spot.prices import Market
from runners.spot.provider import PricePoint
from solvers.spot.deciding import Quote
from solvers.spot.ledger import Ledger, RentedInstance

PRICED_ENTRY_S = 600.0  # between two entries that prices are in the journal


class RecordedPrices:
    """The latest price of each market; prices of markets in which something is rented go to the journal.

    On-demand prices are none of the provider's: they are those of the requests.

    :param add: writes to the journal. :param observe: is given each new price of a market, with its time.
    :param history_from_s: the first prices are asked for from then on, for ``observe`` alone; None: no history is asked
        for.
    :ivar latest: of each market, since when, and the price.
    """

    def __init__(
        self, ledger: Ledger, add: Callable[[journal.JournalEntry], None],
        observe: Callable[[Market, float, float], None], history_from_s: float | None = None,
    ) -> None:  # fmt: skip
        self.latest: dict[Market, tuple[float, float]] = {}
        self._ledger, self._add, self._observe = ledger, add, observe
        self._history_from_s, self._needed_from_s = history_from_s, math.inf
        self._fetched_at = self._failed_at = -math.inf
        # Since when prices may be missing in the journal: the driver before this one may have ended before it asked.
        self._missing: dict[Market, float] = {}
        for each in ledger.held:
            self.want_history(each)

    def quotes(self, now: float) -> dict[Market, Quote]:
        """Return the latest prices with their age."""
        age = now - self._fetched_at
        return {market: Quote(price, age) for market, (_, price) in self.latest.items()}

    def since(self, market: Market, requested: tuple[float, float]) -> tuple[float, float]:
        """Return since when a market has its price, and the price; of on-demand machines that of the request."""
        return requested if market.is_on_demand else self.latest[market]

    def complete_until(self) -> float:
        """Return until when all prices that costs depend on are in the journal."""
        return max(self._fetched_at, self._ledger.priced_until_s)

    def want_history(self, instance: RentedInstance) -> None:
        """Ask for all prices of an instance's life at the next fetch."""
        if not instance.market.is_on_demand:
            self._missing[instance.market] = min(self._missing.get(instance.market, math.inf), instance.since_s)

    def note_failure(self, now: float) -> None:
        """Take that prices could not be fetched: they are not due again before the interval is over."""
        self._failed_at = now

    def due(self, now: float, interval_s: float) -> float | None:
        """Return since when prices are to be fetched now, or None before the interval is over."""
        if now - self._failed_at < interval_s or (now - self._fetched_at < interval_s and not self._missing):
            return None
        steps = [step[0] for market in self._markets() if (step := self._ledger.latest_price(market))]
        latest = now if self._fetched_at == -math.inf else self._fetched_at
        self._needed_from_s = min([latest, *steps, *self._missing.values()])
        return min(self._needed_from_s, self._needed_from_s if self._history_from_s is None else self._history_from_s)

    def add(self, points: Iterable[PricePoint], now: float) -> None:
        """Take what was fetched."""
        markets = self._markets()
        self._fetched_at = now
        for point in points if self._history_from_s is None else self._without_history(points):
            market, since_s, price = point.market, point.since_s, point.price
            if market.is_on_demand or since_s > now:
                continue
            if since_s > self.latest.get(market, (-math.inf, 0.0))[0]:
                self.latest[market] = (since_s, price)
                self._observe(market, since_s, price)
            if market in self._missing:
                if self._ledger.price_at(market, since_s) != price:
                    self._record(market, since_s, price, now)
            elif market in markets:
                self.record(market, since_s, price, now)
        if self._ledger.held and now - self._ledger.priced_until_s >= PRICED_ENTRY_S:
            self._add(journal.PricesRecorded(now))
        self._missing.clear()

    def _without_history(self, points: Iterable[PricePoint]) -> list[PricePoint]:
        """Have the history observed, and return what was asked for besides: prices from a time on, and those then."""
        needed: list[PricePoint] = []
        at_start: dict[Market, PricePoint] = {}
        for point in points:
            self._observe(point.market, point.since_s, point.price)
            if point.since_s <= self._needed_from_s:
                at_start[point.market] = point
            else:
                needed.append(point)
        self._history_from_s = None
        return [*at_start.values(), *needed]

    def record(self, market: Market, since_s: float, price: float, now: float) -> None:
        """Write a price that the cost of an instance depends on, unless the journal has it or a later one."""
        latest = self._ledger.latest_price(market)
        if since_s <= now and (latest is None or (since_s > latest[0] and price != latest[1])):
            self._record(market, since_s, price, now)

    def _record(self, market: Market, since_s: float, price: float, now: float) -> None:
        self._add(journal.PriceChanged(now, market.zone, market.type, market.product, since_s, price))

    def _markets(self) -> set[Market]:
        """The markets in which something is or may be rented, or was until its last hour's price was not written."""
        rented = {
            each.market
            for each in self._ledger.instances.values()
            if each.is_held or (each.until_s is not None and each.until_s > self.complete_until())
        }
        requested = {each.entry.market for each in self._ledger.open_requests}
        return {market for market in rented | requested if not market.is_on_demand}
