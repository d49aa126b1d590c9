"""Planners of even networks equal an exhaustive search over their models' formulas, written out here."""

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest

from plink.errors import NoAnswer
from solvers.pipeline.layer_costs import LayerCosts
from solvers.pipeline.levels import NetworkLevel, best_level_partition
from solvers.pipeline.stage_times import EvenModel
from solvers.pipeline.threshold import StageRange, best_partition, fixed_partition

MODELS: tuple[EvenModel, ...] = ("ring", "thesis", "published")


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
    chain: Chain, levels: list[tuple[int, float]], model: str, exactly: bool, layers: tuple[int, int] | None = None
) -> float:
    """Least seconds per minibatch over every partition of every level."""
    first, last = layers or (0, len(chain.seconds) - 1)
    if not levels:
        return float(sum(chain.seconds[first : last + 1]))
    *inner, (components, bandwidth) = levels
    inside = 1
    for count, _ in inner:
        inside *= count
    best = float("inf")
    for stages in splits(first, last, components, exactly):
        value = 0.0
        for number, (i, j, m) in enumerate(stages):
            compute = exhaustive(chain, inner, model, exactly, (i, j))
            weight = sum(chain.weights[i : j + 1])
            if model == "ring":
                value = max(value, compute / m, 2 * (m - 1) * weight / m / bandwidth / m)
            elif model == "thesis":
                value = max(value, compute / m, 2 * (m - 1) * weight / bandwidth / m)
            else:
                reduced = 4 * (m - 1) * weight / (bandwidth * m)
                value = max(value, (compute + (reduced / inside if number == 0 else reduced)) / m)
            if number > 0 and model != "published":
                value = max(value, chain.crossing[i - 1] / bandwidth)
            if number > 0 and model == "published":
                value = max(value, chain.crossing[i - 1] / (bandwidth * m))
                if j < len(chain.seconds) - 1:
                    value = max(value, chain.crossing[j] / (bandwidth * m))
        best = min(best, value)
    return best


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("fewer", [True, False])
def test_one_level_equals_exhaustive_search(model: EvenModel, fewer: bool) -> None:
    for seed in range(60):
        chain = Chain(seed, 1 + seed % 5)
        workers = 1 + seed % 5
        bandwidth = float(random.Random(seed).choice((1, 16, 64, 256)))
        result = best_level_partition(chain.costs(), (NetworkLevel(workers, bandwidth),), model, fewer_workers=fewer)
        expected = exhaustive(chain, [(workers, bandwidth)], model, not fewer)
        assert result.minibatch_s == pytest.approx(expected, rel=1e-12), (seed, chain.seconds, result)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("inner", "outer"), [(2, 3), (3, 2), (2, 2)])
def test_two_levels_equal_exhaustive_search(model: EvenModel, inner: int, outer: int) -> None:
    for seed in range(25):
        chain = Chain(seed, 1 + seed % 5)
        chance = random.Random(seed)
        levels = [(inner, float(chance.choice((64, 512)))), (outer, float(chance.choice((4, 32, 128))))]
        for exactly in (True, False):
            result = best_level_partition(
                chain.costs(), tuple(NetworkLevel(*level) for level in levels), model, fewer_workers=not exactly
            )
            expected = exhaustive(chain, levels, model, exactly)
            assert result.minibatch_s == pytest.approx(expected, rel=1e-12), (seed, exactly)


@pytest.mark.parametrize("model", ["ring", "thesis"])
def test_of_equally_fast_partitions_the_one_of_least_traffic_is_chosen(model: EvenModel) -> None:
    """If not one stage; then the one of fewest workers, then of the earliest cuts, the last one first."""
    for seed in range(60):
        chain = Chain(seed, 1 + seed % 5)
        workers = 1 + seed % 5
        bandwidth = float(random.Random(seed).choice((16, 64, 256)))
        result = best_partition(chain.costs(), workers, bandwidth, model)
        ranked = []
        for stages in splits(0, len(chain.seconds) - 1, workers, exactly=False):
            ranges = tuple(StageRange(*stage) for stage in stages)
            if fixed_partition(chain.costs(), ranges, bandwidth, model).minibatch_s <= result.minibatch_s:
                sent = sum(chain.crossing[i - 1] for i, _, _ in stages[1:])
                sent += sum(2 * (m - 1) / m * sum(chain.weights[i : j + 1]) for i, j, m in stages)
                cuts = [i for i, _, _ in reversed(stages)]
                ranked.append((len(stages) > 1, round(sent, 6), sum(m for _, _, m in stages), cuts, stages))
        assert [(stage.first, stage.last, stage.replicas) for stage in result.stages] == min(ranked)[4], seed


@pytest.mark.parametrize("model", ["ring", "thesis"])
def test_threshold_equals_exhaustive_search(model: EvenModel) -> None:
    for seed in range(150):
        chain = Chain(seed, 1 + seed % 6)
        workers = 1 + seed % 5
        bandwidth = float(random.Random(seed).choice((1, 16, 64, 256)))
        result = best_partition(chain.costs(), workers, bandwidth, model)
        assert result.minibatch_s == pytest.approx(exhaustive(chain, [(workers, bandwidth)], model, False), rel=1e-12)
        assert result.workers <= workers
        again = fixed_partition(chain.costs(), result.stages, bandwidth, model)
        assert again.minibatch_s == result.minibatch_s


