"""Stragglers that are helped, in virtual time (Harlap thesis, Figures 3.6 to 3.12).

Sixteen workers, of which each has as much of every clock as the others. The sides of helping are plink's own;
processors and network are simulated. Figures are times over the ideal of the drawn schedule of slowness.

Convergence: softmax regression, which is convex, on scikit-learn's digits. Updates are real, and come when the
simulated clocks end. A worker reads when its clock begins, and what helpers do of it counts as done by what it read.
"""

import functools
import statistics
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

from benchmarks.flexrr import MODES
from benchmarks.helping_plots import thesis_plots as thesis_plots  # for benchmarks/theses.py
from benchmarks.record import Bar, record
from benchmarks.stragglers import DisruptedMachine, Pattern, PowerLaw, SlowWorker, Steady, ideal
from plink.elastic import Rebalance
from tests.runtime.elastic.simulated_helping import Course

WORKERS, GRAINS, ITERATIONS, SEEDS = 16, 60, 20, 3
_PARTS = 20  # shards of a worker, where helpers have only some
_CONVERGENCE_CLOCKS, _CONVERGENCE_WINDOW, _CONVERGED = 80, 10, 0.02
_RATE, _PENALTY = 1.0, 0.01

Drawn = Callable[[int], Pattern]  # of a seed
Matrix = npt.NDArray[np.float64]

PATTERNS: dict[str, dict[str, Drawn]] = {
    "slow worker": {f"{delay:.0%}": functools.partial(SlowWorker, delay) for delay in (0.0, 0.5, 1.0, 2.0, 4.0)},
    "power-law": {f"{alpha:.0f}": functools.partial(PowerLaw, alpha) for alpha in (11.0, 7.0, 4.0)},
    "disrupted machine": {
        f"{delay:.0%}": functools.partial(DisruptedMachine, delay, 3.0) for delay in (0.5, 1.0, 2.0, 4.0)
    },
}
SETTINGS: dict[str, dict[str, Rebalance]] = {
    "helpers": {f"{count}": Rebalance(helpers=count) for count in (1, 2, 3, 4, 8, 15)},
    "follow-up": {
        f"{share:.1%}": Rebalance(initial=share / 2, follow_up=share) for share in (0.025, 0.05, 0.1, 0.2, 0.3)
    },
    "trigger": {f"{share:.0%}": Rebalance(trigger=share) for share in (0.05, 0.1, 0.2, 0.4)},
    "report": {f"{share:.0%}": Rebalance(report=share) for share in (0.25, 0.5, 0.75, 0.9)},
}
_SLOWEST = PATTERNS["slow worker"]["400%"]


def course_of(pattern: Pattern, mode: str, **more: Any) -> Course:
    """Return a course that has run to its end: ``FlexRR`` and so on; ``more``: of :class:`Course`."""
    rule, rebalance = MODES[mode]
    options = {"clocks": ITERATIONS, "grains": GRAINS, "settings": rebalance} | more
    course = Course(
        workers=WORKERS, slowness=lambda worker, clock, work, now: pattern.slowness(worker, work, now),
        staleness=rule.apart, **options,
    )  # fmt: skip
    course.run()
    for update in course.updates.values():
        assert len(update) == course.grains == update.total(), "a grain was lost, or counts twice"
    return course


def over_ideal(drawn: Drawn, mode: str, **more: Any) -> dict[str, list[float]]:
    """Return time over ideal, and the share of the work that helpers did, of each seed."""
    ratios, moved = [], []
    for seed in range(SEEDS):
        pattern = drawn(seed)
        course = course_of(pattern, mode, **more)
        ratios.append(round(course.now / ideal(pattern, WORKERS, WORKERS * ITERATIONS), 4))
        moved.append(round(course.moved / (WORKERS * course.grains * ITERATIONS), 4))
    return {"over_ideal": ratios, "moved": moved}


def uneven(mode: str, heavy: Callable[[int], bool]) -> dict[str, list[float]]:
    """Return the same where half of the workers have 75 % of the work."""
    return over_ideal(lambda seed: Steady(), mode, cost=lambda shard: 1.5 if heavy(shard) else 0.5)


def partly_loaded(drawn: Drawn, tail: float) -> dict[str, list[float]]:
    """Return the same where helpers have only the last of their helpees' shards."""
    return over_ideal(drawn, "FlexRR", parts=_PARTS, tail=tail)


class Softmax:
    """Softmax regression with a quadratic penalty on digits, divided among the workers; the last weight of a class is
    its bias."""

    def __init__(self) -> None:
        digits = load_digits()
        order = np.random.default_rng(0).permutation(len(digits.target))
        ones = np.ones((len(order), 1))
        self._pixels: Matrix = np.hstack([digits.data[order] / 16.0, ones])
        self._labels = digits.target[order]

    def objective(self, weights: Matrix) -> float:
        """Return the mean loss on all items."""
        return self._loss(weights, slice(None))[0]

    def update(self, worker: int, weights: Matrix) -> Matrix:
        """Return what a worker adds in a clock."""
        return -_RATE / WORKERS * self._loss(weights, slice(worker, None, WORKERS))[1]

    def _loss(self, weights: Matrix, items: slice) -> tuple[float, Matrix]:
        pixels, labels = self._pixels[items], self._labels[items]
        scores = pixels @ weights
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        odds /= odds.sum(axis=1, keepdims=True)
        loss = -float(np.log(odds[np.arange(len(labels)), labels]).mean())
        odds[np.arange(len(labels)), labels] -= 1
        penalty = _PENALTY / 2 * float((weights**2).sum())
        return loss + penalty, pixels.T @ odds / len(labels) + _PENALTY * weights


