"""Consistency rules in simulated time: accuracy against seconds, waits and staleness (Zhao et al. 2019, Figure 4).

Workers train a perceptron on scikit-learn's digits, really, but their time is simulated: a mini-batch takes a second
over its worker's speed, 10 % jitter, messages nothing. Supersteps and credits are planned by plink's own code. All
rules do as many mini-batches in all, those whose updates are dropped among them. ``bsp --shares speed`` trains as BSP
does, with clocks as long as its shares make them.
"""

import heapq
import math
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from benchmarks.record import Bar, record
from benchmarks.rules import Digits, scores_of
from plink.model.consistency import BSP, Rule, parse_rule
from plink.model.rules.asp import ASP
from plink.model.rules.dssp import DSSP
from plink.model.rules.elastic_bsp import ElasticBSP
from plink.model.rules.ordered import Ordered
from plink.runtime.elastic.worker.dynamic_staleness import StalenessCredits, WorkerClock
from plink.runtime.elastic.worker.zipline import barrier
from solvers.elastic.placement.data import quickest
from solvers.elastic.speeds import UNEVEN_CLOCKS

if TYPE_CHECKING:
    from benchmarks.thesis_plot import ThesisPlot

SPEEDS = {
    "equal": (1.0, 1.0, 1.0, 1.0), "one at half": (1.0, 1.0, 1.0, 0.5),
    "two of eight": (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.6, 0.4),
}  # fmt: skip
BY_SPEED = "bsp --shares speed"
RULES = (
    "bsp", BY_SPEED, "ssp:3", "dssp:3:15", "elastic-bsp:15", "elastic-bsp:240", "asp", "ordered:12", "ordered:3",
)  # fmt: skip
_PLOTTED = "one at half"
_SAMPLED_S = 1.0  # late, as samples are taken after whole mini-batches
_MINIBATCHES, _SEEDS, _SAMPLES, _SHARDS_A_WORKER = 1200, 2, 40, 7

Matrix = npt.NDArray[np.float64]


