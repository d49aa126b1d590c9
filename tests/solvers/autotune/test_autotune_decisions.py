"""One decision of Autotune at a time: throughputs and rates made up so that each limit is met exactly, or missed."""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from plink.errors import UsageError
from solvers.autotune import finetune as fine
from solvers.autotune.finetune import quicktune
from solvers.autotune.observed import MasterAssignment, ObservedTraffic
from solvers.autotune.trajectory import (
    DONE,
    FINETUNE,
    QUICKTUNE,
    RESEND,
    RETURN,
    STEADY,
    TUNING,
    WAIT,
    WATCH,
    AutotuneSettings,
    ObservedInterval,
    TuningDecision,
    TuningTrajectory,
    changed,
    decide,
)
from tests.solvers.ranks_on_paper import equal_assignment

Rates = npt.NDArray[np.float64]
RANKS, CHUNKS = 4, 64
EVEN = np.ones(RANKS)
KNOWING, SAME = "getting to know it", "nothing has changed"


def rank_0_at(share: float) -> Rates:
    """What ranks carry in proportion to each other."""
    return np.array([share, 1.0, 1.0, 1.0])


def carrying(rates: Rates) -> ObservedTraffic:
    """What was seen where ranks carry so much: each to all in proportion to what these carry."""
    between = np.outer(rates, rates) / rates.sum()
    return ObservedTraffic(between, between, np.zeros((RANKS, RANKS)))


def mastering(*chunks: int) -> MasterAssignment:
    """Four ranks in one group, of which each masters so many chunks."""
    local = np.repeat(np.arange(RANKS), chunks)[:, None].astype(np.int32)
    return MasterAssignment([[0, 1, 2, 3]], local, np.zeros(len(local), np.int32))


FAIR = equal_assignment([[0, 1, 2, 3]], CHUNKS)
RELIEVED = quicktune(FAIR, carrying(rank_0_at(0.5)), 0.3)


def after(
    course: TuningTrajectory, megas: list[float], rates: Rates = EVEN, settings: AutotuneSettings | None = None
) -> tuple[TuningTrajectory, TuningDecision]:
    """Where it stands after stretches of so many MB/s."""
    decision = None
    for mega in megas:
        stretch = ObservedInterval(course.epoch, round(mega * 1e6), 1.0, carrying(rates))
        course, decision = decide(course, stretch, settings or AutotuneSettings())
    assert decision is not None
    return course, decision


def tuned(assignment: MasterAssignment, best: MasterAssignment, had: float = 100.0, **more: float) -> TuningTrajectory:
    """A job in the middle of being tuned; ``had``, ``peak`` in MB/s."""
    peak = more.pop("peak", had) * 1e6
    course = TuningTrajectory(assignment, epoch=3, state=TUNING, best=(best, had * 1e6), peak=peak)
    return replace(course, **more)  # type: ignore[arg-type]


def test_a_program_that_slows_down_is_what_is_usual_from_then_on() -> None:
    """At the second slower stretch it is seen, at the third it is sure to be all three."""
    course, decision = after(TuningTrajectory(FAIR), [100.0] * 6 + [50.0])
    assert decision.reason == SAME
    course, decision = after(course, [50.0])
    assert decision.reason != SAME
    assert len(course.throughputs) == 8
    course, decision = after(course, [50.0])
    assert "from 100 to 50 MB/s" in decision.reason
    assert course.throughputs == (50e6,) * 3
    assert len(course.rates) == 3
    assert [after(course, [50.0] * k)[1].reason for k in (1, 2, 3)] == [KNOWING, KNOWING, SAME]


def test_slow_rank_reassigns_all_masters() -> None:
    course, _ = after(TuningTrajectory(FAIR, epoch=7, retuned=True), [100.0] * 6)
    course, decision = after(course, [50.0, 48.0], rank_0_at(0.5))
    assert decision.action == QUICKTUNE
    assert decision.assignment is course.assignment
    assert np.array_equal(course.assignment.local_masters, RELIEVED.local_masters)
    assert (course.state, course.epoch, course.retuned) == (TUNING, 8, False)
    assert course.best == (FAIR, 48e6)
    assert (course.peak, course.idle, course.tuned) == (48e6, 0, 0)
    assert course.throughputs == course.rates == ()


def test_proportional_masters_are_kept() -> None:
    course, _ = after(TuningTrajectory(RELIEVED), [100.0] * 6)
    course, decision = after(course, [50.0, 50.0], rank_0_at(0.5))
    assert decision.action == WATCH
    assert (course.state, course.throughputs, course.rates, course.epoch) == (STEADY, (), (), 0)


