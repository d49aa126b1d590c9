"""The thesis's dynamic programme equals an exhaustive search over its formulas, written out here."""

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest

from solvers.pipeline.thesis import LayerCosts, NetworkLevel, best_level_partition


class Chain:
    """Layers with whole seconds and bytes, so that sums are exact in any sequence."""

    def __init__(self, seed: int, layers: int) -> None:
        chance = random.Random(seed)
        self.seconds = [chance.randrange(0, 30) for _ in range(layers)]
        self.seconds[chance.randrange(layers)] += 1
        self.weights = [chance.randrange(0, 200) * chance.choice((0, 1, 20)) for _ in range(layers)]
        self.crossing = [chance.randrange(1, 2000) for _ in range(layers - 1)]

    def costs(self) -> LayerCosts:
        return LayerCosts(
            np.concatenate([[0.0], np.cumsum(self.seconds)]),
            np.concatenate([[0.0], np.cumsum([float(weight) for weight in self.weights])]),
            np.array([0.0, *self.crossing, 0.0]),
        )


def splits(first: int, last: int, workers: int, exactly: bool) -> Iterator[list[tuple[int, int, int]]]:
    """All partitions of layers into stages, with replicas: (first, last, replicas)."""
    for count in range(1, min(last - first + 1, workers) + 1):
        for cuts in itertools.combinations(range(first + 1, last + 1), count - 1):
            ends = [first, *cuts, last + 1]
            for replicas in itertools.product(range(1, workers + 1), repeat=count):
                total = sum(replicas)
                if total == workers or (total < workers and not exactly):
                    yield [(ends[k], ends[k + 1] - 1, replicas[k]) for k in range(count)]


def exhaustive(
    chain: Chain, levels: list[tuple[int, float]], exactly: bool, layers: tuple[int, int] | None = None
) -> float:
    """Least seconds per minibatch over every partition of every level."""
    first, last = layers or (0, len(chain.seconds) - 1)
    if not levels:
        return float(sum(chain.seconds[first : last + 1]))
    *inner, (components, bandwidth) = levels
    best = float("inf")
    for stages in splits(first, last, components, exactly):
        value = 0.0
        for number, (i, j, m) in enumerate(stages):
            compute = exhaustive(chain, inner, exactly, (i, j))
            value = max(value, compute / m, 2 * (m - 1) * sum(chain.weights[i : j + 1]) / bandwidth / m)
            if number > 0:
                value = max(value, chain.crossing[i - 1] / bandwidth)
        best = min(best, value)
    return best


@pytest.mark.parametrize("fewer", [True, False])
def test_one_level_equals_exhaustive_search(fewer: bool) -> None:
    for seed in range(60):
        chain = Chain(seed, 1 + seed % 5)
        workers = 1 + seed % 5
        bandwidth = float(random.Random(seed).choice((1, 16, 64, 256)))
        result = best_level_partition(chain.costs(), (NetworkLevel(workers, bandwidth),), fewer_workers=fewer)
        expected = exhaustive(chain, [(workers, bandwidth)], not fewer)
        assert result.minibatch_s == pytest.approx(expected, rel=1e-12), (seed, chain.seconds, result)


@pytest.mark.parametrize(("inner", "outer"), [(2, 3), (3, 2), (2, 2)])
def test_two_levels_equal_exhaustive_search(inner: int, outer: int) -> None:
    for seed in range(25):
        chain = Chain(seed, 1 + seed % 5)
        chance = random.Random(seed)
        levels = [(inner, float(chance.choice((64, 512)))), (outer, float(chance.choice((4, 32, 128))))]
        for exactly in (True, False):
            result = best_level_partition(
                chain.costs(), tuple(NetworkLevel(*level) for level in levels), fewer_workers=not exactly
            )
            expected = exhaustive(chain, levels, exactly)
            assert result.minibatch_s == pytest.approx(expected, rel=1e-12), (seed, exactly)


def test_placed_stages_have_every_layer_and_each_worker_once() -> None:
    for seed in range(40):
        chain = Chain(seed, 7)
        levels = (NetworkLevel(2, 512.0), NetworkLevel(3, 32.0))
        result = best_level_partition(chain.costs(), levels)
        layers = [layer for stage in result.stages for layer in range(stage.first, stage.last + 1)]
        assert layers == list(range(7))
        workers = [worker for stage in result.stages for worker in stage.workers]
        assert len(set(workers)) == len(workers) <= 6
        assert set(workers) <= set(range(6))


def test_a_pipeline_inside_machines_keeps_minibatches_inside() -> None:
    """Two machines, each a pipeline of two workers: replica q of both stages is in machine q."""
    costs = LayerCosts(np.array([0.0, 8.0, 16.0]), np.array([0.0, 1.0, 2.0]), np.array([0.0, 10.0, 0.0]))
    costs = LayerCosts(costs.seconds, np.array([0.0, 40.0, 80.0]), costs.crossing)
    result = best_level_partition(costs, (NetworkLevel(2, 20.0), NetworkLevel(2, 40.0)), fewer_workers=False)
    assert result.minibatch_s == 4.0
    if [len(stage.workers) for stage in result.stages] == [2, 2]:
        for stage in result.stages:
            assert [worker // 2 for worker in stage.workers] == [0, 1]


def test_vgg_like_is_15_1() -> None:
    """98 % of the time in the first part, 89 % of the weights in the second (Table 5.1, VGG-16)."""
    costs = LayerCosts(np.array([0.0, 329.0, 336.0]), np.array([0.0, 1.54e6, 14.4e6]), np.array([0.0, 332e3, 0.0]))
    result = best_level_partition(costs, (NetworkLevel(16, 2.5e5),))
    assert [len(stage.workers) for stage in result.stages] == [15, 1]


def test_tied_layers_stay_together() -> None:
    costs = LayerCosts(
        np.array([0.0, 4.0, 8.0, 12.0]), np.array([0.0, 1e9, 2e9, 3e9]), np.array([0.0, np.inf, np.inf, 0.0])
    )
    assert len(best_level_partition(costs, (NetworkLevel(3, 1.0),)).stages) == 1
    assert best_level_partition(costs, (NetworkLevel(3, 1.0),), fewer_workers=False, straight=True).stages == ()


def test_straight_has_single_workers() -> None:
    for seed in range(20):
        chain = Chain(seed, 6)
        result = best_level_partition(chain.costs(), (NetworkLevel(4, 64.0),), False, straight=True)
        assert [len(stage.workers) for stage in result.stages] == [1, 1, 1, 1]
        bounds = [
            max([*(sum(chain.seconds[i:j]) for i, j in itertools.pairwise((0, *cuts, 6))),
                 *(chain.crossing[cut - 1] / 64 for cut in cuts)])
            for cuts in itertools.combinations(range(1, 6), 3)
        ]  # fmt: skip
        assert result.minibatch_s == min(bounds)
