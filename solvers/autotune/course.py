"""The course of Autotune: from what was seen in one stretch of a job to the masters of the next (PLink thesis, 4.2.3).

A steady job is watched. When its throughput changes, Quicktune deals all masters anew, and Finetune moves some after
each stretch until nothing is gained any more; what served best stays. Pure: a record of what was seen gives the same
decisions again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from plink.errors import UsageError
from solvers.autotune import finetune as fine
from solvers.autotune.observed import Assignment, Observed, Vector, sent_bytes
from solvers.autotune.quicktune import quicktune
from solvers.autotune.trigger import CHANGE, changed

_EVEN = 1.05  # load max/min that counts as even (PLink thesis, 6.2.6)
STEADY, TUNING = "steady", "tuning"
WATCH, WAIT, RESEND = "watch", "wait", "resend"
QUICKTUNE, FINETUNE, RETURN, DONE = "quicktune", "finetune", "return", "done"
_WAITS = 5  # stretches


@dataclass(frozen=True)
class Stretch:
    """What was seen between two meetings of the ranks. ``epoch``: how many assignments had been installed before it."""

    epoch: int
    jobs: int
    size_bytes: int
    seconds: float
    observed: Observed

    @property
    def throughput(self) -> float:
        """Bytes all-reduced a second, by the clock on the wall: it is the job that is to be fast."""
        return self.size_bytes / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class Settings:
    """``change``: of throughput, that is looked into. ``window``: stretches whose medians are compared, with those of
    up to ``memory`` before. ``alike``: how far rates of equal ranks may lie from their median. ``gain``: what a move
    must bring to be one for the better. ``patience``: stretches of tuning without such a gain after which it ends;
    ``most``: stretches after which it ends anyway.

    :raises UsageError: for numbers that make no sense.
    """

    change: float = CHANGE
    window: int = 3
    memory: int = 9
    alike: float = 0.3
    gain: float = 0.03
    patience: int = 4
    most: int = 20
    finetune: fine.Settings = field(default_factory=lambda: fine.Settings(epsilon=1.25))

    def __post_init__(self) -> None:
        whole = all(type(value) is int and value >= 1 for value in (self.window, self.memory, self.patience, self.most))
        shares = all(0 <= value < 1 for value in (self.change, self.alike, self.gain))
        if not whole or not shares or self.memory < self.window or not self.finetune.epsilon >= 1:
            raise UsageError("autotune: settings that make no sense")


@dataclass(frozen=True)
class Course:
    """Where it stands. ``assignment``: the one that was decided last; ``epoch``: its number.

    Of a steady job: ``throughputs`` and ``rates`` (what each rank carried) of the last stretches; ``expected``: what
    tuning had reached. Of one that is tuned: ``best``, the assignment that served best, with its throughput; ``peak``,
    the highest there was; ``idle`` and ``tuned``, stretches without a gain, and of tuning; ``again``: it is tuned for
    the second time, because the first did not last.
    """

    assignment: Assignment
    epoch: int = 0
    waits: int = 0
    state: str = STEADY
    throughputs: tuple[float, ...] = ()
    rates: tuple[Vector, ...] = ()
    expected: float | None = None
    best: tuple[Assignment, float] | None = None
    peak: float = 0.0
    step: fine.Step = field(default_factory=fine.Step)
    idle: int = 0
    tuned: int = 0
    again: bool = False


@dataclass(frozen=True)
class Decision:
    """What was decided after a stretch. ``assignment``: to install; None: all stays. ``reason``: a line."""

    action: str
    reason: str
    assignment: Assignment | None = None


def imbalance(assignment: Assignment) -> float:
    """The most that a rank sends over the least (PLink thesis, 6.2.6); infinite where one sends nothing."""
    load = sent_bytes(assignment, np.ones(len(assignment.global_group))).sum(axis=1)
    return float(load.max() / load.min()) if load.min() > 0 else float("inf")


def decide(course: Course, stretch: Stretch, settings: Settings) -> tuple[Course, Decision]:
    """One step.

    :raises UsageError: for what was seen of other ranks than the assignment has.
    """
    if stretch.epoch != course.epoch:
        if course.waits < _WAITS:
            return replace(course, waits=course.waits + 1), Decision(WAIT, "the masters decided on are not at work yet")
        # An answer that was lost, or a group that was made anew and begins with the masters of the beginning.
        course = replace(course, waits=0, epoch=stretch.epoch + 1)
        return course, Decision(RESEND, "the masters decided on did not arrive: sent again", course.assignment)
    course = replace(course, waits=0)
    if not (stretch.observed.bytes_per_s > 0).any() or stretch.throughput <= 0:
        return course, Decision(WATCH, "nothing was seen under way")
    return _watch(course, stretch, settings) if course.state == STEADY else _tune(course, stretch, settings)


def _watch(course: Course, stretch: Stretch, settings: Settings) -> tuple[Course, Decision]:
    seen = (*course.throughputs, stretch.throughput)[-settings.memory - settings.window :]
    rates = (*course.rates, stretch.observed.rates())[-settings.memory - settings.window :]
    known, course = course, replace(course, throughputs=seen, rates=rates)
    if known.expected is not None and len(seen) >= settings.window:
        # Tuning takes the highest of some stretches for the best, so that what follows is lower by chance. And the
        # network may be changing just now: what is seen then is no measure of what follows.
        now = _middle(seen[-settings.window :])
        if not known.again and abs(now / known.expected - 1) > 1.5 * settings.change:
            why = f"{_mega(now)} MB/s and not {_mega(known.expected)} as when it was tuned"
            return _begin(replace(course, again=True), stretch, settings, why)
        if len(seen) >= 2 * settings.window:
            course = replace(course, expected=None)
    if not changed(seen, settings.window, settings.change):
        return course, Decision(
            WATCH, "nothing has changed" if len(seen) >= 2 * settings.window else "getting to know it"
        )
    before, now = _middle(seen[: -settings.window]), _middle(seen[-settings.window :])
    why = f"throughput went from {_mega(before)} to {_mega(now)} MB/s"
    if _alike(rates[: -settings.window], rates[-settings.window :], settings.alike):
        if not _settled(before, seen[-settings.window :], settings.change):
            # The middle stretch may be the one in which it happened: its rates are of both, and a lasting change
            # would be taken for what is usual from here on.
            return course, Decision(WATCH, f"{why}, but not yet for long enough to say whose it is")
        # Not what ranks carry in proportion to each other: the program, or the network as a whole.
        course = replace(course, throughputs=seen[-settings.window :], rates=rates[-settings.window :])
        return course, Decision(WATCH, f"{why}, and ranks carry what they did in proportion to each other")
    return _begin(replace(course, again=False), stretch, settings, why)


def _begin(course: Course, stretch: Stretch, settings: Settings, why: str) -> tuple[Course, Decision]:
    now = stretch.throughput  # those before it may have seen some of what was before the change
    dealt = quicktune(course.assignment, stretch.observed, settings.alike)
    if _same(dealt, course.assignment):
        course = replace(course, throughputs=(), rates=())
        return course, Decision(WATCH, f"{why}, and masters are in proportion to what ranks carry")
    course = replace(
        course, state=TUNING, best=(course.assignment, now), peak=now, step=fine.Step(), idle=0, tuned=0,
        throughputs=(), rates=(), expected=None,
    )  # fmt: skip
    return _install(course, dealt, Decision(QUICKTUNE, f"{why}: all masters dealt anew"))


def _tune(course: Course, stretch: Stretch, settings: Settings) -> tuple[Course, Decision]:
    assert course.best is not None
    (best, had), reached = course.best, stretch.throughput
    # Of two that are as fast, the more even one: its ranks have room for what comes.
    more_even = imbalance(course.assignment) < imbalance(best)
    better = reached >= (1 - settings.gain if more_even else 1 + settings.gain) * had
    best, had = (course.assignment, reached) if better else (best, had)
    gained = reached >= (1 + settings.gain) * course.peak
    course = replace(
        course, best=(best, had), peak=max(course.peak, reached), idle=0 if gained else course.idle + 1,
        tuned=course.tuned + 1,
    )  # fmt: skip
    told = f"{_mega(reached)} MB/s, {'the best so far' if better else f'{_mega(had)} at best'}"
    if course.idle < settings.patience and course.tuned < settings.most:
        even = quicktune(course.assignment, stretch.observed, settings.alike)
        if imbalance(even) < _EVEN < imbalance(course.assignment):
            # What a rank is seen to carry depends on what it is given to carry (PLink thesis, 4.2.3, "circular
            # dependency"), so that one deal leaves a rank that recovered with too little.
            decision = Decision(QUICKTUNE, f"{told}; ranks carry alike and masters are uneven: all dealt anew")
            return _install(replace(course, step=fine.Step()), even, decision)
        moved = fine.finetune(course.assignment, stretch.observed, course.step, settings.finetune)
        if moved.moved:
            decision = Decision(FINETUNE, f"{told}; {moved.reason}")
            return _install(replace(course, step=moved.step), moved.assignment, decision)
        why = moved.reason
    else:
        why = f"nothing gained in {course.idle} stretches" if course.idle else f"{course.tuned} stretches are enough"
    if reached >= had and imbalance(best) > _EVEN:  # no gain of its own, and no reason to go back
        best, had = course.assignment, reached
    course = replace(course, state=STEADY, best=None, expected=had)
    if _same(best, course.assignment):
        return course, Decision(DONE, f"{told}; {why}")
    return _install(course, best, Decision(RETURN, f"{told}; {why}: back to the best"))


def _install(course: Course, assignment: Assignment, decision: Decision) -> tuple[Course, Decision]:
    return replace(course, assignment=assignment, epoch=course.epoch + 1), replace(decision, assignment=assignment)


def _same(one: Assignment, other: Assignment) -> bool:
    return np.array_equal(one.local_masters, other.local_masters) and np.array_equal(
        one.global_group, other.global_group
    )


def _alike(before: Sequence[Vector], now: Sequence[Vector], share: float) -> bool:
    """Whether ranks carry as much as before in proportion to the others, within that share of it."""
    was, is_now = (np.median(np.array(some), axis=0) for some in (before, now))
    ratio = (is_now / np.median(is_now)) / (was / np.median(was))
    return bool((np.abs(ratio - 1) <= share).all())


def _settled(before: float, now: Sequence[float], share: float) -> bool:
    """Whether each of these throughputs, and not only most, differs from the one before by more than that share."""
    return all(abs(one - before) > share * max(one, before) for one in now)


def _middle(values: Sequence[float]) -> float:
    return float(np.median(values))


def _mega(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:.3g}"
