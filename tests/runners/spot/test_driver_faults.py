"""Faults of providers, jobs and clocks while instances are held: what a driver does, and what it says."""

from dataclasses import replace
from typing import Any

import pytest

from plink.model.spot.market_file import Limits
from plink.model.spot.prices import HOUR_S
from runners.spot.brain import RentalChoice
from runners.spot.driver import Driver
from runners.spot.provider import ListedInstance, ProviderError, ProviderFailure, RentalOrder
from solvers.spot.ledger import account, worst_cost
from tests.runners.spot.fake_cloud import START, A, B, World, world

ONLY_A = [RentalChoice("planned", A, 8, 0.15)]


def held_in(made: World, market: object) -> int:
    return sum(each.market == market for each in made.ledger.held)


def noted(made: World, text: str) -> int:
    return sum(text in note for note in made.notes)


def driven(after_hours: float, *arguments: Any, **more: Any) -> tuple[World, Driver]:
    """Return a world after so many hours with a driver."""
    made = world(*arguments, **more)
    driver = made.driver()
    made.run(after_hours, driver)
    return made, driver


def lose_answers(made: World, before_s: float = 0.0, after_s: float = 0.0, *, once: bool = False) -> None:
    """Requests have their effect ``before_s`` after the call, and fail ``after_s`` later; ``once``: only the first."""
    acquire = made.cloud.acquire

    def acquire_without_answer(order: RentalOrder) -> list[ListedInstance]:
        if once:
            made.cloud.acquire = acquire  # type: ignore[method-assign]
        made.clock.now += before_s
        acquire(order)
        made.clock.now += after_s
        raise ProviderError("unavailable", "no answer within 120 s", has_no_effect=False)

    made.cloud.acquire = acquire_without_answer  # type: ignore[method-assign]


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


def test_instance_that_ends_without_notice() -> None:
    made = world({A: [(START - 50, 0.1), (START + 600, 0.2)], B: [(START - 50, 0.2)]}, plan=ONLY_A)
    made.cloud.forgets = True
    made.run(0.5)
    assert made.ledger.held == ()
    assert {each.end for each in made.ledger.instances.values()} == {"interrupted"}


def test_hosts_have_the_price_of_their_market_in_the_job() -> None:
    made, _ = driven(0.1)
    rentals = {f"spot-{name}": each for name, each in made.cloud.rentals.items()}
    assert {host.name for host in made.job.added} == set(rentals)
    for host in made.job.added:
        market, bid = rentals[host.name].market, rentals[host.name].bid
        assert host.price == made.cloud.price_at(market, START) < bid


@pytest.mark.parametrize("is_restarted", [False, True])
def test_host_whose_instance_was_taken_leaves_the_job(is_restarted: bool) -> None:
    """The machine runs on, so that the job does not see it."""
    made = world({A: [(START - 50, 0.1), (START + 600, 0.2)], B: [(START - 50, 0.2)]}, plan=ONLY_A)
    driver = made.driver()
    made.run(9 / 60, driver)
    hosts = dict(made.job.hosts)
    assert len(hosts) == 8
    made.job.outlives = True
    made.run(1.5 / 60, made.driver() if is_restarted else driver)
    made.run(5 / 60, made.driver() if is_restarted else driver)
    assert made.ledger.held == ()
    assert sorted(made.job.evicted) == sorted(hosts.values())
    assert made.job.hosts == {}


def test_expired_credentials_stop_everything_but_the_job() -> None:
    made, driver = driven(0.1)
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
    lose_answers(made)
    made.run(0.1)
    assert held_in(made, A) == 8
    assert len(made.cloud.effects) == 1


def test_request_without_any_effect_is_abandoned_and_another_follows() -> None:
    made = world(plan=ONLY_A)
    made.cloud.fails["acquire"] = [ProviderError("unavailable", "timed out", has_no_effect=False)]
    driver = made.driver()
    made.run(0.25, driver)
    assert [each.outcome for each in made.ledger.requests.values()] == ["abandoned"]
    made.run(0.25, driver)
    assert sorted(str(each.outcome) for each in made.ledger.requests.values()) == ["abandoned", "granted"]
    assert held_in(made, A) == 8


def test_instance_of_an_abandoned_request_is_released_when_it_appears() -> None:
    made = world(plan=ONLY_A)
    made.cloud.hides_for_s = 4 * made.timing.listing_delay_s
    lose_answers(made, once=True)
    driver = made.driver()
    made.run(0.5, driver)
    first = [each for each in made.cloud.rentals.values() if each.listed.token == made.cloud.effects[0]]
    assert all(each.listed.end == "released" for each in first)