def learning(drawn: Drawn, mode: str) -> dict[str, Any]:
    """Return seconds and objective after each clock, and at which clock it has changed by less than 2 % over ten."""
    course, task = course_of(drawn(0), mode, clocks=_CONVERGENCE_CLOCKS), Softmax()
    state = np.zeros((65, 10))
    states = {-1: state}  # with all updates up to a clock, and none after
    pending: dict[int, list[Matrix]] = {}
    reads: dict[tuple[int, int], Matrix] = {}
    samples: list[tuple[float, float]] = []
    sees_ahead = MODES[mode][0].sees_ahead
    # What ends at a moment is there for what begins then.
    moments = sorted((at, begins, key) for key, span in course.spans.items() for begins, at in enumerate(span[::-1]))
    for at, begins, (worker, clock) in moments:
        if begins:
            reads[worker, clock] = state if sees_ahead else states[clock - 1]
            continue
        delta = task.update(worker, reads.pop((worker, clock)))
        state = state + delta
        pending.setdefault(clock, []).append(delta)
        if len(pending[clock]) == WORKERS:  # no worker ends a clock before the one before it
            states[clock] = states[clock - 1] + sum(pending.pop(clock))
            samples.append((round(at, 3), round(task.objective(states[clock]), 5)))
    values = [value for _, value in samples]
    ends = [
        clock + 1
        for clock in range(_CONVERGENCE_WINDOW, len(values))
        if abs(values[clock] / values[clock - _CONVERGENCE_WINDOW] - 1) < _CONVERGED
    ]
    at = ends[0] if ends else len(values)
    return {"samples": samples, "clocks": at, "seconds": samples[at - 1][0], "objective": values[at - 1]}


def figures_of() -> dict[str, Any]:
    """Return all figures."""
    figures: dict[str, Any] = {
        name: {level: {mode: over_ideal(drawn, mode) for mode in MODES} for level, drawn in levels.items()}
        for name, levels in PATTERNS.items()
    }
    figures["uneven"] = {
        "every other worker": {mode: uneven(mode, lambda shard: shard % 2 == 0) for mode in MODES},
        "the first half": {mode: uneven(mode, lambda shard: shard < WORKERS // 2) for mode in MODES},
    }
    figures["convergence"] = {
        level: {mode: learning(PATTERNS["slow worker"][level], mode) for mode in ("BSP", "SSP", "FlexRR")}
        for level in ("0%", "400%")
    }
    figures["tail"] = {
        level: {f"{tail:.0%}": partly_loaded(PATTERNS["slow worker"][level], tail) for tail in (0.1, 0.25, 0.5, 1.0)}
        for level in ("50%", "100%", "400%")
    }
    figures["settings"] = {
        name: {value: over_ideal(_SLOWEST, "FlexRR", settings=each) for value, each in values.items()}
        for name, values in SETTINGS.items()
    }
    figures["settings"]["parts"] = {
        f"{parts}": over_ideal(_SLOWEST, "FlexRR", grains=parts) for parts in (4, 8, 16, 30, 60, 100)
    }
    return figures


def mean(row: Mapping[str, list[float]], key: str = "over_ideal") -> float:
    """Return the mean over seeds."""
    return statistics.mean(row[key])


def bars_of(figures: dict[str, Any]) -> list[Bar]:
    """Return the bars: those of real servers, as far as they are ratios."""
    slow, learnt = figures["slow worker"], figures["convergence"]
    bars = [
        Bar(f"{name} {level}: FlexRR over ideal", round(mean(row["FlexRR"]), 4), 1.1)
        for name in PATTERNS
        for level, row in figures[name].items()
    ]
    bars += [
        Bar(f"uneven, {name}: FlexRR over ideal", round(mean(row["FlexRR"]), 4), 1.12)
        for name, row in figures["uneven"].items()
    ]
    bars.append(Bar("slow worker 400%: share moved", round(mean(slow["400%"]["FlexRR"], "moved"), 4), 0.3, 0.12))
    for level, row in learnt.items():
        more = row["FlexRR"]["clocks"] - row["BSP"]["clocks"]
        objective = row["FlexRR"]["objective"] / row["BSP"]["objective"]
        bars.append(Bar(f"convergence, slow worker {level}: clocks more than BSP", more, 4))
        bars.append(Bar(f"convergence, slow worker {level}: objective over BSP's", round(objective, 4), 1.01))
    return bars


def main() -> int:
    """Run and record; the exit code."""
    figures = figures_of()
    configuration = {"workers": WORKERS, "grains": GRAINS, "iterations": ITERATIONS, "seeds": SEEDS, "parts": _PARTS}
    return record("helping-courses", configuration, figures, bars_of(figures))


if __name__ == "__main__":
    sys.exit(main())
