"""The ledger of a journal: what is held, what it costs, and the most that it can come to."""

import math
from collections.abc import Sequence

import pytest

from plink.model.spot import journal
from plink.model.spot.market_file import BillingName
from plink.model.spot.prices import HOUR_S, ON_DEMAND, on_demand_market
from solvers.spot.ledger import Ledger, MoneyLimits, account, hourly_bids, refusal_of_money, worst_cost

AT = 1.5e9


def price(at: float, amount: float) -> journal.PriceChanged:
    return journal.PriceChanged(at, "zone-a", "small", "Linux/UNIX", at, amount)


def opened(billing: BillingName = "hourly-2016", anchors: int = 0) -> list[journal.JournalEntry]:
    return [journal.JournalOpened(AT, "run1", "fake", billing, anchors, 0.2), price(AT, 0.1)]


def granted(count: int = 1, bid: float = 0.3) -> Sequence[journal.JournalEntry]:
    return [
        journal.InstancesRequested(AT, "t1", "zone-a", "small", "Linux/UNIX", count, bid),
        *(journal.InstanceGranted(AT, "t1", f"i-{k}", AT) for k in range(count)),
        journal.RequestClosed(AT, "t1", "granted"),
    ]


def test_hour_is_billed_at_the_price_of_its_start() -> None:
    late = journal.PriceChanged(AT + 2 * HOUR_S, "zone-a", "small", "Linux/UNIX", AT + 1800, 0.2)
    ledger = Ledger.of([*opened(), *granted(), late])
    assert account(ledger, AT + 1).transient == pytest.approx(0.1)
    assert account(ledger, AT + HOUR_S + 1).transient == pytest.approx(0.1 + 0.2)


def test_interruption_refunds_the_hour() -> None:
    end = journal.InstanceEnded(AT + 5000, "i-0", "interrupted", AT + 5000)
    cost = account(Ledger.of([*opened(), *granted(), end]), AT + 9000, {"small": 0.4})
    assert cost.transient == pytest.approx(0.1)
    assert cost.refunded == pytest.approx(0.1)
    assert cost.on_demand == pytest.approx(2 * 0.4)  # two hours were begun, and on demand nothing is refunded


@pytest.mark.parametrize("billing", ["hourly-2016", "first-hour-free", "per-second"])
@pytest.mark.parametrize("end", ["released", "interrupted"])
@pytest.mark.parametrize("seconds", [30, 1800, HOUR_S, 5000])
def test_on_demand_machines_cost_what_the_same_machines_would(
    billing: BillingName, end: journal.InstanceEnd, seconds: float
) -> None:
    """What is compared with is what the ledger charges for an on-demand instance of the same time."""
    stays = []
    for product in ("Linux/UNIX", ON_DEMAND):
        entries = [
            journal.JournalOpened(AT, "run1", "fake", billing, 0, 0.0),
            journal.PriceChanged(AT, "zone-a", "small", product, AT, 0.4 if product == ON_DEMAND else 0.1),
            journal.InstancesRequested(AT, "t1", "zone-a", "small", product, 1, 0.4),
            journal.InstanceGranted(AT, "t1", "i-0", AT),
            journal.InstanceEnded(AT + seconds, "i-0", end, AT + seconds),
        ]
        stays.append(account(Ledger.of(entries), AT + seconds, {"small": 0.4}))
    spot, on_demand = stays
    assert spot.on_demand == on_demand.on_demand == pytest.approx(on_demand.transient)


def test_reliable_machines_cost_until_the_job_ends() -> None:
    ledger = Ledger.of([*opened(anchors=3), journal.JobEnded(AT + HOUR_S)])
    assert account(ledger, AT + 1800).anchors == pytest.approx(3 * 0.2 / 2)
    assert account(ledger, AT + 5 * HOUR_S).total == pytest.approx(3 * 0.2)


def test_worst_cost_takes_prices_to_come_for_the_bids() -> None:
    ledger = Ledger.of([*opened(), *granted(2)])
    assert worst_cost(ledger, AT, AT + 1800, AT) == pytest.approx(2 * 0.1)  # the hour has begun
    assert worst_cost(ledger, AT, AT + HOUR_S + 1, AT) == pytest.approx(2 * (0.1 + 0.3))
    assert worst_cost(ledger, AT, AT + HOUR_S + 1, AT + HOUR_S) == pytest.approx(2 * (0.1 + 0.1))
    assert worst_cost(ledger, AT, AT + 1800, -math.inf) == pytest.approx(2 * 0.3)


def test_open_request_counts_as_granted() -> None:
    ledger = Ledger.of([*opened(), *granted(3)[:-2]])  # two of three, and not closed
    assert hourly_bids(ledger, AT) == pytest.approx(3 * 0.3)
    assert worst_cost(ledger, AT, AT + 1800, AT) == pytest.approx(2 * 0.1 + 0.3)


def test_abandoned_request_counts_as_granted_for_an_hour() -> None:
    closed = AT + 200
    ledger = Ledger.of([*opened(), *granted(3)[:1], journal.RequestClosed(closed, "t1", "abandoned")])
    for now, expected in ((closed, 3 * 0.3), (closed + HOUR_S - 1, 3 * 0.3), (closed + HOUR_S, 0.0)):
        assert hourly_bids(ledger, now) == pytest.approx(expected)
        assert worst_cost(ledger, now, AT + 1800, AT) == pytest.approx(expected)


@pytest.mark.parametrize("hours", [0.1, 5.0, 20.0])
def test_budget_counts_the_time_since_the_last_entry(hours: float) -> None:
    """A request long after anything happened."""
    ledger, now = Ledger.of([*opened("per-second"), *granted()]), AT + hours * HOUR_S
    needed = 0.1 * (hours + 0.5) + 0.3  # what is held until its lease ends, and an hour of the new one
    for budget, is_refused in ((needed + 0.001, False), (needed - 0.001, True)):
        limits = MoneyLimits(math.inf, budget, now, now + HOUR_S / 2, now)
        assert bool(refusal_of_money(ledger, 1, 0.3, limits)) == is_refused


def test_hourly_limit_counts_all_bids() -> None:
    ledger = Ledger.of([*opened(anchors=1), *granted(2)])
    for hourly, is_refused in ((0.2 + 3 * 0.3 + 0.001, False), (0.2 + 3 * 0.3 - 0.001, True)):
        limits = MoneyLimits(hourly, math.inf, AT, AT + 1800, AT)
        assert bool(refusal_of_money(ledger, 1, 0.3, limits)) == is_refused


def test_penalties_of_a_market_a_kind_and_of_all() -> None:
    request = journal.InstancesRequested(AT, "t1", "zone-a", "small", "Linux/UNIX", 1, 0.3)
    market, other = request.market, journal.InstancesRequested(AT, "t2", "b", "c", "d", 1, 0.3).market
    ledger = Ledger.of([*opened(), request, journal.RequestClosed(AT, "t1", "refused", "", AT + 900)])
    assert ledger.penalised(market, AT + 899)
    assert not ledger.penalised(market, AT + 900)
    assert not ledger.penalised(other, AT)
    on_demand = on_demand_market(market.zone, market.type)
    ledger.apply(journal.RequestClosed(AT, "t1", "refused", "", AT + 900, "kind"))
    assert ledger.penalised(other, AT + 899)
    assert not ledger.penalised(on_demand, AT)
    ledger.apply(journal.RequestClosed(AT, "t1", "refused", "", AT + 900, "all"))
    assert ledger.penalised(on_demand, AT + 899)
