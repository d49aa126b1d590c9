"""A driver that is killed anywhere, and replaced: nothing is bought twice or left over, money stays in its limit."""

from dataclasses import replace

import pytest

from plink.model.spot.market_file import InstanceType, Limits, Machines
from plink.model.spot.prices import HOUR_S
from runners.spot.brain import OnDemandFallback
from solvers.spot.deadline import Deadline, IterationTime
from solvers.spot.footprint import Scaling
from solvers.spot.ledger import account
from tests.runners.spot.fake_cloud import ON_DEMAND_PRICE, START, A, B, Fuse, Killed, World, world

BUDGET = 2.6
# The price of A exceeds its bid for a while; that of B changes, and what is held there is ended once.
STEPS = {
    A: [(START - 50, 0.1), (START + 4000, 0.16), (START + 5500, 0.12)],
    B: [(START - 70, 0.2), (START + 3000, 0.25), (START + 6000, 0.21)],
}


def scenario(fuse: Fuse, billing: str = "hourly-2016") -> World:
    made = world(STEPS, fuse=fuse, billing=billing)
    made.limits = Limits(100, 100, max_hourly=1.2, budget=BUDGET)
    made.brain = replace(
        made.brain,
        ends=lambda ledger, token, now: (
            "planned" if ledger.requests[token].entry.market == B and now < START + 3700 else ""
        ),
    )
    return made


def points(billing: str) -> int:
    made = scenario(Fuse(), billing)
    assert made.run(6)
    return made.cloud.fuse.passed


def check_sound(made: World) -> None:
    assert made.cloud.held == []
    assert len(made.cloud.effects) == len(set(made.cloud.effects))
    assert made.cloud.bill() <= BUDGET
    assert {name for name, each in made.ledger.instances.items() if each.is_held} == set()
    assert account(made.ledger, made.clock.now).transient == pytest.approx(made.cloud.bill(), abs=1e-9)


@pytest.mark.extended
@pytest.mark.parametrize("billing", ["hourly-2016", "first-hour-free", "per-second"])
def test_driver_killed_at_every_point_and_replaced(billing: str) -> None:
    for blows_at in range(points(billing)):
        fuse = Fuse(blows_at)
        made = scenario(fuse, billing)
        with pytest.raises(Killed):
            made.run(6)
        assert made.cloud.bill() <= BUDGET
        made.clock.now += 45
        assert made.run(6), blows_at
        check_sound(made)


@pytest.mark.parametrize("hidden_s", [pytest.param(0.0, marks=pytest.mark.extended), 100.0])
def test_driver_killed_while_new_instances_are_not_listed_yet(hidden_s: float) -> None:
    for blows_at in range(40):
        made = scenario(Fuse(blows_at))
        made.cloud.hides_for_s = hidden_s
        with pytest.raises(Killed):
            made.run(6)
        assert made.run(6), blows_at
        check_sound(made)


def test_driver_killed_for_good_leaves_instances_to_their_leases() -> None:
    for blows_at in range(0, points("hourly-2016"), 3):
        made = scenario(Fuse(blows_at))
        with pytest.raises(Killed):
            made.run(6)
        made.clock.now += made.timing.lease_s + HOUR_S
        assert made.cloud.held == []
        assert made.cloud.bill() <= BUDGET


def test_driver_killed_again_and_again() -> None:
    total = points("hourly-2016")
    for step in (2, 3, 5, 7):
        fuse = Fuse()
        made = scenario(fuse)
        finished = False
        for _ in range(total):
            fuse.blows_at = fuse.passed + step
            try:
                finished = made.run(6)
            except Killed:
                continue
            break
        fuse.blows_at = -1
        assert finished or made.run(6)
        check_sound(made)


def with_deadline(fuse: Fuse) -> World:
    """Spot machines are evicted after an hour, and the deadline asks for two on demand."""
    made = world({A: [(START - 50, 0.1), (START + HOUR_S, 10.0), (START + 1.5 * HOUR_S, 0.1)]}, hours=3, fuse=fuse)
    made.job.work_s = 360.0
    made.fallback = OnDemandFallback(
        Deadline(START, START + 2 * HOUR_S, 60), Machines(InstanceType("small", 1, ON_DEMAND_PRICE), 2), ("zone-a",),
        IterationTime(Scaling(0.0, 1.0, 0.0)), 120.0, 360.0,
    )  # fmt: skip
    return made


@pytest.mark.parametrize("loses_answers", [0, 1])
def test_driver_with_a_deadline_killed_and_replaced(loses_answers: int) -> None:
    whole = with_deadline(Fuse())
    assert whole.run(6)
    assert any(each.market.is_on_demand for each in whole.ledger.instances.values())
    for blows_at in range(0, whole.cloud.fuse.passed, 5):
        made = with_deadline(Fuse(blows_at))
        made.cloud.loses_answers, driver, most = loses_answers, None, 0
        for _ in range(6 * 60):
            try:
                driver = driver or made.driver()
                if driver.step():
                    break
            except Killed:
                driver = None
                made.clock.now += 240
            held = [made.cloud.rentals[name] for name in made.cloud.held]
            most = max(most, sum(each.market.is_on_demand for each in held))
            made.clock.now += made.timing.poll_s
        assert made.cloud.held == [], blows_at
        assert most <= 2, blows_at
        assert account(made.ledger, made.clock.now).transient == pytest.approx(made.cloud.bill(), abs=1e-9)
