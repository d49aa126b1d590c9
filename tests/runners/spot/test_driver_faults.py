"""Faults of providers, jobs and clocks while instances are held: what a driver does, and what it says."""

from dataclasses import replace

import pytest

from plink.model.spot.limits import Limits
from plink.model.spot.prices import HOUR_S
from runners.spot.brain import RentalChoice
from runners.spot.provider import ProviderError, ProviderFailure, RentalOrder
from solvers.spot.ledger import account, worst_cost
from tests.runners.spot.fake_cloud import START, A, B, World, world

ONLY_A = [RentalChoice("planned", A, 8, 0.15)]


def held_in(made: World, market: object) -> int:
    return sum(each.market == market for each in made.ledger.held)


def noted(made: World, text: str) -> int:
    return sum(text in note for note in made.notes)


@pytest.mark.parametrize("failure", ["capacity", "invalid"])
def test_market_without_capacity_is_left_out_for_a_while(failure: ProviderFailure) -> None:
    made = world()
    made.cloud.fails["acquire"] = [ProviderError(failure, "InsufficientInstanceCapacity")]
    driver = made.driver()
    made.run(0.2, driver)
    assert (held_in(made, A), held_in(made, B)) == (0, 2)
    assert noted(made, "InsufficientInstanceCapacity")
    made.run(0.2, driver)
    assert held_in(made, A) == 2


@pytest.mark.parametrize("failure", ["limit", "throttled", "credentials"])
def test_limit_of_the_account_stops_requests_everywhere_for_a_while(failure: ProviderFailure) -> None:
    made = world()
    made.cloud.fails["acquire"] = [ProviderError(failure, "MaxSpotInstanceCountExceeded")]
    driver = made.driver()
    made.run(0.2, driver)
    assert made.ledger.held == ()
    made.run(0.2, driver)
    assert held_in(made, A) == 2


def test_three_of_eight_granted() -> None:
    made = world(plan=ONLY_A)
    made.cloud.grants = 3
    made.run(0.1)
    assert held_in(made, A) == 3
    assert noted(made, "3 of 8")
    assert made.ledger.open_requests == ()


def test_instance_that_never_joins_is_released_and_its_market_left_out() -> None:
    made = world(plan=ONLY_A)
    made.job.deaf = True
    made.run(0.25)
    assert made.cloud.held == []
    assert made.ledger.penalised(A, made.clock.now)
    assert noted(made, "does not work in the job")


def test_instance_that_vanishes_without_notice() -> None:
    made = world({A: [(START - 50, 0.1), (START + 600, 0.2)], B: [(START - 50, 0.2)]}, plan=ONLY_A)
    made.cloud.forgets = True
    made.run(0.5)
    assert made.ledger.held == ()
    assert {each.end for each in made.ledger.instances.values()} == {"interrupted"}


def test_expired_credentials_stop_everything_but_the_job() -> None:
    made = world()
    driver = made.driver()
    made.run(0.1, driver)
    hosts = dict(made.job.hosts)
    expired = ProviderError("credentials", "ExpiredToken: the security token has expired")
    made.cloud.fails = {method: [expired] * 10 for method in ("listing", "release", "renew", "prices")}
    made.cloud.calls.clear()
    made.run(10 / 60, driver)
    assert made.job.hosts == hosts
    assert "acquire" not in made.cloud.calls
    assert noted(made, "ExpiredToken") >= 10  # said every minute
    made.cloud.fails.clear()
    assert made.run(4, driver)
    assert made.cloud.held == []


def test_unanswered_request_is_taken_from_the_listing() -> None:
    made = world(plan=ONLY_A)
    lost = ProviderError("unavailable", "no JSON", has_no_effect=False)
    acquire = made.cloud.acquire

    def answer_is_lost(order: object) -> None:
        acquire(order)  # type: ignore[arg-type]
        raise lost

    made.cloud.acquire = answer_is_lost  # type: ignore[method-assign, assignment]
    made.run(0.1)
    assert held_in(made, A) == 8
    assert len(made.cloud.effects) == 1


def test_request_without_any_effect_is_abandoned_and_another_follows() -> None:
    made = world(plan=ONLY_A)
    made.cloud.fails["acquire"] = [ProviderError("unavailable", "timed out", has_no_effect=False)]
    made.run(0.2)
    assert sorted(str(each.outcome) for each in made.ledger.requests.values()) == ["abandoned", "granted"]
    assert held_in(made, A) == 8


def test_instance_of_an_abandoned_request_is_released_when_it_appears() -> None:
    made = world(plan=ONLY_A)
    made.cloud.hides_for_s = 4 * made.timing.listing_delay_s
    made.cloud.acquire = _lost(made)  # type: ignore[method-assign]
    driver = made.driver()
    made.run(0.5, driver)
    first = [each for each in made.cloud.rentals.values() if each.listed.token == made.cloud.effects[0]]
    assert all(each.listed.end == "released" for each in first)


def _lost(made: World):  # type: ignore[no-untyped-def]  # noqa: ANN202
    acquire = made.cloud.acquire

    def answer_is_lost(order: object) -> None:
        made.cloud.acquire = acquire  # type: ignore[method-assign]
        acquire(order)  # type: ignore[arg-type]
        raise ProviderError("unavailable", "timed out", has_no_effect=False)

    return answer_is_lost


