"""A driver with a deadline: when it falls back to on-demand machines, and what that may cost."""

import math
from dataclasses import replace

import pytest

from plink.model.spot import journal
from plink.model.spot.market_file import InstanceType, Limits, Machines
from plink.model.spot.prices import HOUR_S, on_demand_market
from runners.spot.brain import HostCores, OnDemandFallback, RentalChoice
from runners.spot.provider import ListedInstance, ProviderError, ProviderFailure, RentalOrder
from solvers.spot.deadline import Deadline, IterationTime, JobProgress
from solvers.spot.footprint import Scaling
from solvers.spot.ledger import Ledger, account
from tests.runners.spot.fake_cloud import ON_DEMAND_PRICE, START, A, World, world

COUNT = 4  # machines of the fallback, of one core
WORK_S = 360.0  # core-seconds of an iteration: 40 an hour on the fallback alone


def made(deadline_h: float, iterations: int, count: int = COUNT, dear: bool = False) -> World:
    """A job beside spot machines at 0.1, or at prices that are never bid."""
    price = 10.0 if dear else 0.1
    result = world({A: [(START - 50, price)]}, hours=100.0)
    result.job.work_s = WORK_S
    result.limits = Limits(math.inf, math.inf)
    result.fallback = OnDemandFallback(
        Deadline(START, START + deadline_h * HOUR_S, iterations),
        Machines(InstanceType("small", 1, ON_DEMAND_PRICE), count), (),
        IterationTime(Scaling(0.0, 1.0, 0.0)), 120.0, 240.0, result.notes.append,
    )  # fmt: skip
    return result


def until_done(driven: World, hours: float) -> float:
    """Run until the iterations are done; return when, in hours since the start."""
    assert driven.fallback is not None
    driver = driven.driver()
    for _ in range(int(hours * 60)):
        driver.step()
        if driven.job.done >= driven.fallback.deadline.iterations:
            break
        driven.clock.now += 60
    end = (driven.clock.now - START) / HOUR_S
    driven.job.ends_at = driven.clock.now
    assert driven.run(1.0, driver)
    return end


def on_demand_of(driven: World) -> list[str]:
    return [each.id for each in driven.ledger.instances.values() if each.market.is_on_demand]


def test_deadline_is_met_without_transient_machines() -> None:
    driven = made(3.0, 100, dear=True)  # 10 h on the job's own core
    assert until_done(driven, 10.0) <= 3.0
    assert len(on_demand_of(driven)) == COUNT
    assert driven.cloud.held == []
    assert any("deadline" in request.entry.reason for request in driven.ledger.requests.values())


def test_fallback_begins_no_earlier_than_the_deadline_asks() -> None:
    driven = made(6.0, 100, dear=True)
    driver = driven.driver()
    driven.run(2.0, driver)  # 20 are done, and 80 are two hours on demand
    assert on_demand_of(driven) == []
    driven.run(3.0, driver)
    assert len(on_demand_of(driven)) == COUNT


def test_transient_machines_that_are_fast_enough_need_no_fallback() -> None:
    driven = made(5.0, 100)  # three cores: 30 an hour
    assert until_done(driven, 10.0) <= 5.0
    assert on_demand_of(driven) == []


def test_eviction_of_all_transient_machines_is_made_up_for() -> None:
    driven = made(4.0, 100)
    driven.cloud.steps = {A: [(START - 50, 0.1), (START + HOUR_S, 10.0)]}
    assert until_done(driven, 10.0) <= 4.0
    assert len(on_demand_of(driven)) == COUNT


def test_on_demand_instances_are_billed_without_refunds() -> None:
    driven = made(3.0, 100, dear=True)
    driver = driven.driver()
    driven.run(2.0, driver)
    names = on_demand_of(driven)
    driven.cloud._end(names[0], driven.clock.now, "interrupted")  # it vanished: nobody refunds that
    driven.run(0.5, driver)
    driven.job.ends_at = driven.clock.now
    assert driven.run(1.0, driver)
    ledger = driven.ledger
    bill = sum(
        math.ceil(((each.until_s or 0) - each.since_s) / HOUR_S) * ON_DEMAND_PRICE for each in ledger.instances.values()
    )
    assert account(ledger, driven.clock.now).transient == pytest.approx(bill)
    assert len(on_demand_of(driven)) == COUNT + 1  # replaced


def test_limits_of_money_hold_on_demand_too() -> None:
    driven = made(3.0, 100, dear=True)
    driven.limits = Limits(math.inf, math.inf, max_hourly=ON_DEMAND_PRICE - 0.1)
    driven.run(5.0)
    assert on_demand_of(driven) == []
    assert any("deadline: all bids together" in note for note in driven.notes)


