"""Requests for instances: what to rent, whether the limits of money allow it, and what came of it.

Nothing is requested while an earlier request is open. Money is checked last, with the highest price that there can be.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from plink.model.spot import journal
from plink.model.spot.market_file import Limits
from plink.model.spot.prices import HOUR_S, Market
from runners.spot.brain import RentalChoice
from runners.spot.driver_parts import DriverParts, RepeatedNotes
from runners.spot.elastic_job import JobView
from runners.spot.provider import PricePoint, ProviderError, RentalOrder, SteadyClock
from solvers.spot.deciding import Quote
from solvers.spot.ledger import Ledger, MoneyLimits, RentedInstance, refusal_of_money
from solvers.spot.reconciling import DriverTiming, Sightings

PRICED_ENTRY_S = 600.0  # between two entries that prices are in the journal


_PENALTY_SCOPES: Mapping[str, journal.PenaltyScope] = {"limit": "kind", "throttled": "all", "credentials": "all"}


class RecordedPrices:
    """The latest price of each market; prices of markets in which something is rented go to the journal.

    On-demand prices are none of the provider's: they are those of the requests.

    :param add: writes to the journal. :param observe: is given each new price of a market, with its time.
    :param history_from_s: the first prices are asked for from then on, for ``observe`` alone; None: no history is asked
        for.
    :ivar latest: of each market, since when, and the price.
    """

    def __init__(
        self,
        ledger: Ledger,
        add: Callable[[journal.JournalEntry], None],
        observe: Callable[[Market, float, float], None],
        history_from_s: float | None = None,
    ) -> None:
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


@dataclass(frozen=True)
class DriverRecords:
    """What a driver knows. ``add``: writes an entry into the journal, and into the ledger."""

    ledger: Ledger
    clock: SteadyClock
    prices: RecordedPrices
    sightings: Sightings
    add: Callable[[journal.JournalEntry], None]


class Requests:
    """Requests of one driver. ``provider_ahead_s``: by how much the provider's clock was ahead at the last grant, where
    it is more than it may be."""

    def __init__(
        self, parts: DriverParts, limits: Limits, timing: DriverTiming, records: DriverRecords, warnings: RepeatedNotes
    ) -> None:
        self.provider_ahead_s = 0.0
        self._parts, self._limits, self._timing = parts, limits, timing
        self._records, self._warnings = records, warnings
        self._next_decision = self._next_fallback = -math.inf
        self._sent: dict[str, tuple[float, float]] = {}  # when requests were sent and answered, as leases count

    def decide_now(self) -> None:
        """Let the next step decide, whenever the last decision was."""
        self._next_decision = -math.inf

    def compare_clocks(self, grant: journal.InstanceGranted) -> None:
        """Compare the provider's time of a grant with when the request was under way."""
        if grant.token in self._sent:
            sent, answered = self._sent[grant.token]
            ahead_s = grant.since_s - min(max(grant.since_s, sent), answered)
            if abs(ahead_s) > self._timing.clock_tolerance_s:
                self.provider_ahead_s = ahead_s

    def forget_clocks(self) -> None:
        """Forget what was compared: the clock was set."""
        self._sent.clear()
        self.provider_ahead_s = 0.0

    def step(self, view: JobView, now: float) -> None:
        """Request what a deadline or the cost per work asks for."""
        self._fall_back(view, now)
        if now >= self._next_decision:
            self._acquire(now)

    def _acquire(self, now: float) -> None:
        """Request what lowers the cost per work, if the limits of money allow it."""
        if self._records.ledger.open_requests:
            return
        self._next_decision = now + self._timing.decision_s
        choice = self._parts.brain.choose(self._records.ledger, self._records.prices.quotes(now), now)
        if choice.market is None or choice.count < 1:
            self._warnings.warn("wait", f"wait: {choice.reason}", now, math.inf)
        elif self._send(choice, self._records.prices.since(choice.market, (now, choice.bid)), "wait", now):
            self._warnings.forget("wait")
            if self._parts.fallback is not None:  # the sooner all work, the later a deadline asks for more
                self._next_decision = now

    def _fall_back(self, view: JobView, now: float) -> None:
        """Request on-demand machines where the deadline asks for them, if the limits of money allow it."""
        fallback = self._parts.fallback
        if fallback is None:
            return
        if view.progress is not None:
            fallback.observe(view.progress, self._records.ledger)
        if self._records.ledger.open_requests or now < self._next_fallback:
            return
        choice = fallback.choose(self._records.ledger, {market.zone for market in self._records.prices.latest}, now)
        if choice.market is not None and choice.count >= 1:
            self._next_fallback = now + self._timing.decision_s
            allowed = (count for count in range(choice.count, 0, -1) if not self._refusal(count, choice.bid, now))
            count = next(allowed, choice.count)  # as many as fit: the rest when there is money for it
            self._send(replace(choice, count=count), (now, choice.bid), "deadline", now)
        elif choice.is_urgent:
            self._warnings.warn("deadline", choice.reason, now)

    def _send(self, choice: RentalChoice, price: tuple[float, float], topic: str, now: float) -> bool:
        """Request what was chosen; return whether it was within the limits of money.

        :param price: of its market, and since when. :param topic: ``deadline``, or else that of a warning.
        """
        assert choice.market is not None
        if refusal := self._refusal(choice.count, choice.bid, now):
            self._warnings.warn(topic, f"{topic}: {refusal}", now, math.inf)
            return False
        market, now = choice.market, self._records.clock.now()
        self._records.prices.record(market, *price, now)
        token = self._parts.new_token()
        request = journal.InstancesRequested(
            now,
            token,
            market.zone,
            market.type,
            market.product,
            choice.count,
            choice.bid,
            choice.reason,
            is_for_deadline=topic == "deadline",
        )
        self._records.add(request)
        self._parts.note(f"request {choice.count} x {market} for at most {choice.bid:.4g} an hour: {choice.reason}")
        lease_until = self._records.clock.lease_time() + self._timing.lease_s
        self._request(RentalOrder(token, market, choice.count, choice.bid, lease_until))
        return True

    def _refusal(self, count: int, bid: float, now: float) -> str:
        limits, until = self._limits, now + HOUR_S + self._timing.commitment_s  # its first hour is to be used
        money = MoneyLimits(limits.max_hourly, limits.budget, now, until, self._records.prices.complete_until())
        return refusal_of_money(self._records.ledger, count, bid, money)

    def _request(self, order: RentalOrder) -> None:
        sent = self._records.clock.lease_time()
        try:
            granted = self._parts.provider.acquire(order)
            now = self._records.clock.now()
            self._sent[order.token] = sent, self._records.clock.lease_time()
        except ProviderError as error:
            self._sent[order.token] = sent, self._records.clock.lease_time()
            now = self._records.sightings.answered_at[order.token] = self._records.clock.now()
            self._parts.note(f"{order.count} x {order.market}: not granted: {error}")
            scope, penalty_until = _PENALTY_SCOPES.get(error.failure, "market"), now + self._timing.penalty_s
            if scope == "all":
                self._records.add(journal.RequestsPaused(now, str(error), penalty_until))
            if error.has_no_effect:
                self._records.add(journal.RequestClosed(now, order.token, "refused", str(error), penalty_until, scope))
            return
        for each in granted:
            self._records.add(journal.InstanceGranted(now, order.token, each.id, each.since_s))
        penalty_until = 0.0
        if len(granted) < order.count:
            self._parts.note(f"{len(granted)} of {order.count} x {order.market} granted")
            penalty_until = now + self._timing.penalty_after_part_s(order.market)
        outcome: journal.ClosedRequest = "granted" if granted else "refused"
        self._records.add(journal.RequestClosed(now, order.token, outcome, penalised_until_s=penalty_until))
