"""With recompute, a minibatch in flight keeps its input and no graph."""

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from plink.model.pipeline.shape import PipelineShape
from plink.runtime.pipeline.parts import build_model, stages_of
from plink.runtime.pipeline.replicas import LocalGradients
from plink.runtime.pipeline.stage import StagePlace, StageTrainer
from tests.runtime.pipeline.apps import SmallApp, mlp, plan_of


class Token:
    """Something that a graph keeps."""


ALIVE: "weakref.WeakSet[Token]" = weakref.WeakSet()


class Keeping(torch.autograd.Function):
    """Keeps something for its backward pass."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        ctx.alive = Token()
        ALIVE.add(ctx.alive)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


class KeepingLayer(nn.Module):
    def forward(self, value: Tensor) -> Tensor:
        return Keeping.apply(value)  # type: ignore[no-any-return,no-untyped-call]


@pytest.mark.parametrize(("recompute", "alive"), [(False, 4), (True, 0)])
def test_graphs_that_minibatches_in_flight_keep(recompute: bool, alive: int) -> None:
    app = SmallApp(mlp, "sgd", minibatches=4)
    app.model = lambda: nn.Sequential(nn.Linear(6, 6), KeepingLayer(), nn.Linear(6, 3))  # type: ignore[method-assign]
    plan = plan_of([1], 3, kind="gpipe", accumulate=4, recompute=recompute)
    (module,) = stages_of(build_model(app), plan, "plan.json")
    place = StagePlace(PipelineShape("gpipe", (1,), (1,), 4), 0, 4, recompute=recompute)
    trainer = StageTrainer(app, place, module, LocalGradients(), [0])
    for minibatch in range(4):
        trainer.forward(minibatch, *app.batch(minibatch))
    assert len(ALIVE) == alive
    for minibatch in range(4):
        trainer.backward(minibatch, None, minibatch == 3)
    assert len(ALIVE) == 0
