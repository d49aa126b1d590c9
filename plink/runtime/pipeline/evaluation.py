"""Evaluation during training: the pipeline drains, and other minibatches pass all stages, forward only.

Versions follow from minibatches, so training goes on afterwards with the same bits as without. Each evaluation uses the
parameters after all updates so far, which every stage has once it has drained; no stage waits for the others to drain.
"""

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from plink.errors import InputError, PlinkError
from plink.model.pipeline.shape import PipelineShape, replica_of
from plink.runtime.pipeline.app import PipelineApp, checked_batch
from plink.runtime.pipeline.executor import StageError
from plink.runtime.pipeline.parts import CutModel
from plink.runtime.pipeline.stage import StagePlace, StageTrainer
from plink.runtime.pipeline.transport import StageTransport

Evaluations = dict[int, dict[int, float]]
"""By how many minibatches were trained: the metric of each evaluation minibatch."""


def segments(app: PipelineApp, shape: PipelineShape, begin: int) -> Iterator[tuple[int, int, bool]]:
    """Yield where training begins and ends before it drains, and whether an evaluation follows.

    Evaluations are after multiples of ``evaluate_every``, rounded up to whole rounds, and at the end.
    """
    if app.evaluate_every is None:
        yield begin, app.minibatches, False
        return
    every = -(-app.evaluate_every // shape.cycle) * shape.cycle
    while begin < app.minibatches:
        end = min(app.minibatches, (begin // every + 1) * every)
        yield begin, end, True
        begin = end


def check_evaluation(app: PipelineApp, cut: CutModel, has_own_actions: bool = False) -> None:
    """Refuse models and plans that cannot be evaluated.

    :raises InputError: with why.
    """
    if app.evaluate_every is None:
        return
    if cut.method == "export":
        raise InputError(
            "evaluate_every",
            "dropout and batch norm of a traced model always train; evaluation needs an nn.Sequential, or a chain",
        )
    if has_own_actions:
        raise InputError("evaluate_every", "a plan with actions of its own does not drain; omit them")


@dataclass
class StageEvaluation:
    """Evaluates as one replica of a stage. ``group``: a Gloo group of all ranks; None where there is one stage.
    ``ranks``: of each stage's replicas."""

    app: PipelineApp
    trainer: StageTrainer
    replica: int
    group: Any
    ranks: Sequence[Sequence[int]]
    device: torch.device

    def run(self) -> dict[int, float]:
        """Take this replica's minibatches through its stage; return the metric of each, of the last stage."""
        place = self._place()
        transport = None
        if self.group is not None:
            transport = StageTransport(self.group, place, self.replica, self.ranks, self.device)
        metrics: dict[int, float] = {}
        for number in place.own(self.replica):
            try:
                metrics |= self._pass(number, place, transport)
            except Exception as error:
                kind = "" if isinstance(error, PlinkError) else f"{type(error).__name__}: "
                raise StageError(f"stage {place.stage}, evaluation minibatch {number}: {kind}{error}") from error
        if transport is not None:
            transport.finish()
        return metrics

    def _pass(self, number: int, place: StagePlace, transport: StageTransport | None) -> dict[int, float]:
        """Take one minibatch through the stage; return its metric, of the last stage."""
        value: tuple[Any, ...] = ()
        target: Tensor | None = None
        if place.is_first or place.is_last:
            inputs, read = checked_batch(self.app.evaluation_batch(number), "evaluation_batch()")
            value, target = tuple(tensor.to(self.device) for tensor in inputs), read.to(self.device)
        if not place.is_first:
            assert transport is not None
            value = (transport.receive_forward(number),)
        output = self.trainer.infer(number, value)
        if place.is_last:
            assert target is not None
            return {number: metric_of(self.app, output, target)}
        assert transport is not None
        transport.send_forward(number, output)
        return {}

    def _place(self) -> StagePlace:
        """Return the stage in a pipeline that trains nothing: no gradients come back."""
        shape = self.trainer.place.shape
        forward = PipelineShape("1f1b", shape.replicas, shape.depths, frozen=shape.stages - 1)
        return replace(self.trainer.place, shape=forward, minibatches=self.app.evaluation_minibatches, begin=0)


def gathered(store: Any, shape: PipelineShape, replica: int, trained: int, own: dict[int, float]) -> dict[int, float]:
    """Return the metrics of all replicas of the last stage; of replica 0, of the others what they have themselves."""
    name = f"evaluation-{trained}"
    if replica:
        store.set(f"{name}-{replica}", json.dumps(own))
        return own
    metrics = dict(own)
    for other in range(1, shape.replicas[-1]):
        metrics |= {int(number): value for number, value in json.loads(store.get(f"{name}-{other}")).items()}
    return dict(sorted(metrics.items()))


def evaluate_in_one_process(
    app: PipelineApp, trainers: Sequence[StageTrainer], device: torch.device, received: Callable[[Any], Any]
) -> dict[int, float]:
    """Return the metrics that all ranks would have. ``received``: returns what the next stage gets of an output."""
    metrics = {}
    for number in range(app.evaluation_minibatches):
        inputs, target = checked_batch(app.evaluation_batch(number), "evaluation_batch()")
        value: Any = tuple(tensor.to(device) for tensor in inputs)
        for trainer in trainers:
            output = trainer.infer(number, value)
            value = (received(output),)
        metrics[number] = metric_of(app, output, target.to(device))
    return metrics


def metric_of(app: PipelineApp, output: Any, target: Tensor) -> float:
    """Return the app's metric of a minibatch."""
    with torch.no_grad():
        return float(app.metric(output, target))


def summary(trained: int, metrics: dict[int, float]) -> str:
    """Return an evaluation in a line for people."""
    mean = statistics.fmean(metrics.values())
    return f"after minibatch {trained}: metric {mean:.6g}, the mean of {len(metrics)} minibatches"


def replica_has(shape: PipelineShape, replica: int, number: int) -> bool:
    """Whether a replica of the last stage has the metric of an evaluation minibatch."""
    return replica in (0, replica_of(shape, shape.stages - 1, number))
