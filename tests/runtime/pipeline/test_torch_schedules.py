"""The kinds that flush do what torch's own schedules do: the same passes in the same sequence, and the same weights."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from plink.model.pipeline.actions import actions_of
from plink.model.pipeline.plan import PipelinePlan
from plink.runtime.pipeline.job import PipelineProgram, StageResult, run_rank
from tests.runtime.pipeline.apps import SmallApp, conv, mlp, plan_of
from tests.runtime.ranks import results_of, run_ranks

# Each starts several processes; one path of each kind is quick.
pytestmark = pytest.mark.extended

pytest.importorskip("torch.distributed.pipelining")
MICROBATCHES, BATCHES = 6, 2
# torch's stages must not begin with a layer that changes its input in place.
MODELS: list[tuple[Any, int, list[int]]] = [(mlp, 6, [2, 4]), (conv, 7, [1, 4])]


class EvenApp(SmallApp):
    """A constant learning rate."""

    def rate(self, number: int) -> float:
        return 1.0


def app_of(model: Any) -> SmallApp:
    return EvenApp(model, "momentum", MICROBATCHES * BATCHES)


def train_by_torch(app: SmallApp, plan: PipelinePlan) -> tuple[list[str], dict[str, Tensor]]:
    """Train the stage of this rank's number by torch's schedule; return its passes and parameters.

    Not its buffers: torch's inference of shapes changes running statistics.
    """
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    number = dist.get_rank()
    torch.manual_seed(app.seed)
    model = app.model()
    layers = [(name, layer) for name, layer in model.named_children()]
    if isinstance(layers[2][1], nn.Sequential):
        layers[2:3] = [(f"2.{name}", layer) for name, layer in layers[2][1].named_children()]
    entry = plan.stages[number]
    own = layers[entry.first : entry.last + 1]
    module = nn.Sequential(*[layer for _, layer in own])
    passes: list[str] = []

    class Recorded(PipelineStage):
        """Notes its passes."""

        def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
            passes.append(f"{number}F{batch * MICROBATCHES + fwd_chunk_id}")
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

        def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
            passes.append(f"{number}B{batch * MICROBATCHES + bwd_chunk_id}")
            return super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)

    stage = Recorded(module, number, len(plan.stages), torch.device("cpu"))
    kind = {"gpipe": ScheduleGPipe, "1f1b-flush": Schedule1F1B}[plan.kind]
    schedule = kind(stage, MICROBATCHES, loss_fn=app.loss)
    optimiser = app.optimiser(list(module.parameters()), 1.0)
    for batch in range(BATCHES):
        read = [app.batch(batch * MICROBATCHES + number) for number in range(MICROBATCHES)]
        inputs, targets = torch.cat([values[0] for values, _ in read]), torch.cat([target for _, target in read])
        keys: dict[str, Any] = {"target": targets} if number == len(plan.stages) - 1 else {}
        schedule.step(*([inputs] if number == 0 else []), **keys)
        optimiser.step()
        optimiser.zero_grad()
    state = {f"{name}.{inner}": tensor for name, layer in own for inner, tensor in layer.named_parameters()}
    return passes, state


def plan_for(kind: Any, number: int) -> PipelinePlan:
    _, layers, cuts = MODELS[number]
    return plan_of([1, 1, 1], layers, kind=kind, accumulate=MICROBATCHES, cuts=cuts)


def train_both(kind: str) -> list[tuple[list[str], dict[str, Tensor], StageResult]]:
    """Be a rank that trains by torch, then by plink, which has another stage."""
    dist.init_process_group("gloo")
    results = []
    for number, (model, _, _) in enumerate(MODELS):
        plan = plan_for(kind, number)
        passes, state = train_by_torch(app_of(model), plan)
        results.append((passes, state, run_rank(PipelineProgram(app_of(model)), plan, "plan.json")))
    dist.destroy_process_group()
    return results


@pytest.mark.parametrize("kind", ["gpipe", "1f1b-flush"])
def test_flushing_kinds_train_as_torch_does(kind: str) -> None:
    ranks = results_of(run_ranks(train_both, 3, kind))
    for number in range(len(MODELS)):
        plan = plan_for(kind, number)
        own = {rank[number][2].stage: rank[number][2] for rank in ranks}
        for stage, rank in enumerate(ranks):
            passes, state, _ = rank[number]
            actions = actions_of(plan.shape, stage, 0, MICROBATCHES * BATCHES)
            assert passes == [str(action) for action in actions if action.kind in ("F", "B")]
            for name, tensor in state.items():
                torch.testing.assert_close(own[stage].state[name], tensor, rtol=1e-5, atol=1e-6)