def test_as_many_on_demand_machines_as_the_limits_allow() -> None:
    driven = made(3.0, 100, dear=True)
    driven.limits = Limits(math.inf, math.inf, max_hourly=COUNT * ON_DEMAND_PRICE - 0.1)
    driven.run(3.0)
    assert len(on_demand_of(driven)) == COUNT - 1
    assert any("deadline: all bids together" in note for note in driven.notes)


def test_refusal_tries_another_zone() -> None:
    driven = made(3.0, 100, dear=True)
    assert driven.fallback is not None
    driven.fallback.zones = ("zone-x", "zone-y")
    driven.cloud.fails["acquire"] = [ProviderError("capacity", "InsufficientInstanceCapacity")]
    driven.run(2.0)
    assert {each.market.zone for each in driven.ledger.held} == {"zone-y"}


def test_limit_of_the_account_is_said_while_the_deadline_presses() -> None:
    driven = made(3.0, 100, dear=True)
    driven.cloud.fails["acquire"] = [ProviderError("limit", "VcpuLimitExceeded")] * 40
    driven.run(2.0)
    assert on_demand_of(driven) == []
    assert any("no zone grants on-demand machines" in note for note in driven.notes)


def test_machine_that_vanishes_after_the_last_iteration_is_not_replaced() -> None:
    driven = made(3.0, 100, dear=True)
    driver = driven.driver()
    while driven.job.done < 100:
        driver.step()
        driven.clock.now += 60
    requests = len(driven.cloud.effects)
    driven.cloud._end(driven.cloud.held[0], driven.clock.now, "interrupted")
    driven.run(0.3, driver)
    assert len(on_demand_of(driven)) == COUNT
    assert len(driven.cloud.effects) == requests


def test_on_demand_machine_without_a_deadline_begins_no_fallback() -> None:
    driven = made(6.0, 100, dear=True)
    fallback, driven.fallback = driven.fallback, None
    market = on_demand_market("zone-a", "small")
    driven.brain.plan = [RentalChoice("no deadline", market, 1, ON_DEMAND_PRICE)]
    driven.run(0.2)
    assert len(on_demand_of(driven)) == 1
    driven.fallback = fallback
    driven.run(0.5)
    assert len(on_demand_of(driven)) == 1


def test_iterations_that_nothing_measures_are_due_at_half_of_the_time() -> None:
    driven = made(3.0, 100, dear=True)
    driven.job.work_s = 0.0
    driver = driven.driver()
    driven.run(1.3, driver)
    assert on_demand_of(driven) == []
    driven.run(0.4, driver)
    assert len(on_demand_of(driven)) == COUNT
    assert any("no iteration has been measured" in note for note in driven.notes)


def test_deadline_that_cannot_be_met_is_said_at_once() -> None:
    driven = made(1.0, 1000, dear=True)
    driven.run(0.5)
    assert len(on_demand_of(driven)) == COUNT
    assert any("deadline will be missed" in note for note in driven.notes)


def test_driver_killed_after_the_request_asks_for_no_more() -> None:
    driven = made(3.0, 100, dear=True)
    driven.run(2.0)
    assert len(on_demand_of(driven)) == COUNT
    assert driven.fallback is not None
    driven.fallback = replace(driven.fallback, iteration=IterationTime(Scaling(0.0, 1.0, 0.0)))
    driven.run(0.5)
    assert len(on_demand_of(driven)) == COUNT
    assert {each.market for each in driven.ledger.held} == {on_demand_market("zone-a", "small")}


def test_controller_that_has_just_taken_over_is_no_lost_work() -> None:
    driven = made(6.0, 100, dear=True)
    driver = driven.driver()
    driven.run(1.0, driver)
    before, driven.job.done = driven.job.done, 0.0
    driver.step()
    driven.job.done = before
    driven.run(1.0, driver)
    assert on_demand_of(driven) == []


@pytest.mark.parametrize("limited", ["on-demand", "spot"])
def test_limit_of_one_kind_leaves_the_other(limited: str) -> None:
    driven = made(2.0, 100)
    driven.cloud.steps = {A: [(START - 50, 0.1), (START + HOUR_S, 10.0), (START + 1.1 * HOUR_S, 0.1)]}
    acquire = driven.cloud.acquire

    def limited_acquire(order: RentalOrder) -> list[ListedInstance]:
        if order.market.is_on_demand == (limited == "on-demand"):
            raise ProviderError("limit", "VcpuLimitExceeded")
        return acquire(order)

    driven.cloud.acquire = limited_acquire  # type: ignore[method-assign]
    driven.run(2.0)
    held = {each.market.is_on_demand for each in driven.ledger.held}
    assert held == {limited == "spot"}


