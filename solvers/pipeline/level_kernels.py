"""Compiled table of one level of the hierarchical programme (Numba)."""

from typing import Any, NamedTuple

import numpy as np

from solvers.compilation import njit, njit_inner
from solvers.pipeline.stage_times import PUBLISHED, stage_s


class LevelInput(NamedTuple):
    """One level: ``base``, shape (N, N): seconds of layers i to j, both included, on one component of the level below;
    ``weights_s``, ``crossing_s``, shape (N + 1,): prefix sums of parameters, and the cut before each layer, over the
    level's bandwidth; ``components``: of the level below, that an unsplit stage's all-reduce is divided by
    (``published``). ``single``: no replicas (a straight pipeline)."""

    model: Any
    base: Any
    weights_s: Any
    crossing_s: Any
    components: Any
    single: Any


@njit_inner()
def _unsplit(level: Any, i: Any, j: Any, m: Any) -> Any:
    """Return the seconds of a single stage of layers i to j on m components."""
    weights_s = level.weights_s[j + 1] - level.weights_s[i]
    if level.model == PUBLISHED:
        weights_s /= level.components
    return stage_s(level.model, level.base[i, j], weights_s, m)


@njit(cache=True)
def level_table(level: Any, most: Any, begin: Any, rows: Any) -> Any:
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
                    best = _unsplit(level, i, j, m)
                choice, count = 0, 0
                for s in range(i + 1, j + 1):
                    crossing_s = level.crossing_s[s]
                    if level.model != PUBLISHED and crossing_s >= best:
                        continue
                    if crossing_s == np.inf:
                        continue
                    weights_s = level.weights_s[j + 1] - level.weights_s[s]
                    for last in range(1, min(most_last, m)):
                        value = table[row, s - 1, m - last]
                        if value >= best:
                            continue
                        if level.model == PUBLISHED:
                            value = max(value, crossing_s / last)
                            if j + 1 < layers:
                                value = max(value, level.crossing_s[j + 1] / last)
                        else:
                            value = max(value, crossing_s)
                        value = max(value, stage_s(level.model, level.base[s, j], weights_s, last))
                        if value < best:
                            best, choice, count = value, s, last
                table[row, j, m] = best
                split[row, j, m] = choice
                replicas[row, j, m] = count
    return table, split, replicas