@pytest.mark.parametrize(("mega", "begins"), [(70.0, False), (69.0, True), (130.0, False), (131.0, True)])
def test_tuning_that_did_not_last_is_repeated(mega: float, begins: bool) -> None:
    """By one and a half times what is a change, three tenths, over one window."""
    begun = TuningTrajectory(RELIEVED, expected=100e6)
    course, decision = after(begun, [mega] * 2)
    assert decision.reason == KNOWING
    course, decision = after(course, [mega])
    if begins:
        assert decision.action == QUICKTUNE
        assert (course.retuned, course.expected, course.state) == (True, None, TUNING)
    else:
        assert (decision.reason, course.retuned, course.expected) == (KNOWING, False, 100e6)


def test_what_did_not_arrive_is_waited_for_five_times() -> None:
    course, stretch = TuningTrajectory(FAIR, epoch=4), ObservedInterval(2, 1, 1.0, carrying(EVEN))
    for number in range(1, 6):
        course, decision = decide(course, stretch, AutotuneSettings())
        assert (decision.action, course.waits, course.epoch) == (WAIT, number, 4)
    course, decision = decide(course, stretch, AutotuneSettings())
    assert (decision.action, course.waits, course.epoch) == (RESEND, 0, 3)
    assert decision.assignment is FAIR


def test_a_stretch_without_traffic_says_nothing() -> None:
    nothing = ObservedTraffic(*(np.zeros((RANKS, RANKS)) for _ in range(3)))
    for size, seconds, observed in ((0, 1.0, carrying(EVEN)), (100, 0.0, carrying(EVEN)), (100, 1.0, nothing)):
        course, decision = decide(
            TuningTrajectory(FAIR), ObservedInterval(0, size, seconds, observed), AutotuneSettings()
        )
        assert decision.action == WATCH
        assert course.throughputs == ()


@pytest.mark.parametrize(("idle", "ends"), [(2, False), (3, True)])
def test_after_four_stretches_without_a_gain_it_goes_back_to_the_best(idle: int, ends: bool) -> None:
    course, decision = after(tuned(RELIEVED, FAIR, idle=idle), [90.0], rank_0_at(0.5))
    if not ends:
        assert (decision.action, course.idle) == (FINETUNE, 3)
        return
    assert decision.action == RETURN
    assert decision.assignment is course.assignment is FAIR
    assert (course.state, course.best, course.expected, course.epoch) == (STEADY, None, 100e6, 4)


@pytest.mark.parametrize(("so_far", "ends"), [(18, False), (19, True)])
def test_after_twenty_stretches_it_ends_anyway(so_far: int, ends: bool) -> None:
    course, decision = after(tuned(RELIEVED, FAIR, tuned=so_far), [110.0], rank_0_at(0.5))
    assert decision.action == (DONE if ends else FINETUNE)
    if ends:
        assert decision.assignment is None
        assert (course.assignment, course.state, course.expected, course.epoch) == (RELIEVED, STEADY, 110e6, 3)


@pytest.mark.parametrize(("mega", "goes_back"), [(99.9, True), (100.0, False), (101.0, False)])
def test_there_is_no_going_back_to_what_was_no_faster_and_is_uneven_too(mega: float, goes_back: bool) -> None:
    uneven, more = mastering(12, 20, 16, 16), mastering(8, 24, 16, 16)
    course, decision = after(tuned(more, uneven, idle=3), [mega], rank_0_at(0.5))
    assert decision.action == (RETURN if goes_back else DONE)
    assert course.assignment is (uneven if goes_back else more)
    assert course.expected == (100.0 if goes_back else mega) * 1e6


