"""Trajectory of Autotune: from the traffic of one interval of a job to the masters of the next (PLink thesis, 4.2.3).

A steady job is monitored. When its throughput changes, Quicktune assigns all masters anew, and Finetune moves some
after each interval until nothing is gained any more; the best assignment stays. Pure: the same record of traffic gives
the same decisions again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from plink.errors import UsageError
from solvers.autotune.finetune import FinetuneSettings, FinetuneState, finetune, quicktune
from solvers.autotune.observed import MasterAssignment, ObservedTraffic, Vector, sent_bytes

_BALANCED = 1.05  # load max/min that counts as even (PLink thesis, 6.2.6)
STEADY, TUNING = "steady", "tuning"
WATCH, WAIT, RESEND = "watch", "wait", "resend"
QUICKTUNE, FINETUNE, RETURN, DONE = "quicktune", "finetune", "return", "done"
_WAITS = 5  # stretches
CHANGE = 0.2  # PLink thesis, 4.2.3: "a sudden change (e.g., larger than 20%)"
_SIGMAS = 3.0
_APART = 2  # values, whose differences are noise
_MAD = 1.4826  # median absolute deviations in a standard deviation of normal noise


def changed(throughputs: Sequence[float], window: int = 5, threshold: float = CHANGE) -> bool:
    """Return whether throughput changed significantly: the last ``window`` values against the oldest third of all.

    They must differ by more than ``threshold``, and by more than three times the noise. Medians make one slow iteration
    (a checkpoint, a burst of other traffic) no change. Shares of the larger one make a fall by a fifth and the rise
    that undoes it equal. Noise is what values differ by that are two apart: a fall in several steps adds to it only
    while it lasts, so it is noticed when throughput is steady again.
    """
    if len(throughputs) < 2 * window:
        return False
    before, now = median(throughputs[: _usual(len(throughputs), window)]), median(throughputs[-window:])
    steps = [abs(later - earlier) for earlier, later in zip(throughputs, throughputs[_APART:], strict=False)]
    noise = _MAD * median(steps or [0.0]) / 2**0.5
    largest = max(before, now)
    return largest > 0 and abs(now - before) > max(threshold * largest, _SIGMAS * noise)


def _usual(number: int, window: int) -> int:
    """Return how many of so many values, the oldest, say what is usual."""
    return max(window, number // 3)


@dataclass(frozen=True)
class ObservedInterval:
    """Traffic between two synchronisations of the ranks. ``epoch``: assignments installed before it."""

    epoch: int
    size_bytes: int
    seconds: float
    observed: ObservedTraffic

    @property
    def throughput(self) -> float:
        """Bytes all-reduced per second of wall-clock time."""
        return self.size_bytes / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class AutotuneSettings:
    """Settings of Autotune.

    ``change``: relative change of throughput that is examined. ``window``: the latest intervals, whose median is
    compared with that of the oldest third of these and up to ``memory`` others. ``alike``: largest deviation of equal
    ranks' rates from their median. ``gain``: smallest improvement that counts. ``patience``: intervals of tuning
    without one after which it ends; ``most``: intervals after which it ends in any case.

    :raises UsageError: for invalid numbers.
    """

    change: float = CHANGE
    window: int = 3
    memory: int = 18
    alike: float = 0.3
    gain: float = 0.03
    patience: int = 4
    most: int = 20
    finetune: FinetuneSettings = field(default_factory=lambda: FinetuneSettings(epsilon=1.25))

    def __post_init__(self) -> None:
        whole = all(type(value) is int and value >= 1 for value in (self.window, self.memory, self.patience, self.most))
        shares = all(0 <= value < 1 for value in (self.change, self.alike, self.gain))
        if not whole or not shares or self.memory < self.window or not self.finetune.epsilon >= 1:
            raise UsageError("autotune: settings that make no sense")


@dataclass(frozen=True)
class TuningTrajectory:
    """State of Autotune. ``assignment``: the latest one; ``epoch``: its number.

    Steady: ``throughputs`` and ``rates`` (of each rank) of the first intervals since something changed, and of the last
    ones; ``expected``: the throughput that tuning
    had reached. Tuning: ``best``, the best assignment with its throughput; ``peak``, the highest throughput; ``idle``
    and ``tuned``, intervals without a gain, and of tuning; ``retuned``: it is tuned a second time, as the first did not
    last.
    """

    assignment: MasterAssignment
    epoch: int = 0
    waits: int = 0
    state: str = STEADY
    throughputs: tuple[float, ...] = ()
    rates: tuple[Vector, ...] = ()
    expected: float | None = None
    best: tuple[MasterAssignment, float] | None = None
    peak: float = 0.0
    step: FinetuneState = field(default_factory=FinetuneState)
    idle: int = 0
    tuned: int = 0
    retuned: bool = False


@dataclass(frozen=True)
class TuningDecision:
    """Decision after an interval. ``assignment``: to install, None for no change; ``reason``: one line."""

    action: str
    reason: str
    assignment: MasterAssignment | None = None


def imbalance(assignment: MasterAssignment) -> float:
    """Return the most that a rank sends over the least (PLink thesis, 6.2.6); infinite where one sends nothing."""
    load = sent_bytes(assignment, np.ones(len(assignment.global_group))).sum(axis=1)
    return float(load.max() / load.min()) if load.min() > 0 else float("inf")


def decide(
    trajectory: TuningTrajectory, interval: ObservedInterval, settings: AutotuneSettings
) -> tuple[TuningTrajectory, TuningDecision]:
    """Return the next state and the decision after an interval.

    :raises UsageError: for traffic of other ranks than the assignment has.
    """
    if interval.epoch != trajectory.epoch:
        if trajectory.waits < _WAITS:
            trajectory = replace(trajectory, waits=trajectory.waits + 1)
            return trajectory, TuningDecision(WAIT, "the new masters are not in use yet")
        # The answer was lost, or a group was created anew and began with the initial masters.
        trajectory = replace(trajectory, waits=0, epoch=interval.epoch + 1)
        return trajectory, TuningDecision(RESEND, "the new masters did not arrive: sent again", trajectory.assignment)
    trajectory = replace(trajectory, waits=0)
    if not (interval.observed.bytes_per_s > 0).any() or interval.throughput <= 0:
        return trajectory, TuningDecision(WATCH, "no traffic was observed")
    return (
        _monitor(trajectory, interval, settings)
        if trajectory.state == STEADY
        else _tune(trajectory, interval, settings)
    )


def _monitor(
    trajectory: TuningTrajectory, interval: ObservedInterval, settings: AutotuneSettings
) -> tuple[TuningTrajectory, TuningDecision]:
    throughputs = (*trajectory.throughputs, interval.throughput)
    rates = (*trajectory.rates, interval.observed.rates())
    if len(throughputs) > settings.memory + settings.window:  # the oldest stay, or a slow change would never be one
        usual = _usual(len(throughputs), settings.window)
        throughputs, rates = throughputs[:usual] + throughputs[usual + 1 :], rates[:usual] + rates[usual + 1 :]
    previous, trajectory = trajectory, replace(trajectory, throughputs=throughputs, rates=rates)
    if previous.expected is not None and len(throughputs) >= settings.window:
        # Tuning takes the highest of some intervals for the best, so later ones are lower by chance. And the network
        # may be changing now, which makes this interval no measure of later ones.
        now = _median(throughputs[-settings.window :])
        if not previous.retuned and abs(now / previous.expected - 1) > 1.5 * settings.change:
            reason = f"{_mb(now)} MB/s and not {_mb(previous.expected)} as when it was tuned"
            return _begin(replace(trajectory, retuned=True), interval, settings, reason, now > previous.expected)
        if len(throughputs) >= 2 * settings.window:
            trajectory = replace(trajectory, expected=None)
    if not changed(throughputs, settings.window, settings.change):
        return trajectory, TuningDecision(
            WATCH, "nothing has changed" if len(throughputs) >= 2 * settings.window else "getting to know it"
        )
    usual = _usual(len(throughputs), settings.window)
    before, now = _median(throughputs[:usual]), _median(throughputs[-settings.window :])
    reason = f"throughput went from {_mb(before)} to {_mb(now)} MB/s"
    if _similar_rates(rates[:usual], rates[-settings.window :], settings.alike):
        if not _is_lasting(before, throughputs[-settings.window :], settings.change):
            # The middle interval may be the one of the change: its rates are a mix, and a lasting change would become
            # the new baseline.
            return trajectory, TuningDecision(WATCH, f"{reason}, but not yet for long enough to find its cause")
        # The ranks' relative rates are unchanged: the cause is the program, or the network as a whole. Or it is a rank
        # that becomes slower little by little: rates are still compared with the oldest.
        trajectory = replace(trajectory, throughputs=throughputs[-settings.window :], rates=rates[: settings.window])
        return trajectory, TuningDecision(WATCH, f"{reason}, and the ranks' relative rates are unchanged")
    return _begin(replace(trajectory, retuned=False), interval, settings, reason, now > before)


def _begin(
    trajectory: TuningTrajectory, interval: ObservedInterval, settings: AutotuneSettings, reason: str, rises: bool
) -> tuple[TuningTrajectory, TuningDecision]:
    now = interval.throughput  # earlier intervals may include the state before the change
    assignment = quicktune(trajectory.assignment, interval.observed, settings.alike, recovered=rises)
    if _same(assignment, trajectory.assignment):
        trajectory = replace(trajectory, throughputs=(), rates=())
        return trajectory, TuningDecision(WATCH, f"{reason}, and masters are in proportion to the ranks' rates")
    trajectory = replace(
        trajectory, state=TUNING, best=(trajectory.assignment, now), peak=now, step=FinetuneState(), idle=0, tuned=0,
        throughputs=(), rates=(), expected=None,
    )  # fmt: skip
    return _install(trajectory, assignment, TuningDecision(QUICKTUNE, f"{reason}: all masters assigned anew"))


def _tune(
    trajectory: TuningTrajectory, interval: ObservedInterval, settings: AutotuneSettings
) -> tuple[TuningTrajectory, TuningDecision]:
    assert trajectory.best is not None
    (best, best_throughput), throughput = trajectory.best, interval.throughput
    # Of two equally fast assignments take the more balanced one: its ranks have more headroom.
    more_even = imbalance(trajectory.assignment) < imbalance(best)
    better = throughput >= (1 - settings.gain if more_even else 1 + settings.gain) * best_throughput
    best, best_throughput = (trajectory.assignment, throughput) if better else (best, best_throughput)
    gained = throughput >= (1 + settings.gain) * trajectory.peak
    trajectory = replace(
        trajectory, best=(best, best_throughput), peak=max(trajectory.peak, throughput),
        idle=0 if gained else trajectory.idle + 1,
        tuned=trajectory.tuned + 1,
    )  # fmt: skip
    progress = f"{_mb(throughput)} MB/s, {'the best so far' if better else f'{_mb(best_throughput)} at best'}"
    if trajectory.idle < settings.patience and trajectory.tuned < settings.most:
        even = quicktune(trajectory.assignment, interval.observed, settings.alike)
        if imbalance(even) < _BALANCED < imbalance(trajectory.assignment):
            # A rank's measured rate depends on its load (PLink thesis, 4.2.3, "circular dependency"), so one
            # assignment leaves a recovered rank with too little.
            decision = TuningDecision(QUICKTUNE, f"{progress}; equal rates and unbalanced masters: all assigned anew")
            return _install(replace(trajectory, step=FinetuneState()), even, decision)
        moved = finetune(trajectory.assignment, interval.observed, trajectory.step, settings.finetune)
        if moved.moved:
            decision = TuningDecision(FINETUNE, f"{progress}; {moved.reason}")
            return _install(replace(trajectory, step=moved.step), moved.assignment, decision)
        reason = moved.reason
    else:
        reason = (
            f"no gain in {trajectory.idle} intervals"
            if trajectory.idle
            else f"limit of {trajectory.tuned} intervals reached"
        )
    if throughput >= best_throughput and imbalance(best) > _BALANCED:  # no gain, and no reason to go back
        best, best_throughput = trajectory.assignment, throughput
    trajectory = replace(trajectory, state=STEADY, best=None, expected=best_throughput)
    if _same(best, trajectory.assignment):
        return trajectory, TuningDecision(DONE, f"{progress}; {reason}")
    return _install(trajectory, best, TuningDecision(RETURN, f"{progress}; {reason}: back to the best"))


def _install(
    trajectory: TuningTrajectory, assignment: MasterAssignment, decision: TuningDecision
) -> tuple[TuningTrajectory, TuningDecision]:
    return replace(trajectory, assignment=assignment, epoch=trajectory.epoch + 1), replace(
        decision, assignment=assignment
    )


def _same(first: MasterAssignment, second: MasterAssignment) -> bool:
    return np.array_equal(first.local_masters, second.local_masters) and np.array_equal(
        first.global_group, second.global_group
    )


def _similar_rates(before: Sequence[Vector], now: Sequence[Vector], share: float) -> bool:
    """Return whether each rank's rate relative to the others changed by at most this share."""
    rates_before, rates_now = (np.median(np.array(rates), axis=0) for rates in (before, now))
    ratio = (rates_now / np.median(rates_now)) / (rates_before / np.median(rates_before))
    return bool((np.abs(ratio - 1) <= share).all())


def _is_lasting(before: float, now: Sequence[float], share: float) -> bool:
    """Return whether each of these throughputs, not only most, differs from the one before by more than this share."""
    return all(abs(throughput - before) > share * max(throughput, before) for throughput in now)


def _median(values: Sequence[float]) -> float:
    return float(np.median(values))


def _mb(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:.3g}"