@pytest.mark.parametrize("model", ["ring", "thesis"])
def test_threshold_equals_the_table(model: EvenModel) -> None:
    """200 larger cases each: the same value by two algorithms."""
    for seed in range(200):
        chain = Chain(seed, 40)
        bandwidth = float(random.Random(seed).choice((4, 16, 64, 256)))
        table = best_level_partition(chain.costs(), (NetworkLevel(16, bandwidth),), model)
        threshold = best_partition(chain.costs(), 16, bandwidth, model)
        assert threshold.minibatch_s == table.minibatch_s, seed


@pytest.mark.parametrize("model", MODELS)
def test_placed_stages_have_every_layer_and_each_worker_once(model: EvenModel) -> None:
    for seed in range(40):
        chain = Chain(seed, 7)
        levels = (NetworkLevel(2, 512.0), NetworkLevel(3, 32.0))
        result = best_level_partition(chain.costs(), levels, model)
        layers = [layer for stage in result.stages for layer in range(stage.first, stage.last + 1)]
        assert layers == list(range(7))
        workers = [worker for stage in result.stages for worker in stage.workers]
        assert len(set(workers)) == len(workers) <= 6
        assert set(workers) <= set(range(6))


def test_a_pipeline_inside_machines_keeps_minibatches_inside() -> None:
    """Two machines, each a pipeline of two workers: replica q of both stages is in machine q."""
    costs = LayerCosts(np.array([0.0, 8.0, 16.0]), np.array([0.0, 1.0, 2.0]), np.array([0.0, 10.0, 0.0]))
    costs = LayerCosts(costs.seconds, np.array([0.0, 40.0, 80.0]), costs.crossing)
    result = best_level_partition(costs, (NetworkLevel(2, 10.0), NetworkLevel(2, 20.0)), "ring", fewer_workers=False)
    assert result.minibatch_s == 4.0
    if [len(stage.workers) for stage in result.stages] == [2, 2]:
        for stage in result.stages:
            assert [worker // 2 for worker in stage.workers] == [0, 1]


def test_threshold_of_a_thousand_layers_and_256_workers() -> None:
    """How long it may take is a bar of the benchmark ``pipeline_planner``."""
    costs = Chain(0, 1000).costs()
    result = best_partition(costs, 256, 4096.0)
    assert result.workers <= 256
    assert result.minibatch_s >= costs.seconds[-1] / 256


def test_data_parallelism_is_a_result() -> None:
    """Small weights, large outputs, as of ResNet-50: no cut is worth it."""
    layers = 10
    costs = LayerCosts(np.arange(layers + 1) * 44.0, np.arange(layers + 1) * 0.4, np.array([0.0, *[900.0] * 9, 0.0]))
    for model in ("ring", "thesis"):
        result = best_partition(costs, 16, 10.0, model)  # type: ignore[arg-type]
        assert [(stage.first, stage.last, stage.replicas) for stage in result.stages] == [(0, 9, 16)]


def test_vgg_like_is_3_1_and_15_1() -> None:
    """98 % of the time in the first part, 89 % of the weights in the second (Table 5.1, VGG-16)."""
    costs = LayerCosts(np.array([0.0, 329.0, 336.0]), np.array([0.0, 1.54e6, 14.4e6]), np.array([0.0, 332e3, 0.0]))
    for workers, replicas in ((4, [3, 1]), (16, [15, 1])):
        result = best_partition(costs, workers, 25e3, "ring")
        assert [stage.replicas for stage in result.stages] == replicas


def test_one_host_alone_may_be_fastest() -> None:
    """Two hosts with a link so slow that they only wait for it."""
    costs = LayerCosts(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1e6, 2e6]), np.array([0.0, 1e6, 0.0]))
    result = best_partition(costs, 2, 1e3)
    assert (result.workers, result.minibatch_s) == (1, 2.0)


def test_tied_layers_stay_together() -> None:
    costs = LayerCosts(np.array([0.0, 4.0, 8.0, 12.0]), np.zeros(4), np.array([0.0, np.inf, np.inf, 0.0]))
    costs = LayerCosts(costs.seconds, np.array([0.0, 1e9, 2e9, 3e9]), costs.crossing)
    assert best_partition(costs, 3, 1.0).stages[0].last == 2
    for model in MODELS:
        assert len(best_level_partition(costs, (NetworkLevel(3, 1.0),), model).stages) == 1


def test_published_charges_half_as_much_inside_machines() -> None:
    """The quirk: an unsplit stage's all-reduce is divided by the workers inside a machine, a split's is not."""
    costs = LayerCosts(np.array([0.0, 8.0]), np.array([0.0, 80.0]), np.zeros(2))
    whole = (NetworkLevel(2, 1e9), NetworkLevel(2, 10.0))
    inside = (8.0 + 4 * 1 * 80 / (1e9 * 2)) / 2
    result = best_level_partition(costs, whole, "published", fewer_workers=False)
    assert result.minibatch_s == pytest.approx((inside + 4 * 1 * 80 / (10 * 2) / 2) / 2)


def test_straight_has_single_workers() -> None:
    for seed in range(20):
        chain = Chain(seed, 6)
        result = best_level_partition(chain.costs(), (NetworkLevel(4, 64.0),), "ring", False, straight=True)
        assert [len(stage.workers) for stage in result.stages] == [1, 1, 1, 1]
        bounds = [
            max([*(sum(chain.seconds[i:j]) for i, j in itertools.pairwise((0, *cuts, 6))),
                 *(chain.crossing[cut - 1] / 64 for cut in cuts)])
            for cuts in itertools.combinations(range(1, 6), 3)
        ]  # fmt: skip
        assert result.minibatch_s == min(bounds)


def test_no_time_no_partition() -> None:
    with pytest.raises(NoAnswer, match="no layer takes any time"):
        best_partition(LayerCosts(np.zeros(3), np.zeros(3), np.zeros(3)), 2, 1.0)
