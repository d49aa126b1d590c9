"""``plink.spot-status/1``: the instances of a run, and what they cost."""

from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from plink.documents.spot_prices import Instant
from plink.documents.types import Count, Name, NonNegative, Positive, PositiveInt


class HeldInstanceEntry(TypedDict):
    """One instance that is held."""

    instance: Name
    """As the provider calls it."""
    host: Name | None
    """Its name in the job; null until it works there."""
    zone: Name
    """The zone."""
    type: Name
    """The instance type."""
    on_demand: bool
    """Whether it is on demand, for the deadline; else it is transient."""
    bid: Positive
    """The most that it may cost an hour."""
    since_s: Instant
    """It is paid from then on."""
    state: Literal["starting", "working", "draining", "releasing"]
    """draining: the job moves away from it; releasing: the provider was asked to end it."""
    reason: str
    """Why it was requested, or why it is released."""
    cost: NonNegative
    """So far, if it were released now."""


class SpotRequestEntry(TypedDict):
    """A request of which it is not known what was granted."""

    token: Name
    """Its token."""
    zone: Name
    """The zone."""
    type: Name
    """The instance type."""
    count: PositiveInt
    """Instances."""
    bid: Positive
    """The most that each may cost an hour."""


class SpotCostEntry(TypedDict):
    """Money so far, if all that is held were released now."""

    total: NonNegative
    """All of it."""
    transient: NonNegative
    """Of instances."""
    anchors: NonNegative
    """Of the reliable machines of the market file."""
    refunded: NonNegative
    """Given back, or not charged, because the provider interrupted."""
    on_demand: NonNegative
    """What the same machines for the same time would have cost on demand."""
    per_iteration: NonNegative | None
    """The total by the iterations of the job that count; null where there is none."""
    budget: NonNegative | None
    """The limit of the market file; null: none."""


class SpotStatusDocument(TypedDict):
    """The instances of a run, and what they cost.

    Printed by `plink spot status --json`. It is read from the journal; the provider is not asked.
    """

    schema: Literal["plink.spot-status/1"]
    """Kind and version of this document."""
    run: Name
    """The run's id."""
    provider: Name
    """Who rents out the instances."""
    at_s: Instant
    """When, on the provider's clock, seconds since 1970-01-01 UTC."""
    driver: Annotated[int, Meta(ge=0)] | None
    """The process of the driver; null where none runs."""
    job_ended: bool
    """Whether the job is over, as far as a driver has seen."""
    held: list[HeldInstanceEntry]
    """What may cost money now."""
    open_requests: list[SpotRequestEntry]
    """What may have been granted."""
    ended: dict[Literal["interrupted", "released"], Count]
    """How many instances are gone, by how they ended."""
    cost: SpotCostEntry
    """Money so far."""
