"""``plink.spot-advice/1``: one decision about transient machines, explained."""

from typing import Literal, TypedDict

from plink.documents.spot_prices import Instant
from plink.documents.types import Name, NonNegative, Positive, PositiveInt, Share


class CandidateEntry(TypedDict):
    """An allocation that could be added."""

    zone: Name
    """The zone."""
    type: Name
    """The instance type."""
    count: PositiveInt
    """Instances."""
    bid: Positive
    """The most that each may cost an hour."""
    price: Positive
    """What each costs now."""
    eviction: Share
    """The probability of an eviction within the hour."""
    evicted_after_s: NonNegative | None
    """The median time to that; null where it does not happen."""
    added_cost: NonNegative
    """Expected money in the first hour."""
    added_work: float
    """Expected core-hours in it; below 0 where the change costs more than it brings."""
    cost_per_work: Positive
    """Money per core-hour of the whole footprint with it."""


class RenewalEntry(TypedDict):
    """An allocation that is held."""

    zone: Name
    """The zone."""
    type: Name
    """The instance type."""
    count: PositiveInt
    """Instances."""
    renew: bool
    """Whether to keep it when its hour ends."""
    cost_if_kept: NonNegative | None
    """Money per core-hour of the footprint if it is; null without work."""
    cost_if_ended: NonNegative | None
    """And if it is not."""


class SpotAdviceDocument(TypedDict):
    """One decision about transient machines, explained.

    Printed by `plink spot advise --json`.
    """

    schema: Literal["plink.spot-advice/1"]
    """Kind and version of this document."""
    at_s: Instant
    """The time that it is for, seconds since 1970-01-01 UTC."""
    action: Literal["acquire", "wait"]
    """What to do."""
    reason: str
    """Why."""
    cost_per_work: NonNegative | None
    """Money per core-hour of what is held; null where nothing works."""
    candidates: list[CandidateEntry]
    """The best, the best first."""
    held: list[RenewalEntry]
    """What is held, and whether to renew it."""
    refused: list[str]
    """Why markets are left out."""
