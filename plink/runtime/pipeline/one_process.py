"""A whole pipeline in one process: minibatch after minibatch, with the plan's versions, so the same bits come out.

It shows what the plan's delays do to learning before any host is rented.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.shape import minibatches_of_update, minibatches_per_update, replica_of, update_of, version_of
from plink.runtime.pipeline.app import PipelineApp, checked_batch
from plink.runtime.pipeline.evaluation import (
    Evaluations,
    check_evaluation,
    evaluate_in_one_process,
    replica_has,
    segments,
)
from plink.runtime.pipeline.job import PipelineProgram, StageResult, check_supported, place_of
from plink.runtime.pipeline.parts import build_model, stages_of
from plink.runtime.pipeline.replicas import LocalGradients
from plink.runtime.pipeline.stage import StageTrainer, tensors_of


def train_in_one_process(
    program: PipelineProgram,
    plan: PipelinePlan,
    location: str,
    on_loss: Callable[[int, float], None] = lambda b, loss: None,
) -> list[StageResult]:
    """Train as all ranks of a plan would, and return each rank's result, by rank.

    Equal to the bit where stages have at most two replicas; with more, an all-reduce adds in another sequence.

    :raises PlinkError: as a rank of the pipeline does.
    """
    check_supported(plan, program.app.minibatches)
    app, shape = program.app, plan.shape
    device = torch.device(app.device)
    cut = build_model(app)
    check_evaluation(app, cut, plan.actions is not None)
    stages = stages_of(cut, plan, location)
    trainers = []
    for number, module in enumerate(stages):
        place = place_of(plan, number, app.minibatches)
        replicas = range(shape.replicas[number])
        gradients = LocalGradients(minibatches_per_update(shape, number) > 1)  # added up in the sequence of the ranks'
        trainers.append(StageTrainer(app, place, module.to(device), gradients, replicas))
    evaluations: Evaluations = {}
    for begin, end, is_evaluated in segments(app, shape, 0):
        for minibatch in range(begin, end):
            _train(app, trainers, minibatch, device)
            on_loss(minibatch, trainers[-1].losses[minibatch])
        if is_evaluated:
            evaluations[end] = evaluate_in_one_process(app, trainers, device, _received)
    return [_result(trainers, plan, rank, evaluations) for rank in range(plan.ranks)]


def _train(app: PipelineApp, trainers: list[StageTrainer], minibatch: int, device: torch.device) -> None:
    """Take a minibatch through all stages and back, and make the updates that it completes."""
    shape = trainers[0].place.shape
    inputs, target = checked_batch(app.batch(minibatch))
    value: Any = tuple(tensor.to(device) for tensor in inputs)
    for trainer in trainers:
        output = trainer.forward(minibatch, value, target.to(device))
        value = (_received(output),)
    gradients: list[Tensor] | None = None
    for trainer in reversed(trainers[shape.frozen :]):
        number = trainer.place.stage
        update = update_of(shape, number, minibatch)
        is_last = minibatch == minibatches_of_update(shape, number, update, app.minibatches)[-1]
        gradients = [gradient.contiguous() for gradient in trainer.backward(minibatch, gradients, is_last)]
        if is_last:
            trainer.update(update, version_of(shape, number, minibatch + 1))


def _received(output: Any) -> Any:
    """Return what the next stage would receive: the same values in memory of their own."""
    copies = tuple(
        tensor.detach().clone(memory_format=torch.contiguous_format).requires_grad_(tensor.requires_grad)
        for tensor in tensors_of(output)
    )
    return copies[0] if isinstance(output, Tensor) else copies


def _result(trainers: list[StageTrainer], plan: PipelinePlan, rank: int, evaluations: Evaluations) -> StageResult:
    stage, replica = plan.place_of(rank)
    trainer = trainers[stage]
    losses = {b: loss for b, loss in trainer.losses.items() if replica_of(plan.shape, stage, b) == replica}
    own: Evaluations = {}
    if trainer.place.is_last:
        own = {
            trained: {number: value for number, value in metrics.items() if replica_has(plan.shape, replica, number)}
            for trained, metrics in evaluations.items()
        }
    state = trainer.state(replica), trainer.optimiser_state()
    return StageResult(stage, replica, *state, losses, evaluations=own)
