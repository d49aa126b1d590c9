"""Decide what to acquire, and what to renew or end, with reasons (Harlap thesis, 4.3.2).

At each decision point the footprint is priced as it is and with each candidate added: each market, each bid above its
price. The best candidate is requested if it lowers the cost per work; one a decision. Shortly before its billing hour
ends, an allocation is renewed unless the footprint without it costs less per work.

The thesis does not say how many instances an allocation has. Here all candidates are as large as the chunk, in cores,
so that they differ in price and risk only; the limits below end growth, and so does a scaling that falls.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from plink.model.spot.market_file import Limits, Machines
from plink.model.spot.prices import HOUR_S, Floats, Market, on_demand_market
from solvers.spot.billing import Evictions
from solvers.spot.footprint import Application, Outlook, Prospect, columns, cost_per_core_hour, expected_work, reliable
from solvers.spot.odds import EvictionOdds, ExponentialEvictions, cost_per_work, costs_with

MAX_PRICE_AGE_S = 15 * 60.0
MAX_SHOWN_CANDIDATES = 10
Risk = EvictionOdds | ExponentialEvictions


NO_EVICTIONS = ExponentialEvictions(0.0)


@dataclass(frozen=True)
class Offer:
    """A market that may be bought from. ``cores`` of an instance (nu), ``on_demand``: its price there, ``risk``: its
    odds by bid, or its rate of evictions where bids do not decide."""

    market: Market
    cores: float
    on_demand: float
    risk: Risk

    @property
    def deltas(self) -> Floats:
        """How much above the price is bid, each of the choices; of a rate there is no choice: the on-demand price."""
        return self.risk.deltas[1:] if isinstance(self.risk, EvictionOdds) else np.zeros(1)

    def evictions(self, delta: float) -> Evictions:
        """Return the evictions of a bid so much above the price now."""
        return self.risk.at(delta) if isinstance(self.risk, EvictionOdds) else self.risk


@dataclass(frozen=True)
class Allocation:
    """What is held. ``offer``: the row of its market; ``start``: when it was granted, seconds; ``hour_price``: that of
    its current billing hour."""

    offer: int
    count: int
    bid: float
    start: float
    hour_price: float


@dataclass(frozen=True)
class Anchors:
    """The reliable machines that are always held, on demand; ``cores`` of each that work (0: they only serve)."""

    count: int = 0
    price: float = 0.0
    cores: float = 0.0


@dataclass(frozen=True)
class Footprint:
    """What is held at a time."""

    anchors: Anchors
    allocations: tuple[Allocation, ...] = ()


@dataclass(frozen=True)
class Quote:
    """The price of a market now; ``age_s``: how old that price is."""

    price: float
    age_s: float = 0.0


@dataclass(frozen=True, eq=False)
class OfferBook:
    """All candidates, reckoned once. ``book``, shape (4, C): of one instance in its first hour, the cost for a price of
    1, useful hours, survival, and how much is bid above the price; ``market_of``, shape (C,): rows of ``offers``."""

    offers: tuple[Offer, ...]
    outlook: Outlook
    application: Application
    book: Floats
    market_of: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Candidate:
    """An allocation that could be added, and ``cost_per_work`` of the footprint with it. ``eviction``: probability
    within its first hour; ``evicted_after_s``: the median time to it, or None."""

    market: Market
    count: int
    bid: float
    price: float
    eviction: float
    evicted_after_s: float | None
    added_cost: float
    added_work: float
    cost_per_work: float


@dataclass(frozen=True)
class Decision:
    """What to do and why. ``cost_per_work``: of the footprint as it is; ``candidates``: the best, the best first;
    ``refused``: why markets are left out."""

    action: Literal["acquire", "wait"]
    reason: str
    cost_per_work: float
    candidates: tuple[Candidate, ...]
    refused: tuple[str, ...] = ()


def offer_book(offers: Sequence[Offer], outlook: Outlook, application: Application) -> OfferBook:
    """Return the candidates of these offers: each market with each of its bids."""
    rows, market_of = [], []
    for number, offer in enumerate(offers):
        for delta in offer.deltas:
            unit = outlook.prospect(1.0, 0.0, 1.0, offer.evictions(float(delta)))
            rows.append((unit.cost, max(0.0, unit.hours - application.start_s / HOUR_S), unit.survival, float(delta)))
            market_of.append(number)
    book = np.array(rows, dtype=float).reshape(len(rows), 4).T.copy()
    return OfferBook(tuple(offers), outlook, application, book, np.array(market_of, dtype=np.int64))


def prospects_of(footprint: Footprint, book: OfferBook, prices: Sequence[float], now: float) -> list[Prospect]:
    """Return what is expected of each part of a footprint by the hour, the anchors first.

    :param prices: of each offer's market now.
    """
    anchors = footprint.anchors
    prospects = [reliable(anchors.price, anchors.count, anchors.cores)] if anchors.count else []
    return prospects + [held_prospect(each, book, prices[each.offer], now) for each in footprint.allocations]


def held_prospect(held: Allocation, book: OfferBook, price: float, now: float) -> Prospect:
    """Return what is expected of an allocation in what is left of its hour, as much as it comes to in a whole one: by
    the bid's distance from the price now, not from that at which it was acquired."""
    age = (now - held.start) / HOUR_S
    remaining = 1 - age % 1
    offer, start_h = book.offers[held.offer], book.application.start_s / HOUR_S
    unit = book.outlook.prospect(held.hour_price, age, remaining, offer.evictions(held.bid - price))
    if age < start_h:  # it does not work yet
        unit = replace(unit, hours=max(0.0, unit.hours - (start_h - age)))
    return replace(unit, cost=unit.cost / remaining, hours=unit.hours / remaining).times(held.count, offer.cores)