@pytest.mark.parametrize("is_certain", [False, True])
@pytest.mark.parametrize("failure", ["throttled", "credentials"])
def test_refusal_of_the_account_holds_for_both_kinds(failure: ProviderFailure, is_certain: bool) -> None:
    driven = made(1.0, 1000)
    driven.cloud.fails["acquire"] = [ProviderError(failure, "try later", is_certain)]
    driver = driven.driver()
    driven.run(0.2, driver)
    assert driven.cloud.calls.count("acquire") == 1
    assert driven.ledger.held == ()
    assert [each.outcome for each in driven.ledger.requests.values()] == ["refused" if is_certain else "abandoned"]
    driven.run(0.2)  # by another driver
    assert driven.cloud.calls.count("acquire") > 1


def test_request_without_an_answer_does_not_cost_the_deadline() -> None:
    driven = made(3.0, 100, dear=True)
    assert driven.fallback is not None
    driven.fallback.slack_s = 360.0
    driven.cloud.loses_answers, driven.cloud.hides_for_s, driven.cloud.hides = 1, 1e9, range(COUNT)
    assert until_done(driven, 10.0) <= 3.0
    assert [each.outcome for each in driven.ledger.requests.values()] == ["abandoned", "granted"]


def test_partial_allocation_is_completed_by_the_next_request() -> None:
    driven = made(3.0, 100, dear=True)
    driven.cloud.grants = 2
    driven.run(2.0)
    times = [each.entry.at for each in driven.ledger.requests.values()]
    assert len(on_demand_of(driven)) == COUNT
    assert times[1] - times[0] <= 300


def test_abandoned_request_is_completed_regardless_of_the_deadline() -> None:
    driven = made(1.0, 1000, dear=True)
    assert driven.fallback is not None
    driven.cloud.loses_answers, driven.cloud.hides_for_s, driven.cloud.hides = 1, 1e9, range(2, COUNT)
    driver = driven.driver()
    driven.run(0.12, driver)
    assert driven.ledger.requests
    driven.fallback.deadline = Deadline(START, START + 1000 * HOUR_S, 1000)
    driven.run(0.5, driver)
    assert sum(each.market.is_on_demand for each in driven.ledger.held) == COUNT


@pytest.mark.parametrize("is_restarted", [False, True])
def test_failing_price_queries_are_retried_once_a_minute(is_restarted: bool) -> None:
    driven = made(100.0, 100)
    driver = driven.driver()
    driven.run(0.5, driver)
    assert driven.ledger.held
    driven.timing = replace(driven.timing, poll_s=15.0)
    driven.cloud.fails["prices"] = [ProviderError("throttled", "RequestLimitExceeded")] * 1000
    driver, before = driven.driver() if is_restarted else driver, driven.cloud.calls.count("prices")
    driven.run(0.5, driver)
    assert driven.cloud.calls.count("prices") - before <= 31


@pytest.mark.parametrize(("rented", "cores"), [(0, 12), (2, 28)])
def test_worker_on_several_cores_counts_as_these(rented: int, cores: int) -> None:
    entries: list[journal.JournalEntry] = [
        journal.JournalOpened(START, "run1", "fake", "per-second"),
        journal.InstancesRequested(START, "t1", "zone-a", "large", "Linux/UNIX", 2, 0.1),
    ]
    for number in range(rented):
        entries += [
            journal.InstanceGranted(START, "t1", f"i-{number}", START),
            journal.InstanceJoined(START, f"i-{number}", f"spot-i-{number}"),
        ]
    iteration = IterationTime(Scaling())
    fallback = OnDemandFallback(
        Deadline(START, START + HOUR_S, 100), Machines(InstanceType("small", 4, 0.2), 64), ("zone-a",), iteration,
        120.0, 240.0, host_cores=HostCores({"small": 4, "large": 8}, 4),
    )  # fmt: skip
    hosts = frozenset({"r0", "r1", "r2", *(f"spot-i-{number}" for number in range(rented))})
    fallback.observe(JobProgress(1, 100.0, len(hosts), hosts), Ledger.of(entries))
    assert iteration.seconds(4 * 64) == pytest.approx(100.0 * cores / (4 * 64))


def test_hosts_of_unknown_cores_are_said_once() -> None:
    driven = made(6.0, 100)
    assert driven.fallback is not None
    driven.fallback.host_cores = HostCores({"small": 1}, None)
    for number in (1, 2):
        driven.fallback.observe(JobProgress(number, 100.0, 2, frozenset({"r0"})), driven.ledger)
    assert len([note for note in driven.notes if "[anchors]" in note]) == 1
    assert driven.fallback.iteration.seconds(4) == pytest.approx(50.0)
