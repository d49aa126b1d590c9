"""What is in histories of transient machines, the odds of evictions, and one decision, explained."""

import logging
import math
from collections.abc import Iterator, Sequence

import numpy as np

from plink.errors import InputError, NoAnswer, UsageError
from plink.features.spot.request import MadePricesRequest, SpotAdviceRequest, SpotOddsRequest
from plink.model.document import UNSET
from plink.model.spot.market_file import MarketFile
from plink.model.spot.price_files import Histories
from plink.model.spot.prices import HOUR_S, AvailabilityTrace, Market, Prices, PriceTrace
from plink.model.spot.results import (
    AvailabilitySummary,
    BidOdds,
    MarketOdds,
    MarketRate,
    MarketSummary,
    Renewal,
    SpotAdvice,
    SpotCandidate,
    SpotMarkets,
    SpotOdds,
)
from plink.records.elastic_history import History
from plink.records.elastic_log import HostEvent
from solvers.spot.deciding import Allocation, Candidate, Footprint, OfferBook, Quote, decide, should_renew
from solvers.spot.footprint import Application, MeasuredIteration, fit_application
from solvers.spot.made import KINDS, MadeMarket, make_prices
from solvers.spot.odds import EvictionCurve, EvictionOdds, advisor_rate, eviction_curves, observed, prior, spells
from solvers.spot.offers import DEFAULT_BUCKET, anchors_of, application_of, market_book

_DELTAS = (0.0001, 0.0012, 0.0042, 0.014, 0.048, 0.16, 0.4)  # money per hour above the price
_MAX_NAMED = 8
_log = logging.getLogger("plink.spot")


def make_spot_prices(market_file: MarketFile, request: MadePricesRequest) -> Histories:
    """Return histories of the types and zones of a market file, made from a seed to be like those of 2015.

    :raises UsageError: for a request that does not say for how many days.
    """
    if (days := request.days) is None:
        raise UsageError("--made DAYS: say for how many days prices are made")
    kinds = list(KINDS.values())
    markets = [
        MadeMarket(Market(zone, kind.name), kinds[(row + column) % len(kinds)], kind.on_demand)
        for column, zone in enumerate(market_file.zones or ("zone-a",))
        for row, kind in enumerate(market_file.types)
    ]
    prices = make_prices(markets, days, request.seed)
    return Histories(prices, made=f"plink spot read --made {days} --seed {request.seed}")


def spot_markets(histories: Histories, market_file: MarketFile | None = None) -> SpotMarkets:
    """Return what is in histories; prices are compared with the on-demand ones of the market file."""
    return SpotMarkets(
        currency=histories.currency,
        markets=tuple(_summary(market, trace, market_file) for market, trace in sorted(histories.prices.items())),
        availability=tuple(_availability(*item) for item in sorted(histories.availability.items())),
        notes=histories.notes,
    )


def _summary(market: Market, trace: PriceTrace, market_file: MarketFile | None) -> MarketSummary:
    kind = market_file.type_of(market) if market_file else None
    seconds = trace.ends - trace.times
    above = None if kind is None else float(seconds[trace.prices > kind.on_demand].sum() / max(seconds.sum(), 1e-9))
    return MarketSummary(
        zone=market.zone,
        type=market.type,
        product=market.product,
        from_s=trace.start,
        until_s=trace.until,
        holes_s=trace.holes,
        changes=len(trace.times) - 1,
        median=round(trace.quantile(0.5), 6),
        mean=round(trace.mean(), 6),
        highest=float(trace.prices.max()),
        on_demand=None if kind is None else kind.on_demand,
        share_above_on_demand=None if above is None else round(above, 6),
    )


def _availability(market: Market, samples: AvailabilityTrace) -> AvailabilitySummary:
    held = spells(samples)
    return AvailabilitySummary(
        zone=market.zone,
        type=market.type,
        hours=round((samples.until - samples.start) / HOUR_S, 3),
        available=round(held.share, 4),
        spells=len(held.hours),
        median_spell_hours=round(float(np.median(held.hours)), 4) if held.hours else UNSET,
    )


