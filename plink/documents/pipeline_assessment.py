"""``plink.pipeline-assessment/1``: what a plan predicted of a run, and what the run did."""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from plink.documents.types import Count, Name, Positive, PositiveInt


class PredictedFigure(TypedDict):
    """A figure as the plan predicts it and as the run had it."""

    predicted: Positive | None
    """By the plan; null where it does not say."""
    measured: Positive | None
    """Of the run; null where its ranks did not report it."""


class AssessedStage(TypedDict):
    """A stage, medians over its replicas."""

    stage: Count
    """Its number."""
    compute_s: PredictedFigure
    """Both passes and the update, divided by the replicas."""
    busy: PredictedFigure
    """The share of time in which a replica computes."""
    sent_bytes: PredictedFigure
    """Bytes of messages to other stages, per minibatch; null where nothing is sent."""
    versions: PositiveInt
    """The most versions of its parameters that a replica had at once."""
    planned_versions: PositiveInt
    """The most that the plan has."""
    waits_for: NotRequired[Name]
    """What its replicas waited for most."""


class PipelineAssessmentDocument(TypedDict):
    """What a plan predicted of a run, and what the run did.

    Printed by `plink pipeline assess --json`.
    """

    schema: Literal["plink.pipeline-assessment/1"]
    """Kind and version of this file."""
    run: Name
    """The run."""
    minibatches: Count
    """How many were trained."""
    minibatch_s: PredictedFigure
    """Seconds per minibatch of the whole pipeline."""
    stages: Annotated[list[AssessedStage], Meta(min_length=1)]
    """The stages."""
    verdict: Annotated[list[Name], Meta(min_length=1)]
    """Which assumptions were off, the one that costs most first; or that none was."""
