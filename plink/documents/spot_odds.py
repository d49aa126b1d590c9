"""``plink.spot-odds/1``: the odds of an eviction by bid, or the rate of evictions."""

from typing import Literal, TypedDict

from plink.documents.types import Name, NonNegative, Share


class BidOdds(TypedDict):
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


class MarketOddsEntry(TypedDict):
    """The odds of one market, by bid."""

    zone: Name
    """The zone."""
    type: Name
    """The instance type."""
    hours: NonNegative
    """How long the history is that they are from."""
    bids: list[BidOdds]
    """One entry for each bid; empty where the history is too short."""


class MarketRate(TypedDict):
    """The rate of evictions of one market, where bids do not decide."""

    zone: Name
    """The zone."""
    type: Name
    """The instance type."""
    per_hour: NonNegative
    """Evictions per instance-hour: what was seen, with a prior worth 24 hours."""
    interruptions: NonNegative
    """How many were seen."""
    instance_hours: NonNegative
    """In how many hours of an instance."""


class SpotOddsDocument(TypedDict):
    """The odds of an eviction by bid, or the rate of evictions.

    Printed by `plink spot odds --json`.
    """

    schema: Literal["plink.spot-odds/1"]
    """Kind and version of this document."""
    markets: list[MarketOddsEntry]
    """Markets with prices."""
    rates: list[MarketRate]
    """Markets with availability histories."""