def renewed_prospect(held: Allocation, book: OfferBook, price: float, now: float) -> Prospect:
    """Return what is expected of an allocation in the hour that follows this one, at the price now."""
    age = (now - held.start) / HOUR_S
    offer = book.offers[held.offer]
    unit = book.outlook.prospect(price, math.ceil(age), 1.0, offer.evictions(held.bid - price))
    return unit.times(held.count, offer.cores)


def candidate_rows(
    footprint: Footprint, book: OfferBook, prices: Sequence[float], limits: Limits, excluded: Collection[int] = ()
) -> Floats:
    """Return for each market its price, how many instances an allocation would have, their cores, and the highest bid
    that the limits of money allow: shape (M, 4). The count is 0 in ``excluded`` markets, and above the on-demand price.
    """
    cores = footprint.anchors.count * footprint.anchors.cores
    hourly = footprint.anchors.count * footprint.anchors.price
    for held in footprint.allocations:
        cores += held.count * book.offers[held.offer].cores
        hourly += held.count * held.bid
    rows = np.empty((len(book.offers), 4))
    for number, offer in enumerate(book.offers):
        price = prices[number]
        room = min(limits.chunk_cores, limits.max_cores - cores)
        count = int(room // offer.cores) if price <= offer.on_demand and number not in excluded else 0
        money = min(limits.max_hourly, limits.budget) - hourly
        if not isinstance(offer.risk, EvictionOdds) and count * offer.on_demand > money:
            count = int(money // offer.on_demand)  # nothing bounds the price but that one
        rows[number] = price, max(0, count), offer.cores, money / count if count > 0 else 0.0
    return rows


def best_candidate(
    footprint: Footprint,
    book: OfferBook,
    prices: Sequence[float],
    limits: Limits,
    now: float,
    excluded: Collection[int] = (),
) -> tuple[float, int, Floats, Floats]:
    """Return E of the footprint as it is, the row of the best candidate, E with each candidate, and the rows of
    :func:`candidate_rows`."""
    held = columns(prospects_of(footprint, book, prices, now))
    rows = candidate_rows(footprint, book, prices, limits, excluded)
    numbers = book.application.numbers
    costs = costs_with(held, numbers, book.book, book.market_of, rows)
    current = float(cost_per_work(held, numbers, 0.0))
    if limits.two_markets:
        costs = _with_second_market_first(footprint, book, costs, current)
    return current, int(np.argmin(costs)) if len(costs) else -1, costs, rows


def _with_second_market_first(footprint: Footprint, book: OfferBook, costs: Floats, current: float) -> Floats:
    """Return the costs without those of the only market that is held, where another one lowers the cost, too."""
    held = {each.offer for each in footprint.allocations}
    others = np.where(np.isin(book.market_of, list(held)), math.inf, costs)
    return others if len(held) == 1 and others.min(initial=math.inf) < current else costs


def decide(
    footprint: Footprint,
    book: OfferBook,
    quotes: Sequence[Quote],
    limits: Limits,
    now: float,
    excluded: Mapping[int, str] | None = None,
) -> Decision:
    """Return whether to acquire something now, and what.

    :param quotes: of each offer's market. Markets whose price is older than 15 minutes are left out. :param excluded:
        why other offers are left out, by their rows.
    """
    excluded = excluded or {}
    prices = [quote.price for quote in quotes]
    stale = {number for number, quote in enumerate(quotes) if quote.age_s > MAX_PRICE_AGE_S}
    left_out = {
        number
        for number, (offer, quote) in enumerate(zip(book.offers, quotes, strict=True))
        if number in stale or number in excluded or quote.price > offer.on_demand
    }
    refused = tuple(
        f"{offer.market}: {excluded[number]}"
        if number in excluded
        else f"{offer.market}: its price is {quote.age_s / 60:.0f} min old, and more than 15 min buy nothing"
        if number in stale
        else f"{offer.market}: {quote.price:g} an hour is above the on-demand price {offer.on_demand:g}"
        for number, (offer, quote) in enumerate(zip(book.offers, quotes, strict=True))
        if number in left_out
    )
    current, _, costs, rows = best_candidate(footprint, book, prices, limits, now, stale | excluded.keys())
    prospects = prospects_of(footprint, book, prices, now)
    before = expected_work(prospects, book.application, changed=False)
    shown: dict[tuple[int, float], int] = {}  # of bids that come to the same, the lowest
    for c in np.argsort(costs, kind="stable"):
        if len(shown) == MAX_SHOWN_CANDIDATES or not math.isfinite(costs[c]):
            break
        shown.setdefault((int(book.market_of[c]), float(costs[c])), int(c))
    candidates = tuple(_candidate(book, c, rows, float(costs[c]), prospects, before) for c in shown.values())
    action: Literal["acquire", "wait"] = "wait"
    if not candidates:
        if len(left_out) == len(book.offers):
            reason = "no market can be bought from: " + "; ".join(refused[:3])
        else:
            usable = [number for number in range(len(book.offers)) if number not in left_out]
            reason = _no_candidate(book, rows, usable, limits, limits.max_cores - working_cores(footprint, book))
    elif candidates[0].cost_per_work < current:
        action, best = "acquire", candidates[0]
        had = "nothing works yet" if math.isinf(current) else f"{current:.4g} without it"
        reason = f"{best.count} x {best.market} lower the cost per core-hour to {best.cost_per_work:.4g} ({had})"
    else:
        reason = f"no candidate costs less per core-hour than what is held ({current:.4g})"
    return Decision(action, reason, current, candidates, refused)


def _candidate(
    book: OfferBook, number: int, rows: Floats, cost: float, held: Sequence[Prospect], work_before: float
) -> Candidate:
    offer = book.offers[int(book.market_of[number])]
    price, count, cores, _ = rows[int(book.market_of[number])]
    delta = float(book.book[3, number])
    beta, evicted = offer.evictions(delta).within(1.0)
    unit = Prospect(book.book[0, number] * price, book.book[1, number], book.book[2, number], 1.0)
    added = unit.times(int(count), cores)
    work = expected_work([*held, added], book.application, changed=True)
    bid = price + delta if isinstance(offer.risk, EvictionOdds) else offer.on_demand
    return Candidate(
        offer.market,
        int(count),
        float(bid),
        float(price),
        beta,
        evicted / beta * HOUR_S if beta > 0 else None,
        float(added.cost),
        work - work_before,
        cost,
    )


def _no_candidate(book: OfferBook, rows: Floats, usable: Sequence[int], limits: Limits, free_cores: float) -> str:
    """Return why none of the ``usable`` markets has a candidate. ``rows``: of :func:`candidate_rows`."""
    smallest = rows[usable, 2].min()
    if smallest > limits.chunk_cores:
        return f"no instance fits into an allocation of {limits.chunk_cores:g} cores (chunk_cores)"
    if smallest > free_cores:
        free = max(0.0, free_cores)
        return f"at most {limits.max_cores:g} cores may work, and no instance fits into the {free:g} that are free"
    bids = rows[book.market_of, 0] + book.book[3]
    affordable = (rows[book.market_of, 1] > 0) & (bids <= rows[book.market_of, 3])
    if not affordable.any():
        return "no bid is within the limits of money"
    return (
        "no candidate would do any work within an hour: start_s, add_s and evict_s of the application, and the "
        "evictions to be expected, leave no time for it"
    )


def should_renew(
    footprint: Footprint, number: int, book: OfferBook, prices: Sequence[float], now: float
) -> tuple[bool, float, float]:
    """Return whether allocation ``number`` is to be kept for another hour, and E with it and without it."""
    held = footprint.allocations[number]
    prospects = prospects_of(footprint, book, prices, now)
    place = number + (1 if footprint.anchors.count else 0)
    others = prospects[:place] + prospects[place + 1 :]
    renewed = renewed_prospect(held, book, prices[held.offer], now)
    keep = cost_per_core_hour([*others, renewed], book.application, changed=False)
    end = cost_per_core_hour(others, book.application, changed=True)
    return not end < keep, keep, end


def on_demand_offers(machines: Machines, zones: Iterable[str]) -> tuple[Offer, ...]:
    """Return the offers of on-demand machines in these zones, in order."""
    kind = machines.type
    return tuple(
        Offer(on_demand_market(zone, kind.name), kind.cores, kind.on_demand, NO_EVICTIONS) for zone in sorted({*zones})
    )


def on_demand_rows(book: OfferBook) -> frozenset[int]:
    """Return the rows of the offers that are on demand."""
    return frozenset(number for number, offer in enumerate(book.offers) if offer.market.is_on_demand)


def working_cores(footprint: Footprint, book: OfferBook) -> float:
    """Return the cores that work."""
    held = sum(each.count * book.offers[each.offer].cores for each in footprint.allocations)
    return held + footprint.anchors.count * footprint.anchors.cores


def cheaper_on_demand(
    footprint: Footprint,
    book: OfferBook,
    quotes: Sequence[Quote],
    limits: Limits,
    now: float,
    excluded: Mapping[int, str],
) -> Candidate | None:
    """Return the on-demand machines to add, where they cost less per work than every transient market; else None.

    Beyond the thesis, whose BidBrain waits while all markets are dear. On-demand machines are a market of their own, at
    a fixed price and without evictions, compared with each transient market as an addition of the same size.

    :param limits: ``max_cores``: up to which on-demand machines are added. :param excluded: as of
        :func:`solvers.spot.deciding.decide`. Without a price that is younger than 15 minutes there is no comparison.
    """
    certain = on_demand_rows(book)
    is_known = any(quote.age_s <= MAX_PRICE_AGE_S for number, quote in enumerate(quotes) if number not in certain)
    if not is_known or working_cores(footprint, book) >= limits.max_cores:
        return None
    limits = replace(limits, chunk_cores=min(limits.chunk_cores, limits.max_cores))
    candidates = decide(footprint, book, quotes, limits, now, excluded).candidates
    return candidates[0] if candidates and candidates[0].market.is_on_demand else None