def test_instances_beyond_those_requested_are_released() -> None:
    made = world(plan=ONLY_A)
    driver = made.driver()
    made.run(0.1, driver)
    token = made.cloud.effects[0]
    extra = made.cloud.acquire(RentalOrder(token, A, 9, 0.15, made.clock.now + 9000))
    made.run(0.1, driver)
    assert len(made.cloud.held) == 8
    assert not {each.id for each in extra[8:]} & set(made.cloud.held)


def test_instance_of_this_run_that_the_journal_lacks_is_released() -> None:
    made = world(plan=ONLY_A)
    made.run(0.1)
    made.journal.lines = made.journal.lines[:1]  # somebody deleted it
    made.brain.plan = []
    made.run(0.1)
    assert made.cloud.held == []
    assert noted(made, "not in its journal")


def test_stale_prices_reach_the_decision_with_their_age() -> None:
    made = world(plan=[])
    ages = []
    made.brain.choose = lambda ledger, quotes, now: (  # type: ignore[method-assign]
        ages.append(max((quote.age_s for quote in quotes.values()), default=0.0)) or RentalChoice("nothing")  # type: ignore[func-returns-value]
    )
    driver = made.driver()
    made.run(0.1, driver)
    made.cloud.fails["prices"] = [ProviderError("unavailable", "no answer")] * 100
    made.run(0.5, driver)
    assert ages[-1] >= 0.4 * HOUR_S
    assert noted(made, "no prices")


def test_clock_that_goes_back_buys_nothing_and_is_reported() -> None:
    made = world({A: [(START - 9000, 0.1)], B: [(START - 9000, 0.2)]})
    driver = made.driver()
    made.run(0.1, driver)
    made.clock.now -= 1800
    at, held = made.ledger.at_s, len(made.ledger.held)
    driver.step()
    assert noted(made, "clock went back")
    assert len(made.ledger.held) == held
    assert [entry.at for entry in made.journal.entries()] == sorted(entry.at for entry in made.journal.entries())
    assert made.ledger.at_s >= at


def test_asleep_over_the_end_of_an_hour_the_new_hour_is_used() -> None:
    made = world(plan=ONLY_A, hours=6)
    made.cloud.billing = "hourly-2016"
    made.timing = replace(made.timing, lease_s=3 * HOUR_S)
    made.brain.ends = lambda ledger, token, now: "no more"
    driver = made.driver()
    made.run(0.8, driver)
    made.clock.now = START + 1.1 * HOUR_S
    driver.step()
    assert held_in(made, A) == 8
    assert not any(each.is_leaving for each in made.ledger.held)


def test_hour_that_is_not_renewed_is_released_before_it_ends() -> None:
    made = world(plan=ONLY_A, hours=6)
    made.brain.ends = lambda ledger, token, now: "too expensive"
    made.run(0.999)
    first = [each.listed for each in made.cloud.rentals.values() if each.listed.token == made.cloud.effects[0]]
    assert {each.end for each in first} == {"released"}
    assert all(each.until_s is not None and each.until_s - each.since_s < HOUR_S for each in first)
    assert set(made.job.evicted) >= {f"spot-{each.id}" for each in first}  # the job was warned first


def test_all_evicted_at_once_is_a_decision_point() -> None:
    made = world({A: [(START - 50, 0.1), (START + 500, 0.2), (START + 520, 0.1)], B: [(START - 50, 0.2)]}, plan=ONLY_A)
    driver = made.driver()
    made.run(500 / HOUR_S, driver)
    made.timing = replace(made.timing, decision_s=10_000)
    made.run(0.1, driver)
    assert len(made.cloud.effects) == 2
    assert held_in(made, A) == 8


def test_job_that_ends_while_hosts_start() -> None:
    made = world(hours=0.02)
    made.job.deaf = True
    assert made.run(1)
    assert made.cloud.rentals
    assert made.cloud.held == []


def test_job_that_does_not_answer_changes_nothing() -> None:
    made = world()
    driver = made.driver()
    made.run(0.1, driver)
    held = {each.id for each in made.ledger.held}
    made.job.answers = False
    made.run(0.5, driver)
    assert {each.id for each in made.ledger.held} == held


@pytest.mark.parametrize(
    ("limits", "expected"),
    [(Limits(100, 100, max_hourly=1.19), 0), (Limits(100, 100, max_hourly=1.2), 8), (Limits(100, 100, budget=1.1), 0)],
)
def test_limits_of_money_are_checked_with_the_highest_price(limits: Limits, expected: int) -> None:
    made = world(plan=ONLY_A)
    made.limits = limits
    made.run(0.1)
    assert held_in(made, A) == expected
    assert bool(noted(made, "wait: ")) == (expected == 0 or noted(made, "all of the plan") > 0)


@pytest.mark.parametrize("billing", ["hourly-2016", "first-hour-free", "per-second"])
def test_budget_is_never_exceeded_whatever_the_price_does(billing: str) -> None:
    steps = {A: [(START - 50, 0.1), (START + 100, 0.15), (START + 9000, 0.01)], B: [(START - 50, 0.2)]}
    for budget in (1.3, 2.5, 3.7, 5.0):
        made = world(steps, hours=8, billing=billing)
        made.limits = Limits(100, 100, budget=budget)
        driver = made.driver()
        end = START + 9 * HOUR_S
        while made.clock.now < end and not driver.step():
            assert worst_cost(made.ledger, made.clock.now, made.clock.now) <= budget + 1e-9
            made.clock.now += made.timing.poll_s
        assert made.cloud.bill() <= budget
        assert account(made.ledger, made.clock.now).transient == pytest.approx(made.cloud.bill(), abs=1e-9)
