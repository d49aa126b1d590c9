"""A pipeline whose ranks share one real GPU: messages and sums go through host memory. Skipped where there is none."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from plink.runtime.pipeline.checkpoints import CheckpointSettings, checkpoints_in
from plink.runtime.pipeline.job import PipelineProgram, StageResult, run_rank
from plink.runtime.pipeline.one_process import train_in_one_process
from tests.runtime.pipeline.apps import SmallApp, attention, conv, dropout, mlp, plan_of
from tests.runtime.pipeline.restarted import StoppingApp, outcome_of_rank
from tests.runtime.ranks import results_of, run_ranks

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
MINIBATCHES = 21
MODELS = [(mlp, 6), (conv, 7), (attention, 5)]
TOPOLOGIES: dict[str, dict[str, Any]] = {
    "1-1": {"replicas": [1, 1]},
    "1-1-1": {"replicas": [1, 1, 1]},
    "2-1": {"replicas": [2, 1]},
    "1-2": {"replicas": [1, 2]},
    "1-1 gpipe recompute": {"replicas": [1, 1], "kind": "gpipe", "accumulate": 3, "recompute": True},
    "1-1-1 flush": {"replicas": [1, 1, 1], "kind": "1f1b-flush", "accumulate": 4},
    "1-1 2bw": {"replicas": [1, 1], "kind": "2bw", "accumulate": 3},
    "2-1 recompute": {"replicas": [2, 1], "recompute": True},
}


def on_cpu(result: StageResult) -> StageResult:
    """Return a result that another process can be given."""
    for name, tensor in result.state.items():
        assert tensor.device.type == "cuda", name
        result.state[name] = tensor.cpu()
    result.optimiser_state.clear()
    return result


def compare(own: StageResult, other: StageResult) -> None:
    """Within rounding: a GPU's additions have no fixed sequence."""
    for name, tensor in other.state.items():
        torch.testing.assert_close(own.state[name], tensor.cpu(), rtol=1e-4, atol=1e-5)
    for minibatch, loss in own.losses.items():
        assert loss == pytest.approx(other.losses[minibatch], rel=1e-4)


def train_on_gpu(topology: dict[str, Any]) -> list[StageResult]:
    """Be a rank; all share the GPU."""
    dist.init_process_group("gloo")
    results = []
    for model, layers in MODELS:
        app = SmallApp(model, "adam", MINIBATCHES, device="cuda:0")
        results.append(on_cpu(run_rank(PipelineProgram(app), plan_of(layers=layers, **topology), "plan.json")))
    dist.destroy_process_group()
    return results


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_pipeline_on_the_gpu_equals_one_process_there(name: str) -> None:
    topology = TOPOLOGIES[name]
    ranks = results_of(run_ranks(train_on_gpu, sum(topology["replicas"]), topology))
    for number, (model, layers) in enumerate(MODELS):
        app = SmallApp(model, "adam", MINIBATCHES, device="cuda:0")
        expected = train_in_one_process(PipelineProgram(app), plan_of(layers=layers, **topology), "plan.json")
        for results, other in zip(ranks, expected, strict=True):
            assert results[number].losses.keys() == other.losses.keys()
            compare(results[number], other)


def train_with_checkpoints(topology: dict[str, Any], settings: CheckpointSettings, stop: int) -> StageResult | str:
    """Be a rank in a job that may be stopped, and may go on from a checkpoint."""
    app = StoppingApp(dropout, "adam", MINIBATCHES, stop=stop, device="cuda:0")
    outcome = outcome_of_rank(app, plan_of(layers=7, **topology), settings)
    return outcome.error if outcome.result is None else on_cpu(outcome.result)


@pytest.mark.parametrize("name", ["1-1", "2-1", "1-1 2bw", "1-1 gpipe recompute"])
def test_pipeline_on_the_gpu_goes_on_from_a_checkpoint(name: str, tmp_path: Path) -> None:
    topology = TOPOLOGIES[name]
    ranks = sum(topology["replicas"])
    stopped = results_of(run_ranks(train_with_checkpoints, ranks, topology, CheckpointSettings(tmp_path, 2), 15))
    assert all(isinstance(result, str) for result in stopped)
    assert checkpoints_in(tmp_path)
    settings = CheckpointSettings(tmp_path, 2, tmp_path)
    ended = results_of(run_ranks(train_with_checkpoints, ranks, topology, settings, -1))
    app = SmallApp(dropout, "adam", MINIBATCHES, device="cuda:0")
    expected = train_in_one_process(PipelineProgram(app), plan_of(layers=7, **topology), "plan.json")
    for own, other in zip(ended, expected, strict=True):
        assert isinstance(own, StageResult), own
        assert min(own.losses, default=1) > 0
        compare(own, other)
