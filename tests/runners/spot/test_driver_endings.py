"""Instances that end unasked, and clocks that are wrong: what is requested after that."""

import pytest

from plink.model.spot.prices import HOUR_S, Market
from runners.spot.brain import RentalChoice
from runners.spot.driver import Driver
from tests.runners.spot.fake_cloud import START, A, B, World, world

ONLY_A = [RentalChoice("planned", A, 8, 0.15)]
C = Market("zone-c", "large")
LONG_PRICED = {A: [(START - 9000, 0.1)], B: [(START - 9000, 0.2)], C: [(START - 9000, 0.2)]}


def noted(made: World, text: str) -> int:
    return sum(text in note for note in made.notes)


@pytest.mark.parametrize(("lives_for_s", "joins", "forgets"), [
    (30.0, True, False), (30.0, False, True), (200.0, False, False), (400.0, True, False), (400.0, True, True),
])  # fmt: skip
def test_instances_that_shut_down_are_not_rented_again_at_once(lives_for_s: float, joins: bool, forgets: bool) -> None:
    made = world(plan=ONLY_A, hours=9)
    made.cloud.lives_for_s, made.cloud.forgets, made.job.deaf = lives_for_s, forgets, not joins
    driver = made.driver()
    made.run(1.0, driver)
    assert 2 <= len(made.cloud.effects) <= HOUR_S / made.timing.penalty_s
    assert noted(made, f"nothing is requested in {A} for 15 min")


def test_instance_that_ends_after_long_work_is_replaced_at_once() -> None:
    made = world(plan=ONLY_A, hours=9)
    made.cloud.lives_for_s = 1.5 * made.timing.start_s
    made.run(1.6 * made.timing.start_s / HOUR_S)
    assert len(made.cloud.effects) == 2


@pytest.mark.parametrize("error_s", [-1860.0, -1740.0, -90.0, 90.0, 1860.0])
def test_clock_that_is_wrong_from_the_start_rents_once(error_s: float) -> None:
    made = world(LONG_PRICED, plan=ONLY_A, hours=9)
    made.clock.error_s = error_s
    made.run(2.0)
    assert len(made.cloud.effects) == 1
    assert noted(made, "the clock is") >= 10


def test_clock_that_is_wrong_is_seen_by_what_is_listed_of_an_unanswered_request() -> None:
    made = world(LONG_PRICED, plan=[*ONLY_A, RentalChoice("planned", B, 2, 0.3)], hours=9)
    made.clock.error_s = -600.0
    made.cloud.loses_answers = 1
    made.run(0.5)
    assert len(made.cloud.effects) == 1
    assert noted(made, "the clock is")


def test_clock_within_tolerance_rents_on() -> None:
    made = world(LONG_PRICED, hours=9)
    made.clock.error_s = -50.0
    made.run(0.5)
    assert len(made.cloud.effects) == 2


def paused(made: World, seconds: float, driver: Driver) -> None:
    """The driver's machine is paused: its steady clock does not count that time."""
    made.clock.now += seconds
    made.clock.paused_s += seconds
    made.run(0.3, driver)


@pytest.mark.parametrize("seconds", [120.0, 900.0, 1500.0])
def test_pause_of_the_machine_leaves_leases_renewed(seconds: float) -> None:
    made = world(LONG_PRICED, plan=ONLY_A, hours=9)
    driver = made.driver()
    made.run(0.19, driver)
    held = set(made.cloud.held)
    assert len(held) == 8
    paused(made, seconds, driver)
    assert set(made.cloud.held) == held
    leases = [each.lease_until - made.clock.now for each in made.cloud.rentals.values()]
    assert min(leases) >= made.timing.lease_s / 2
    assert max(leases) <= made.timing.lease_s
    assert noted(made, "the clock went ahead") == 1


def test_after_a_pause_requests_go_on() -> None:
    made = world(LONG_PRICED, plan=ONLY_A, hours=9)
    driver = made.driver()
    made.run(0.19, driver)
    made.brain.plan = [*ONLY_A, RentalChoice("planned", B, 2, 0.3)]
    paused(made, 900.0, driver)
    assert len(made.cloud.held) == 10


def test_clock_that_was_behind_and_is_set_right_rents_on() -> None:
    made = world(LONG_PRICED, hours=9)
    made.clock.error_s = -1200.0
    driver = made.driver()
    made.run(0.1, driver)
    assert len(made.cloud.effects) == 1
    made.clock.error_s = 0.0
    made.run(0.2, driver)
    assert len(made.cloud.effects) == 2
    assert len(made.cloud.held) == 4


def test_clock_that_is_set_ahead_by_mistake_rents_once_more_at_most() -> None:
    made = world(LONG_PRICED, plan=ONLY_A, hours=9)
    driver = made.driver()
    made.run(0.1, driver)
    made.clock.error_s = 900.0
    made.brain.plan = [*ONLY_A, RentalChoice("planned", B, 2, 0.3), RentalChoice("more", C, 2, 0.4)]
    made.run(0.4, driver)
    assert len(made.cloud.effects) == 2
    assert noted(made, "the clock is")


def test_release_ends_the_driver_and_not_the_job() -> None:
    driven = world(hours=100.0)
    driver = driven.driver()
    driven.run(0.5, driver)
    hosts, requests = set(driven.job.hosts.values()), len(driven.cloud.effects)
    assert hosts
    driven.is_released = True
    assert driven.run(0.5, driver)
    assert driven.cloud.held == []
    assert set(driven.job.evicted) == hosts
    assert len(driven.cloud.effects) == requests
    assert not driven.ledger.job_ended
