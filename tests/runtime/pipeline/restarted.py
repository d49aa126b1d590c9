"""Jobs that stop at a minibatch, and go on from a checkpoint: what tests of both need."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor

from plink.errors import PlinkError
from plink.model.pipeline.plan import PipelinePlan
from plink.runtime.pipeline.checkpoints import CheckpointSettings, checkpoints_in, part_file
from plink.runtime.pipeline.job import PipelineProgram, StageResult, run_rank
from tests.runtime.pipeline.apps import SmallApp
from tests.runtime.ranks import wait_until


class StoppingApp(SmallApp):
    """Fails when it reads a minibatch, once ``ready``."""

    def __init__(self, *arguments: Any, stop: int = -1, **keys: Any) -> None:
        super().__init__(*arguments, **keys)
        self.stop = stop
        self.ready: Callable[[], object] = lambda: True

    def batch(self, number: int) -> tuple[tuple[Tensor, ...], Tensor]:
        if number == self.stop:
            wait_until(self.ready)
            raise RuntimeError("killed")
        return super().batch(number)


@dataclass
class Outcome:
    """What a rank ends with, or the error."""

    result: StageResult | None = None
    error: str = ""


def whole_checkpoints(folders: Sequence[Path], replicas: Sequence[int]) -> list[int]:
    """Return the checkpoints that all ranks have a part of in one of the folders, the latest first."""
    places = [(stage, replica) for stage, number in enumerate(replicas) for replica in range(number)]

    def is_whole(minibatch: int) -> bool:
        return all(any(part_file(folder, minibatch, place).exists() for folder in folders) for place in places)

    return sorted(filter(is_whole, {k for folder in folders for k in checkpoints_in(folder)}), reverse=True)


def outcome_of_rank(
    app: StoppingApp, plan: PipelinePlan, settings: CheckpointSettings, folders: Sequence[Path] = ()
) -> Outcome:
    """Be a rank, to its end or its error, which comes once there is a whole checkpoint.

    :param folders: of all ranks, where they have their own.
    """
    dist.init_process_group("gloo")
    if settings.folder is not None:
        where = folders or [settings.folder]
        app.ready = lambda: whole_checkpoints(where, plan.replicas)
    try:
        return Outcome(run_rank(PipelineProgram(app), plan, "plan.json", 60, checkpoints=settings))
    except PlinkError as error:
        return Outcome(error=str(error))
