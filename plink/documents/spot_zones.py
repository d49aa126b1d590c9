"""``plink.spot-zones/1``: strategies compared on availability histories."""

from typing import Literal, TypedDict

from plink.documents.spot_prices import Instant
from plink.documents.types import Count, Name, NonNegative, Positive, PositiveInt, Share


class ZonesStrategy(TypedDict):
    """One strategy for one type."""

    type: Name
    """The instance type."""
    strategy: Literal["one zone", "next zone", "bidbrain"]
    """Its name."""
    zone: str
    """The zone that it stays in; empty: it uses all."""
    cost: NonNegative | None
    """For an hour of one working instance, by the price of an instance-hour; null: nothing worked."""
    half_share: Share
    """Of the time: at least half of the instances worked."""
    work_hours: NonNegative
    """Of working instances."""
    free_hours: NonNegative
    """Instance-hours that were not paid, because the provider interrupted."""
    interrupted: Count
    """Instances that the provider took back."""


class SpotZonesDocument(TypedDict):
    """Strategies compared on availability histories.

    Printed by `plink spot simulate --json` where the histories have no prices.
    """

    schema: Literal["plink.spot-zones/1"]
    """Kind and version of this document."""
    nodes: PositiveInt
    """How many instances were wanted."""
    hours: Positive
    """How long it was simulated."""
    train_until_s: Instant
    """What was known is from before this time; jobs are simulated after it."""
    seed: Count
    """Draws which instances are interrupted."""
    results: list[ZonesStrategy]
    """Each strategy."""
