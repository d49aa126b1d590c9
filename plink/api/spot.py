"""Transient machines: what price histories hold, the odds of evictions, and one decision, explained."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plink.errors import InputError, NoAnswer, UsageError
from plink.model.spot.availability import AvailabilityTrace
from plink.model.spot.market_file import JobTimings, MarketFile
from plink.model.spot.price_files import Histories
from plink.model.spot.prices import HOUR_S, Floats, Market, Prices, PriceTrace
from plink.records.elastic_history import History
from plink.records.elastic_log import HostEvent
from solvers.spot.billing import BILLINGS
from solvers.spot.deciding import (
    Allocation,
    Anchors,
    Decision,
    Footprint,
    Offer,
    OfferBook,
    Quote,
    decide,
    offer_book,
    should_renew,
)
from solvers.spot.footprint import Outlook
from solvers.spot.hazard import ExponentialEvictions, Interruptions, advisor_rate, observed, prior
from solvers.spot.odds import DELTAS, EvictionCurve, eviction_curves, odds_table
from solvers.spot.scaling import Application, MeasuredIteration, Scaling, fit_application
from solvers.spot.strategies import replacing

# What a market is taken for of which neither the provider nor a history says anything: 10 to 15 % a month.
DEFAULT_BUCKET = 2
_log = logging.getLogger("plink.spot")


@dataclass(frozen=True)
class MarketOdds:
    """The ``curves`` of a market, one for each of ``deltas``; none where its history is too short. ``hours``: of it."""

    market: Market
    deltas: Floats
    curves: tuple[EvictionCurve, ...]
    hours: float


def market_odds(prices: Prices, deltas: Sequence[float], market_file: MarketFile | None = None) -> list[MarketOdds]:
    """Return the odds of an eviction within the hour in each market, by how much is bid above the price.

    :param deltas: money per hour, increasing. :param market_file: says from which prices on nobody acquires.
    """
    bids = np.array(deltas, dtype=float)
    rows = []
    for market, trace in sorted(prices.items()):
        kind = market_file.type_of(market) if market_file else None
        curves = eviction_curves(trace, bids, kind.on_demand if kind else np.inf)
        rows.append(MarketOdds(market, bids, tuple(curves), _known_hours(trace)))
    return rows


def market_rates(
    availability: dict[Market, AvailabilityTrace], bucket: int | None = None
) -> list[tuple[Market, Interruptions, float]]:
    """Return for each market what was seen, and the evictions per instance-hour with a prior.

    :param bucket: of the Spot Instance Advisor, 0 to 4; the prior.
    """
    rows = []
    for market, trace in sorted(availability.items()):
        interruptions = observed(trace)
        before = prior(advisor_rate(DEFAULT_BUCKET if bucket is None else bucket))
        rows.append((market, interruptions, (before + interruptions).rate))
    return rows


def _known_hours(trace: PriceTrace) -> float:
    return sum(end - begin for begin, end in trace.stretches) / HOUR_S


def application_from(changes: JobTimings, history: History | None = None) -> Application:
    """Return what changes cost a job: as its run shows it, else as the market file says, else the defaults.

    :raises NoAnswer: when the run has too little in it.
    """
    default = Application()
    stated = Application(
        default.scaling if changes.iteration_s is None else Scaling(*changes.iteration_s),
        default.start_s if changes.start_s is None else changes.start_s,
        default.add_s if changes.add_s is None else changes.add_s,
        default.evict_s if changes.evict_s is None else changes.evict_s,
    )
    if history is None:
        return stated
    iterations = _measured(history)
    events = [event for event in history.events if isinstance(event, HostEvent)]
    joined = [event.at for event in events if event.event == "joined"]
    gone = [event.at for event in events if event.event in ("left", "failed")]
    measured = fit_application(iterations, joined, gone, stated.start_s)
    _log.info(
        "measured: t(n) = %.3g + %.3g / n + %.3g n s, %.2g s after hosts joined, %.2g s after losses",
        measured.scaling.a, measured.scaling.b, measured.scaling.c, measured.add_s, measured.evict_s,
    )  # fmt: skip
    return measured


def _measured(history: History) -> list[MeasuredIteration]:
    """Return the iterations that count, each with the time of its attempts that a roll-back undid.

    Workers are those that worked on it: hosts that have joined by its end, or left before, may not have.
    """
    slots = {event.host: event.slots for event in history.events if isinstance(event, HostEvent)}
    lost: dict[int, float] = {}
    for step in history.steps:
        if step.rolled_back:
            number = step.iteration.iteration
            lost[number] = lost.get(number, 0.0) + step.iteration.seconds
    return [
        MeasuredIteration(
            each.at, each.seconds,
            sum(slots.get(host, 1) for host, (_, _, steps) in each.work.items() if steps) or each.workers,
            lost.get(each.iteration, 0.0),
        )
        for each in history.completed
    ]  # fmt: skip


def anchors_of(market_file: MarketFile, start: float) -> Anchors:
    """Return the reliable machines of a market file, held from ``start``."""
    if market_file.anchors is None:
        return Anchors()
    machines = market_file.anchors
    cores = machines.type.cores if market_file.anchors_work else 0.0
    return Anchors(machines.count, machines.type.on_demand, cores, start)


def price_offers(market_file: MarketFile, prices: Prices) -> tuple[Offer, ...]:
    """Return the offers of markets whose evictions follow from the price, with odds from these histories.

    Markets whose histories are too short for odds are left out, and named in the log.

    :raises NoAnswer: when all are.
    """
    offers, left_out = [], []
    for market, trace in prices.items():
        kind = market_file.type_of(market)
        assert kind is not None
        curves = eviction_curves(trace, DELTAS, kind.on_demand)
        if not curves:
            left_out.append(
                f"{market}: no odds of evictions: its history has {_known_hours(trace):.1f} h, and in none of them an "
                f"hour follows a price of at most {kind.on_demand:g}"
            )
            continue
        offers.append(Offer(market, kind.cores, kind.on_demand, odds_table(curves)))
    if not offers:
        raise NoAnswer("; ".join(left_out[:3]))
    for line in left_out:
        _log.warning("left out: %s", line)
    return tuple(offers)


def rate_offers(
    market_file: MarketFile, prices: Prices, availability: dict[Market, AvailabilityTrace]
) -> tuple[Offer, ...]:
    """Return the offers of markets whose capacity is taken back at a rate: as the provider publishes it, updated by
    availability histories of the same zone and type."""
    by_name = {(market.zone, market.type): trace for market, trace in availability.items()}
    offers = []
    for market in prices:
        kind = market_file.type_of(market)
        assert kind is not None
        bucket = DEFAULT_BUCKET if kind.advisor_bucket is None else kind.advisor_bucket
        belief, trace = prior(advisor_rate(bucket)), by_name.get((market.zone, market.type))
        rate = (belief if trace is None else belief + observed(trace)).rate
        offers.append(Offer(market, kind.cores, kind.on_demand, ExponentialEvictions(rate)))
    return tuple(offers)


def market_book(
    market_file: MarketFile, prices: Prices, availability: dict[Market, AvailabilityTrace], application: Application,
    others: Sequence[Offer] = (),
) -> OfferBook:  # fmt: skip
    """Return the candidates of all markets by what decides on evictions where they are billed, and ``others``.

    By prices capacity is expected to be replaced. By a rate it would be taken again, at the same rate: there it is not.

    :raises NoAnswer: as :func:`price_offers`.
    """
    billing = BILLINGS[market_file.billing]
    if market_file.billing == "hourly-2016":
        return offer_book((*price_offers(market_file, prices), *others), replacing(billing, application), application)
    return offer_book((*rate_offers(market_file, prices, availability), *others), Outlook(billing), application)


@dataclass(frozen=True)
class Renewal:
    """Whether to keep an allocation when its hour ends: ``kept_cost`` and ``ended_cost``: per core-hour."""

    market: Market
    count: int
    renew: bool
    kept_cost: float
    ended_cost: float


@dataclass(frozen=True)
class SpotAdvice:
    """One decision, and whether to renew what is held. ``at``: the time that it is for, seconds since 1970."""

    at: float
    decision: Decision
    held: tuple[Renewal, ...]


def advise_spot(
    market_file: MarketFile, histories: Histories, at: float | None = None, history: History | None = None
) -> SpotAdvice:
    """Return what to acquire now, and whether to renew what is held.

    :param at: seconds since 1970; None: the end of the histories. Odds are from before it. :param history: of a run of
        this job, which shows how it scales and what changes cost it.
    :raises InputError: for what is held in a market without prices. :raises NoAnswer: where odds cannot be had.
    """
    histories_by_market = market_file.select(histories.prices)
    latest = max(trace.until for trace in histories_by_market.values())
    now = latest if at is None else at
    before = {
        market: part for market, trace in histories_by_market.items() if (part := trace.between(trace.start, now))
    }
    if not before:
        raise UsageError("--at: no prices before that time; `plink spot read` shows when the histories begin")
    book = market_book(market_file, before, histories.availability, application_from(market_file.changes, history))
    offers = book.offers
    footprint = _held(market_file, offers, before, now)
    prices = [before[offer.market].price_at(now) for offer in offers]
    quotes = [Quote(price, now - before[offer.market].until) for price, offer in zip(prices, offers, strict=True)]
    decision = decide(footprint, book, quotes, market_file.limits, now)
    return SpotAdvice(now, decision, _renewals(footprint, book, prices, now))


def _held(market_file: MarketFile, offers: Sequence[Offer], prices: Prices, now: float) -> Footprint:
    names = [(offer.market.zone, offer.market.type) for offer in offers]
    allocations = []
    for number, entry in enumerate(market_file.held):
        if (entry["zone"], entry["type"]) not in names:
            location = f"{market_file.path}: held[{number}]"
            raise InputError(
                location, f"the histories have no prices, or too few, of {entry['type']} in {entry['zone']}"
            )
        place = names.index((entry["zone"], entry["type"]))
        start = now - entry["held_s"]
        hour = start + entry["held_s"] // HOUR_S * HOUR_S
        price = entry.get("hour_price", prices[offers[place].market].price_at(hour))
        allocations.append(Allocation(place, entry["count"], entry["bid"], start, price))
    return Footprint(anchors_of(market_file, now), tuple(allocations))


def _renewals(footprint: Footprint, book: OfferBook, prices: Sequence[float], now: float) -> tuple[Renewal, ...]:
    rows = []
    for number, held in enumerate(footprint.allocations):
        renew, kept_cost, ended_cost = should_renew(footprint, number, book, prices, now)
        rows.append(Renewal(book.offers[held.offer].market, held.count, renew, kept_cost, ended_cost))
    return tuple(rows)
