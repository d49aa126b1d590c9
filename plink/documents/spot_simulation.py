"""``plink.spot-simulation/1``: strategies compared on the same jobs."""

from typing import Literal, TypedDict

from plink.documents.spot_prices import Instant
from plink.documents.types import Count, Name, NonNegative, Positive, PositiveInt, Share


class SimulatedStrategy(TypedDict):
    """One strategy in one zone, means over all jobs."""

    zone: Name
    """The zone."""
    strategy: Name
    """Its name."""
    cost: NonNegative
    """Money a job."""
    seconds: NonNegative
    """Time a job."""
    cost_ratio: NonNegative
    """By the cost on demand."""
    time_ratio: NonNegative
    """By the time on demand."""
    evictions: NonNegative
    """Allocations that a job lost."""
    share_on_demand: Share
    """Of the machine hours."""
    share_paid: Share
    """Of the machine hours: transient and paid."""
    share_free: Share
    """Of the machine hours: transient and not paid, because the provider interrupted."""
    missed: Count | None
    """Jobs that were not over by the deadline; null without one."""
    fell_back: Share | None
    """Of the jobs: those that needed on-demand machines for the deadline; null without one."""
    unfinished: Count
    """Jobs that were not done when prices ended; they count as they stood then."""


class SpotSimulationDocument(TypedDict):
    """Strategies compared on the same jobs.

    Printed by `plink spot simulate --json`.
    """

    schema: Literal["plink.spot-simulation/1"]
    """Kind and version of this document."""
    hours: Positive
    """What a job takes on the reference machines."""
    starts: PositiveInt
    """Jobs in each zone, at random times."""
    deadline_s: Positive | None
    """Until when each job was to be over, from its start; null: no deadline."""
    seed: Count
    """Draws those times."""
    train_until_s: Instant
    """Odds are from before this time, jobs start after it."""
    results: list[SimulatedStrategy]
    """Each strategy in each zone."""
