"""Simulated jobs: by hand, and what holds for all strategies on any prices."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.spot_strategies import NAMES, strategies_for
from plink.errors import NoAnswer
from plink.model.spot.market_file import Limits
from plink.model.spot.prices import Market, PriceTrace
from solvers.spot.billing import Hourly2016
from solvers.spot.deciding import Anchors, Offer
from solvers.spot.footprint import Application, Outlook, Scaling
from solvers.spot.made import KINDS, MadeMarket, make_prices
from solvers.spot.odds import DELTAS, eviction_curves, mean_hours_to_eviction, odds_table
from solvers.spot.simulating import (
    CheckpointPolicy,
    DeadlineFallback,
    SimulatedMarkets,
    SimulationOutcome,
    Start,
    simulate_job,
    trace_job,
    work_of,
)
from solvers.spot.strategies import Comparison, Reference, Standard, compare, draw_starts, strategy_for
from tests.solvers.spot.histories import histories, history

HOUR = 3600.0
APPLICATION = Application(Scaling(), start_s=120, add_s=30, evict_s=60)
ANCHORS = Anchors(1, 0.3)
REFERENCE = Reference(10, 1.0, 4)


def markets(*traces: PriceTrace) -> SimulatedMarkets:
    """Instances of four cores, 1 an hour on demand."""
    return SimulatedMarkets(traces, (4.0,) * len(traces), (1.0,) * len(traces), Hourly2016())


def run(strategy: Standard, hours: float) -> SimulationOutcome:
    """A job of so many hours on 40 cores."""
    work = work_of(hours, 40, APPLICATION)
    return simulate_job(strategy.markets, strategy, APPLICATION, Start(0.0, strategy.markets.traces[0].until), work)


def comparison(traces: tuple[PriceTrace, ...], training: tuple[PriceTrace, ...] | None = None) -> Comparison:
    """Strategies on these markets, with odds from others, or from these."""
    simulated = markets(*traces)
    offers = tuple(
        Offer(Market("z", f"t{k}"), 4, 1.0, odds_table(eviction_curves(trace, DELTAS)))
        for k, trace in enumerate(training or traces)
    )
    return Comparison(
        simulated, offers, Outlook(Hourly2016()), APPLICATION, REFERENCE, ANCHORS, Limits(60, 20),
        mean_hours_to_eviction(training or traces, [1.0] * len(traces)),
    )  # fmt: skip


def test_on_demand_by_hand() -> None:
    """Two minutes to start, two hours of work, ten machines."""
    common = comparison((history((0, 0.2), until=9),))
    work = work_of(2, 40, APPLICATION)
    outcome = simulate_job(common.markets, strategy_for("on-demand", common), APPLICATION, Start(0, 9 * HOUR), work)
    assert outcome.seconds == pytest.approx(2 * HOUR + 120)
    assert outcome.money == outcome.anchor_money == pytest.approx(10 * (2 * HOUR + 120) / HOUR)
    assert (outcome.evictions, outcome.paid_s, outcome.free_s) == (0, 0, 0)


def test_one_eviction_by_hand() -> None:
    """The price exceeds on-demand at 0:30 for six minutes, and starts are of 2 minutes. Work: 0:02 to 0:30, and from
    0:38 (0:36 and the start) on; the first half hour is refunded, then two hours at 0.2 each, the last part of one."""
    trace = history((0, 0.2), (0.5, 1.5), (0.6, 0.2), until=9)
    outcome = run(Standard(markets(trace), 40, ANCHORS), hours=2)
    assert outcome.evictions == 1
    done = 28 / 60
    assert outcome.seconds == pytest.approx((0.6 + 2 / 60 + 2 - done) * HOUR)
    held_h = outcome.seconds / HOUR - 0.6
    assert outcome.money == pytest.approx(10 * 0.2 * held_h + 0.3 * outcome.seconds / HOUR)
    assert (outcome.refunded, outcome.free_s) == pytest.approx((10 * 0.2, 10 * 0.5 * HOUR))


def test_a_checkpoint_is_gone_back_to() -> None:
    """Every ten minutes, a tenth of the time: of 28 minutes of work the last 8 are lost."""
    trace = history((0, 0.2), (0.5, 1.5), (0.6, 0.2), until=9)
    outcome = run(Standard(markets(trace), 40, checkpointing=CheckpointPolicy(0.1, 600)), hours=2)
    done = 20 / 60 * 0.9
    assert outcome.seconds == pytest.approx((0.6 + 2 / 60 + (2 - done) / 0.9) * HOUR)
    assert outcome.anchor_money == 0


def test_a_job_that_prices_end_under_is_not_finished() -> None:
    outcome = run(Standard(markets(history((0, 0.2), until=1)), 40), hours=2)
    assert (outcome.finished, outcome.seconds) == (False, HOUR)


def test_on_demand_machines_are_in_time_for_a_deadline() -> None:
    """No market can be bought from; ten machines do two hours of work from the last moment on."""
    common = comparison((history((0, 2.0), until=9),))
    fallback = DeadlineFallback(4 * HOUR, REFERENCE.count, REFERENCE.price, REFERENCE.cores)
    strategy, work = strategy_for("bidbrain", common, has_deadline=True), work_of(2, 40, APPLICATION)
    outcome = simulate_job(common.markets, strategy, APPLICATION, Start(0, 9 * HOUR), work, fallback)
    assert outcome.fell_back
    assert outcome.seconds == pytest.approx(4 * HOUR - APPLICATION.add_s)  # nobody worked who had to take them in
    money = REFERENCE.count * REFERENCE.price * (2 * HOUR + APPLICATION.start_s) / HOUR
    assert outcome.money == pytest.approx(money + 0.3 * outcome.seconds / HOUR)


def test_no_machines_on_demand_while_a_deadline_is_far() -> None:
    common = comparison((history((0, 0.2), until=30),))
    strategy, work = strategy_for("bidbrain", common, has_deadline=True), work_of(2, 40, APPLICATION)
    far, plain = (
        simulate_job(common.markets, strategy, APPLICATION, Start(0, 30 * HOUR), work, fallback)
        for fallback in (DeadlineFallback(20 * HOUR, 10, 1.0, 4), None)
    )
    assert not far.fell_back
    assert far.seconds <= plain.seconds  # all is requested at once
    assert far.money == pytest.approx(plain.money, rel=0.1)


def test_bidbrain_holds_two_markets_for_a_deadline() -> None:
    common = comparison((history((0, 0.2), until=9), history((0, 0.21), until=9)))
    work = work_of(2, 40, APPLICATION)
    for has_deadline, wanted in ((False, {0}), (True, {0, 1})):
        strategy = strategy_for("bidbrain", common, has_deadline)
        outcome = simulate_job(common.markets, strategy, APPLICATION, Start(0, 9 * HOUR), work)
        assert {stay.market for stay in outcome.stays} == wanted


def test_deadline_takes_more_of_the_only_market_worth_buying() -> None:
    """The other one costs nearly as much as on demand; without the rest of the first the job would be late."""
    common = comparison((history((0, 0.2), until=9), history((0, 0.99), until=9)))
    strategy, work = strategy_for("bidbrain", common, has_deadline=True), work_of(2, 40, APPLICATION)
    fallback = DeadlineFallback(2.5 * HOUR, REFERENCE.count, REFERENCE.price, REFERENCE.cores)
    outcome = simulate_job(common.markets, strategy, APPLICATION, Start(0, 9 * HOUR), work, fallback)
    assert not outcome.fell_back
    assert [stay.market for stay in outcome.stays] == [0] * 3  # all 60 cores that may be held


@settings(max_examples=40)
@given(histories(), histories(), st.sampled_from(["standard-agile", "bidbrain", "clairvoyant"]), st.floats(2.3, 6))
def test_deadline_is_missed_by_no_more_than_evictions_cost(
    first: PriceTrace, second: PriceTrace, name: str, hours: float
) -> None:
    """Whatever prices do: what evictions and joins cost after the last moment is all that may come on top."""
    common = comparison((first, second))
    strategy, work = strategies_for([name], common, has_deadline=True)[name], work_of(2, 40, APPLICATION)
    fallback = DeadlineFallback(hours * HOUR, REFERENCE.count, REFERENCE.price, REFERENCE.cores)
    until = min(first.until, second.until)
    outcome = simulate_job(common.markets, strategy, APPLICATION, Start(0.0, until), work, fallback)
    pauses_s = APPLICATION.evict_s * outcome.evictions + APPLICATION.add_s * 2 * len(outcome.stays)
    assert not outcome.finished or outcome.seconds <= hours * HOUR + pauses_s + 1


@settings(max_examples=40)
@given(histories(), histories(), st.sampled_from(NAMES), st.floats(0.05, 2))
def test_invariants(first: PriceTrace, second: PriceTrace, name: str, hours: float) -> None:
    """Money is never below 0, on-demand is never terminated, refunds are of the interrupted hour alone, evictions
    happen when and only when the price exceeds the bid, and all that is held is accounted for."""
    common = comparison((first, second))
    strategy, work = strategies_for([name], common)[name], work_of(hours, 40, APPLICATION)
    until = min(first.until, second.until)
    outcome = simulate_job(common.markets, strategy, APPLICATION, Start(0.0, until), work)
    assert outcome.money >= outcome.anchor_money >= 0
    assert outcome.anchor_s == pytest.approx(strategy.anchors.count * outcome.seconds)
    held = sum(each.stay.count * each.stay.seconds for each in outcome.stays)
    assert outcome.paid_s + outcome.free_s == pytest.approx(held)
    refunds = free = 0.0
    for each in outcome.stays:
        trace, stay = common.markets.traces[each.market], each.stay
        inside = (trace.times > stay.start) & (trace.times < stay.until)
        assert trace.price_at(stay.start) <= each.bid
        assert np.all(trace.prices[inside] <= each.bid)
        if stay.end == "interrupted":
            assert trace.price_at(stay.until) > each.bid
            hour, rest = divmod(stay.seconds, HOUR)
            refunds += stay.count * trace.price_at(stay.start + hour * HOUR) * (rest > 0)
            free += stay.count * rest
    assert (outcome.refunded, outcome.free_s) == pytest.approx((refunds, free))
    assert outcome.evictions == sum(each.stay.end == "interrupted" for each in outcome.stays)
    cores = 60 if "bidbrain" in name or name == "clairvoyant" else 40
    moments = sorted({each.stay.start for each in outcome.stays})
    assert all(
        sum(4 * e.stay.count for e in outcome.stays if e.stay.start <= t < e.stay.until) <= cores for t in moments
    )
    if outcome.finished:
        assert outcome.seconds >= hours * HOUR * 40 / max(cores, 40) - 1e-6


def test_the_same_seed_gives_the_same_jobs() -> None:
    prices = [
        make_prices([MadeMarket(Market("z", "t"), KINDS["c3-a"], 1.0)], 8, seed)[Market("z", "t")] for seed in (1, 1, 2)
    ]
    costs = []
    for trace in prices:
        common = comparison((trace,))
        (result,) = compare(strategies_for(["bidbrain"], common), common, 0.5, draw_starts((trace,), 0.5, 3, 0))
        costs.append([outcome.money for outcome in result.outcomes])
    assert costs[0] == costs[1] != costs[2]


@given(st.integers(0, 1000))
def test_starts_leave_room_and_keep_clear_of_holes(seed: int) -> None:
    first = history((0, 1), (50, 2), until=100, holes=((20, 50),))
    second = history((5, 1), until=90)
    for start in draw_starts((first, second), 1.0, 20, seed):
        assert 5 * HOUR <= start.time <= 14 * HOUR or 50 * HOUR <= start.time <= 84 * HOUR
        assert start.until == (20 * HOUR if start.time < 20 * HOUR else 90 * HOUR)


def test_too_short_a_history_has_no_starts() -> None:
    with pytest.raises(NoAnswer, match="longer histories"):
        draw_starts((history((0, 1), until=5),), 1.0, 5, 0)


def test_bidbrain_is_cheaper_and_faster_than_the_standard_strategy() -> None:
    """On made prices, with odds from others of the same kind; who knows the future has more free computing."""

    def made(seed: int) -> tuple[PriceTrace, ...]:
        kinds = (KINDS["c3-a"], KINDS["g2-a"])
        each = [MadeMarket(Market("z", f"t{k}"), kind, 1.0) for k, kind in enumerate(kinds)]
        return tuple(make_prices(each, 20, seed).values())

    common = comparison(made(5), training=made(6))
    names = ["on-demand", "standard-agile", "bidbrain", "clairvoyant"]
    results = compare(strategies_for(names, common), common, 1.0, draw_starts(common.markets.traces, 1.0, 25, 0))
    money = {result.name: result.money for result in results}
    seconds = {result.name: result.seconds for result in results}
    assert money["bidbrain"] < money["standard-agile"] < 0.5 * money["on-demand"]
    assert seconds["bidbrain"] < 0.8 * seconds["standard-agile"]
    free = {result.name: result.share("free") for result in results}
    assert free["clairvoyant"] > free["bidbrain"] > free["standard-agile"]


def test_traced_jobs_go_as_others_do() -> None:
    """Work only grows without checkpoints, from nothing to all of it."""
    trace = make_prices([MadeMarket(Market("z", "t"), KINDS["c3-a"], 1.0)], 3, 5)[Market("z", "t")]
    strategy, work = Standard(markets(trace), 40.0, ANCHORS), work_of(4, 40, APPLICATION)
    outcome, progress = trace_job(strategy.markets, strategy, APPLICATION, Start(HOUR, trace.until), work)
    assert outcome == simulate_job(strategy.markets, strategy, APPLICATION, Start(HOUR, trace.until), work)
    times, done = zip(*progress, strict=True)
    assert list(times) == sorted(times)
    assert list(done) == sorted(done)
    assert (times[0], done[0]) == (HOUR, 0)
    assert (times[-1], done[-1]) == pytest.approx((HOUR + outcome.seconds, work))


def test_traced_jobs_show_what_a_checkpoint_loses() -> None:
    trace = history((0.0, 0.1), (1.5, 3.0), (1.6, 0.1), until=12)
    strategy = Standard(markets(trace), 40.0, checkpointing=CheckpointPolicy(0.1, 3000.0))
    outcome, progress = trace_job(strategy.markets, strategy, APPLICATION, Start(0.0, trace.until), 40 * 3 * HOUR)
    assert outcome.evictions == 1
    assert min(after - before for (_, before), (_, after) in itertools.pairwise(progress)) < 0
