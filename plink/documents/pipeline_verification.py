"""``plink.pipeline-verification/1``: whether the actions of a pipeline's plan are right."""

from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from plink.documents.types import Name, PositiveInt


class PipelineVerificationDocument(TypedDict):
    """Whether the actions of a pipeline's plan are right.

    Printed by `plink pipeline verify --json`.
    """

    schema: Literal["plink.pipeline-verification/1"]
    """Kind and version of this file."""
    valid: bool
    """Whether every rank ends, each minibatch passes every stage once each way, and uses the versions of the plan."""
    errors: Annotated[list[Name], Meta(max_length=20)]
    """What is wrong, each naming the rank to blame; the first 20. Empty when it is valid."""
    minibatches: PositiveInt | None
    """For how many minibatches it was proven; null: for any number."""
