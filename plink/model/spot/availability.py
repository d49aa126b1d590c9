"""Availability histories: how many instances of a market could be held, sampled at equal intervals."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NotRequired, TypedDict

import numpy as np
import numpy.typing as npt

from plink.documents.codec import convert, decode
from plink.documents.spot_availability import Gap, Samples, SpotAvailabilityDocument
from plink.documents.spot_prices import Instant
from plink.errors import InputError
from plink.model.spot.prices import Market

SCHEMA = "plink.spot-availability/1"


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


class _Metadata(TypedDict):
    gap_seconds: Gap
    start_s: NotRequired[Instant]


class _Sampled(TypedDict):
    """The form of the public traces of the paper "Can't Be Late" (NSDI 2024)."""

    metadata: _Metadata
    data: Samples


def is_availability(document: Any) -> bool:
    """Return whether a JSON value has the form of an availability history."""
    return isinstance(document, dict) and (document.get("schema") == SCHEMA or "metadata" in document)


def availability_from_json(document: Any, location: str) -> Iterator[tuple[Market, AvailabilityTrace]]:
    """Yield the markets of one document. Where it does not name its market, the file's name does, as in
    ``us-east-1a_v100_1.json``.

    :raises InputError: naming the key that is wrong.
    """
    if document.get("schema") == SCHEMA:
        checked = decode(SpotAvailabilityDocument, document, location)
        for entry in checked["zones"]:
            trace = _trace(checked["gap_seconds"], entry["counts"], checked.get("start_s", 0.0))
            yield Market(entry["zone"], entry["type"]), trace
        return
    sampled = convert(_Sampled, document, location)
    zone, _, kind = PurePath(location).name.split(".")[0].partition("_")
    if not zone or not kind:
        raise InputError(location, "the name of the file says which market it is, like us-east-1a_v100_1.json")
    metadata = sampled["metadata"]
    yield Market(zone, kind), _trace(metadata["gap_seconds"], sampled["data"], metadata.get("start_s", 0.0))


def _trace(gap_s: float, counts: Sequence[int], start: float) -> AvailabilityTrace:
    return AvailabilityTrace(gap_s, np.array(counts, dtype=np.int64), start)
