"""Workers that are slow at times, by the patterns of the FlexRR chapter (Harlap thesis, 3.4.1), drawn from a seed.

Work is counted in iterations: a worker that is never slow does one in ``iteration_s``. The ideal time is that of the
drawn schedule, with all work balanced at all times at no cost: a lower bound for every mode.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np

_STEPS = 250  # of an iteration, in which the ideal is summed


class Pattern(Protocol):
    """How slow workers are."""

    def slowness(self, worker: int, work: float, now: float) -> float:
        """Return a worker's slowness after ``work`` iterations of its own work, ``now`` iterations after the start."""


@dataclass(frozen=True)
class SlowWorker:
    """At each tenth of its own work a worker becomes slow with 1 % probability, for 0 to 2 iterations of its work, by
    ``delay`` (1: twice as slow)."""

    delay: float
    seed: int = 0

    def slowness(self, worker: int, work: float, now: float) -> float:
        """Return 1, or 1 + delay."""
        spans = _slow_spans(self.seed, worker)
        return 1 + self.delay if any(begin <= work < end for begin, end in spans) else 1.0


@cache
def _slow_spans(seed: int, worker: int) -> tuple[tuple[float, float], ...]:
    random, at, spans = np.random.default_rng((seed, worker)), 0.0, []
    while at < 1000:
        at += 0.1 * float(random.geometric(0.01))
        end = at + float(random.uniform(0, 2))
        spans.append((at, end))
        at = end
    return tuple(spans)


@dataclass(frozen=True)
class DisruptedMachine:
    """In each slot of time a worker's machine has other processes with 20 % probability and runs at
    1 / (1 + ``delay``)."""

    delay: float
    slot: float = 3.0  # iterations
    seed: int = 0

    def slowness(self, worker: int, work: float, now: float) -> float:
        """Return 1, or 1 + delay."""
        return 1 + self.delay if _disrupted(self.seed, worker, int(now / self.slot)) else 1.0


@cache
def _disrupted(seed: int, worker: int, slot: int) -> bool:
    return bool(np.random.default_rng((seed, worker, slot)).random() < 0.2)


@dataclass(frozen=True)
class PowerLaw:
    """The time of an iteration of own work has a density proportional to t ** -alpha, for t of 1 and more."""

    alpha: float
    seed: int = 0

    def slowness(self, worker: int, work: float, now: float) -> float:
        """Return what was drawn for the iteration."""
        return _power_law(self.alpha, self.seed, worker, int(work + 1e-9))


@cache
def _power_law(alpha: float, seed: int, worker: int, iteration: int) -> float:
    uniform = np.random.default_rng((seed, worker, iteration)).random()
    return float((1 - uniform) ** (-1 / (alpha - 1)))


@dataclass(frozen=True)
class Steady:
    """Nobody is slow."""

    def slowness(self, worker: int, work: float, now: float) -> float:
        """Return 1."""
        return 1.0


@cache
def ideal(pattern: Pattern, workers: int, total: float) -> float:
    """Return the least time, in iterations, by which all workers together have done ``total`` iterations of work if
    nobody ever waits."""
    step, now, done = 1 / _STEPS, 0.0, 0.0
    works = np.zeros(workers)
    while done < total:
        rates = np.array([1 / pattern.slowness(worker, works[worker], now) for worker in range(workers)])
        works += step * rates
        done, now = float(works.sum()), now + step
    return now


def uneven_costs(shards: int, heavy: Sequence[int]) -> list[float]:
    """Return the cost of each shard: 75 % of the work is in the ``heavy`` half."""
    return [1.5 if shard in heavy else 0.5 for shard in range(shards)]
