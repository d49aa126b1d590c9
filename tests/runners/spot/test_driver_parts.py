"""Requests that are granted in part, or whose instances are listed late: nothing stays beyond the limits of money."""

from dataclasses import replace

import pytest

from plink.model.spot import journal
from plink.model.spot.market_file import Limits
from plink.model.spot.prices import HOUR_S, Market
from runners.spot.brain import RentalChoice
from runners.spot.provider import ListedInstance, PricePoint, ProviderError, RentalOrder
from runners.spot.requests import RecordedPrices
from solvers.spot.ledger import Ledger, account
from tests.runners.spot.fake_cloud import START, A, B, World, world

A_THEN_B = [RentalChoice("planned", A, 8, 0.15), RentalChoice("planned", B, 4, 0.3)]


def most_bids(made: World, hours: float) -> float:
    """Run, and return the most that the bids of what the cloud holds came to."""
    driver, most = made.driver(), 0.0
    end = made.clock.now + hours * HOUR_S
    while made.clock.now < end:
        driver.step()
        most = max(most, sum(made.cloud.rentals[name].bid for name in made.cloud.held))
        made.clock.now += made.timing.poll_s
    return most


def test_late_part_of_an_unanswered_request_stays_within_the_hourly_limit() -> None:
    made = world(plan=A_THEN_B, hours=9)
    made.limits = Limits(100, 100, max_hourly=2.0)
    made.cloud.loses_answers, made.cloud.hides_for_s, made.cloud.hides = 1, 900.0, range(3, 8)
    assert most_bids(made, 0.4) <= 2.0
    assert len(made.cloud.held) == 7
    assert {each.id for each in made.ledger.held} == set(made.cloud.held)


@pytest.mark.parametrize(("hours", "held"), [(0.9, 3), (1.5, 7)])
def test_part_that_is_never_listed_counts_for_an_hour(hours: float, held: int) -> None:
    made = world(plan=A_THEN_B, hours=9)
    made.limits = Limits(100, 100, max_hourly=2.0)
    made.cloud.loses_answers, made.cloud.hides_for_s, made.cloud.hides = 1, 4000.0, range(3, 8)
    assert most_bids(made, hours) <= 2.0
    assert len(made.cloud.held) == held


def test_instances_that_an_answer_lacked_are_released() -> None:
    made = world(plan=A_THEN_B[:1], hours=9)
    acquire = made.cloud.acquire

    def prints_three(order: RentalOrder) -> list[ListedInstance]:
        return acquire(order)[:3]

    made.cloud.acquire = prints_three  # type: ignore[method-assign]
    made.run(0.3)
    assert len(made.cloud.held) == 3
    assert {each.id for each in made.ledger.held} == set(made.cloud.held)


def test_late_part_is_accepted_while_its_request_is_open() -> None:
    made = world(plan=A_THEN_B[:1], hours=9)
    made.cloud.loses_answers, made.cloud.hides_for_s, made.cloud.hides = 1, 100.0, range(3, 8)
    made.timing = replace(made.timing, poll_s=30.0)
    made.run(0.3)
    assert len(made.cloud.held) == 8
    assert [each.outcome for each in made.ledger.requests.values()] == ["granted"]


@pytest.mark.parametrize("failures", [0, 3])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_instance_that_is_listed_again_costs_the_prices_of_its_hours(failures: int, is_restarted: bool) -> None:
    steps = {
        A: [(START - 50, 0.1), (START + 3000, 0.14), (START + 6500, 0.1), (START + 10000, 0.12), (START + 12500, 0.11)],
        B: [(START - 50, 0.2)],
    }
    made = world(steps, plan=A_THEN_B[:1], hours=20)
    made.timing = replace(made.timing, lease_s=10 * HOUR_S)
    driver = made.driver()
    made.run(0.5, driver)
    made.cloud.hides_for_s, made.cloud.hides = 3.5 * HOUR_S, range(8)
    made.brain.plan = []
    made.run(2.5, driver)
    assert made.ledger.held == ()
    made.brain.plan = [RentalChoice("planned", A, 2, 0.15)]
    made.run(0.3, driver)
    assert len(made.ledger.held) == 2
    made.cloud.fails["prices"] = [ProviderError("throttled", "RequestLimitExceeded")] * failures
    while not any(each.id == "i-0" for each in made.ledger.held):
        driver.step()
        made.clock.now += made.timing.poll_s
    driver = made.driver() if is_restarted else driver
    made.run(0.3, driver)
    assert len(made.cloud.held) == 2
    assert account(made.ledger, made.clock.now).transient == pytest.approx(made.cloud.bill(), abs=1e-9)


@pytest.mark.parametrize(("doubt_s", "held"), [(0.0, 8), (1200.0, 0)])
def test_instances_of_an_unanswered_request_that_appear_after_the_end(doubt_s: float, held: int) -> None:
    made = world(plan=A_THEN_B[:1], hours=0.12)
    made.timing = replace(made.timing, doubt_s=doubt_s)
    made.cloud.loses_answers, made.cloud.hides_for_s, made.cloud.hides = 1, 600.0, range(8)
    made.cloud.lives_for_s = 4 * HOUR_S
    assert made.run(1.0)
    assert len(made.cloud.held) == held
    assert made.ledger.doubtful_requests(made.clock.now)


def test_history_comes_with_the_first_prices_after_an_outage() -> None:
    observed: list[tuple[Market, float, float]] = []
    entries: list[journal.JournalEntry] = []
    prices = RecordedPrices(Ledger(), entries.append, lambda *step: observed.append(step), START - 800)
    assert prices.due(START, 60.0) == START - 800
    prices.note_failure(START)
    assert prices.due(START + 60, 60.0) == START - 800
    steps = [(A, START - 900, 0.1), (A, START - 500, 0.2), (A, START - 50, 0.3)]
    prices.add([PricePoint(*step) for step in steps], START + 60)
    assert observed[:3] == steps
    assert prices.due(START + 120, 60.0) == START + 60
    assert prices.latest == {A: (START - 50, 0.3)}
    assert entries == []  # nothing is rented