def test_instances_beyond_those_requested_are_released() -> None:
    made, driver = driven(0.1, plan=ONLY_A)
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


def test_notes_report_the_age_of_stale_prices() -> None:
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
    made, driver = driven(0.1, {A: [(START - 9000, 0.1)], B: [(START - 9000, 0.2)]})
    made.clock.error_s = -1800
    at, held = made.ledger.at_s, len(made.ledger.held)
    made.brain.plan = [RentalChoice("more", B, 3, 0.4)]
    made.cloud.calls.clear()
    made.run(0.1, driver)
    assert noted(made, "clock went back")
    assert len(made.ledger.held) == held
    assert "acquire" not in made.cloud.calls
    assert [entry.at for entry in made.journal.entries()] == sorted(entry.at for entry in made.journal.entries())
    assert made.ledger.at_s >= at


def test_clock_that_jumps_ahead_leaves_leases_and_ages_as_they_are() -> None:
    made, driver = driven(0.1, {A: [(START - 9000, 0.1)], B: [(START - 9000, 0.2)]}, plan=ONLY_A)
    made.clock.error_s = 24 * HOUR_S
    made.run(0.1, driver)
    assert noted(made, "clock went ahead")
    made.clock.error_s = 0.0
    made.cloud.calls.clear()
    made.run(0.1, driver)
    leases = [each.lease_until - made.clock.now for each in made.cloud.rentals.values()]
    assert max(leases) <= made.timing.lease_s
    assert made.cloud.calls.count("prices") >= 5
    assert made.ledger.at_s <= made.clock.now


def test_driver_started_again_with_its_clock_behind_the_journal_buys_nothing() -> None:
    made = world({A: [(START - 9000, 0.1)], B: [(START - 9000, 0.2)]})
    made.brain.plan = [RentalChoice("planned", A, 2, 0.15)]
    made.run(0.1)
    made.clock.error_s = -1800
    made.brain.plan = [RentalChoice("planned", B, 2, 0.3)]
    driver = made.driver()
    made.run(0.1, driver)
    assert held_in(made, B) == 0
    made.clock.error_s = 0.0
    made.run(0.1)
    assert held_in(made, B) == 2


def lost_in_listings(made: World, names: set[str]) -> None:
    """From now on listings lack these."""
    listing = type(made.cloud).listing
    made.cloud.listing = lambda: [  # type: ignore[method-assign]
        each for each in listing(made.cloud) if each.id not in names
    ]


def test_instance_that_one_listing_lacks_stays_held() -> None:
    made, driver = driven(0.2, plan=ONLY_A)
    held = set(made.cloud.held)
    lost_in_listings(made, held)
    driver.step()
    made.clock.now += made.timing.poll_s
    lost_in_listings(made, set())
    made.run(0.2, driver)
    assert set(made.cloud.held) == held == {each.id for each in made.ledger.held}
    assert len(made.cloud.effects) == 1


def test_abandoned_instance_that_is_listed_again_is_released() -> None:
    made, driver = driven(0.2, plan=ONLY_A)
    first = set(made.cloud.held)
    lost_in_listings(made, first)
    made.run(0.1, driver)
    assert not first & {each.id for each in made.ledger.held}
    lost_in_listings(made, set())
    made.run(0.1, driver)
    assert not first & set(made.cloud.held)
    assert len(made.cloud.held) == 8
    assert first <= {name.removeprefix("spot-") for name in made.job.evicted}  # the job was warned
    assert driver.release_all() or driver.release_all()
    assert made.cloud.held == []
    assert account(made.ledger, made.clock.now).transient == pytest.approx(made.cloud.bill(), abs=1e-9)


def test_release_ends_abandoned_instances_that_are_listed() -> None:
    made, driver = driven(0.2, plan=ONLY_A)
    lost_in_listings(made, set(made.cloud.held))
    made.brain.plan = []
    made.run(0.1, driver)
    lost_in_listings(made, set())
    other = made.driver()
    assert [other.release_all() for _ in range(2)] == [False, True]
    assert made.cloud.held == []


def test_release_that_fails_while_nothing_is_listed_is_repeated() -> None:
    made, driver = driven(0.2, plan=ONLY_A)
    held = set(made.cloud.held)
    lost_in_listings(made, held)
    made.cloud.fails["release"] = [ProviderError("throttled", "RequestLimitExceeded")]
    assert not driver.release_all()
    assert not driver.release_all()
    assert made.cloud.held == []
    assert driver.release_all()


