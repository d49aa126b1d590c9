"""The decisions of a driver: what is chosen by a market file, prices and a journal."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from plink.features.spot.request import SpotAdviceRequest
from plink.features.spot.run import advise_spot
from plink.features.spot.simulate import comparison_for
from plink.model.spot import journal
from plink.model.spot.market_file import InstanceType, Machines, MarketFile, market_file_from
from plink.model.spot.price_files import Histories
from plink.model.spot.prices import HOUR_S, ON_DEMAND, AvailabilityTrace, Market, PriceTrace, on_demand_market
from runners.spot.brain import MarketBrain
from solvers.spot.deciding import Footprint, Quote
from solvers.spot.ledger import Ledger, MoneyLimits, refusal_of_money
from solvers.spot.made import KINDS, MadeMarket, make_prices
from solvers.spot.strategies import strategy_for

NOW = 1.5e9
SMALL, LARGE = Market("zone-a", "small"), Market("zone-a", "large")


def market_file(billing: str, **limits: float) -> MarketFile:
    """One reliable machine that only serves, and two types, of which the large ones have twice the cores."""
    document = {
        "billing": billing,
        "types": [
            {"name": "small", "cores": 2, "on_demand": 0.2},
            {"name": "large", "cores": 4, "on_demand": 0.4},
        ],
        "anchors": {"type": "small", "count": 1},
        "reference": {"type": "small", "count": 4},
        "limits": {"max_cores": 8, "chunk_cores": 4, **limits},
        "application": {"iteration_s": [0.0, 100.0, 0.0], "start_s": 60, "add_s": 10, "evict_s": 10},
    }
    return market_file_from(document, "market.toml")


def brain(
    billing: str = "per-second", histories: Histories | None = None, falls_back: bool = False, **limits: float
) -> MarketBrain:
    return MarketBrain(market_file(billing, **limits), histories or Histories(), 1800.0, falls_back)


def observed(made: MarketBrain, small: float = 0.05, large: float = 0.2) -> dict[Market, Quote]:
    made.observe(SMALL, NOW - 100, small)
    made.observe(LARGE, NOW - 100, large)
    return {SMALL: Quote(small), LARGE: Quote(large)}


def ledger(*entries: journal.JournalEntry) -> Ledger:
    return Ledger.of([journal.JournalOpened(NOW - 3500, "run1", "fake", "per-second", 1, 0.2), *entries])


def granted(count: int = 2, product: str = "Linux/UNIX") -> Sequence[journal.JournalEntry]:
    since, price = NOW - 3500, 0.2 if product == ON_DEMAND else 0.05
    return [
        journal.PriceChanged(since, "zone-a", "small", product, since - 10, price),
        journal.InstancesRequested(since, "t1", "zone-a", "small", product, count, 0.2),
        *(journal.InstanceGranted(since, "t1", f"i-{k}", since) for k in range(count)),
        journal.RequestClosed(since, "t1", "granted"),
    ]


def test_deadline_wants_a_second_market() -> None:
    """What takes one market away must leave the other; where there is no other, the first is better than none."""
    made = brain()
    assert made.choose(ledger(*granted(2)), observed(made), NOW).market == SMALL
    made = brain()
    made.reserve(Machines(InstanceType("small", 2, 0.2), 4))
    assert made.choose(ledger(*granted(2)), observed(made), NOW).market == LARGE
    assert made.choose(ledger(*granted(2)), observed(made, large=0.5), NOW).market == SMALL
    request = journal.InstancesRequested(NOW - 1, "t0", "zone-a", "large", "Linux/UNIX", 1, 0.4)
    refused = journal.RequestClosed(NOW - 1, "t0", "refused", "capacity", NOW + 900)
    assert made.choose(ledger(*granted(2), request, refused), observed(made), NOW).market == SMALL
    stale = observed(made) | {LARGE: Quote(0.2, 1000.0)}
    assert made.choose(ledger(*granted(2)), stale, NOW).market == SMALL


def test_unquoted_market_delays_no_termination() -> None:
    made, held = brain(max_cores=12), ledger(*granted())
    quotes = observed(made, small=0.199, large=0.01)
    large = [
        journal.PriceChanged(NOW - 3500, "zone-a", "large", "Linux/UNIX", NOW - 3510, 0.01),
        journal.InstancesRequested(NOW - 3500, "t2", "zone-a", "large", "Linux/UNIX", 1, 0.4),
        journal.InstanceGranted(NOW - 3500, "t2", "i-9", NOW - 3500),
        journal.RequestClosed(NOW - 3500, "t2", "granted"),
    ]
    for entry in large:
        held.apply(entry)
    assert made.reason_to_end(held, "t1", quotes, NOW) != ""
    assert made.reason_to_end(held, "t1", {SMALL: quotes[SMALL]}, NOW) != ""
    assert made.reason_to_end(held, "t1", {LARGE: quotes[LARGE]}, NOW) == ""


def test_prices_that_are_missing_or_old_buy_nothing() -> None:
    made = brain()
    assert made.choose(ledger(), {}, NOW).market is None
    quotes = {market: Quote(quote.price, 16 * 60) for market, quote in observed(made).items()}
    assert made.choose(ledger(), quotes, NOW).market is None


def test_hour_is_renewed_unless_it_costs_more_than_it_brings() -> None:
    made = brain()
    held = ledger(*granted())
    assert made.reason_to_end(held, "t1", observed(made), NOW) == ""
    expensive = ledger(*granted(), *_other_request())
    made = brain()
    quotes = observed(made)
    assert made.reason_to_end(expensive, "t1", {**quotes, SMALL: Quote(5.0)}, NOW) != ""
    assert made.reason_to_end(expensive, "t1", {}, NOW) == ""  # without prices nothing is ended


def _other_request(count: int = 1) -> Sequence[journal.JournalEntry]:
    return [
        journal.PriceChanged(NOW - 300, "zone-a", "large", "Linux/UNIX", NOW - 310, 0.05),
        journal.InstancesRequested(NOW - 300, "t2", "zone-a", "large", "Linux/UNIX", count, 0.4),
        *(journal.InstanceGranted(NOW - 300, "t2", f"i-9{k}", NOW - 300) for k in range(count)),
        journal.RequestClosed(NOW - 300, "t2", "granted"),
    ]


def test_odds_need_a_history_where_bids_decide() -> None:
    made = brain("hourly-2016")
    choice = made.choose(ledger(), observed(made), NOW)
    assert choice.market is None
    assert "no odds" in choice.reason


@pytest.mark.parametrize("days", [5, 6, 7, 8])
def test_driver_and_advice_decide_as_the_simulated_strategy(days: int) -> None:
    """The bid would be another one if what is evicted were taken to be lost for the hour."""
    kinds = (MadeMarket(SMALL, KINDS["c3-a"], 0.2), MadeMarket(LARGE, KINDS["c3-a"], 0.4))
    now, prices, file = days * 86400.0, make_prices(kinds, 10, 1), market_file("hourly-2016")
    histories = Histories({market: part for market, trace in prices.items() if (part := trace.between(0.0, now))})
    quotes = {market: Quote(trace.price_at(now)) for market, trace in prices.items()}
    common = comparison_for(file, prices, now)
    acquired = strategy_for("bidbrain-replacing", common).acquire(
        Footprint(common.anchors), [quotes[offer.market].price for offer in common.offers], now
    )
    assert acquired is not None
    wanted = (common.offers[acquired.market].market, acquired.count, pytest.approx(acquired.bid))
    opened = journal.JournalOpened(now, "run1", "fake", "hourly-2016", 1, 0.2)
    made = MarketBrain(file, histories, 1800.0)
    choice = made.choose(Ledger.of([opened]), quotes, now)
    assert (choice.market, choice.count, choice.bid) == wanted
    best = advise_spot(file, histories, SpotAdviceRequest(at_s=now)).candidates[0]
    assert (Market(best.zone, best.type), best.count) == wanted[:2]
    assert best.bid == pytest.approx(acquired.bid, abs=1e-6)  # as it is shown


DAY = PriceTrace(NOW - 86400 + np.arange(0.0, 86000.0, HOUR_S), np.full(24, 0.05), NOW - 400)


def test_market_without_odds_stops_no_other() -> None:
    made = brain("hourly-2016", Histories({SMALL: DAY}))
    assert made.choose(ledger(), observed(made), NOW).market == SMALL


def test_machines_in_a_market_without_odds_count_against_the_core_limit() -> None:
    made = brain("hourly-2016", Histories({LARGE: DAY}))
    assert made.choose(ledger(), observed(made, large=0.05), NOW).market == LARGE
    assert made.choose(ledger(*granted(4)), observed(made, large=0.05), NOW).market is None


def test_observed_prices_extend_the_history() -> None:
    made = brain("hourly-2016", Histories({SMALL: DAY, LARGE: DAY}))
    quotes = observed(made, small=0.06, large=0.3)
    choice = made.choose(ledger(), quotes, NOW)
    assert choice.market == SMALL
    assert choice.bid > 0.06


def test_gap_between_history_and_first_quote_is_ignored() -> None:
    costs = []
    for age_s in (400.0, 90 * 86400.0):
        until = NOW - age_s
        steps = until - np.arange(2 * 86400.0, 0.0, -1800.0)
        trace = PriceTrace(steps, np.resize([0.05, 0.19], len(steps)), until)  # a spike every hour
        made = brain("hourly-2016", Histories({SMALL: trace, LARGE: trace}))
        choice = made.choose(ledger(), observed(made, small=0.05, large=0.3), NOW)
        costs.append(float(choice.reason.partition("core-hour to ")[2].split()[0]))
    assert costs[1] == pytest.approx(costs[0], rel=0.01)


def on_demand(count: int) -> Sequence[journal.JournalEntry]:
    since = NOW - 600
    market = on_demand_market("zone-a", "small")
    return [
        journal.PriceChanged(since, market.zone, market.type, market.product, since, 0.2),
        journal.InstancesRequested(since, "f1", market.zone, market.type, market.product, count, 0.2),
        *(journal.InstanceGranted(since, "f1", f"o-{k}", since) for k in range(count)),
        journal.RequestClosed(since, "f1", "granted"),
    ]


@pytest.mark.parametrize("limits", [{"max_hourly": 1.3}, {"budget": 2.2}])
def test_choice_beside_on_demand_machines_is_within_the_limits_of_money(limits: dict[str, float]) -> None:
    made, held = brain(**limits), ledger(*on_demand(4))
    choice = made.choose(held, observed(made), NOW)
    hourly, budget = limits.get("max_hourly", math.inf), limits.get("budget", math.inf)
    money = MoneyLimits(hourly, budget, NOW, NOW + HOUR_S + 1800, NOW)
    assert choice.market is None or refusal_of_money(held, choice.count, choice.bid, money) == ""
    if "max_hourly" in limits:
        assert (choice.market, choice.count) == (SMALL, 1)  # two would be too much


@pytest.mark.parametrize("name", ["max_hourly", "budget"])
def test_money_for_machines_of_a_deadline_is_left_until_they_are_held(name: str) -> None:
    machines = Machines(InstanceType("small", 2, 0.2), 4)
    hours = {"max_hourly": 1.0, "budget": 1.5}[name]  # the budget is for an hour and a lease
    anchor = {"max_hourly": 0.2, "budget": 0.2 * 2.5}[name]
    for money, count in ((anchor + (0.8 + 0.05) * hours, 0), (anchor + (0.8 + 0.45) * hours, 2)):
        made = brain(**{name: money})
        assert made.choose(ledger(), observed(made), NOW).count == 2
        made.reserve(machines)
        assert made.choose(ledger(), observed(made), NOW).count == count
    made = brain(max_hourly=0.2 + 0.8 + 0.45)
    made.reserve(machines)
    assert made.choose(ledger(*on_demand(4)), observed(made), NOW).count == 2


class TestFallback:
    """``--fallback``: on-demand machines up to those of the reference, four small ones, while all markets are dear."""

    def test_dear_markets_are_replaced_by_on_demand_machines(self) -> None:
        made = brain(falls_back=True)
        choice = made.choose(ledger(), observed(made, small=0.3, large=0.5), NOW)
        assert choice.market == on_demand_market("zone-a", "small")
        assert (choice.count, choice.bid) == (2, 0.2)  # the chunk, at the on-demand price

    def test_market_that_costs_less_is_taken(self) -> None:
        made = brain(falls_back=True)
        choice = made.choose(ledger(), observed(made, small=0.3, large=0.2), NOW)
        assert choice.market == LARGE

    def test_certainty_of_on_demand_machines_counts(self) -> None:
        counts = np.resize([2, 0], 240)  # within a quarter of an hour all of it is taken
        taken = {SMALL: AvailabilityTrace(900.0, counts), LARGE: AvailabilityTrace(900.0, counts)}
        for histories, market in ((Histories(), SMALL), (Histories({}, taken), on_demand_market("zone-a", "small"))):
            made = brain(histories=histories, falls_back=True)
            assert made.choose(ledger(), observed(made, small=0.199, large=0.398), NOW).market == market

    def test_cores_of_the_reference_are_enough(self) -> None:
        made = brain(max_cores=16, falls_back=True)
        quotes = observed(made, small=0.3, large=0.5)
        assert made.choose(ledger(*granted(4)), quotes, NOW).market is None
        some = made.choose(ledger(*granted(3)), quotes, NOW)
        assert some.market is not None
        assert some.count == 1

    @pytest.mark.parametrize("limits", [{"budget": 0.3}, {"max_hourly": 0.3}])
    def test_limits_of_money_hold_for_on_demand_machines(self, limits: dict[str, float]) -> None:
        made = brain(falls_back=True, **limits)
        assert made.choose(ledger(), observed(made, small=0.3, large=0.5), NOW).market is None

    def test_zone_without_on_demand_machines_is_left_out(self) -> None:
        made, other = brain(falls_back=True), Market("zone-b", "small")
        quotes = observed(made, small=0.3, large=0.5) | {other: Quote(0.3)}
        made.observe(other, NOW - 100, 0.3)
        refused = [
            journal.InstancesRequested(NOW - 1, "t0", "zone-a", "small", ON_DEMAND, 2, 0.2),
            journal.RequestClosed(NOW - 1, "t0", "refused", "capacity", NOW + 900),
        ]
        assert made.choose(ledger(*refused), quotes, NOW).market == on_demand_market("zone-b", "small")

    def test_old_prices_request_and_end_nothing(self) -> None:
        made = brain(falls_back=True)
        quotes = {market: Quote(quote.price, 16 * 60) for market, quote in observed(made).items()}
        held = ledger(*granted(product=ON_DEMAND))
        for unusable in (quotes, {}):
            assert made.choose(ledger(), unusable, NOW).market is None
            assert made.reason_to_end(held, "t1", unusable, NOW) == ""

    def test_markets_that_refuse_are_replaced(self) -> None:
        made = brain(falls_back=True)
        entries = [
            entry for number, market in enumerate((SMALL, LARGE)) for entry in (
                journal.InstancesRequested(NOW - 1, f"t{number}", market.zone, market.type, market.product, 1, 0.2),
                journal.RequestClosed(NOW - 1, f"t{number}", "refused", "capacity", NOW + 900),
            )
        ]  # fmt: skip
        assert made.choose(ledger(*entries), observed(made), NOW).market == on_demand_market("zone-a", "small")

    def test_on_demand_machines_are_renewed_while_markets_are_dear(self) -> None:
        held = ledger(*granted(product=ON_DEMAND))
        made = brain(falls_back=True)
        assert made.reason_to_end(held, "t1", observed(made, small=0.3, large=0.5), NOW) == ""
        made = brain(falls_back=True)
        assert made.reason_to_end(held, "t1", observed(made, small=0.05, large=0.5), NOW) != ""

    def test_on_demand_machines_beyond_the_reference_are_not_renewed(self) -> None:
        held = ledger(*granted(product=ON_DEMAND), *_other_request(4))
        made = brain(max_cores=32, falls_back=True)
        assert made.reason_to_end(held, "t1", observed(made, small=0.3, large=0.5), NOW) != ""

    def test_machines_of_a_deadline_stay(self) -> None:
        made = brain()
        assert made.reason_to_end(ledger(*granted(product=ON_DEMAND)), "t1", observed(made), NOW) == ""
