"""On-demand machines beside transient ones while all markets are dear (beyond the thesis, whose BidBrain then waits).

They are a market of their own, at a fixed price and without evictions. They are compared with each transient market as
an addition of the same size. What costs least per work is requested, on-demand machines up to those of the reference.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from plink.model.spot.market_file import Limits, Machines
from plink.model.spot.prices import on_demand_market
from solvers.spot.deciding import MAX_PRICE_AGE_S, Candidate, Footprint, Offer, OfferBook, Quote, decide
from solvers.spot.hazard import ExponentialEvictions

NO_EVICTIONS = ExponentialEvictions(0.0)


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
    footprint: Footprint, book: OfferBook, quotes: Sequence[Quote], limits: Limits, now: float,
    excluded: Mapping[int, str],
) -> Candidate | None:  # fmt: skip
    """Return the on-demand machines to add, where they cost less per work than every transient market; else None.

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
