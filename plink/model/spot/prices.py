"""Price histories of markets, as step functions of time."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from plink.errors import InputError
from plink.model.codec import convert, decode, schema_name
from plink.model.document import UNSET, Document, Part, Unset
from plink.model.types import Name

Floats = npt.NDArray[np.float64]
Instant = Annotated[float, Meta(ge=0, lt=1e11)]  # seconds since 1970
Price = Annotated[float, Meta(gt=0, lt=1e9)]
Currency = Annotated[str, Meta(title="a currency (three capital letters, like USD)", pattern=r"^[A-Z]{3}(?!\n)$")]

HOUR_S = 3600.0
LINUX = "Linux/UNIX"
ON_DEMAND = "on-demand"  # product of machines at their on-demand price, which no provider interrupts


# Sums over years of samples fit NumPy's integers and JSON's numbers.
Samples = Annotated[tuple[Annotated[int, Meta(ge=0, le=1_000_000_000)], ...], Meta(min_length=2)]
Gap = Annotated[float, Meta(title="seconds between samples, above 0", gt=0, lt=1e9)]


class OfMarket(Part, frozen=True, kw_only=True):
    """Part of a document about one market."""

    zone: Name
    """The zone, like us-east-1a."""
    type: Name
    """The instance type, like c5.2xlarge, or the accelerator."""


@dataclass(frozen=True, order=True)
class Market:
    """One instance type in one zone, of one product (operating system)."""

    zone: str
    type: str
    product: str = LINUX

    def __str__(self) -> str:
        return f"{self.type} in {self.zone}"

    @property
    def is_on_demand(self) -> bool:
        """Whether its machines are on demand."""
        return self.product == ON_DEMAND


def on_demand_market(zone: str, kind: str) -> Market:
    """Return the market of on-demand machines of a type in a zone."""
    return Market(zone, kind, ON_DEMAND)


@dataclass(frozen=True, eq=False)
class PriceTrace:
    """The price of one market over time.

    ``times``, shape (S,): seconds since 1970, increasing; ``prices``, shape (S,): money per instance and hour, from
    that time until the next; ``until``: the end of what is known, seconds; ``holes``: (from, to) without prices, each
    of which ends at one of ``times``.
    """

    times: Floats
    prices: Floats
    until: float
    holes: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        if len(self.times) == 0 or len(self.times) != len(self.prices):
            raise ValueError("a price history has at least one price, and a time for each")
        if np.any(np.diff(self.times) <= 0) or self.until < self.times[-1]:
            raise ValueError("times of a price history increase")
        if not (np.all(np.isfinite(self.prices)) and np.all(self.prices > 0)):
            raise ValueError("prices are above 0")

    @property
    def start(self) -> float:
        """The first time of which a price is known, seconds."""
        return float(self.times[0])

    @cached_property
    def ends(self) -> Floats:
        """Where each segment ends, shape (S,): at the next price, at a hole, or at the end of what is known."""
        ends = np.append(self.times[1:], self.until)
        for begin, end in self.holes:
            before = int(np.searchsorted(self.times, begin, side="right")) - 1
            if before >= 0 and ends[before] >= end:
                ends[before] = begin
        return ends

    @cached_property
    def stretches(self) -> tuple[tuple[float, float], ...]:
        """The (from, to) between holes, in seconds."""
        edges = [self.start, *(edge for hole in self.holes for edge in hole), self.until]
        return tuple((a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a)

    @property
    def hours(self) -> float:
        """The hours of which prices are known."""
        return sum(end - begin for begin, end in self.stretches) / HOUR_S

    @cached_property
    def _steps(self) -> tuple[list[float], list[float]]:
        return self.times.tolist(), self.prices.tolist()

    def price_at(self, time: float) -> float:
        """Return the price at a time within what is known; inside a hole the last one before it."""
        times, prices = self._steps
        return prices[max(0, bisect_right(times, time) - 1)]

    def between(self, start: float, end: float) -> "PriceTrace | None":
        """Return the part of the history from ``start`` to ``end``; None where nothing is known of it."""
        start, end = max(start, self.start), min(end, self.until)
        first = int(np.searchsorted(self.times, start, side="right")) - 1
        for begin, stop in self.holes:
            if begin <= start < stop:  # the part begins where prices do
                start, first = stop, int(np.searchsorted(self.times, stop))
        if end <= start:
            return None
        times = self.times[first:].copy()
        times[0] = max(start, times[0])
        count = max(1, int(np.searchsorted(times, end)))
        holes = tuple((max(a, start), b) for a, b in self.holes if a >= start and b <= end)
        cut = [a for a, b in self.holes if start <= a < end < b]
        return PriceTrace(times[:count], self.prices[first : first + count], min([end, *cut]), holes)

    def mean(self) -> float:
        """Return the mean price over the time that is known."""
        seconds = self.ends - self.times
        return float(np.average(self.prices, weights=seconds)) if seconds.sum() > 0 else float(self.prices.mean())

    def quantile(self, share: float) -> float:
        """Return the price below which the market was for this share of the time."""
        order = np.argsort(self.prices)
        seconds = np.cumsum((self.ends - self.times)[order])
        place = int(np.searchsorted(seconds, share * seconds[-1]))
        return float(self.prices[order][min(place, len(order) - 1)])


Prices = dict[Market, PriceTrace]


class ZoneAvailability(OfMarket, frozen=True, kw_only=True):
    """The samples of one market."""

    counts: Samples
    """How many instances could be held at each sample; 0 or 1 where one was tried."""


class SpotAvailability(Document, frozen=True, kw_only=True, tag="plink.spot-availability/1"):
    """How many instances could be held, sampled at equal intervals.

    Read by `plink spot read` and `plink spot odds`. Files with `metadata.gap_seconds` and `data` are read too.
    """

    gap_seconds: Gap
    """Seconds from one sample to the next."""
    start_s: Instant | Unset = UNSET
    """The time of the first sample, seconds since 1970-01-01 UTC."""
    zones: Annotated[tuple[ZoneAvailability, ...], Meta(min_length=1)]
    """One entry for each market."""


@dataclass(frozen=True, eq=False)
class AvailabilityTrace:
    """``counts``, shape (S,): instances that could be held, from each sample to the next; ``gap_s``: seconds between
    samples; ``start``: the time of the first, seconds."""

    gap_s: float
    counts: npt.NDArray[np.int64]
    start: float = 0.0

    @property
    def until(self) -> float:
        """The end of what is known, seconds."""
        return self.start + self.gap_s * len(self.counts)


class _Metadata(Part, frozen=True, kw_only=True):
    gap_seconds: Gap
    start_s: Instant = 0.0


class _Sampled(Part, frozen=True, kw_only=True):
    """The form of the public traces of the paper "Can't Be Late" (NSDI 2024)."""

    metadata: _Metadata
    data: Samples


def is_availability(document: Any) -> bool:
    """Return whether a JSON value has the form of an availability history."""
    schema = schema_name(SpotAvailability)
    return isinstance(document, dict) and (document.get("schema") == schema or "metadata" in document)


def availability_from_json(document: Any, location: str) -> Iterator[tuple[Market, AvailabilityTrace]]:
    """Yield the markets of one document. Where it does not name its market, the file's name does, as in
    ``us-east-1a_v100_1.json``.

    :raises InputError: naming the key that is wrong.
    """
    if "schema" in document:
        history = decode(SpotAvailability, document, location)
        start = 0.0 if history.start_s is UNSET else history.start_s
        for entry in history.zones:
            yield Market(entry.zone, entry.type), _trace(history.gap_seconds, entry.counts, start)
        return
    sampled = convert(_Sampled, document, location)
    zone, _, kind = PurePath(location).name.split(".")[0].partition("_")
    if not zone or not kind:
        raise InputError(location, "the name of the file says which market it is, like us-east-1a_v100_1.json")
    yield Market(zone, kind), _trace(sampled.metadata.gap_seconds, sampled.data, sampled.metadata.start_s)


def _trace(gap_s: float, counts: Sequence[int], start: float) -> AvailabilityTrace:
    return AvailabilityTrace(gap_s, np.array(counts, dtype=np.int64), start)