@pytest.mark.parametrize("budget", [0.65, 5.0])
def test_calls_with_late_effects_that_time_out(budget: float) -> None:
    made = world(plan=[RentalChoice("planned", A, 2, 0.15)])
    made.limits = Limits(100, 100, 10.0, budget)
    made.cloud.hides_for_s = 30.0
    lose_answers(made, 119.0, 1.0)
    made.run(0.5)
    assert len(made.cloud.effects) == 1
    assert len(made.cloud.held) == 2
    assert made.cloud.bill() <= budget


def test_calls_with_effects_not_listed_yet_count_and_back_off() -> None:
    made = world(plan=[RentalChoice("planned", A, 2, 0.15)], hours=9)
    made.limits = Limits(100, 100, 10.0, 1.3)
    made.cloud.hides_for_s = 1e9  # the cloud never lists what it grants
    lose_answers(made)
    made.run(0.95)
    assert len(made.cloud.effects) == 2
    assert made.cloud.bill() <= 0.65


def test_wait_for_an_answer_begins_when_its_call_returned() -> None:
    made = world(plan=ONLY_A)
    made.cloud.hides_for_s = 90.0
    lose_answers(made, 1200.0)  # the machine was asleep
    made.run(0.5)
    assert [each.outcome for each in made.ledger.requests.values()] == ["granted"]


def test_instance_of_another_run_is_left_alone_and_reported() -> None:
    made, driver = driven(0.1, plan=ONLY_A)
    listed = made.cloud.rentals["i-0"].listed
    for name, token, run in (("other", "run2-5", None), ("tagged", "run1-99", "run2"), ("mine", "run1-99", None)):
        other = replace(listed, id=name, token=token, run=run)
        made.cloud.rentals[name] = replace(made.cloud.rentals["i-0"], listed=other)
    made.run(0.1, driver)
    assert made.cloud.rentals["other"].listed.end is None
    assert made.cloud.rentals["tagged"].listed.end is None
    assert made.cloud.rentals["mine"].listed.end == "released"
    assert noted(made, "other, tagged")
    assert driver.release_all() or driver.release_all()
    assert made.cloud.rentals["other"].listed.end is None


def test_leases_expire_when_the_job_stops_answering() -> None:
    made, driver = driven(0.1, hours=9)
    made.job.answers = False
    made.run(2 * made.timing.lease_s / HOUR_S + 0.1, driver)
    assert made.cloud.held == []
    assert noted(made, "leases are not renewed")


def test_hour_that_began_during_a_suspend_is_used() -> None:
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
    made, driver = driven(
        500 / HOUR_S,
        {A: [(START - 50, 0.1), (START + 500, 0.2), (START + 520, 0.1)], B: [(START - 50, 0.2)]},
        plan=ONLY_A,
    )
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
    made, driver = driven(0.1)
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


@pytest.mark.parametrize(
    "billing",
    [*(pytest.param(name, marks=pytest.mark.extended) for name in ("first-hour-free", "per-second")), "hourly-2016"],
)
def test_budget_is_never_exceeded_whatever_the_price_does(billing: str) -> None:
    steps = {A: [(START - 50, 0.1), (START + 100, 0.15), (START + 9000, 0.01)], B: [(START - 50, 0.2)]}
    for budget in (1.3, 2.5, 3.7, 5.0):
        made = world(steps, hours=8, billing=billing)
        made.limits = Limits(100, 100, budget=budget)
        driver = made.driver()
        end = START + 9 * HOUR_S
        while made.clock.now < end and not driver.step():
            assert worst_cost(made.ledger, made.clock.now, made.clock.now, made.clock.now) <= budget + 1e-9
            made.clock.now += made.timing.poll_s
        assert made.cloud.bill() <= budget
        assert account(made.ledger, made.clock.now).transient == pytest.approx(made.cloud.bill(), abs=1e-9)


def test_warned_instance_is_added_again_only_when_its_notice_has_passed() -> None:
    made = world(plan=ONLY_A)
    driver = made.driver()
    made.run(0.2, driver)
    names = set(made.job.hosts.values())
    made.job.evict([*names], 0.0)  # by a notice, which the job got
    made.run(0.04, driver)  # more than drain_s, less than notice_s
    assert made.job.hosts == {}
    made.run(0.05, driver)
    assert set(made.job.hosts.values()) == names  # nothing ended them