def spot_odds(
    histories: Histories, market_file: MarketFile | None = None, request: SpotOddsRequest | None = None
) -> SpotOdds:
    """Return the odds of an eviction within the hour in each market by how much is bid above the price; of availability
    histories the evictions per instance-hour.

    :param market_file: says which markets, and from which prices on nobody acquires.
    :raises UsageError: where no market or time is left. :raises NoAnswer: where all histories are too short.
    """
    request = request or SpotOddsRequest()

    def is_chosen(market: Market) -> bool:
        return request.type in (None, market.type) and request.zone in (None, market.zone)

    prices = histories.prices if market_file is None else market_file.select(histories.prices)
    prices = {market: trace for market, trace in prices.items() if is_chosen(market)}
    availability = {market: trace for market, trace in histories.availability.items() if is_chosen(market)}
    if not prices and not availability:
        names = sorted({str(market) for market in (*histories.prices, *histories.availability)})
        more = "..." if len(names) > _MAX_NAMED else ""
        raise UsageError(f"no such market; choose one of {', '.join(names[:_MAX_NAMED])}{more}")
    if request.until_s is not None:
        prices = _before(prices, request.until_s)
        if not prices:
            raise UsageError("--until: no prices before that time")
    markets = tuple(_odds(market, trace, market_file) for market, trace in sorted(prices.items()))
    if not availability and not any(row.bids for row in markets):
        raise NoAnswer("no market has two hours of prices without a hole, which odds need; give longer histories")
    belief = prior(advisor_rate(DEFAULT_BUCKET if request.bucket is None else request.bucket))
    rates = []
    for market, samples in sorted(availability.items()):
        interruptions = observed(samples)
        rates.append(
            MarketRate(
                zone=market.zone,
                type=market.type,
                per_hour=round((belief + interruptions).rate, 6),
                interruptions=interruptions.count,
                instance_hours=round(interruptions.hours, 3),
            )
        )
    return SpotOdds(markets=markets, rates=tuple(rates))


def _before(prices: Prices, time: float) -> Prices:
    """Return what was known at a time; markets of which nothing was are left out."""
    return {market: part for market, trace in prices.items() if (part := trace.between(trace.start, time)) is not None}


def _odds(market: Market, trace: PriceTrace, market_file: MarketFile | None) -> MarketOdds:
    kind = market_file.type_of(market) if market_file else None
    curves = eviction_curves(trace, np.array(_DELTAS), kind.on_demand if kind else np.inf)
    bids = tuple(_bid(delta, curve) for delta, curve in zip(_DELTAS, curves, strict=False))
    return MarketOdds(zone=market.zone, type=market.type, hours=round(trace.hours, 3), bids=bids)


def _bid(delta: float, curve: EvictionCurve) -> BidOdds:
    quarter, half, hour = (round(min(1.0, curve.within(60 * minutes)), 6) for minutes in (15, 30, 60))
    median = _finite(round(curve.median(HOUR_S), 1))
    return BidOdds(delta=delta, beta_15min=quarter, beta_30min=half, beta_60min=hour, median_s=median)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def advise_spot(
    market_file: MarketFile,
    histories: Histories,
    request: SpotAdviceRequest | None = None,
    history: History | None = None,
) -> SpotAdvice:
    """Return what to acquire now, and whether to renew what is held. Odds are from before the time of the decision.

    :param history: of a run of this job, which shows how it scales and what changes cost it.
    :raises UsageError: for a time before all prices. :raises InputError: for what is held in a market without prices.
    :raises NoAnswer: where odds cannot be had.
    """
    selected = market_file.select(histories.prices)
    at_s = request.at_s if request else None
    now = max(trace.until for trace in selected.values()) if at_s is None else at_s
    prices = _before(selected, now)
    if not prices and at_s is None:
        raise NoAnswer("each market has a single price; odds need two hours of prices")
    if not prices:
        raise UsageError("--at: no prices before that time; `plink spot read` shows when the histories begin")
    application = application_of(market_file)
    if history is not None:
        application = measured_application(history, application.start_s)
    book = market_book(market_file, prices, histories.availability, application)
    footprint, evicted = _held(market_file, book, selected, now)
    present = [selected[offer.market].price_at(now) for offer in book.offers]  # also one that begins now
    ages = [now - prices[offer.market].until for offer in book.offers]
    quotes = [Quote(price, age) for price, age in zip(present, ages, strict=True)]
    decision = decide(footprint, book, quotes, market_file.limits, now)
    return SpotAdvice(
        at_s=now,
        action=decision.action,
        reason=decision.reason,
        cost_per_work=_finite(decision.cost_per_work),
        candidates=tuple(map(_candidate, decision.candidates)),
        held=tuple(_renewals(footprint, book, present, now)),
        refused=(*evicted, *decision.refused),
    )


