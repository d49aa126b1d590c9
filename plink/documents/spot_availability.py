"""``plink.spot-availability/1``: how many instances could be held, sampled at equal intervals."""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from plink.documents.spot_prices import Instant
from plink.documents.types import Name

# Sums over years of samples fit NumPy's integers and JSON's numbers.
Samples = Annotated[list[Annotated[int, Meta(ge=0, le=1_000_000_000)]], Meta(min_length=2)]
Gap = Annotated[float, Meta(title="seconds between samples, above 0", gt=0, lt=1e9)]


class ZoneAvailability(TypedDict):
    """The samples of one market."""

    zone: Name
    """The zone, like us-east-1a."""
    type: Name
    """The instance type or accelerator."""
    counts: Samples
    """How many instances could be held at each sample; 0 or 1 where one was tried."""


class SpotAvailabilityDocument(TypedDict):
    """How many instances could be held, sampled at equal intervals.

    Read by `plink spot read` and `plink spot odds`. Files with `metadata.gap_seconds` and `data` are read too.
    """

    schema: Literal["plink.spot-availability/1"]
    """Kind and version of this document."""
    gap_seconds: Gap
    """Seconds from one sample to the next."""
    start_s: NotRequired[Instant]
    """The time of the first sample, seconds since 1970-01-01 UTC."""
    zones: Annotated[list[ZoneAvailability], Meta(min_length=1)]
    """One entry for each market."""