@dataclass
class Course:
    """What a rule made of a training: samples of seconds and accuracy, and losses at the same time; seconds that
    workers waited, how many other updates came between a worker's read and its update, and how many were dropped."""

    samples: list[tuple[float, float]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    waited_s: float = 0.0
    dropped: int = 0
    staleness: list[int] = field(default_factory=list)


class Training:
    """The perceptron, and when each worker's mini-batches end."""

    def __init__(self, speeds: tuple[float, ...], seed: int) -> None:
        self.app, self.speeds = Digits(speeds, seed), speeds
        self._data = [self.app.load(shard) for shard in range(len(speeds))]
        rng = np.random.default_rng(seed)
        self._jitter = rng.uniform(-0.1, 0.1, (len(speeds), _MINIBATCHES))
        self.tables: list[Matrix] = [rng.normal(scale=0.1, size=(table.rows, table.width)) for table in self.app.tables]
        self.updates, self._done = 0, [0] * len(speeds)

    def seconds(self, worker: int, step: int) -> float:
        """Return how long a worker takes for its step of that number."""
        return (1 + float(self._jitter[worker, step % _MINIBATCHES])) / self.speeds[worker]

    def step(self, worker: int, read: list[Matrix]) -> list[Matrix]:
        """Return what a worker adds after its next mini-batch, with parameters as it read them."""
        batch = self._data[worker][self._done[worker] % self.app.batches]
        self._done[worker] += 1
        return self.app.deltas(batch, *read)[0]

    def add(self, deltas: list[Matrix]) -> None:
        """Add an update."""
        self.tables = [table + delta for table, delta in zip(self.tables, deltas, strict=True)]
        self.updates += 1

    @property
    def minibatches(self) -> int:
        """Return how many are done, of all workers."""
        return sum(self._done)

    def tested(self) -> tuple[float, float]:
        """Return the share of test digits that are recognised, and the mean loss of all."""
        pixels, labels = self.app.test
        scores = scores_of(pixels, *self.tables)[1]
        loss = self.app.deltas(self.app.test, *self.tables)[1] / len(labels)
        return float((scores.argmax(axis=1) == labels).mean()), loss


def run(speeds: tuple[float, ...], rule: str, seed: int) -> Course:
    """Train under a rule."""
    training, course = Training(speeds, seed), Course()
    parsed = parse_rule(rule)
    if isinstance(parsed, BSP | ElasticBSP):
        ends = _supersteps(training, course, parsed)
    else:
        ends = _bounded(training, course, parsed)
    every = _MINIBATCHES // _SAMPLES
    for now in ends:
        if training.minibatches // every > len(course.samples) or training.minibatches >= _MINIBATCHES:
            accuracy, loss = training.tested()
            course.samples.append((now, accuracy))
            course.losses.append(loss)
    return course


def _supersteps(training: Training, course: Course, rule: BSP | ElasticBSP) -> Iterator[float]:
    """Do supersteps, of one step each under BSP; yields the seconds of each barrier."""
    workers, now = range(len(training.speeds)), 0.0
    most = rule.most_steps if isinstance(rule, ElasticBSP) else 1
    done, expected = [0 for _ in workers], np.zeros(0)
    while training.updates < _MINIBATCHES:
        counts = [1 for _ in workers] if not len(expected) else _planned(expected, most, training.updates)
        queue = [(training.seconds(w, done[w]), w) for w in workers]
        heapq.heapify(queue)
        reads, seen = dict.fromkeys(workers, training.tables), dict.fromkeys(workers, training.updates)
        ends, steps, waiting = [0.0 for _ in workers], [0 for _ in workers], list[list[Matrix]]()
        while queue:
            at, w = heapq.heappop(queue)
            deltas = training.step(w, reads[w])
            done[w], steps[w], ends[w] = done[w] + 1, steps[w] + 1, at
            course.staleness.append(training.updates - seen[w])
            if most == 1:
                waiting.append(deltas)
            else:
                training.add(deltas)
            if steps[w] < counts[w]:
                reads[w], seen[w] = training.tables, training.updates
                heapq.heappush(queue, (at + training.seconds(w, done[w]), w))
        for deltas in waiting:
            training.add(deltas)
        course.waited_s += sum(max(ends) - end for end in ends)
        now += max(ends)
        latest = np.array(ends) / np.array(steps)
        expected = latest if not len(expected) else 0.5 * latest + 0.5 * expected
        yield now


def _planned(expected: Matrix, most: int, done: int) -> list[int]:
    counts = barrier(expected[:, None] * np.arange(1, most + 1))[1]
    share = min(1.0, (_MINIBATCHES - done) / float(counts.sum()))
    return [max(1, int(count * share)) for count in counts]


def _bounded(training: Training, course: Course, rule: Rule) -> Iterator[float]:
    """Do clocks of which none begins before the rule allows it; yields the seconds of each update."""
    workers = range(len(training.speeds))
    credits = {w: StalenessCredits(rule.lower, rule.upper) for w in workers} if isinstance(rule, DSSP) else {}
    clocks, last_s = [0 for _ in workers], [0.0 for _ in workers]
    blocked: dict[int, tuple[float, int]] = {}  # since when, and the clock that all must have done
    reads: dict[int, tuple[list[Matrix], int]] = {}
    queue: list[tuple[float, int]] = []

    def begin(w: int, now: float) -> None:
        reads[w] = training.tables, training.updates
        last_s[w] = training.seconds(w, clocks[w])
        heapq.heappush(queue, (now + last_s[w], w))

    def bound(w: int, now: float) -> float:
        if isinstance(rule, ASP):
            return np.inf
        if w not in credits:
            return rule.apart
        others = {other: WorkerClock(clocks[other], last_s[other]) for other in workers if other != w}
        return credits[w].bound(clocks[w] + 1, last_s[w], others, now)

    for w in workers:
        begin(w, 0.0)
    while training.minibatches < _MINIBATCHES:
        now, w = heapq.heappop(queue)
        deltas, delay = training.step(w, reads[w][0]), training.updates - reads[w][1]
        if isinstance(rule, Ordered) and delay > rule.max_delay:
            course.dropped += 1
        else:
            course.staleness.append(delay)
            training.add(deltas)
        clocks[w] += 1
        ahead = bound(w, now)
        if clocks[w] - min(clocks) > ahead:
            blocked[w] = now, clocks[w] - int(ahead)
        else:
            begin(w, now)
        for other, (since, clock) in list(blocked.items()):
            if min(clocks) >= clock:
                del blocked[other]
                course.waited_s += now - since
                begin(other, now)
        yield now


def by_speed(speeds: tuple[float, ...], bsp: Course, seed: int) -> Course:
    """Return a course of BSP with clocks as long as shares by speed make them, from when these are there."""
    training, workers, weights = Training(speeds, seed), range(len(speeds)), dict(enumerate(speeds))
    due = quickest(_SHARDS_A_WORKER * len(speeds), weights, {})
    clocks, ends, waited_s = _MINIBATCHES // len(speeds), [0.0], 0.0
    for clock in range(clocks):
        parts = {w: 1.0 if clock < UNEVEN_CLOCKS + 2 else due[w] / _SHARDS_A_WORKER for w in workers}
        took = [training.seconds(w, clock) * parts[w] for w in workers]
        waited_s += sum(max(took) - each for each in took)
        ends.append(ends[-1] + max(took))
    count = len(bsp.samples)
    samples = [
        (ends[min(clocks, round(clocks * (place + 1) / count))], accuracy)
        for place, (_, accuracy) in enumerate(bsp.samples)
    ]
    return Course(samples, bsp.losses, waited_s, staleness=bsp.staleness)


def figures_of() -> dict[str, Any]:
    """Return medians by speeds and rule, and samples of one course of each for the plot."""
    figures: dict[str, Any] = {}
    for name, speeds in SPEEDS.items():
        figures[name] = {}
        courses_by_rule: dict[str, list[Course]] = {}
        bsp = [run(speeds, "bsp", seed) for seed in range(_SEEDS)]
        for rule in RULES:
            if rule == "bsp":
                courses = bsp
            elif rule == BY_SPEED:
                courses = [by_speed(speeds, bsp[seed], seed) for seed in range(_SEEDS)]
            else:
                courses = [run(speeds, rule, seed) for seed in range(_SEEDS)]
            courses_by_rule[rule] = courses
            waiting = [each.waited_s / (each.samples[-1][0] * len(speeds)) for each in courses]
            figures[name][rule] = {
                "seconds": round(statistics.median(each.samples[-1][0] for each in courses), 1),
                "accuracy": round(statistics.median(each.samples[-1][1] for each in courses), 4),
                "waiting": round(statistics.median(waiting), 4),
                "staleness": round(statistics.median(float(np.mean(each.staleness)) for each in courses), 2),
                "dropped": round(statistics.median(each.dropped / _MINIBATCHES for each in courses), 4),
                "updates_s": round(statistics.median(len(each.staleness) / each.samples[-1][0] for each in courses), 2),
            }
            if name == _PLOTTED:
                samples = [(round(at, 1), round(accuracy, 4)) for at, accuracy in courses[0].samples]
                figures[name][rule]["samples"] = samples
        equal_s = min(row["seconds"] for row in figures[name].values())
        for rule, row in figures[name].items():
            losses = [_loss_after(course, equal_s) for course in courses_by_rule[rule]]
            row["loss_after_s"] = equal_s
            row["loss"] = None if math.isnan(sum(losses)) else round(statistics.median(losses), 4)
    return figures


def _loss_after(course: Course, seconds: float) -> float:
    """Return the loss of the last sample by then, NaN where there was none: supersteps are sampled at their end."""
    pairs = zip(course.samples, course.losses, strict=True)
    return next((loss for (at, _), loss in reversed(list(pairs)) if at <= seconds + _SAMPLED_S), math.nan)


def thesis_plots(figures: dict[str, Any]) -> "dict[str, ThesisPlot]":
    """For docs/results/theses.md: accuracy against seconds with one of four workers at half speed."""
    from benchmarks.drawing import curves
    from benchmarks.thesis_plot import ThesisPlot

    half, equal = figures[_PLOTTED], figures["equal"]
    shown = ("bsp", "ssp:3", "elastic-bsp:15", "elastic-bsp:240", "asp")
    series = {
        rule: ([at for at, _ in half[rule]["samples"]], [100 * share for _, share in half[rule]["samples"]])
        for rule in shown
    }
    picture = curves(
        "zhao-figure-4", "Accuracy on held-out digits", "4 workers, one at half speed; simulated time", series,
        "seconds", "accuracy (%)", points=False,
    )  # fmt: skip
    ratio = {rule: half[rule]["seconds"] / half["bsp"]["seconds"] for rule in RULES}
    text = (
        f"simulated, one of four workers at half speed, over BSP's time: SSP {ratio['ssp:3']:.2f}, ElasticBSP "
        f"{ratio['elastic-bsp:15']:.2f} (R=15) and {ratio['elastic-bsp:240']:.2f} (R=240), ASP {ratio['asp']:.2f}; "
        f"final accuracy {100 * half['bsp']['accuracy']:.1f} % (BSP), {100 * half['elastic-bsp:15']['accuracy']:.1f} % "
        f"(ElasticBSP) and {100 * half['asp']['accuracy']:.1f} % (ASP); equal workers "
        f"{equal['elastic-bsp:15']['seconds'] / equal['bsp']['seconds']:.2f} of BSP's time"
    )
    return {"zhao-figure-4": ThesisPlot(text, picture, "\n".join(table(figures)))}


def table(figures: dict[str, Any]) -> list[str]:
    """Return a Markdown table: a row for each rule, with seconds, waiting, staleness and accuracy by speeds."""
    lines = ["| rule | " + " | ".join(figures) + " |", "|---" * (1 + len(figures)) + "|"]
    for rule in RULES:
        cells = (
            f"{row['seconds']:,.0f} s, {row['waiting']:.1%}, {row['staleness']:.1f}, {row['dropped']:.1%}, "
            f"{row['updates_s']:.2f}/s, {row['accuracy']:.1%}, "
            + ("-" if row["loss"] is None else f"{row['loss']:.3f}")
            for row in (figures[name][rule] for name in figures)
        )
        lines.append(f"| `{rule}` | " + " | ".join(cells).replace("%", " %") + " |")
    title = (
        "Seconds, share of time waited, staleness (updates between read and update), share of updates dropped, updates "
        "applied a\nsecond, final accuracy, loss after equal time (that of the fastest rule):"
    )
    return [title, "", *lines]


def main() -> int:
    """Run and record; the exit code."""
    figures = figures_of()
    half, equal = figures[_PLOTTED], figures["equal"]
    elastic = half["elastic-bsp:15"]
    bars = [
        Bar("one at half: elastic-bsp:15 over bsp", elastic["seconds"] / half["bsp"]["seconds"], 0.70),
        Bar("one at half: elastic-bsp:15 over asp", elastic["seconds"] / half["asp"]["seconds"], 1.10),
        Bar("one at half: elastic-bsp:15 waits", elastic["waiting"], 0.10),
        Bar("one at half: shares by speed over bsp", half[BY_SPEED]["seconds"] / half["bsp"]["seconds"], 0.65),
        Bar("equal: elastic-bsp:15 over bsp", equal["elastic-bsp:15"]["seconds"] / equal["bsp"]["seconds"], 1.02),
        *(
            Bar(f"{name}: accuracy below bsp's", row["bsp"]["accuracy"] - row["elastic-bsp:15"]["accuracy"], 0.005)
            for name, row in figures.items()
        ),
    ]
    configuration = {"minibatches": _MINIBATCHES, "seeds": _SEEDS, "speeds": SPEEDS, "shards": _SHARDS_A_WORKER}
    return record("rule-courses", configuration, figures, bars)


if __name__ == "__main__":
    sys.exit(main())
