"""Near the budget: what is requested can be used, and no more is released than has to be."""

import pytest

from plink.model.spot.market_file import Limits
from plink.model.spot.prices import HOUR_S
from runners.spot.brain import RentalChoice
from solvers.spot.ledger import account
from tests.runners.spot.fake_cloud import START, A, B, World, world

CONSTANT = {A: [(START - 50, 0.9)], B: [(START - 50, 0.9)]}
PLAN = [RentalChoice("planned", A, 1, 1.1), RentalChoice("planned", B, 2, 1.1)]


def near_budget(
    budget: float, lease_s: float = 1800.0, billing: str = "hourly-2016", anchor_price: float = 3.6
) -> World:
    made = world(CONSTANT, hours=12, plan=PLAN, billing=billing)
    made.limits = Limits(100, 100, budget=budget)
    made.timing = made.timing.__class__(poll_s=30.0, lease_s=lease_s)
    made.anchors = (1, anchor_price)
    return made


@pytest.mark.parametrize("billing", ["hourly-2016", "per-second"])
@pytest.mark.parametrize("lease_s", [1800.0, 7200.0])
def test_what_is_requested_is_not_released_for_the_budget_within_its_hour(lease_s: float, billing: str) -> None:
    for tenths in range(60, 260, 7):
        made = near_budget(tenths / 10, lease_s, billing)
        made.run(8)
        for each in made.ledger.instances.values():
            assert each.draining_since_s is None or each.draining_since_s >= each.since_s + HOUR_S - 60, tenths


@pytest.mark.parametrize("billing", ["hourly-2016", "first-hour-free", "per-second"])
def test_no_hour_begins_that_the_budget_cannot_pay(billing: str) -> None:
    for tenths in range(60, 260, 13):
        made = near_budget(tenths / 10, billing=billing)
        driver, before = made.driver(), 0.0
        for _ in range(8 * 120):
            driver.step()
            if (bill := made.cloud.bill()) > before:
                assert bill + account(made.ledger, made.clock.now).anchors <= tenths / 10
            before = bill
            made.clock.now += made.timing.poll_s


@pytest.mark.parametrize("billing", ["hourly-2016", "first-hour-free", "per-second"])
def test_budget_pays_all_leases_when_the_driver_is_killed(billing: str) -> None:
    for killed_after_h in (0.5, 0.9, 1.3, 1.45, 1.5, 1.6, 2.4):
        made = near_budget(6.5, billing=billing, anchor_price=0.0)
        made.run(killed_after_h)
        made.clock.now += 10 * HOUR_S
        assert made.cloud.held == []
        assert made.cloud.bill() <= 6.5


def test_no_more_is_released_than_the_budget_needs() -> None:
    made = near_budget(12.0, anchor_price=0.0)
    made.run(8)
    assert len(made.cloud.effects) == len(PLAN)  # nothing is requested in place of what was released
    assert made.cloud.bill() == pytest.approx(13 * 0.9)  # four hours of three instances, and a fifth of one


def test_paid_hour_is_used_when_the_budget_is_lowered_below_what_was_paid() -> None:
    made = near_budget(20.0, anchor_price=0.0)
    made.run(0.2)
    held = set(made.cloud.held)
    made.limits = Limits(100, 100, budget=0.1)
    driver = made.driver()
    made.run(0.1, driver)
    assert set(made.cloud.held) == held != set()
    made.run(0.8, driver)
    assert made.cloud.held == []
    assert made.cloud.bill() == pytest.approx(0.9 * len(held))


def test_what_is_nearest_to_its_next_hour_is_released_first() -> None:
    """The minutes that are paid of the other one's hour are used."""
    made = world(CONSTANT, hours=12, plan=[RentalChoice("p", A, 1, 1.1)], billing="hourly-2016")
    made.anchors = (0, 0.0)
    driver = made.driver()
    made.run(22 / 60, driver)
    made.brain.plan.append(RentalChoice("p", B, 1, 1.1))
    made.run(29 / 60, driver)
    made.limits = Limits(100, 100, budget=3.3)
    made.run(2 / 60, made.driver())
    assert [each.market for each in made.ledger.instances.values() if each.draining_since_s] == [A]


def test_excess_over_the_budget_is_stated() -> None:
    made = near_budget(12.0)
    made.run(8)
    reasons = [each.reason for each in made.ledger.instances.values() if each.draining_since_s]
    assert reasons
    assert all("the budget, 12, could be exceeded by 0." in reason for reason in reasons)
