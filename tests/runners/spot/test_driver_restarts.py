"""A driver that is started again while the provider or the job does not answer, or while hosts have just been added."""

import pytest

from plink.model.spot.market_file import Limits
from plink.model.spot.prices import HOUR_S
from runners.spot.brain import RentalChoice
from runners.spot.provider import ProviderError
from solvers.spot.ledger import account
from tests.runners.spot.fake_cloud import A, World, world

ONLY_A = [RentalChoice("planned", A, 8, 0.15)]


def restarted(made: World, hours: float) -> None:
    """Another driver, for so long, which requests nothing."""
    made.brain.plan = []
    made.notes.clear()
    made.run(hours)


@pytest.mark.parametrize("hours", [5.0, 5.1, 4.95])
def test_restart_without_prices_keeps_what_the_journal_has_priced(hours: float) -> None:
    made = world(plan=[RentalChoice("planned", A, 8, 1.0)], hours=20)
    made.limits = Limits(100, 100, budget=30.0)
    made.run(hours)
    held = set(made.cloud.held)
    made.cloud.fails["prices"] = [ProviderError("throttled", "RequestLimitExceeded")]
    restarted(made, 0.1)
    assert set(made.cloud.held) == held != set()
    assert not any(each.is_leaving for each in made.ledger.held)


def test_ended_instances_are_billed_at_recorded_prices() -> None:
    made = world(plan=[RentalChoice("planned", A, 8, 1.0)], hours=20)
    made.limits = Limits(100, 100, budget=20.0)
    driver = made.driver()
    made.run(3.5, driver)
    made.cloud.release(made.cloud.held)  # by somebody else
    made.brain.plan = []
    made.run(0.1, driver)
    made.brain.plan = [RentalChoice("planned", A, 2, 1.0)]
    made.run(0.4, driver)
    held = set(made.cloud.held)
    assert len(held) == 2
    made.cloud.fails["prices"] = [ProviderError("throttled", "RequestLimitExceeded")] * 5
    restarted(made, 0.05)
    assert set(made.cloud.held) == held


def test_hours_without_recorded_prices_are_billed_at_the_bid() -> None:
    made = world(plan=[RentalChoice("planned", A, 8, 1.0)], hours=20)
    made.limits = Limits(100, 100, budget=30.0)
    made.timing = made.timing.__class__(poll_s=60.0, lease_s=8 * HOUR_S)
    made.run(0.5)
    made.clock.now += 3.4 * HOUR_S
    made.cloud.fails["prices"] = [ProviderError("throttled", "RequestLimitExceeded")] * 100
    restarted(made, 0.2)
    assert made.cloud.held == []
    assert account(made.ledger, made.clock.now).transient == pytest.approx(made.cloud.bill(), abs=1e-9)


def test_killed_before_joined_is_recorded_the_next_driver_takes_the_hosts_as_they_are() -> None:
    made = world(plan=ONLY_A, hours=9)
    driver = made.driver()
    while not made.job.hosts:
        driver.step()
        made.clock.now += made.timing.poll_s
    assert not any(each.host for each in made.ledger.held)
    held = set(made.cloud.held)
    made.clock.now += made.timing.start_s + 60
    restarted(made, 0.1)
    assert set(made.cloud.held) == held
    assert made.job.evicted == []
    assert all(each.host for each in made.ledger.held)
    assert not made.ledger.penalised(A, made.clock.now)


@pytest.mark.parametrize("answers", [(False,), (False, True, False, False)])
def test_time_in_which_the_job_does_not_answer_is_not_that_of_its_hosts(answers: tuple[bool, ...]) -> None:
    made = world(plan=ONLY_A, hours=9)
    driver = made.driver()
    driver.step()
    held = set(made.cloud.held)
    made.job.deaf = True
    for place in range(16):
        made.job.answers = answers[place % len(answers)]
        made.clock.now += made.timing.poll_s
        driver.step()
    made.job.answers, made.job.deaf = True, False
    made.run(0.1, driver)
    assert set(made.cloud.held) == held
    assert all(each.host for each in made.ledger.held)


def test_hosts_that_have_just_been_added_are_warned_before_they_are_released() -> None:
    made = world(plan=ONLY_A, hours=9, billing="per-second")
    made.limits = Limits(100, 100, budget=5.0)
    driver = made.driver()
    while not made.job.hosts:
        driver.step()
        made.clock.now += made.timing.poll_s
    made.limits = Limits(100, 100, budget=0.1)
    driver = made.driver()
    driver.step()
    made.clock.now += made.timing.poll_s
    made.run(0.2, driver)
    assert made.cloud.held == []
    assert len(made.job.evicted) == 8


def test_driver_that_did_not_run_for_a_while_waits_for_hosts_again() -> None:
    made = world(plan=ONLY_A, hours=9)
    made.job.deaf = True
    driver = made.driver()
    made.run(0.1, driver)
    made.clock.now += made.timing.start_s
    made.job.deaf = False
    driver.step()
    made.clock.now += 2 * made.timing.drain_s
    made.run(0.1, driver)
    assert len(made.cloud.held) == 8
    assert made.job.evicted == []
