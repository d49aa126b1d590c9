"""``plink.pipeline-simulation/1``: what a plan does on a network, simulated."""

from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from plink.documents.pipeline import Digest, Kind
from plink.documents.types import Count, HostName, Name, NonNegative, Positive, PositiveInt, Share


class SimulatedRank(TypedDict):
    """Shares of a rank's time in steady state."""

    rank: Count
    """Its number."""
    host: HostName
    """Where it runs."""
    stage: Count
    """Its stage."""
    busy: Share
    """It computes."""
    waits_for_activations: Share
    """It waits for the stage before it."""
    waits_for_gradients: Share
    """It waits for the stage after it."""
    waits_for_all_reduce: Share
    """It waits for the other replicas."""


class SimulatedLink(TypedDict):
    """A link that messages share."""

    name: Name
    """Of a host or a group, like node-0, out."""
    used: NonNegative
    """The share of time that its bytes take at full rate."""


class PipelineSimulationDocument(TypedDict):
    """What a plan does on a network, simulated message by message.

    Printed by `plink pipeline simulate --json`.
    """

    schema: Literal["plink.pipeline-simulation/1"]
    """Kind and version of this file."""
    network: Digest | None
    """Fingerprint of the network; null for even hosts."""
    capacities: Name
    """Where rates of hosts and links come from."""
    kind: Kind
    """When minibatches are processed and parameters are updated."""
    replicas: Annotated[list[PositiveInt], Meta(min_length=1)]
    """Replicas of each stage."""
    minibatches: PositiveInt
    """How many were simulated."""
    minibatch_s: Positive
    """Seconds per minibatch in steady state."""
    items_per_s: Positive
    """Items per second in steady state."""
    periodic: bool
    """Whether the job repeats exactly; else the seconds are a mean."""
    fill_s: NonNegative
    """By how much longer the job takes than its minibatches times that, until it is full."""
    job_s: Positive
    """Seconds of all minibatches, with the last ones drained."""
    limited_by: Name
    """What limits it, like compute of node-3."""
    ranks: Annotated[list[SimulatedRank], Meta(min_length=1)]
    """What each rank does."""
    links: Annotated[list[SimulatedLink], Meta(max_length=5)]
    """The busiest links, the busiest first."""
