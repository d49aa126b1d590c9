"""What a market file (``market.toml``) may say. It is TOML and has no schema of its own."""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from plink.documents.spot_prices import Price
from plink.documents.types import Count, Name, NonNegative, Positive, PositiveInt

BillingName = Literal["hourly-2016", "first-hour-free", "per-second"]


class TypeEntry(TypedDict, total=False):
    """One instance type. `name`, `cores` and `on_demand` are needed."""

    name: Name
    cores: Positive
    on_demand: Price
    advisor_bucket: Annotated[int, Meta(ge=0, le=4)]


class CountOfType(TypedDict):
    """So many machines of a type."""

    type: Name
    count: Count


class AnchorEntry(CountOfType):
    """The reliable machines of a job."""

    works: NotRequired[bool]


class ReferenceEntry(TypedDict):
    """The machines that the job would run on, on demand."""

    type: Name
    count: PositiveInt


class LimitEntries(TypedDict):
    """Bounds of what is held."""

    max_cores: Positive
    chunk_cores: NotRequired[Positive]
    max_hourly: NotRequired[Positive]
    budget: NotRequired[Positive]


class ApplicationEntry(TypedDict):
    """What changes of the footprint cost the job."""

    iteration_s: NotRequired[tuple[NonNegative, Positive, NonNegative]]
    start_s: NotRequired[NonNegative]
    add_s: NotRequired[NonNegative]
    evict_s: NotRequired[NonNegative]


class HeldEntry(TypedDict):
    """An allocation that is held now."""

    zone: Name
    type: Name
    count: PositiveInt
    bid: Price
    held_s: NonNegative
    hour_price: NotRequired[Price]


ProviderName = Literal["aws", "command", "replay"]
Words = Annotated[list[Name], Meta(min_length=1)]


class ProviderEntry(TypedDict):
    """Who rents out instances, and how they are reached. Which keys a kind needs is checked by hand."""

    kind: ProviderName
    user: NotRequired[Name]
    key: NotRequired[Name]
    port: NotRequired[Annotated[int, Meta(ge=1, le=65535)]]
    lease_s: NotRequired[Annotated[float, Meta(ge=300, le=7 * 86400)]]
    # aws
    image: NotRequired[Name]
    start_up: NotRequired[Name]
    region: NotRequired[Name]
    key_name: NotRequired[Name]
    security_groups: NotRequired[list[Name]]
    subnets: NotRequired[dict[str, Name]]
    profile: NotRequired[Name]
    private_addresses: NotRequired[bool]
    # command
    prices: NotRequired[Words]
    acquire: NotRequired[Words]
    listing: NotRequired[Words]
    release: NotRequired[Words]
    renew: NotRequired[Words]
    on_demand: NotRequired[bool]
    # replay
    history: NotRequired[Name]
    hosts: NotRequired[Name]
    speed: NotRequired[Positive]
    start: NotRequired[Name]
    notice: NotRequired[Words]
    end: NotRequired[Words]


class MarketFileEntries(TypedDict):
    """A whole file."""

    types: Annotated[list[TypeEntry], Meta(min_length=1)]
    limits: LimitEntries
    reference: ReferenceEntry
    billing: NotRequired[BillingName]
    zones: NotRequired[list[Name]]
    product: NotRequired[Name]
    anchors: NotRequired[AnchorEntry]
    application: NotRequired[ApplicationEntry]
    held: NotRequired[list[HeldEntry]]
    provider: NotRequired[ProviderEntry]
