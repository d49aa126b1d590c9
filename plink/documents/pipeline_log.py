"""``plink.pipeline-log/1``: what a rank of a pipeline has done so far; a line of a run's ``pipeline.jsonl``."""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from plink.documents.types import ByteCount, Count, Name, NonNegative, Positive, PositiveInt, Seconds

MeasuredAction = tuple[Literal["F", "B", "REDUCE", "UPDATE"], Count, NonNegative, NonNegative]
"""A pass, a wait for an all-reduce, or an update, its minibatch or update, and when it began and ended, in seconds
since all ranks began."""


class PipelineEvaluation(TypedDict):
    """Other minibatches, forward only, with the parameters that were trained so far."""

    trained: Count
    """Minibatches that were trained before it."""
    metrics: list[tuple[Count, float]]
    """Of each evaluation minibatch: its number, and what the program's `metric` says."""


class PipelineLogDocument(TypedDict):
    """What a rank of a pipeline has done so far.

    Each rank of `plink launch --pipeline` writes a line every 10 seconds and one at its end; they are kept in
    `.plink/runs/ID/pipeline.jsonl`. Before its last line it writes when it did its first actions. Seconds of passes
    and updates are medians, those of waits sums.
    """

    schema: Literal["plink.pipeline-log/1"]
    """Kind and version of this line."""
    type: Literal["progress", "checkpoint", "evaluation", "timeline", "end"]
    """Why it reports: it is time to, it has written a checkpoint, or could not, or evaluated, it says when it did
    what, or it has ended."""
    plan: Name
    """Digest of the plan, the same on all ranks."""
    rank: Count
    """The rank."""
    host: Name
    """Its host in the plan."""
    stage: Count
    """Its stage."""
    replica: Count
    """Its number among the stage's replicas."""
    at_s: NonNegative
    """Seconds since its first action."""
    minibatches: Count
    """Minibatches that it has finished, of its own."""
    minibatch_s: NotRequired[Positive]
    """Seconds per minibatch of the whole pipeline, in the last three quarters of what was done, without draining and
    evaluations; missing at first."""
    forward_s: NotRequired[Seconds]
    """Of a forward pass."""
    backward_s: NotRequired[Seconds]
    """Of a backward pass."""
    update_s: NotRequired[Seconds]
    """Of an update, with the copy of a version."""
    wait_forward_s: NotRequired[Seconds]
    """All waiting for activations."""
    wait_backward_s: NotRequired[Seconds]
    """All waiting for gradients of the next stage."""
    wait_reduce_s: NotRequired[Seconds]
    """All waiting for the gradients of other replicas."""
    evaluation_s: NotRequired[Seconds]
    """Of evaluations, with draining before each and filling after it; waits then are in none of the above."""
    sent_bytes: ByteCount
    """Bytes of messages to neighbouring stages."""
    received_bytes: ByteCount
    """Bytes of messages from these."""
    versions: PositiveInt
    """The most versions of its parameters that it had at once."""
    begin: NotRequired[Count]
    """The minibatch that it began with, of a job that goes on from a checkpoint."""
    checkpoint: NotRequired[Count]
    """The minibatch of the latest checkpoint that all ranks have, as far as this one knows; that which it began with
    where there is none."""
    actions: NotRequired[Annotated[list[MeasuredAction], Meta(max_length=1000)]]
    """Of a timeline: some of its first actions."""
    evaluation: NotRequired[PipelineEvaluation]
    """Of an evaluation, by replica 0 of the last stage."""
    loss: NotRequired[float]
    """The last stage's latest loss."""
