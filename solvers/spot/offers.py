"""What a market file and histories come to: the offers that decisions choose from, and what changes cost the job."""

import logging
from collections.abc import Mapping, Sequence

from plink.errors import NoAnswer
from plink.model.spot.market_file import InstanceType, MarketFile
from plink.model.spot.prices import AvailabilityTrace, Market, Prices
from solvers.spot.billing import BILLINGS
from solvers.spot.deciding import Anchors, Offer, OfferBook, offer_book
from solvers.spot.footprint import Application, Outlook, Scaling
from solvers.spot.odds import DELTAS, ExponentialEvictions, advisor_rate, eviction_curves, observed, odds_table, prior
from solvers.spot.strategies import replacing

# What a market is taken for of which neither the provider nor a history says anything: 10 to 15 % a month.
DEFAULT_BUCKET = 2
_log = logging.getLogger("plink.spot")


def application_of(market_file: MarketFile) -> Application:
    """Return what changes cost a job, as the market file says, else the defaults."""
    default, changes = Application(), market_file.changes
    return Application(
        default.scaling if changes.iteration_s is None else Scaling(*changes.iteration_s),
        default.start_s if changes.start_s is None else changes.start_s,
        default.add_s if changes.add_s is None else changes.add_s,
        default.evict_s if changes.evict_s is None else changes.evict_s,
    )


def anchors_of(market_file: MarketFile) -> Anchors:
    """Return the reliable machines of a market file."""
    machines = market_file.anchors
    if machines is None:
        return Anchors()
    cores = machines.type.cores if market_file.anchors_work else 0.0
    return Anchors(machines.count, machines.type.on_demand, cores)


def price_offers(market_file: MarketFile, prices: Prices) -> tuple[Offer, ...]:
    """Return the offers of markets whose evictions follow from the price, with odds from these histories.

    Markets whose histories are too short for odds are left out, and named in the log.

    :raises NoAnswer: when all are.
    """
    offers, left_out = [], []
    for market, trace in prices.items():
        kind = _type_of(market_file, market)
        curves = eviction_curves(trace, DELTAS, kind.on_demand)
        if not curves:
            left_out.append(
                f"{market}: no odds of evictions: its history has {trace.hours:.1f} h, and in none of them an hour "
                f"follows a price of at most {kind.on_demand:g}"
            )
            continue
        offers.append(Offer(market, kind.cores, kind.on_demand, odds_table(curves)))
    if not offers:
        raise NoAnswer("; ".join(left_out[:3]))
    for line in left_out:
        _log.warning("left out: %s", line)
    return tuple(offers)


def rate_offers(
    market_file: MarketFile, prices: Prices, availability: Mapping[Market, AvailabilityTrace]
) -> tuple[Offer, ...]:
    """Return the offers of markets whose capacity is taken back at a rate: as the provider publishes it, updated by
    availability histories of the same zone and type."""
    by_name = {(market.zone, market.type): trace for market, trace in availability.items()}
    offers = []
    for market in prices:
        kind = _type_of(market_file, market)
        bucket = DEFAULT_BUCKET if kind.advisor_bucket is None else kind.advisor_bucket
        belief, trace = prior(advisor_rate(bucket)), by_name.get((market.zone, market.type))
        rate = (belief if trace is None else belief + observed(trace)).rate
        offers.append(Offer(market, kind.cores, kind.on_demand, ExponentialEvictions(rate)))
    return tuple(offers)


def _type_of(market_file: MarketFile, market: Market) -> InstanceType:
    kind = market_file.type_of(market)
    assert kind is not None
    return kind


def market_book(
    market_file: MarketFile,
    prices: Prices,
    availability: Mapping[Market, AvailabilityTrace],
    application: Application,
    others: Sequence[Offer] = (),
) -> OfferBook:
    """Return the candidates of all markets by what decides on evictions where they are billed, and ``others``.

    By prices capacity is expected to be replaced. By a rate it would be taken again, at the same rate: there it is not.

    :raises NoAnswer: as :func:`price_offers`.
    """
    billing = BILLINGS[market_file.billing]
    if market_file.billing == "hourly-2016":
        return offer_book((*price_offers(market_file, prices), *others), replacing(billing, application), application)
    return offer_book((*rate_offers(market_file, prices, availability), *others), Outlook(billing), application)
