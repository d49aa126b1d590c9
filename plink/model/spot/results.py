"""Results about transient machines: markets, odds of evictions, a decision, simulated strategies, what is rented."""

from typing import Annotated, Literal

from msgspec import Meta

from plink.model.document import UNSET, Document, Part, Unset
from plink.model.spot.prices import Currency, Instant, OfMarket
from plink.model.types import Count, Name, NonNegative, Positive, PositiveInt, Share


class MarketSummary(OfMarket, frozen=True, kw_only=True):
    """One market."""

    product: Name
    """The operating system."""
    from_s: Instant
    """The first time with a price, seconds since 1970-01-01 UTC."""
    until_s: Instant
    """The last."""
    holes_s: tuple[tuple[Instant, Instant], ...]
    """From, to: times without prices."""
    changes: Count
    """How often the price changed."""
    median: Positive
    """The price that it was below for half of the time."""
    mean: Positive
    """The mean over time."""
    highest: Positive
    """The highest price."""
    on_demand: Positive | None
    """The on-demand price, where a market file was given."""
    share_above_on_demand: Share | None
    """Of the time in which the price was above that."""


class AvailabilitySummary(OfMarket, frozen=True, kw_only=True):
    """One availability history."""

    hours: NonNegative
    """How long it is."""
    available: Share
    """Of the time in which an instance could be held."""
    spells: Count
    """How often that began."""
    median_spell_hours: NonNegative | Unset = UNSET
    """The median of how long it lasted."""


class SpotMarkets(Document, frozen=True, kw_only=True, tag="plink.spot-markets/1"):
    """What is in price histories.

    Printed by `plink spot read --json`.
    """

    currency: Currency
    """Of all prices."""
    markets: tuple[MarketSummary, ...]
    """Markets with prices."""
    availability: tuple[AvailabilitySummary, ...]
    """Markets of which it is known how many instances could be held."""
    notes: tuple[str, ...]
    """What was left out or joined."""


class BidOdds(Part, frozen=True, kw_only=True):
    """One bid."""

    delta: NonNegative
    """How much more than the price is bid, money per hour."""
    beta_15min: Share
    """The share of starts that are evicted within 15 minutes."""
    beta_30min: Share
    """Within 30 minutes."""
    beta_60min: Share
    """Within an hour."""
    median_s: NonNegative | None
    """Of those evicted within an hour, the median time to it; null where none is."""


class MarketOdds(OfMarket, frozen=True, kw_only=True):
    """The odds of one market, by bid."""

    hours: NonNegative
    """How long the history is that they are from."""
    bids: tuple[BidOdds, ...]
    """One entry for each bid; empty where the history is too short."""


class MarketRate(OfMarket, frozen=True, kw_only=True):
    """The rate of evictions of one market, where bids do not decide."""

    per_hour: NonNegative
    """Evictions per instance-hour: what was seen, with a prior worth 24 hours."""
    interruptions: NonNegative
    """How many were seen."""
    instance_hours: NonNegative
    """In how many hours of an instance."""


class SpotOdds(Document, frozen=True, kw_only=True, tag="plink.spot-odds/1"):
    """The odds of an eviction by bid, or the rate of evictions.

    Printed by `plink spot odds --json`.
    """

    markets: tuple[MarketOdds, ...]
    """Markets with prices."""
    rates: tuple[MarketRate, ...]
    """Markets with availability histories."""


class SimulatedStrategy(Part, frozen=True, kw_only=True):
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


class SpotSimulation(Document, frozen=True, kw_only=True, tag="plink.spot-simulation/1"):
    """Strategies compared on the same jobs.

    Printed by `plink spot simulate --json`.
    """

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
    results: tuple[SimulatedStrategy, ...]
    """Each strategy in each zone."""


class SpotCandidate(OfMarket, frozen=True, kw_only=True):
    """An allocation that could be added."""

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


class Renewal(OfMarket, frozen=True, kw_only=True):
    """An allocation that is held."""

    count: PositiveInt
    """Instances."""
    renew: bool
    """Whether to keep it when its hour ends."""
    cost_if_kept: NonNegative | None
    """Money per core-hour of the footprint if it is; null without work."""
    cost_if_ended: NonNegative | None
    """And if it is not."""


class SpotAdvice(Document, frozen=True, kw_only=True, tag="plink.spot-advice/1"):
    """One decision about transient machines, explained.

    Printed by `plink spot advise --json`.
    """

    at_s: Instant
    """The time that it is for, seconds since 1970-01-01 UTC."""
    action: Literal["acquire", "wait"]
    """What to do."""
    reason: str
    """Why."""
    cost_per_work: NonNegative | None
    """Money per core-hour of what is held; null where nothing works."""
    candidates: tuple[SpotCandidate, ...]
    """The best, the best first."""
    held: tuple[Renewal, ...]
    """What is held, and whether to renew it."""
    refused: tuple[str, ...]
    """Why markets are left out, and what is held on paper only."""


class HeldInstance(Part, frozen=True, kw_only=True):
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


class OpenRequest(Part, frozen=True, kw_only=True):
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


class SpotCost(Part, frozen=True, kw_only=True):
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


class SpotStatus(Document, frozen=True, kw_only=True, tag="plink.spot-status/1"):
    """The instances of a run, and what they cost.

    Printed by `plink spot status --json`. It is read from the journal; the provider is not asked.
    """

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
    held: tuple[HeldInstance, ...]
    """What may cost money now."""
    open_requests: tuple[OpenRequest, ...]
    """What may have been granted."""
    ended: dict[Literal["interrupted", "released"], Count]
    """How many instances are gone, by how they ended."""
    cost: SpotCost
    """Money so far."""
