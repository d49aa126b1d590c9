"""The hierarchical dynamic programme of the thesis, with its corrections, over levels of an even network.

Levels count from the innermost: a component of level k has m_k components of level k - 1, linked at B_k; a component of
level 0 is one worker. With T and A counting components of the level below, w_ij bytes of the parameters of layers i to
j, and 2 a_s those that cross the cut before layer s, both ways (Harlap thesis, 5.3.1)::

    A^0(i, j)    = seconds of layers i to j
    T^k(i, j, m) = max(A^{k-1}(i, j), 2 (m - 1) w_ij / B_k) / m
    A^k(i, j, m) = min(T^k(i, j, m), min over s, m' of max(A^k(i, s, m - m'), 2 a_s / B_k, T^k(s+1, j, m')))

The printed recurrence lacks the single stage on all m, which is what makes data parallelism a result. A stage's inside
may be a pipeline of the level below, replicated m' times. O(N^3 m^2) per inner level, O(N^2 m^2) for the outermost.
All bytes of an all-reduce go through one link, and there are neither latencies nor the optimiser's step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from plink.model.pipeline.profile import ModelProfile
from solvers.compilation import njit, njit_inner

Watch = Callable[[int, int], bool]
_BLOCK_ROWS = 16
Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class NetworkLevel:
    """So many components of the level below, linked at ``bandwidth`` bytes per second each."""

    components: int
    bandwidth: float


@dataclass(frozen=True)
class LayerCosts:
    """Costs of N layers as prefix sums, shape (N + 1,): layers i to j - 1 take ``seconds[j] - seconds[i]`` and have
    ``weights[j] - weights[i]`` bytes. ``crossing``, shape (N + 1,): bytes both ways of a cut before layer k, infinite
    where a cut is forbidden, 0 at both ends."""

    seconds: Vector
    weights: Vector
    crossing: Vector

    @classmethod
    def of(cls, profile: ModelProfile, recompute: bool = False) -> "LayerCosts":
        """Return the costs of a profile; layers that share a parameter have no cut between them.

        ``recompute``: seconds include a second forward pass. Layers in front of a cut that no gradient crosses have no
        backward pass, and nothing to recompute.
        """
        layers = profile.layers
        frozen = max((k + 1 for k, layer in enumerate(layers[:-1]) if layer.crossing_back_bytes == 0), default=0)
        seconds = [layer.compute_s + (recompute and k >= frozen) * layer.forward_s for k, layer in enumerate(layers)]
        crossing = np.zeros(len(layers) + 1)
        crossing[1:-1] = [layer.crossing_bytes + layer.crossing_back_bytes for layer in layers[:-1]]
        for first, last, _ in profile.tied_spans():
            crossing[first + 1 : last + 1] = np.inf
        return cls(
            np.concatenate([[0.0], np.cumsum(seconds)]),
            np.concatenate([[0.0], np.cumsum([float(layer.parameter_bytes) for layer in layers])]),
            crossing,
        )


@dataclass(frozen=True)
class PlacedStage:
    """The layers ``first`` to ``last`` on these workers; the number of a worker in the list is that of its replica."""

    first: int
    last: int
    workers: tuple[int, ...]


@dataclass(frozen=True)
class LevelPartition:
    """Stages first to last over workers that count component by component, and the seconds per minibatch."""

    stages: tuple[PlacedStage, ...]
    minibatch_s: float


@dataclass(frozen=True)
class _Table:
    """Choices of one level, and how many components each (i, j) takes for its best."""

    split: npt.NDArray[np.int32]
    replicas: npt.NDArray[np.int32]
    used: npt.NDArray[np.int64]
    workers_below: int


def best_level_partition(
    costs: LayerCosts,
    levels: tuple[NetworkLevel, ...],
    fewer_workers: bool = True,
    straight: bool = False,
    watch: Watch | None = None,
) -> LevelPartition:
    """Return the partition of least seconds per minibatch, infinite where there is none; ``levels``: innermost first.

    ``fewer_workers``: a component may leave some of its own idle where that is faster (the published code's
    ``--use_fewer_machines``). ``straight``: every stage has one worker. ``watch``: called with rows done, and all;
    returns whether to stop, which is a KeyboardInterrupt.
    """
    layers = len(costs.seconds) - 1
    base = np.full((layers, layers), np.inf)
    for i in range(layers):
        base[i, i:] = costs.seconds[i + 1 :] - costs.seconds[i]
    tables: list[_Table] = []
    below = 1
    minibatch_s = np.inf
    for number, level in enumerate(levels):
        rows = 1 if number == len(levels) - 1 else layers
        entry = _Level(base, costs.weights / level.bandwidth, costs.crossing / level.bandwidth, straight)
        table, split, replicas = _in_blocks(entry, level.components, rows, watch)
        used = np.full(table.shape[:2], level.components)
        if fewer_workers:
            used = np.argmin(table, axis=2)
        base = np.take_along_axis(table, used[:, :, None], axis=2)[:, :, 0]
        tables.append(_Table(split, replicas, used, below))
        below *= level.components
        minibatch_s = float(base[0, layers - 1])
    stages = () if minibatch_s == np.inf else tuple(_stages(tables, len(tables) - 1, (0, layers - 1)))
    return LevelPartition(stages, minibatch_s)


def _in_blocks(
    entry: "_Level", most: int, rows: int, watch: Watch | None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the table of a level, some rows at a time, so that somebody can watch."""
    parts = []
    for begin in range(0, rows, _BLOCK_ROWS):
        parts.append(_level_table(entry, most, begin, min(_BLOCK_ROWS, rows - begin)))
        if watch is not None and watch(min(rows, begin + _BLOCK_ROWS), rows):
            raise KeyboardInterrupt  # a table has no plan before its end
    table, split, replicas = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return table, split, replicas


