"""The market file, ``market.toml``: which types may be bought, what a job needs, who rents, and the limits of money."""

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from plink.errors import InputError
from plink.model.codec import convert
from plink.model.document import Part
from plink.model.spot.prices import Market, Price, Prices
from plink.model.storage import name_of, parse_toml, read_text
from plink.model.types import Count, Name, NonNegative, Positive, PositiveInt

_log = logging.getLogger("plink.spot")
_CHUNKS = 4  # allocations that the most cores come in, where the file does not say
BillingName = Literal["hourly-2016", "first-hour-free", "per-second"]
Words = Annotated[tuple[Name, ...], Meta(min_length=1)]


class MarketTable(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Table of the file: it is written by hand, so that a key which is not declared is a mistake."""


class InstanceType(MarketTable, frozen=True):
    """``cores``: how many work on one; ``on_demand``: its price per hour; ``advisor_bucket``: 0 (< 5 % interrupted a
    month) to 4 (> 20 %), or None."""

    name: Name
    cores: Positive
    on_demand: Price
    advisor_bucket: Annotated[int, Meta(ge=0, le=4)] | None = None


class JobTimings(MarketTable, frozen=True, kw_only=True):
    """Times of the job, seconds, None where the file has none; ``iteration_s``: (a, b, c) of t(n) = a + b / n + c n."""

    iteration_s: tuple[NonNegative, Positive, NonNegative] | None = None
    start_s: NonNegative | None = None
    add_s: NonNegative | None = None
    evict_s: NonNegative | None = None


class HeldAllocation(MarketTable, frozen=True, kw_only=True):
    """An allocation that is held now. ``held_s``: seconds since it was granted."""

    zone: Name
    type: Name
    count: PositiveInt
    bid: Price
    held_s: NonNegative
    hour_price: Price | None = None


class ProviderTable(MarketTable, frozen=True, kw_only=True, tag_field="kind"):
    """Who rents out instances, and how they are reached."""

    user: Name | None = None
    key: Name | None = None
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    lease_s: Annotated[float, Meta(ge=300, le=7 * 86400)] | None = None


class AwsTable(ProviderTable, frozen=True, kw_only=True, tag="aws"):
    """EC2, by the ``aws`` command."""

    region: Name
    image: Name
    key_name: Name | None = None
    security_groups: tuple[Name, ...] = ()
    subnets: dict[str, Name] = field(default_factory=dict[str, str])
    profile: Name | None = None
    start_up: Name | None = None
    private_addresses: bool = False


class CommandTable(ProviderTable, frozen=True, kw_only=True, tag="command"):
    """Commands of the user's own."""

    prices: Words
    acquire: Words
    listing: Words
    release: Words
    renew: Words | None = None
    on_demand: bool = False


class ReplayTable(ProviderTable, frozen=True, kw_only=True, tag="replay"):
    """Hosts of the user's own, at the prices of a history."""

    history: Name
    hosts: Name
    speed: Positive = 60.0
    start: Name | None = None
    notice: Words | None = None
    end: Words | None = None


AnyProvider = AwsTable | CommandTable | ReplayTable


@dataclass(frozen=True)
class Limits:
    """``max_cores`` that work at once; ``chunk_cores`` of an allocation; ``max_hourly``: money per hour that all bids
    together may come to; ``budget``: money left; ``two_markets``: while one is held, another one (zone or type) that
    lowers the cost comes first, so that what evicts one leaves the other."""

    max_cores: float
    chunk_cores: float
    max_hourly: float = math.inf
    budget: float = math.inf
    two_markets: bool = False


class _Limits(MarketTable, frozen=True, kw_only=True):
    max_cores: Positive
    chunk_cores: Positive | None = None
    max_hourly: Positive = math.inf
    budget: Positive = math.inf


class _Anchors(MarketTable, frozen=True, kw_only=True):
    type: Name
    count: Count
    works: bool = False


class _Reference(MarketTable, frozen=True, kw_only=True):
    type: Name
    count: PositiveInt


class _MarketFile(MarketTable, frozen=True, kw_only=True):
    """A whole file, as it is written."""

    types: Annotated[tuple[InstanceType, ...], Meta(min_length=1)]
    limits: _Limits
    reference: _Reference
    billing: BillingName = "hourly-2016"
    zones: tuple[Name, ...] = ()
    product: Name | None = None
    anchors: _Anchors | None = None
    application: JobTimings = JobTimings()
    held: tuple[HeldAllocation, ...] = ()
    provider: AnyProvider | None = None


@dataclass(frozen=True)
class Machines:
    """So many of one type."""

    type: InstanceType
    count: int


@dataclass(frozen=True)
class MarketFile:
    """What a market file says. ``anchors_work``: whether the reliable machines work too (stages 1 and 2)."""

    path: str
    types: tuple[InstanceType, ...]
    limits: Limits
    reference: Machines
    billing: BillingName
    zones: tuple[str, ...]
    product: str | None
    anchors: Machines | None
    anchors_work: bool
    changes: JobTimings
    held: tuple[HeldAllocation, ...]
    provider: AnyProvider | None = None

    def type_of(self, market: Market) -> InstanceType | None:
        """Return the type of a market, None where the file does not have it."""
        return next((each for each in self.types if each.name == market.type), None)

    def select(self, prices: Prices) -> Prices:
        """Return the histories of its markets: of its types, zones and product, sorted.

        :raises InputError: when there are none, or a type is there for several products.
        """
        selected: Prices = {}
        for market in sorted(prices):
            if not self.has(market):
                continue
            twin = next((each for each in selected if (each.zone, each.type) == (market.zone, market.type)), None)
            if twin is not None:
                raise InputError(
                    self.path, f"{market}: prices of {twin.product} and of {market.product}; set product to one of them"
                )
            selected[market] = prices[market]
        if not selected:
            raise InputError(self.path, "the histories have no market of its types, zones and product")
        if missing := [zone for zone in self.zones if zone not in {market.zone for market in selected}]:
            _log.warning("%s: the histories have nothing of %s", self.path, ", ".join(missing))
        return selected

    def has(self, market: Market) -> bool:
        """Return whether a market is of its types, zones and product."""
        in_zone = not self.zones or market.zone in self.zones
        return self.type_of(market) is not None and in_zone and self.product in (None, market.product)


def read_market_file(path: str | Path) -> MarketFile:
    """Read a market file.

    :raises InputError: naming the key that is wrong or not known.
    """
    location = name_of(path)
    document = parse_toml(read_text(path), location, "a market file is (histories: --prices FILE)")
    return market_file_from(document, location)


def market_file_from(document: dict[str, Any], location: str) -> MarketFile:
    """Return a market file from its table.

    :raises InputError: as :func:`read_market_file`.
    """
    file = convert(_MarketFile, document, location)
    types: dict[str, InstanceType] = {}
    for number, kind in enumerate(file.types):
        if kind.name in types:
            raise InputError(f"{location}: types[{number}].name", f"{kind.name} was there before")
        types[kind.name] = kind

    def machines(key: str, name: str, count: int) -> Machines:
        if name not in types:
            raise InputError(f"{location}: {key}.type", f"{name} is none of types: {', '.join(types)}")
        return Machines(types[name], count)

    limits, anchors = file.limits, file.anchors
    chunk = limits.max_cores / _CHUNKS if limits.chunk_cores is None else limits.chunk_cores
    if chunk > limits.max_cores:
        raise InputError(f"{location}: limits.chunk_cores", f"is more than max_cores, {limits.max_cores:g}")
    if all(kind.cores > chunk for kind in types.values()):
        raise InputError(f"{location}: limits.chunk_cores", f"no type is that small: {chunk:g} cores")
    acquired = [kind for kind in file.types if anchors is None or kind.name != anchors.type]
    if large := [kind.name for kind in acquired if kind.cores > chunk]:
        _log.warning(
            "%s: %s: larger than an allocation, of which none is acquired; limits.chunk_cores is %g%s",
            location,
            ", ".join(large),
            chunk,
            ", a quarter of max_cores" if limits.chunk_cores is None else "",
        )
    for number, held in enumerate(file.held):
        machines(f"held[{number}]", held.type, held.count)
    return MarketFile(
        path=location,
        types=file.types,
        limits=Limits(limits.max_cores, chunk, limits.max_hourly, limits.budget),
        reference=machines("reference", file.reference.type, file.reference.count),
        billing=file.billing,
        zones=file.zones,
        product=file.product,
        anchors=None if anchors is None else machines("anchors", anchors.type, anchors.count),
        anchors_work=anchors is not None and anchors.works,
        changes=file.application,
        held=file.held,
        provider=file.provider,
    )
