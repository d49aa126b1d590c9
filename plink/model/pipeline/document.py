"""Parts of the plan of a pipeline (:mod:`plink.model.pipeline.plan`)."""

from typing import Annotated, Literal

from msgspec import Meta

from plink.model.document import UNSET, Part, Unset
from plink.model.pipeline.profile import CrossingActivation
from plink.model.types import (
    ByteCount,
    Count,
    Name,
    NonNegative,
    Positive,
    Seconds,
    Share,
)  # fmt: skip

MAX_MINIBATCHES_IN_FLIGHT = 65536
Digest = Annotated[str, Meta(title="a digest (sha256:...)", pattern=r"^sha256:[0-9a-f]+(?!\n)$")]
Depth = Annotated[int, Meta(ge=1, le=MAX_MINIBATCHES_IN_FLIGHT)]


class StageAllReduce(Part, frozen=True, kw_only=True):
    """How replicas of a stage add up their gradients."""

    algo: Name
    """The algorithm, like ring."""
    bucket_bytes: Annotated[int, Meta(ge=1, le=1 << 40)] | Unset = UNSET
    """Gradients are reduced in buckets of this size."""


class StageMemory(Part, frozen=True, kw_only=True):
    """Bytes that one replica of a stage needs."""

    weights: ByteCount
    """Current parameters."""
    versions: ByteCount
    """Older versions of the parameters."""
    optimiser: ByteCount
    """State of the optimiser."""
    gradients: ByteCount
    """Gradients of the parameters."""
    activations: ByteCount
    """What autograd keeps, and inputs, of minibatches in flight."""
    buffers: ByteCount
    """Messages sent and received, buckets of gradients."""
    all: ByteCount
    """The sum."""


class StagePrediction(Part, frozen=True, kw_only=True):
    """What a stage is predicted to do, in seconds for a minibatch of the pipeline."""

    compute_s: NonNegative
    """Computing, divided by the replicas."""
    network_s: NonNegative
    """Bytes on the busiest of its hosts' links, either way, over its rate: messages and all-reduces added up."""
    reduce_exposed_s: NonNegative | Unset = UNSET
    """The part of the all-reduce that its own backward pass does not hide."""
    busy_share: Share | Unset = UNSET
    """Share of time in which a replica computes."""


class PipelineStage(Part, frozen=True, kw_only=True):
    """One stage."""

    layers: tuple[Count, Count]
    """Numbers of its first and last layer in the profile, from 0."""
    names: tuple[str, str] | Unset = UNSET
    """Names of these layers."""
    ranks: Annotated[tuple[Count, ...], Meta(min_length=1)]
    """The ranks of its replicas: replica q processes the minibatches b with b mod (number of replicas) = q."""
    depth: Depth
    """Minibatches that a replica has in flight at most: one more than its warm-up forward passes."""
    delay: Count | Unset = UNSET
    """By how many updates the parameters that a minibatch uses are older than the update that it makes: it follows from
    the plan, and stands in files alone."""
    lr_scale: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    """Factor of the learning rate; 1 when missing."""
    all_reduce: StageAllReduce | Unset | None = UNSET
    """How replicas add up gradients; null or missing for a stage of one replica."""
    memory_bytes: StageMemory | Unset = UNSET
    """What a replica needs."""
    predicted: StagePrediction | Unset = UNSET
    """What the stage is predicted to do."""

    @property
    def first(self) -> int:
        """Its first layer."""
        return self.layers[0]

    @property
    def last(self) -> int:
        """Its last layer."""
        return self.layers[1]

    @property
    def label(self) -> str:
        """Return the layers for messages, like ``0-30``."""
        return f"{self.first}-{self.last}"


class StageBoundary(Part, frozen=True, omit_defaults=True):
    """What crosses from one stage to the next, for one minibatch."""

    after: Count
    """Number of the last layer before it."""
    forward_bytes: ByteCount
    """Bytes of activations."""
    backward_bytes: ByteCount
    """Bytes of gradients; 0 where none comes back, because nothing before it is trained."""
    tensors: tuple[CrossingActivation, ...] = ()
    """The tensors, where the profile names them."""


class PipelinePrediction(Part, frozen=True, kw_only=True):
    """What the whole pipeline is predicted to do in its steady state."""

    minibatch_s: Positive
    """Seconds per minibatch."""
    items_per_s: Positive
    """Items per second."""
    fill_s: Seconds | Unset = UNSET
    """By how much longer a job takes than its minibatches times that, until the pipeline is full; 0 where it is no
    slower at first."""
    bytes_per_item: NonNegative | Unset = UNSET
    """Bytes that all hosts send, per item."""
    limited_by: str | Unset = UNSET
    """What limits it, like compute of node-07."""
    by: Literal["model", "simulator"] | Unset = UNSET
    """Who predicts it: the cost model's formula or the simulator."""


class ComparedWay(Part, frozen=True, kw_only=True):
    """Another way to train on the same hosts."""

    what: Name
    """Its kind or replicas, like data-parallel or straight."""
    minibatch_s: Positive
    """Seconds per minibatch."""
    delay: Count
    """The largest delay of its stages, in updates."""
    items_per_update: Positive | Unset = UNSET
    """Items that an update averages, least over its stages."""
    recompute: bool | Unset = UNSET
    """Whether its backward passes compute activations again."""
    fits: bool | Unset | None = UNSET
    """Whether it fits in memory; null where no limit is known."""


class PipelineConstraints(Part, frozen=True, kw_only=True):
    """What the user required."""

    stages: str | Unset | None = UNSET
    """Requested stages, like 0-30x15,31-39x1."""
    straight: bool | Unset = UNSET
    """Whether every stage was to have one replica."""
