"""``plink.spot-markets/1``: what is in price histories."""

from typing import Literal, NotRequired, TypedDict

from plink.documents.spot_prices import Currency, Instant
from plink.documents.types import Count, Name, NonNegative, Positive, Share


class MarketSummary(TypedDict):
    """One market."""

    zone: Name
    """The zone."""
    type: Name
    """The instance type."""
    product: Name
    """The operating system."""
    from_s: Instant
    """The first time with a price, seconds since 1970-01-01 UTC."""
    until_s: Instant
    """The last."""
    holes_s: list[tuple[Instant, Instant]]
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


class AvailabilitySummary(TypedDict):
    """One availability history."""

    zone: Name
    """The zone."""
    type: Name
    """The instance type or accelerator."""
    hours: NonNegative
    """How long it is."""
    available: Share
    """Of the time in which an instance could be held."""
    spells: Count
    """How often that began."""
    median_spell_hours: NotRequired[NonNegative]
    """The median of how long it lasted."""


class SpotMarketsDocument(TypedDict):
    """What is in price histories.

    Printed by `plink spot read --json`.
    """

    schema: Literal["plink.spot-markets/1"]
    """Kind and version of this document."""
    currency: Currency
    """Of all prices."""
    markets: list[MarketSummary]
    """Markets with prices."""
    availability: list[AvailabilitySummary]
    """Markets of which it is known how many instances could be held."""
    notes: list[str]
    """What was left out or joined."""
