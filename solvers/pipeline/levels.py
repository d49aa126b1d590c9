"""The hierarchical dynamic programme of the thesis, with its corrections, over levels of an even network.

Levels count from the innermost: a component of level k has m_k components of level k - 1, linked at B_k; a component of
level 0 is one worker. With T and A counting components of the level below (Harlap thesis, 5.3.1)::

    A^0(i, j)    = seconds of layers i to j
    T^k(i, j, m) = one stage of them on m components, by the model of :mod:`solvers.pipeline.stage_times`, where one
                   component takes A^{k-1}(i, j) with all of its own
    A^k(i, j, m) = min(T^k(i, j, m), min over s, m' of max(A^k(i, s, m - m'), 2 a_s / B_k, T^k(s+1, j, m')))

The printed recurrence lacks the single stage on all m, which is what makes data parallelism a result. A stage's inside
may be a pipeline of the level below, replicated m' times. O(N^3 m^2) per inner level, O(N^2 m^2) for the outermost.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solvers.pipeline.layer_costs import LayerCosts
from solvers.pipeline.level_kernels import LevelInput, level_table
from solvers.pipeline.stage_times import EVEN_MODELS, EvenModel

Watch = Callable[[int, int], bool]
_BLOCK_ROWS = 16


@dataclass(frozen=True)
class NetworkLevel:
    """So many components of the level below, linked at ``bandwidth`` bytes per second each."""

    components: int
    bandwidth: float


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

    @property
    def workers(self) -> int:
        """How many workers compute."""
        return sum(len(stage.workers) for stage in self.stages)


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
    model: EvenModel = "thesis",
    fewer_workers: bool = True,
    straight: bool = False,
    watch: Watch | None = None,
) -> LevelPartition:
    """Return the partition of least seconds per minibatch; ``levels``: innermost first.

    ``fewer_workers``: a component may leave some of its own idle where that is faster (the published code's
    ``--use_fewer_machines``). ``straight``: every stage has one worker. ``watch``: called with rows done, and all;
    returns whether to stop, which is a KeyboardInterrupt.
    """
    code, layers = EVEN_MODELS.index(model), costs.layers
    base = np.full((layers, layers), np.inf)
    for i in range(layers):
        base[i, i:] = costs.seconds[i + 1 :] - costs.seconds[i]
    tables: list[_Table] = []
    below = 1
    minibatch_s = np.inf
    for number, level in enumerate(levels):
        outermost = number == len(levels) - 1
        entry = LevelInput(
            code, base, costs.weights / level.bandwidth, costs.crossing / level.bandwidth, float(below), straight
        )
        table, split, replicas = _in_blocks(entry, level.components, 1 if outermost else layers, watch)
        used = np.full(table.shape[:2], level.components)
        if fewer_workers:
            used = np.argmin(table, axis=2)
        base = np.take_along_axis(table, used[:, :, None], axis=2)[:, :, 0]
        tables.append(_Table(split, replicas, used, below))
        below *= level.components
        minibatch_s = float(base[0, layers - 1])
    stages = _stages(tables, len(tables) - 1, (0, layers - 1))
    return LevelPartition(tuple(stages), minibatch_s)


def data_parallel(costs: LayerCosts, levels: tuple[NetworkLevel, ...], model: EvenModel) -> LevelPartition:
    """Return one stage on all workers, as the levels' recurrence prices it."""
    one_layer = LayerCosts(costs.seconds[[0, -1]], costs.weights[[0, -1]], costs.crossing[[0, -1]])
    priced = best_level_partition(one_layer, levels, model, fewer_workers=False)
    workers = math.prod(level.components for level in levels)
    return LevelPartition((PlacedStage(0, costs.layers - 1, tuple(range(workers))),), priced.minibatch_s)


def partitions_of_all_workers(
    costs: LayerCosts, levels: tuple[NetworkLevel, ...], model: EvenModel
) -> dict[str, LevelPartition]:
    """Return data parallelism, and one worker a stage (``straight``) where there are as many cuts."""
    partitions = {"data-parallel": data_parallel(costs, levels, model)}
    if 1 < math.prod(level.components for level in levels) <= possible_stages(costs):
        straight = best_level_partition(costs, levels, model, fewer_workers=False, straight=True)
        if straight.minibatch_s < math.inf:
            partitions["straight"] = straight
    return partitions


def possible_stages(costs: LayerCosts) -> int:
    """Return how many stages there can be: no cut is between layers that share a parameter."""
    return int((costs.crossing[1:-1] < math.inf).sum()) + 1


def _in_blocks(
    entry: LevelInput, most: int, rows: int, watch: Watch | None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the table of a level, some rows at a time, so that somebody can watch."""
    parts = []
    for begin in range(0, rows, _BLOCK_ROWS):
        parts.append(level_table(entry, most, begin, min(_BLOCK_ROWS, rows - begin)))
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
