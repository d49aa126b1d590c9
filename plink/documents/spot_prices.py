"""``plink.spot-prices/1``: price histories of transient machines."""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from plink.documents.types import Name

Instant = Annotated[float, Meta(ge=0, lt=1e11)]
Price = Annotated[float, Meta(gt=0, lt=1e9)]
Currency = Annotated[str, Meta(title="a currency (three capital letters, like USD)", pattern=r"^[A-Z]{3}(?!\n)$")]


class MarketPrices(TypedDict):
    """The history of one market."""

    zone: Name
    """The zone, like us-east-1a."""
    type: Name
    """The instance type, like c5.2xlarge."""
    product: Name
    """The operating system that the price is for."""
    times_s: Annotated[list[Instant], Meta(min_length=1)]
    """When the price changed, seconds since 1970-01-01 UTC, increasing."""
    prices: Annotated[list[Price], Meta(min_length=1)]
    """Money per instance and hour, from that time until the next."""
    until_s: Instant
    """The end of what is known."""
    holes_s: NotRequired[list[tuple[Instant, Instant]]]
    """From, to: times without prices. Each ends at one of `times_s`."""


class SpotPricesDocument(TypedDict):
    """Price histories of transient machines.

    Written by `plink spot read -o FILE`, read by all of `plink spot`.
    """

    schema: Literal["plink.spot-prices/1"]
    """Kind and version of this document."""
    currency: Currency
    """Of all prices."""
    markets: list[MarketPrices]
    """One entry for each type, zone and product."""
    made: NotRequired[str]
    """How the prices were made, where they are not of a provider."""
