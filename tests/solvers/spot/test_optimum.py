"""The cheapest plan when all prices are known: by hand, and against what strategies pay without refunds."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.spot_optimum import GRID_S, offline_optimum
from plink.errors import NoAnswer
from plink.model.spot.prices import PriceTrace
from solvers.spot.footprint import Scaling
from solvers.spot.simulating import Start, simulate_job, work_of
from solvers.spot.strategies import strategy_for
from tests.solvers.spot.histories import histories, history
from tests.solvers.spot.test_simulating import ANCHORS, APPLICATION, HOUR, REFERENCE, comparison


def test_plan_waits_for_a_price_that_falls() -> None:
    """After an hour a machine costs 0.1 instead of 0.9: half an hour of 40 cores is bought then."""
    common = comparison((history((0, 0.9), (1, 0.1), until=9),))
    work = work_of(0.5, 40, APPLICATION)
    plan = offline_optimum(common, 0.0, work, 2 * HOUR)
    at_once = offline_optimum(common, 0.0, work, HOUR)
    assert HOUR < plan.seconds <= 2 * HOUR
    anchors = ANCHORS.price * plan.seconds / HOUR
    assert 0.1 * work / 4 / HOUR < plan.money - anchors < 0.2 * work / 4 / HOUR
    assert at_once.money > plan.money


def test_plan_of_a_constant_price_is_the_best_of_all() -> None:
    """Machines that begin at once or later, and all end with the job: every combination is tried."""
    price, grid, points = 0.2, GRID_S, 4
    common = comparison((history((0, price), until=9),))
    work = work_of(0.2, 40, APPLICATION)
    best = float("inf")
    for end in range(1, points + 1):
        lengths = [grid * (end - begin) for begin in range(end)]
        for counts in itertools.product(range(13), repeat=end):
            done = sum(n * 4 * (s - APPLICATION.start_s) for n, s in zip(counts, lengths, strict=True))
            if done >= work - 1e-6 and sum(counts) * 4 <= common.limits.max_cores:
                money = sum(n * price * s / HOUR for n, s in zip(counts, lengths, strict=True))
                best = min(best, money + ANCHORS.price * end * grid / HOUR)
    assert offline_optimum(common, 0.0, work, points * grid).money == pytest.approx(best, rel=0.011)


def test_plan_works_as_fast_as_a_job_that_slows_down_beyond_some_cores() -> None:
    """40 cores do the most work, that of 20; all that could be had would do that of 14."""
    slowing = replace(APPLICATION, scaling=Scaling(b=1.0, c=1 / 40**2))
    common = replace(comparison((history((0, 0.2), until=9),)), application=slowing)
    assert offline_optimum(common, 0.0, 18 * 7000, 2 * HOUR).seconds == 2 * HOUR
    with pytest.raises(NoAnswer):
        offline_optimum(common, 0.0, 20.5 * 7200, 2 * HOUR)


def test_no_plan_in_time() -> None:
    with pytest.raises(NoAnswer, match=r"within 0\.25 h"):
        offline_optimum(comparison((history((0, 0.2), until=9),)), 0.0, work_of(2, 40, APPLICATION), GRID_S)


def test_machines_on_demand_where_all_markets_are_dearer() -> None:
    plan = offline_optimum(comparison((history((0, 3.0), until=9),)), 0.0, work_of(1, 40, APPLICATION), 2 * HOUR)
    least = REFERENCE.count * REFERENCE.price + ANCHORS.price
    assert least < plan.money < 1.5 * least


@settings(max_examples=15, deadline=None)
@given(histories(), st.sampled_from(["on-demand", "standard-agile", "bidbrain"]))
def test_no_strategy_without_refunds_costs_less(trace: PriceTrace, name: str) -> None:
    common = comparison((trace,))
    work = work_of(1, 40, APPLICATION)
    outcome = simulate_job(common.markets, strategy_for(name, common), APPLICATION, Start(0.0, trace.until), work)
    if outcome.finished and not outcome.refunded:
        plan = offline_optimum(common, 0.0, work, outcome.seconds + 2 * GRID_S)
        step = plan.money * GRID_S / plan.seconds  # a plan changes its machines at the grid's points alone
        assert outcome.money >= plan.money * 0.98 - step
