"""Decisions: the best of all candidates by brute force, limits, renewals, and reasons."""

import math

import pytest

from plink.model.spot.market_file import Limits
from plink.model.spot.prices import Market
from solvers.spot.billing import Hourly2016, PerSecondFirstHourFree
from solvers.spot.deciding import (
    Allocation,
    Anchors,
    Footprint,
    Offer,
    OfferBook,
    Quote,
    decide,
    offer_book,
    prospects_of,
    should_renew,
)
from solvers.spot.footprint import Application, Outlook, Scaling, cost_per_core_hour
from solvers.spot.made import KINDS, MadeMarket, make_prices
from solvers.spot.odds import DELTAS, ExponentialEvictions, eviction_curves, odds_table

TYPES = {"small": (4.0, 0.2), "large": (16.0, 0.8)}
APPLICATION = Application(Scaling(0.0001, 1, 1e-6), start_s=120, add_s=30, evict_s=60)
LIMITS = Limits(max_cores=96, chunk_cores=32)
ANCHORS = Anchors(2, 0.2)


def offers() -> tuple[Offer, ...]:
    """Two types with the odds of made prices."""
    markets = [
        MadeMarket(Market("z", name), KINDS[kind], on_demand)
        for (name, (_, on_demand)), kind in zip(TYPES.items(), ("c3-a", "g2-a"), strict=True)
    ]
    prices = make_prices(markets, 10, seed=3)
    return tuple(
        Offer(each.market, TYPES[each.market.type][0], each.on_demand, odds_table(eviction_curves(prices[each.market])))
        for each in markets
    )


@pytest.fixture(scope="module")
def book() -> OfferBook:
    return offer_book(offers(), Outlook(Hourly2016()), APPLICATION)


def held(offer: int, count: int, bid: float, price: float, age_s: float) -> Allocation:
    return Allocation(offer, count, bid, 100_000 - age_s, price)


