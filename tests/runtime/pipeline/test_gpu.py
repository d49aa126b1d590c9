"""A pipeline whose ranks share one real GPU: messages and sums go through host memory. Skipped where there is none."""

import pytest
import torch
import torch.distributed as dist

from plink.runtime.pipeline.job import PipelineProgram, StageResult, run_rank
from plink.runtime.pipeline.one_process import train_in_one_process
from tests.runtime.pipeline.apps import SmallApp, attention, conv, mlp, plan_of
from tests.runtime.ranks import results_of, run_ranks

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
MODELS = [(mlp, 6), (conv, 7), (attention, 5)]


def train_on_gpu(replicas: list[int]) -> list[StageResult]:
    """Be a rank; all share the GPU."""
    dist.init_process_group("gloo")
    results = []
    for model, layers in MODELS:
        app = SmallApp(model, "adam", minibatches=21, device="cuda:0")
        results.append(run_rank(PipelineProgram(app), plan_of(replicas, layers), "plan.json"))
    dist.destroy_process_group()
    for result in results:
        for name, tensor in result.state.items():
            assert tensor.device.type == "cuda", name
            result.state[name] = tensor.cpu()
        result.optimiser_state.clear()
    return results


@pytest.mark.parametrize("replicas", [[1, 1], [1, 1, 1], [2, 1], [1, 2]])
def test_pipeline_on_the_gpu_equals_one_process_there(replicas: list[int]) -> None:
    ranks = results_of(run_ranks(train_on_gpu, sum(replicas), replicas))
    for number, (model, layers) in enumerate(MODELS):
        app = SmallApp(model, "adam", minibatches=21, device="cuda:0")
        expected = train_in_one_process(PipelineProgram(app), plan_of(replicas, layers), "plan.json")
        for results, other in zip(ranks, expected, strict=True):
            for name, tensor in other.state.items():
                torch.testing.assert_close(results[number].state[name], tensor.cpu(), rtol=1e-4, atol=1e-5)
            for minibatch, loss in other.losses.items():
                assert results[number].losses[minibatch] == pytest.approx(loss, rel=1e-4)
