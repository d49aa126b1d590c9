"""The course of Autotune on a network on paper, with stretches that differ as real ones do: what it does when a rank
slows down, recovers, when something else changes, and when nothing does."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

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
    decide,
    imbalance,
)
from tests.solvers.ranks_on_paper import CHUNK, GROUPS, RATE, equal_assignment, seen

EVEN = np.full(16, RATE)
FLAT = [list(range(16))]


class Run:
    """A job that is tuned as real ones are: what is decided after a stretch is at work one stretch later.

    :param noise: share by which throughputs and rates differ from stretch to stretch, a standard deviation.
    """

    def __init__(self, assignment: MasterAssignment, seed: int = 0, noise: float = 0.03) -> None:
        self.course, self.settings = TuningTrajectory(assignment), AutotuneSettings()
        self._at_work, self._upcoming = (0, assignment), (0, assignment)
        self._random, self._noise = np.random.default_rng(seed), noise
        self.decisions: list[TuningDecision] = []

    def go(
        self, rates: npt.NDArray[np.float64], number: int, compute_s: float = 0.0
    ) -> Iterator[tuple[TuningDecision, float]]:
        """So many stretches on such a network: (what was decided after it, its throughput without the noise)."""
        for _ in range(number):
            epoch, assignment = self._at_work
            observed, seconds = seen(assignment, rates)
            blurred = observed.bytes_per_s * self._blur(observed.bytes_per_s.shape)
            messages = ObservedTraffic(observed.sent_bytes, blurred, observed.rtt_s)
            size = int(CHUNK) * len(assignment.global_group)
            taken = (seconds + compute_s) * float(self._blur(()))
            self._at_work = self._upcoming
            self.course, decision = decide(self.course, ObservedInterval(epoch, size, taken, messages), self.settings)
            if decision.assignment is not None:
                self._upcoming = (self.course.epoch, decision.assignment)
            self.decisions.append(decision)
            yield decision, size / (seconds + compute_s)

    def _blur(self, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        return np.exp(self._noise * self._random.standard_normal(shape))


def slowed(rank: int) -> npt.NDArray[np.float64]:
    """That rank at a quarter."""
    rates = EVEN.copy()
    rates[rank] /= 4
    return rates


@pytest.mark.parametrize("groups", [GROUPS, FLAT], ids=["2lha", "flat"])
@pytest.mark.parametrize("seed", range(2))
def test_a_steady_network_is_left_alone(groups: list[list[int]], seed: int) -> None:
    run = Run(equal_assignment(groups, 64), seed)
    assert {decision.action for decision, _ in run.go(EVEN, 300)} == {WATCH}


@pytest.mark.parametrize("groups", [GROUPS, FLAT], ids=["2lha", "flat"])
@pytest.mark.parametrize(("slow", "seed"), [(0, 0), (7, 1), (15, 2)])
def test_a_rank_slows_down_and_recovers(groups: list[list[int]], slow: int, seed: int) -> None:
    """Figure 6.15: 1.27 times as fast as without within 12 stretches, and even again within 15 of its recovery."""
    run = Run(equal_assignment(groups, 64), seed)
    list(run.go(EVEN, 20))
    without = next(run.go(slowed(slow), 1))[1]
    reached = [throughput for _, throughput in run.go(slowed(slow), 40)]
    began = next(k for k, decision in enumerate(run.decisions) if decision.action == QUICKTUNE)
    assert began <= 20 + 3
    tuned = reached[began - 20 :]
    assert max(tuned[:12]) >= 1.27 * without
    assert min(tuned[12:]) >= 1.27 * without
    assert run.course.state == STEADY
    before = len(run.decisions)
    list(run.go(EVEN, 15))
    assert imbalance(run.course.assignment) < 1.05
    assert QUICKTUNE in {decision.action for decision in run.decisions[before:]}
    list(run.go(EVEN, 40))
    assert imbalance(run.course.assignment) < 1.05
    assert run.course.state == STEADY


def test_no_masters_move_when_the_program_itself_slows_down() -> None:
    run = Run(equal_assignment(GROUPS, 64))
    list(run.go(EVEN, 10))
    decisions = [decision for decision, _ in run.go(EVEN, 30, compute_s=1.0)]
    assert {decision.action for decision in decisions} == {WATCH}
    assert any("the ranks' relative rates are unchanged" in decision.reason for decision in decisions)


@pytest.mark.parametrize("groups", [GROUPS, FLAT], ids=["2lha", "flat"])
@pytest.mark.parametrize("seed", range(2))
def test_a_change_in_the_middle_of_a_stretch_is_noticed(groups: list[list[int]], seed: int) -> None:
    """That stretch is slower, and yet its rates are still those of before: ranks seem to be slower all together."""
    run = Run(equal_assignment(groups, 64), seed)
    list(run.go(EVEN, 10))
    fast, slow = (seen(run.course.assignment, rates)[1] for rates in (EVEN, slowed(2)))
    list(run.go(EVEN, 1, compute_s=(slow - fast) / 2))
    list(run.go(slowed(2), 20))
    assert QUICKTUNE in {decision.action for decision in run.decisions[11:16]}
    load = np.bincount(run.course.assignment.local_masters.ravel(), minlength=16)
    assert load.argmin() == 2


def test_a_network_that_recovers_little_by_little_just_after_it_was_tuned() -> None:
    """As once on the lab: what is seen meanwhile is no measure of what is usual, and masters are dealt anew."""
    uneven = quicktune(equal_assignment(FLAT, 64), seen(equal_assignment(FLAT, 64), slowed(2))[0], 0.3)
    assert imbalance(uneven) > 1.5
    course, settings = TuningTrajectory(uneven, expected=3.806e6), AutotuneSettings()
    observed, _ = seen(uneven, EVEN)
    actions = []
    for mega in (3.563, 4.295, 5.011, 5.975, 5.876, 5.144):
        course, decision = decide(course, ObservedInterval(0, int(mega * 1e6), 1.0, observed), settings)
        actions.append(decision.action)
    assert QUICKTUNE in actions
    assert imbalance(course.assignment) < imbalance(uneven)


def test_a_network_that_changes_while_it_is_being_tuned() -> None:
    """The second rank slows down two stretches after the first one was noticed; both are relieved in the end."""
    run = Run(equal_assignment(GROUPS, 64), 3)
    list(run.go(EVEN, 10))
    while run.course.state != TUNING:
        next(run.go(slowed(2), 1))
    list(run.go(slowed(2), 2))
    both = slowed(2)
    both[9] /= 4
    list(run.go(both, 60))
    load = np.bincount(run.course.assignment.local_masters.ravel(), minlength=16)
    assert load[2] < load[3]
    assert load[9] < load[10]
    assert run.course.state == STEADY


def test_what_was_decided_is_waited_for() -> None:
    """A stretch under the masters of before says nothing about the new ones."""
    run = Run(equal_assignment(GROUPS, 64))
    list(run.go(EVEN, 10))
    decisions = [decision.action for decision, _ in run.go(slowed(1), 12)]
    for k, action in enumerate(decisions[:-1]):
        if action in (QUICKTUNE, FINETUNE, RETURN):
            assert decisions[k + 1] == WAIT


def test_it_ends_with_the_best_that_was_seen() -> None:
    run = Run(equal_assignment(FLAT, 64), 1, noise=0.0)
    list(run.go(EVEN, 10))
    stretches = list(run.go(slowed(4), 60))
    assert run.decisions[-1].action == WATCH
    assert {DONE, RETURN} & {decision.action for decision, _ in stretches}
    assert stretches[-1][1] >= 0.97 * max(throughput for _, throughput in stretches)


def test_a_stretch_in_which_nothing_was_sent() -> None:
    """A pause is no reason to move anything."""
    run = Run(equal_assignment(GROUPS, 64))
    list(run.go(EVEN, 10))
    nothing = ObservedTraffic(np.zeros((16, 16)), np.full((16, 16), np.nan), np.full((16, 16), np.nan))
    for _ in range(5):
        run.course, decision = decide(run.course, ObservedInterval(0, 0, 2.0, nothing), run.settings)
        assert decision.action == WATCH


@pytest.mark.parametrize("groups", [GROUPS, FLAT], ids=["2lha", "flat"])
@pytest.mark.parametrize("seed", range(2))
def test_noise_is_no_reason_to_go_on_tuning(groups: list[list[int]], seed: int) -> None:
    """Stretches that differ by a tenth, a rank that stays slow: masters are moved, and then left alone."""
    run = Run(equal_assignment(groups, 64), seed, noise=0.1)
    list(run.go(EVEN, 20))
    list(run.go(slowed(3), 60))
    decisions = [decision for decision, _ in run.go(slowed(3), 150)]
    assert sum(decision.assignment is not None for decision in decisions) <= 15


def test_lost_update_is_resent() -> None:
    """An answer was lost, or the script made its group anew: ranks still have the masters of before."""
    run = Run(equal_assignment(GROUPS, 64))
    list(run.go(EVEN, 10))
    while run.course.state != TUNING:
        next(run.go(slowed(2), 1))
    lost, run._upcoming = run._upcoming[1], run._at_work
    decisions = [decision for decision, _ in run.go(slowed(2), 8)]
    retuned = next(decision for decision in decisions if decision.action != WAIT)
    assert retuned.action == RESEND
    assert retuned.assignment is not None
    assert np.array_equal(retuned.assignment.local_masters, lost.local_masters)
    list(run.go(slowed(2), 40))
    assert run.course.state == STEADY
    assert run._at_work[0] == run.course.epoch