def _stages(tables: list[_Table], number: int, layers: tuple[int, int]) -> list[PlacedStage]:
    """Return the stages of layers i to j on one component of a level, whose workers count from 0.

    Replica q of a stage inside m' components is in component q mod m': so minibatches stay inside their component.
    """
    i, j = layers
    if number < 0:
        return [PlacedStage(i, j, (0,))]
    table = tables[number]
    parts: list[tuple[int, int, int]] = []
    end, left = j, int(table.used[i, j])
    while (count := int(table.replicas[i, end, left])) > 0:
        begin = int(table.split[i, end, left])
        parts.append((begin, end, count))
        end, left = begin - 1, left - count
    parts.append((i, end, left))
    stages: list[PlacedStage] = []
    component = 0
    for begin, last, count in reversed(parts):
        for inside in _stages(tables, number - 1, (begin, last)):
            workers = tuple(
                (component + copy) * table.workers_below + worker for worker in inside.workers for copy in range(count)
            )
            stages.append(PlacedStage(inside.first, inside.last, workers))
        component += count
    return stages


class _Level(NamedTuple):
    """One level: ``base``, shape (N, N): seconds of layers i to j, both included, on one component of the level below;
    ``weights_s``, ``crossing_s``, shape (N + 1,): prefix sums of parameters, and the cut before each layer, over the
    level's bandwidth. ``single``: no replicas (a straight pipeline)."""

    base: Any
    weights_s: Any
    crossing_s: Any
    single: Any


@njit_inner()
def _stage_s(level: Any, i: Any, j: Any, m: Any) -> Any:
    """Return T(i, j, m)."""
    return max(level.base[i, j], 2.0 * (m - 1) * (level.weights_s[j + 1] - level.weights_s[i])) / m


@njit(cache=True)
def _level_table(level: Any, most: Any, begin: Any, rows: Any) -> Any:
    """Return A, and the choices: splits and replicas of last stages; all of shape (``rows``, N, ``most`` + 1).

    A[i, j, m]: least seconds per minibatch of layers i to j on m components. Split s: the last stage begins with layer
    s on so many components; 0 components: it is a single stage on all m. Rows are those of i from ``begin`` on,
    and need no others.
    """
    layers = level.base.shape[0]
    table = np.full((rows, layers, most + 1), np.inf)
    split = np.zeros((rows, layers, most + 1), dtype=np.int32)
    replicas = np.zeros((rows, layers, most + 1), dtype=np.int32)
    for row in range(rows):
        i = begin + row
        for m in range(1, most + 1):
            most_last = 2 if level.single else m
            for j in range(i, layers):
                best = np.inf
                if m == 1 or not level.single:
                    best = _stage_s(level, i, j, m)
                choice, count = 0, 0
                for s in range(i + 1, j + 1):
                    crossing_s = level.crossing_s[s]
                    if crossing_s >= best or crossing_s == np.inf:
                        continue
                    for last in range(1, min(most_last, m)):
                        value = table[row, s - 1, m - last]
                        if value >= best:
                            continue
                        value = max(value, crossing_s, _stage_s(level, s, j, last))
                        if value < best:
                            best, choice, count = value, s, last
                table[row, j, m] = best
                split[row, j, m] = choice
                replicas[row, j, m] = count
    return table, split, replicas
