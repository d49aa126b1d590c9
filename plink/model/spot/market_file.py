"""The market file, ``market.toml``: which types may be bought, what a job needs, and the limits of money."""

import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plink.documents.codec import convert
from plink.documents.spot_market_file import BillingName, HeldEntry, MarketFileEntries, ProviderEntry
from plink.errors import InputError
from plink.model.spot.limits import Limits
from plink.model.spot.prices import Market, Prices
from plink.model.storage import name_of, read_text

_NEEDED = ("name", "cores", "on_demand")
_CHUNKS = 4  # allocations that the most cores come in, where the file does not say


@dataclass(frozen=True)
class InstanceType:
    """``cores``: how many work on one; ``on_demand``: its price per hour; ``advisor_bucket``: 0 (< 5 % interrupted a
    month) to 4 (> 20 %), or None."""

    name: str
    cores: float
    on_demand: float
    advisor_bucket: int | None = None


@dataclass(frozen=True)
class Machines:
    """So many of one type."""

    type: InstanceType
    count: int


@dataclass(frozen=True)
class JobTimings:
    """Times of the job, seconds, None where the file has none; ``iteration_s``: (a, b, c) of t(n) = a + b / n + c n."""

    iteration_s: tuple[float, float, float] | None = None
    start_s: float | None = None
    add_s: float | None = None
    evict_s: float | None = None


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
    held: tuple[HeldEntry, ...]
    provider: ProviderEntry | None = None

    def type_of(self, market: Market) -> InstanceType | None:
        """Return the type of a market, None where the file does not have it."""
        return next((each for each in self.types if each.name == market.type), None)

    def select(self, prices: Prices) -> Prices:
        """Return the histories of its markets: of its types, zones and product, sorted.

        :raises InputError: when there are none, or a type is there for several products.
        """
        selected: Prices = {}
        for market in sorted(prices):
            if self.type_of(market) is None or (self.zones and market.zone not in self.zones):
                continue
            if self.product is not None and market.product != self.product:
                continue
            twin = next((each for each in selected if (each.zone, each.type) == (market.zone, market.type)), None)
            if twin is not None:
                raise InputError(
                    self.path, f"{market}: prices of {twin.product} and of {market.product}; set product to one of them"
                )
            selected[market] = prices[market]
        if not selected:
            raise InputError(self.path, "the histories have no market of its types, zones and product")
        return selected


def read_market_file(path: str | Path) -> MarketFile:
    """Read a market file.

    :raises InputError: naming the key that is wrong or not known.
    """
    location = name_of(path)
    try:
        document = tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise InputError(location, f"not TOML, as a market file is (histories: --prices FILE): {error}") from None
    return market_file_from(document, location)


def market_file_from(document: dict[str, Any], location: str) -> MarketFile:
    """Return a market file from its table.

    :raises InputError: as :func:`read_market_file`.
    """
    if unknown := sorted(document.keys() - MarketFileEntries.__annotations__.keys()):
        choices = ", ".join(sorted(MarketFileEntries.__annotations__))
        raise InputError(location, f"{unknown[0]!r} is no key of a market file; choose one of {choices}")
    checked: MarketFileEntries = convert(MarketFileEntries, document, location)
    types: dict[str, InstanceType] = {}
    for number, entry in enumerate(checked["types"]):
        at = f"{location}: types[{number}]"
        for key in _NEEDED:
            if key not in entry:
                price = "; each type needs its on-demand price" if key == "on_demand" else ""
                raise InputError(f"{at}.{key}", f"is missing{price}")
        if entry["name"] in types:
            raise InputError(f"{at}.name", f"{entry['name']} was there before")
        types[entry["name"]] = InstanceType(
            entry["name"], entry["cores"], entry["on_demand"], entry.get("advisor_bucket")
        )

    def machines(key: str, name: str, count: int) -> Machines:
        if name not in types:
            raise InputError(f"{location}: {key}.type", f"{name} is none of types: {', '.join(types)}")
        return Machines(types[name], count)

    limits = checked["limits"]
    chunk = limits.get("chunk_cores", limits["max_cores"] / _CHUNKS)
    if chunk > limits["max_cores"]:
        raise InputError(f"{location}: limits.chunk_cores", f"is more than max_cores, {limits['max_cores']:g}")
    if all(kind.cores > chunk for kind in types.values()):
        raise InputError(f"{location}: limits.chunk_cores", f"no type is that small: {chunk:g} cores")
    anchors, application = checked.get("anchors"), checked.get("application", {})
    for number, held in enumerate(checked.get("held", ())):
        machines(f"held[{number}]", held["type"], held["count"])
    return MarketFile(
        location,
        tuple(types.values()),
        Limits(limits["max_cores"], chunk, limits.get("max_hourly", math.inf), limits.get("budget", math.inf)),
        machines("reference", checked["reference"]["type"], checked["reference"]["count"]),
        checked.get("billing", "hourly-2016"),
        tuple(checked.get("zones", ())),
        checked.get("product"),
        machines("anchors", anchors["type"], anchors["count"]) if anchors else None,
        bool(anchors and anchors.get("works", False)),
        JobTimings(
            application.get("iteration_s"), application.get("start_s"), application.get("add_s"),
            application.get("evict_s"),
        ),
        tuple(checked.get("held", ())),
        checked.get("provider"),
    )  # fmt: skip