def test_the_best_of_all_candidates(book: OfferBook) -> None:
    """Each market with each bid, priced one by one with what is held."""
    footprint = Footprint(ANCHORS, (held(0, 8, 0.05, 0.036, 900),))
    quotes = [Quote(0.035), Quote(0.11)]
    decision = decide(footprint, book, quotes, LIMITS, now=100_000)
    base = prospects_of(footprint, book, [0.035, 0.11], 100_000)
    costs = {}
    for number, (offer, quote) in enumerate(zip(book.offers, quotes, strict=True)):
        for delta in DELTAS[1:]:
            unit = book.outlook.prospect(quote.price, 0.0, 1.0, offer.evictions(delta))
            unit = type(unit)(unit.cost, unit.hours - 120 / 3600, unit.survival, 1.0)
            parts = [*base, unit.times(int(32 // offer.cores), offer.cores)]
            costs[number, quote.price + delta] = cost_per_core_hour(parts, APPLICATION, changed=True)
    best = min(costs, key=lambda key: costs[key])
    best_found = decision.candidates[0]
    assert (best_found.market, best_found.bid) == (book.offers[best[0]].market, pytest.approx(best[1]))
    assert best_found.cost_per_work == pytest.approx(costs[best])
    assert decision.cost_per_work == pytest.approx(cost_per_core_hour(base, APPLICATION, changed=False))
    assert (decision.action == "acquire") == (costs[best] < decision.cost_per_work)
    order = [each.cost_per_work for each in decision.candidates]
    assert order == sorted(set(costs.values()))[:10]


@pytest.mark.parametrize(("price", "action"), [(0.1, "acquire"), (0.18, "wait")])
def test_cost_per_work_is_the_same_all_hour_long(price: float, action: str) -> None:
    """At constant prices: what is held costs its price and that of the anchors, whatever is left of its hour. A dearer
    market spreads the anchors over twice the cores, and is worth that in the first minute and in the last, or never."""
    zones = [Offer(Market(zone, "small"), 4.0, 0.2, ExponentialEvictions(0.0)) for zone in "ab"]
    steady = offer_book(zones, Outlook(Hourly2016()), Application(start_s=0, add_s=30))
    for age_s in (0, 1800, 3000, 3500, 3590):
        footprint = Footprint(Anchors(2, 0.4), (held(0, 8, 0.2, 0.05, age_s),))
        decision = decide(footprint, steady, [Quote(0.05), Quote(price)], LIMITS, 100_000, {0: "not now"})
        assert decision.cost_per_work == pytest.approx((0.8 + 8 * 0.05) / 32)
        assert should_renew(footprint, 0, steady, [0.05, price], 100_000)[1] == pytest.approx(decision.cost_per_work)
        with_it = (0.8 + 8 * 0.05 + 8 * price) / 64 * 120 / 119  # 30 s of each hour are lost to the change
        assert decision.candidates[0].cost_per_work == pytest.approx(with_it)
        assert decision.action == action


def test_growth_ends_at_the_cap_and_by_the_scaling(book: OfferBook) -> None:
    full = Footprint(ANCHORS, tuple(held(0, 8, 0.1, 0.035, 60) for _ in range(3)))
    decision = decide(full, book, [Quote(0.035), Quote(0.11)], LIMITS, now=100_000)
    assert (decision.action, decision.candidates) == ("wait", ())
    assert "at most 96 cores" in decision.reason
    steep = offer_book(offers(), Outlook(Hourly2016()), Application(Scaling(0.05, 1, 0.01), 120, 30, 60))
    some = Footprint(ANCHORS, (held(0, 8, 0.4, 0.035, 60),))
    decision = decide(some, steep, [Quote(0.035), Quote(0.11)], LIMITS, now=100_000)
    assert decision.action == "wait"
    assert decision.candidates
    assert "no candidate costs less" in decision.reason


def test_nothing_is_acquired_above_on_demand_or_by_old_prices(book: OfferBook) -> None:
    nothing = Footprint(ANCHORS)
    dear = decide(nothing, book, [Quote(0.21), Quote(0.81)], LIMITS, now=0)
    assert (dear.action, len(dear.refused)) == ("wait", 2)
    assert "above the on-demand price" in dear.reason
    stale = decide(nothing, book, [Quote(0.035, age_s=901), Quote(0.11, age_s=899)], LIMITS, now=0)
    assert {each.market.type for each in stale.candidates} == {"large"}
    assert "15 min old" in stale.refused[0]


def test_limits_of_money_are_held_by_the_bid(book: OfferBook) -> None:
    """What all bids may come to in an hour, not what the prices do now."""
    quotes = [Quote(0.035), Quote(0.11)]
    limits = Limits(96, 32, max_hourly=0.8)
    decision = decide(Footprint(ANCHORS), book, quotes, limits, now=0)
    assert decision.candidates
    assert all(2 * 0.2 + each.count * each.bid <= 0.8 + 1e-9 for each in decision.candidates)
    broke = decide(Footprint(ANCHORS), book, quotes, Limits(96, 32, budget=0.41), now=0)
    assert (broke.action, broke.candidates) == ("wait", ())
    assert "money" in broke.reason


def test_a_safer_bid_when_evictions_are_dear() -> None:
    """The thesis's point: with dear evictions BidBrain turns from gambling to safe bids."""
    chances = []
    for evict_s in (0, 600, 1800):
        book = offer_book(offers(), Outlook(Hourly2016()), Application(Scaling(), 120, 30, evict_s))
        decision = decide(Footprint(Anchors()), book, [Quote(0.035), Quote(0.11)], LIMITS, now=0)
        chances.append(decision.candidates[0].eviction)
    assert chances[0] > chances[1] >= chances[2]


def test_renewal_goes_by_the_price_now(book: OfferBook) -> None:
    """A market that has become dear is left when the hour ends; one that has not is kept."""
    footprint = Footprint(ANCHORS, (held(0, 8, 0.4, 0.035, 3540), held(1, 2, 0.5, 0.11, 600)))
    keep, kept_cost, ended_cost = should_renew(footprint, 0, book, [0.035, 0.11], 100_000)
    assert keep == (not ended_cost < kept_cost) is True
    dear, _, _ = should_renew(footprint, 0, book, [0.39, 0.11], 100_000)
    assert dear is False
    alone = Footprint(ANCHORS, (held(0, 8, 0.4, 0.035, 3540),))
    renew, _, without = should_renew(alone, 0, book, [0.39, 0.11], 100_000)
    assert (renew, math.isinf(without)) == (True, True)  # nothing else would work


def test_odds_go_by_the_distance_of_the_bid_now(book: OfferBook) -> None:
    """The price has come near the bid since it was acquired: the eviction is likelier, and so is a refund."""
    far, near = (
        prospects_of(Footprint(Anchors(), (held(0, 8, 0.06, 0.035, 600),)), book, [price, 0.11], 100_000)[0]
        for price in (0.02, 0.0599)
    )
    assert near.survival < far.survival
    early, late = (
        prospects_of(Footprint(Anchors(), (held(0, 8, 0.06, 0.035, age),)), book, [0.05, 0.11], 100_000)[0]
        for age in (60, 3300)
    )
    assert late.survival > early.survival  # less time is left in which it could happen


def test_rates_instead_of_bids() -> None:
    """Today's clouds: at equal prices the market with fewer evictions, in the first hour free."""
    rates = (0.05, 0.5)
    markets = tuple(
        Offer(Market(zone, "small"), 4, 0.2, ExponentialEvictions(rate)) for zone, rate in zip("ab", rates, strict=True)
    )
    safe = offer_book(markets, Outlook(PerSecondFirstHourFree()), Application(Scaling(), 300, 120, 1200))
    decision = decide(Footprint(ANCHORS), safe, [Quote(0.06), Quote(0.06)], LIMITS, now=0)
    assert [each.market.zone for each in decision.candidates] == ["a", "b"]
    assert decision.candidates[0].bid == 0.2


@pytest.mark.parametrize(
    ("limits", "application", "reason"),
    [
        (Limits(96, 32, max_hourly=0.1), APPLICATION, "limits of money"),
        (Limits(96, 32, budget=0.1), APPLICATION, "limits of money"),
        (Limits(96, 3), APPLICATION, "no instance fits"),
        (LIMITS, Application(start_s=1e9), "would do any work within an hour"),
        (LIMITS, Application(add_s=3600, evict_s=1e8), "would do any work within an hour"),
    ],
)
@pytest.mark.parametrize("has_rates", [False, True])
def test_wait_has_its_own_reason(limits: Limits, application: Application, reason: str, has_rates: bool) -> None:
    rates = tuple(Offer(each.market, each.cores, each.on_demand, ExponentialEvictions(0.1)) for each in offers())
    book = offer_book(rates if has_rates else offers(), Outlook(Hourly2016()), application)
    decision = decide(Footprint(Anchors()), book, [Quote(0.03), Quote(0.11)], limits, now=100_000)
    assert decision.action == "wait"
    assert reason in decision.reason


def test_market_that_is_left_out_does_not_hide_that_the_others_do_not_fit(book: OfferBook) -> None:
    decision = decide(Footprint(ANCHORS), book, [Quote(0.03), Quote(0.11)], Limits(96, 8), 100_000, {0: "it failed"})
    assert "no instance fits" in decision.reason
    decision = decide(Footprint(ANCHORS, (held(0, 23, 0.05, 0.036, 900),)), book, [Quote(0.03)] * 2, LIMITS, 100_000)
    assert decision.action == "acquire"
    decision = decide(Footprint(ANCHORS, (held(0, 24, 0.05, 0.036, 900),)), book, [Quote(0.03)] * 2, LIMITS, 100_000)
    assert "at most 96 cores may work" in decision.reason
