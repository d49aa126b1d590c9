"""Availability histories: how many instances of a market could be held, sampled at equal intervals."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from plink.errors import InputError
from plink.model.codec import convert, decode, schema_name
from plink.model.document import UNSET, Document, Part, Unset
from plink.model.spot.prices import Instant, Market
from plink.model.types import Name

# Sums over years of samples fit NumPy's integers and JSON's numbers.
Samples = Annotated[tuple[Annotated[int, Meta(ge=0, le=1_000_000_000)], ...], Meta(min_length=2)]
Gap = Annotated[float, Meta(title="seconds between samples, above 0", gt=0, lt=1e9)]


class ZoneAvailability(Part, frozen=True, kw_only=True):
    """The samples of one market."""

    zone: Name
    """The zone, like us-east-1a."""
    type: Name
    """The instance type or accelerator."""
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
