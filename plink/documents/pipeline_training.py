"""``plink.pipeline-training/1``: losses of a pipeline that one process trained."""

from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from plink.documents.pipeline import Kind
from plink.documents.types import Name, PositiveInt


class PipelineTrainingDocument(TypedDict):
    """Losses of a pipeline that one process trained, with the plan's delays.

    Printed by `plink pipeline train --json`.
    """

    schema: Literal["plink.pipeline-training/1"]
    """Kind and version of this file."""
    program: Name
    """The program's file."""
    kind: Kind
    """When the plan's minibatches are processed and parameters are updated."""
    replicas: Annotated[list[PositiveInt], Meta(min_length=1)]
    """Replicas of each stage."""
    minibatches: PositiveInt
    """How many were trained."""
    losses: list[float]
    """The loss of each minibatch."""
    sequential: list[float] | None
    """The losses of the same training with an update after every minibatch and no delay; null if not requested."""