def measured_application(history: History, start_s: float) -> Application:
    """Return what changes cost a job, as a run of it shows. ``start_s``: from a request until new instances work.

    :raises NoAnswer: when the run has too little in it.
    """
    events = [event for event in history.events if isinstance(event, HostEvent)]
    joined = [event.at for event in events if event.event == "joined"]
    gone = [event.at for event in events if event.event in ("left", "failed")]
    measured = fit_application(_iterations(history), joined, gone, start_s)
    scaling = measured.scaling
    _log.info(
        "measured: t(n) = %.3g + %.3g / n + %.3g n s, %.2g s after hosts joined, %.2g s after losses",
        *(scaling.a, scaling.b, scaling.c, measured.add_s, measured.evict_s),
    )
    return measured


def _iterations(history: History) -> list[MeasuredIteration]:
    """Return the iterations that count, each with the time of its attempts that a roll-back undid."""
    lost: dict[int, float] = {}
    for step in history.steps:
        if step.rolled_back:
            number = step.iteration.iteration
            lost[number] = lost.get(number, 0.0) + step.iteration.seconds

    return [
        MeasuredIteration(each.at, each.seconds, each.workers, lost.get(each.iteration, 0.0))
        for each in history.completed
    ]


def _held(market_file: MarketFile, book: OfferBook, prices: Prices, now: float) -> tuple[Footprint, tuple[str, ...]]:
    """Return what is held, and why the rest of it is not any more: where bids decide, a price above the bid ends it."""
    names = [(offer.market.zone, offer.market.type) for offer in book.offers]
    allocations, evicted = [], []
    for number, held in enumerate(market_file.held):
        if (held.zone, held.type) not in names:
            reason = f"the histories have no prices, or too few, of {held.type} in {held.zone}"
            raise InputError(f"{market_file.path}: held[{number}]", reason)
        place = names.index((held.zone, held.type))
        offer = book.offers[place]
        if isinstance(offer.risk, EvictionOdds) and (price_now := prices[offer.market].price_at(now)) > held.bid:
            reason = f"its bid of {held.bid:g} is below the price of {price_now:g}"
            evicted.append(f"held[{number}], {held.count} x {offer.market}: evicted already, for {reason}")
            continue
        start = now - held.held_s
        price = held.hour_price
        if price is None:
            price = prices[offer.market].price_at(start + held.held_s // HOUR_S * HOUR_S)
        allocations.append(Allocation(place, held.count, held.bid, start, price))
    return Footprint(anchors_of(market_file), tuple(allocations)), tuple(evicted)


def _candidate(each: Candidate) -> SpotCandidate:
    return SpotCandidate(
        zone=each.market.zone,
        type=each.market.type,
        count=each.count,
        bid=round(each.bid, 6),
        price=round(each.price, 6),
        eviction=round(float(each.eviction), 6),
        evicted_after_s=None if each.evicted_after_s is None else round(float(each.evicted_after_s), 1),
        added_cost=round(each.added_cost, 6),
        added_work=round(float(each.added_work), 6),
        cost_per_work=each.cost_per_work,
    )


def _renewals(footprint: Footprint, book: OfferBook, prices: Sequence[float], now: float) -> Iterator[Renewal]:
    for number, held in enumerate(footprint.allocations):
        market = book.offers[held.offer].market
        renew, cost_if_kept, cost_if_ended = should_renew(footprint, number, book, prices, now)
        yield Renewal(
            zone=market.zone,
            type=market.type,
            count=held.count,
            renew=renew,
            cost_if_kept=_finite(cost_if_kept),
            cost_if_ended=_finite(cost_if_ended),
        )