def test_equal_rates_rebalance_uneven_masters() -> None:
    begun = replace(tuned(RELIEVED, RELIEVED, idle=1), step=fine.FinetuneState(2, 8))
    course, decision = after(begun, [100.0])
    assert (decision.action, course.step) == (QUICKTUNE, fine.FinetuneState())
    assert np.array_equal(course.assignment.local_masters, FAIR.local_masters)
    assert (course.idle, course.tuned, course.epoch, course.state) == (2, 1, 4, TUNING)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ({"window": 0}, {"window": 1}),
        ({"memory": 0, "window": 1}, {"memory": 1, "window": 1}),
        ({"memory": 3, "window": 4}, {"memory": 4, "window": 4}),
        ({"patience": 0}, {"patience": 1}),
        ({"most": 0}, {"most": 1}),
        ({"change": 1.0}, {"change": 0.999}),
        ({"alike": -0.001}, {"alike": 0}),
        ({"gain": 1}, {"gain": 0.0}),
        ({"finetune": fine.FinetuneSettings(epsilon=0.999)}, {"finetune": fine.FinetuneSettings(epsilon=1.0)}),
        ({"finetune": fine.FinetuneSettings(epsilon=math.nan)}, {"finetune": fine.FinetuneSettings(epsilon=2.0)}),
        ({"window": True}, {"window": 2}),
        ({"window": 2.5}, {"window": 2}),
        ({"gain": math.nan}, {"gain": 0.5}),
    ],
)
def test_settings_make_sense_up_to_their_limits(wrong: dict[str, float], right: dict[str, float]) -> None:
    AutotuneSettings(**right)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="settings"):
        AutotuneSettings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("now", "expected"), [(53.0, False), (52.0, True), (147.0, False), (148.0, True)])
def test_a_change_is_more_than_three_standard_deviations_of_the_noise(now: float, expected: bool) -> None:
    """Throughputs that are two apart differ by 15 in the median: a standard deviation of 22.2, 15.7 of each, three of
    47.2."""
    before = [100.0, 90.0, 105.0, 100.0, 90.0, 115.0, 105.0, 100.0, 120.0]
    assert changed(before + [now] * 3, window=3, threshold=0.1) is expected


FALL = (9.34, 8.05, 4.79, 3.09, 2.57)  # MB/s, as once measured from a job's beginning on, with 2.7 from then on
LASTING = tuple(rank_0_at(level) for level in (1.0, 0.8, 0.5, 0.35, 0.28))


def test_fall_in_the_first_measurements_is_noticed_once_throughput_is_steady() -> None:
    course = TuningTrajectory(FAIR)
    for mega, rates in zip(FALL, LASTING, strict=True):
        course, decision = after(course, [mega], rates)
        assert decision.action == WATCH
    steady = []
    for mega in (2.86, 2.73, 2.64, 2.69, 2.76):
        course, decision = after(course, [mega], LASTING[-1])
        steady.append(decision.action)
    assert QUICKTUNE in steady


def test_rank_that_slows_down_little_by_little_gets_less_to_do() -> None:
    """Its rate is nearly what it was when throughput is first seen to fall, and half of it in the end."""
    course, actions = TuningTrajectory(FAIR), []
    for level in [1.0] * 10 + [1.0 - 0.025 * k for k in range(20)] + [0.5] * 12:
        course, decision = after(course, [10 * level], rank_0_at(level))
        actions.append(decision.action)
        if decision.action == QUICKTUNE:
            break
    assert QUICKTUNE in actions


@pytest.mark.parametrize("began", [2, 3, 5, 8, 20, 60])
@pytest.mark.parametrize("takes", [0, 1, 4, 8, 40])
@pytest.mark.parametrize("to", [0.5, 2.0])
def test_lasting_change_is_noticed_whenever_and_however_slowly_it_comes(began: int, takes: int, to: float) -> None:
    """Within twelve measurements of its end, in noise of a twentieth."""
    random = np.random.default_rng(began + takes)
    levels = np.interp(np.arange(began + takes + 12), [began - 1, began + takes], [1.0, to])
    course, reasons = TuningTrajectory(FAIR), []
    for level in levels * np.exp(0.05 * random.standard_normal(len(levels))):
        course, decision = after(course, [10 * level])
        reasons.append(decision.reason)
    assert set(reasons[began - 1 :]) - {KNOWING, SAME}
    assert set(reasons[: began - 1]) <= {KNOWING, SAME}


def test_noise_and_slow_iterations_are_seldom_taken_for_a_change() -> None:
    """A tenth of noise: under one notice in 200 measurements; a twentieth and every 20th a third as fast: one in 50."""
    random = np.random.default_rng(7)
    noise = np.exp(np.array([[0.1], [0.05]]) * random.standard_normal((2, 2000)))
    noise[1, random.random(2000) < 0.05] *= 0.3
    for throughputs, most in zip(noise, (10, 40), strict=True):
        course, notices = TuningTrajectory(FAIR), 0
        for throughput in throughputs:
            course, decision = after(course, [10 * throughput])
            notices += decision.reason not in (KNOWING, SAME)
        assert notices < most
