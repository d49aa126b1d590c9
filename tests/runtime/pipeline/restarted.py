"""Jobs that stop at a minibatch, and go on from a checkpoint: what tests of both need."""

from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor

from plink.errors import PlinkError
from plink.model.pipeline.plan import PipelinePlan
from plink.runtime.pipeline.app import PipelineApp
from plink.runtime.pipeline.checkpoints import CheckpointSettings
from plink.runtime.pipeline.job import PipelineProgram, StageResult, run_rank
from tests.runtime.pipeline.apps import SmallApp


class StoppingApp(SmallApp):
    """Its first stage fails when it reads a minibatch."""

    def __init__(self, *arguments: Any, stop: int = -1, **keys: Any) -> None:
        super().__init__(*arguments, **keys)
        self.stop = stop

    def batch(self, number: int) -> tuple[tuple[Tensor, ...], Tensor]:
        if number == self.stop:
            raise RuntimeError("killed")
        return super().batch(number)


@dataclass
class Outcome:
    """What a rank ends with, or the error."""

    result: StageResult | None = None
    error: str = ""


def outcome_of_rank(app: PipelineApp, plan: PipelinePlan, settings: CheckpointSettings) -> Outcome:
    """Be a rank, to its end or its error."""
    dist.init_process_group("gloo")
    try:
        return Outcome(run_rank(PipelineProgram(app), plan, "plan.json", 60, checkpoints=settings))
    except PlinkError as error:
        return Outcome(error=str(error))
