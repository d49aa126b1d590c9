"""Exact partition of a chain of layers over M even workers, by thresholds of the bottleneck time.

The thesis fills a table of N^2 M entries (5.3.1). Whether a bottleneck time is possible is much easier: walk the
layers, keep the fewest workers that every prefix needs, O(N^2). Fewest is enough, because workers are alike and a
stage's time depends on its own layers and replicas only. The least possible time is found by bisection; each partition
found is a new upper end by its own value, and the end is reached when the next smaller number is impossible. So the
result is exact, not to a tolerance.
"""

import math
from dataclasses import dataclass

import numpy as np

from plink.errors import NoAnswer
from solvers.pipeline.layer_costs import LayerCosts, Seconds
from solvers.pipeline.stage_times import EVEN_MODELS, EvenModel, stage_s
from solvers.pipeline.threshold_kernels import fewest_replicas, fewest_workers, least_traffic

_NEARLY_CLOSED = 1e-6  # relative distance of both ends from which on the exact end is tried
_MAX_TIE_STEPS = 600_000_000  # about a second


@dataclass(frozen=True)
class StageRange:
    """The layers ``first`` to ``last`` on ``replicas`` workers."""

    first: int
    last: int
    replicas: int


@dataclass(frozen=True)
class LayerPartition:
    """Stages first to last, and the seconds per minibatch of the slowest stage or cut."""

    stages: tuple[StageRange, ...]
    minibatch_s: float

    @property
    def workers(self) -> int:
        """How many workers compute."""
        return sum(stage.replicas for stage in self.stages)


def best_partition(costs: LayerCosts, workers: int, bandwidth: float, model: EvenModel = "ring") -> LayerPartition:
    """Return the partition of least bottleneck time over at most that many workers. Of equal ones it is one
    stage, which has no delay; then that of least traffic, then of fewest workers, then of the earliest cuts.

    ``bandwidth``: bytes per second of each worker. ``model``: ``ring`` or ``thesis``; what ``published`` charges for a
    cut depends on replicas, see :mod:`solvers.pipeline.levels`.

    :raises NoAnswer: when no cut helps because there is no layer that takes time.
    """
    if model == "published":
        raise ValueError("the published model has no threshold programme")
    code = EVEN_MODELS.index(model)
    weights_s, crossing_s = costs.weights / bandwidth, costs.crossing / bandwidth

    def attempt(limit_s: float) -> LayerPartition | None:
        fewest, cuts, replicas = fewest_workers(code, costs.seconds, weights_s, crossing_s, (limit_s, workers))
        if fewest[-1] > workers:
            return None
        stages: list[StageRange] = []
        end = costs.layers
        slowest = 0.0
        while end > 0:
            begin, count = int(cuts[end]), int(replicas[end])
            compute_s = costs.seconds[end] - costs.seconds[begin]
            taken_s = float(stage_s(code, compute_s, weights_s[end] - weights_s[begin], count))
            slowest = max(slowest, taken_s, float(crossing_s[begin]))
            stages.append(StageRange(begin, end - 1, count))
            end = begin
        return LayerPartition(tuple(reversed(stages)), slowest)

    low, best = 0.0, attempt(float(costs.seconds[-1]))
    if best is None or best.minibatch_s <= 0:
        raise NoAnswer("no layer takes any time")
    while True:
        high = best.minibatch_s
        closing = high - low <= _NEARLY_CLOSED * high
        middle = math.nextafter(high, 0.0) if closing else (low + high) / 2
        result = attempt(middle) if middle > low else None
        if result is not None:
            best = result
        elif closing or middle <= low:
            return _least_traffic(best, code, (costs.seconds, weights_s, crossing_s), workers)
        else:
            low = middle


def _least_traffic(
    best: LayerPartition, model: int, costs: tuple[Seconds, Seconds, Seconds], workers: int
) -> LayerPartition:
    """Return one stage, or else the partition of least traffic, among those as fast as the best; for models too large
    for that the best itself."""
    seconds, weights_s, crossing_s = costs
    whole = int(fewest_replicas(model, seconds[-1], weights_s[-1], best.minibatch_s))
    if whole <= workers:
        return LayerPartition((StageRange(0, len(seconds) - 2, whole),), best.minibatch_s)
    if len(seconds) ** 2 * workers > _MAX_TIE_STEPS:
        return best
    traffic, cuts = least_traffic(model, seconds, weights_s, crossing_s, (best.minibatch_s, workers))
    count = int(np.flatnonzero(traffic[-1] == traffic[-1, -1])[0])
    stages: list[StageRange] = []
    end = len(seconds) - 1
    while end > 0:
        begin = int(cuts[end, count])
        compute_s, stage_weights_s = seconds[end] - seconds[begin], weights_s[end] - weights_s[begin]
        replicas = int(fewest_replicas(model, compute_s, stage_weights_s, best.minibatch_s))
        stages.append(StageRange(begin, end - 1, replicas))
        end, count = begin, count - replicas
    return LayerPartition(tuple(reversed(stages)), best.minibatch_s)


def fixed_partition(
    costs: LayerCosts, stages: tuple[StageRange, ...], bandwidth: float, model: EvenModel
) -> LayerPartition:
    """Return given stages with what they take; ``published`` without what its splits pay for their outputs."""
    code = EVEN_MODELS.index(model)
    slowest = 0.0
    for stage in stages:
        begin, end = stage.first, stage.last + 1
        weights_s = (costs.weights[end] - costs.weights[begin]) / bandwidth
        taken_s = stage_s(code, costs.seconds[end] - costs.seconds[begin], weights_s, stage.replicas)
        crossing_s = costs.crossing[begin] / bandwidth
        if model == "published":
            crossing_s /= stage.replicas
        slowest = max(slowest, float(taken_s), float(np.nan_to_num(crossing_s, nan=0.0)))
    return LayerPartition(stages, slowest)
