"""What a journal comes to: which requests are open, which instances are held, and what they cost.

The ledger is a fold over the entries of a journal: replaying a journal gives the state in which its driver ended. Money
is what the billing charges for the stays in it, each instance by itself.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from plink.model.spot import journal
from plink.model.spot.prices import HOUR_S, Market
from plink.model.units import significant
from solvers.spot.billing import BILLINGS, Charge, Stay

MarketKind = Literal["spot", "on-demand", "all"]


@dataclass(frozen=True)
class RentRequest:
    """A request that was announced. ``outcome`` and ``closed_at_s`` are None while it is open; ``granted``: how many
    instances are its own, at most."""

    entry: journal.InstancesRequested
    outcome: journal.ClosedRequest | None = None
    closed_at_s: float | None = None
    granted: int = 0


@dataclass(frozen=True)
class RentedInstance:
    """An instance, from its grant to its end. ``until_s`` and ``end`` are None while it is held."""

    id: str
    token: str
    market: Market
    bid: float
    since_s: float
    granted_at_s: float
    host: str | None = None
    draining_since_s: float | None = None
    released_at_s: float | None = None
    reason: str = ""
    until_s: float | None = None
    end: journal.InstanceEnd | None = None

    @property
    def is_held(self) -> bool:
        """Whether it may still cost money."""
        return self.end is None

    @property
    def is_leaving(self) -> bool:
        """Whether it is being drained or released."""
        return self.draining_since_s is not None or self.released_at_s is not None


@dataclass
class Ledger:
    """The state of a journal. ``at_s``: of its last entry; ``penalties``: until when nothing is requested in a market,
    in all markets of a kind, or in any; ``priced_until_s``: the journal has all prices until then."""

    opened: journal.JournalOpened | None = None
    limits: journal.LimitsSet | None = None
    at_s: float = 0.0
    requests: dict[str, RentRequest] = field(default_factory=dict)
    instances: dict[str, RentedInstance] = field(default_factory=dict)
    penalties: dict[Market | MarketKind, float] = field(default_factory=dict)
    job_ended_at_s: float | None = None
    priced_until_s: float = -math.inf
    _prices: dict[Market, tuple[list[float], list[float]]] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[journal.JournalEntry]) -> "Ledger":
        """Return the ledger of these entries."""
        ledger = cls()
        for entry in entries:
            ledger.apply(entry)
        return ledger

    def apply(self, entry: journal.JournalEntry) -> None:
        """Take one entry."""
        self.at_s = max(self.at_s, entry.at)
        match entry:
            case journal.JournalOpened():
                self.opened = self.opened or entry
            case journal.LimitsSet():
                self.limits = entry
            case journal.PriceChanged():
                self._add_price(entry.market, entry.since_s, entry.price)
            case journal.PricesRecorded():
                self.priced_until_s = entry.at
            case journal.InstancesRequested(token=token):
                self.requests[token] = RentRequest(entry, granted=entry.count)
            case journal.InstanceGranted(token=token, instance=name):
                request = self.requests[token].entry
                instance = RentedInstance(name, token, request.market, request.bid, entry.since_s, entry.at)
                self.instances.setdefault(name, instance)
                self._change(name, until_s=None, end=None)  # of one that was thought to have ended
            case journal.RequestClosed(token=token):
                granted = sum(each.token == token for each in self.instances.values())
                self.requests[token] = RentRequest(
                    self.requests[token].entry, entry.outcome, entry.at, min(granted, self.requests[token].entry.count)
                )
                market = self.requests[token].entry.market
                scopes: dict[journal.PenaltyScope, Market | MarketKind] = {
                    "market": market,
                    "kind": _kind(market),
                    "all": "all",
                }
                self._penalise(scopes[entry.scope], entry.penalised_until_s)
            case journal.RequestsPaused():
                self._penalise("all", entry.penalised_until_s)
            case journal.InstanceJoined(instance=name):
                self._change(name, host=entry.host)
            case journal.InstanceDraining(instance=name):
                self._change(name, draining_since_s=entry.at, reason=entry.reason)
                self._penalise(self.instances[name].market, entry.penalised_until_s)
            case journal.InstanceReleased(instance=name):
                self._change(name, released_at_s=entry.at, reason=entry.reason)
            case journal.InstanceEnded(instance=name):
                self._change(name, until_s=entry.until_s, end=entry.end)
                self._penalise(self.instances[name].market, entry.penalised_until_s)
            case journal.JobEnded():
                self.job_ended_at_s = entry.at

    def _change(self, name: str, **fields: object) -> None:
        self.instances[name] = replace(self.instances[name], **fields)  # type: ignore[arg-type]

    def _penalise(self, market: Market | MarketKind, until_s: float) -> None:
        if until_s > self.penalties.get(market, 0.0):
            self.penalties[market] = until_s

    def _add_price(self, market: Market, since_s: float, price: float) -> None:
        times, prices = self._prices.setdefault(market, ([], []))
        place = bisect_right(times, since_s)
        if place and times[place - 1] == since_s:
            prices[place - 1] = price
        else:
            times.insert(place, since_s)
            prices.insert(place, price)

    def latest_price(self, market: Market) -> tuple[float, float] | None:
        """Return since when the last price of a market is in the journal, and the price."""
        times, prices = self._prices.get(market, ([], []))
        return (times[-1], prices[-1]) if times else None

    def price_at(self, market: Market, time: float) -> float:
        """Return the price of a market at a time; before the first that is in the journal, that one.

        :raises KeyError: when the journal has no price of the market.
        """
        times, prices = self._prices[market]
        return prices[max(0, bisect_right(times, time) - 1)]

    @property
    def job_ended(self) -> bool:
        """Whether the job is over."""
        return self.job_ended_at_s is not None

    @property
    def held(self) -> tuple[RentedInstance, ...]:
        """All instances that may cost money."""
        return tuple(each for each in self.instances.values() if each.is_held)

    @property
    def open_requests(self) -> tuple[RentRequest, ...]:
        """All requests of which it is not known what was granted."""
        return tuple(each for each in self.requests.values() if each.outcome is None)

    def doubtful_requests(self, now: float) -> tuple[RentRequest, ...]:
        """Return the requests of which more may have been granted than is known: open ones, and for an hour those that
        were abandoned."""
        return tuple(
            each
            for each in self.requests.values()
            if each.closed_at_s is None or (each.outcome == "abandoned" and now < each.closed_at_s + HOUR_S)
        )

    def penalised(self, market: Market, now: float) -> bool:
        """Return whether nothing is requested in a market at this time."""
        scopes: tuple[Market | MarketKind, ...] = (market, _kind(market), "all")
        return now < max(self.penalties.get(scope, 0.0) for scope in scopes)


def _kind(market: Market) -> MarketKind:
    return "on-demand" if market.is_on_demand else "spot"


@dataclass(frozen=True)
class Account:
    """What a run's machines cost. ``transient`` and ``anchors``: money; ``refunded``: money given back, or not charged
    for interruptions; ``on_demand``: what the same machines for the same time would have cost on demand, in the same
    billing and without refunds."""

    transient: float
    anchors: float
    refunded: float
    free_s: float
    on_demand: float

    @property
    def total(self) -> float:
        """All that is paid."""
        return self.transient + self.anchors


def account(ledger: Ledger, now: float, on_demand: Mapping[str, float] | None = None) -> Account:
    """Return what is to be paid by now, as if everything that is held were released now.

    :param on_demand: prices by type.
    """
    transient = refunded = free_s = as_on_demand = 0.0
    for each in ledger.instances.values():
        charge = _charge(ledger, each, now)
        transient, refunded, free_s = transient + charge.money, refunded + charge.refunded, free_s + charge.free_s
        price = (on_demand or {}).get(each.market.type, each.bid)
        as_on_demand += _constant_charge(ledger, replace(_stay(each, now), end="released"), price)
    anchors = _anchor_money(ledger, now)
    return Account(transient, anchors, refunded, free_s, as_on_demand + anchors)


def instance_money(ledger: Ledger, instance: RentedInstance, now: float) -> float:
    """Return what one instance costs, by now or by its end."""
    return _charge(ledger, instance, now).money


def worst_cost(ledger: Ledger, now: float, until: float, priced_until_s: float) -> float:
    """Return the most that can have to be paid, if everything that is held is held until then and nothing is added.

    A request in doubt counts as granted, for an hour or until then.

    :param priced_until_s: the end of what is known of prices; after it they are taken to be the bids, where something
        is held.
    """
    money = _anchor_money(ledger, until)
    for each in ledger.instances.values():
        money += _charge(ledger, each, until, bid_from_s=priced_until_s if each.is_held else math.inf).money
    for request in ledger.doubtful_requests(now):
        granted = sum(each.token == request.entry.token for each in ledger.instances.values())
        hours_s = max(HOUR_S, until - request.entry.at)
        money += max(0, request.entry.count - granted) * first_cost(ledger, request.entry.bid, hours_s)
    return money


def saved_by_release(
    ledger: Ledger, instance: RentedInstance, now: float, until: float, priced_until_s: float
) -> float:
    """Return by how much :func:`worst_cost` is less, if a held instance ends now."""
    held, ended = (_charge(ledger, instance, end, bid_from_s=priced_until_s).money for end in (until, now))
    return held - ended


def first_cost(ledger: Ledger, bid: float, seconds: float) -> float:
    """Return the most that one new instance costs, held for so long."""
    return _constant_charge(ledger, Stay(0.0, max(HOUR_S, seconds), 1, "released"), bid)


def hourly_bids(ledger: Ledger, now: float) -> float:
    """Return the money per hour that all that is held, requested, in doubt or reliable may come to."""
    assert ledger.opened is not None
    held = sum(each.bid for each in ledger.held)
    for request in ledger.doubtful_requests(now):
        granted = sum(each.token == request.entry.token for each in ledger.instances.values())
        held += max(0, request.entry.count - granted) * request.entry.bid
    return held + ledger.opened.anchors * ledger.opened.anchor_price


@dataclass(frozen=True)
class MoneyLimits:
    """``hourly``: money that all bids together may come to; ``budget``: money in all, which is to suffice ``until``
    then for what is held and what is requested ``now``; ``priced_until_s``: the end of what is known of prices."""

    hourly: float
    budget: float
    now: float
    until: float
    priced_until_s: float


def refusal_of_money(ledger: Ledger, count: int, bid: float, limits: MoneyLimits) -> str:
    """Return why a request is beyond the limits of money; empty where it is not. This is the last check before money is
    spent, with the highest price that can be."""
    hourly, budget = limits.hourly, limits.budget
    rate = hourly_bids(ledger, limits.now) + count * bid
    if rate > hourly:
        excess = significant(rate - hourly, 2)
        return f"all bids together would exceed max_hourly, {hourly:g}, by {excess} an hour"
    worst = worst_cost(ledger, limits.now, limits.until, limits.priced_until_s)
    worst += count * first_cost(ledger, bid, limits.until - limits.now)
    if worst > budget:
        hours = significant((limits.until - limits.now) / HOUR_S, 2)
        return f"held for {hours} h, it could exceed the budget, {budget:g}, by {significant(worst - budget, 2)}"
    return ""


def _anchor_money(ledger: Ledger, until: float) -> float:
    if ledger.opened is None:
        return 0.0
    until = until if ledger.job_ended_at_s is None else min(until, ledger.job_ended_at_s)
    return ledger.opened.anchors * ledger.opened.anchor_price * max(0.0, until - ledger.opened.at) / HOUR_S


def _stay(each: RentedInstance, now: float) -> Stay:
    until = now if each.until_s is None else each.until_s
    end = "released" if each.market.is_on_demand else each.end or "released"  # no refund of what is not interrupted
    return Stay(each.since_s, max(each.since_s, until), 1, end)


def _charge(ledger: Ledger, each: RentedInstance, now: float, bid_from_s: float = math.inf) -> Charge:
    assert ledger.opened is not None

    def price_at(time: float) -> float:
        return each.bid if time > bid_from_s else ledger.price_at(each.market, time)

    price: Callable[[float], float] = price_at
    return BILLINGS[ledger.opened.billing].charged(_stay(each, now), price)


def _constant_charge(ledger: Ledger, stay: Stay, price: float) -> float:
    assert ledger.opened is not None
    return BILLINGS[ledger.opened.billing].charged(stay, lambda time: price).money
