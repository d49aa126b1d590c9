"""``plink.advice/1``: which algorithm in which order for which size."""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from plink.documents.types import Count, Fingerprint, Interval, NonNegative, PositiveInt


class LineInSize(TypedDict):
    """The time of an algorithm in an order: a line in the size; under simulated the line through its times at the
    smallest and the largest size."""

    algo: str
    """The algorithm."""
    order: str
    """The family of orders: given (as the hosts stand), digits (of a BCube), grouped (groups kept together), ring (the
    cheapest ring)."""
    start_us: NonNegative
    """Microseconds for no bytes at all."""
    us_per_mb: NonNegative
    """Microseconds a MB (1,000,000 bytes) on top."""


class SizeRangeEntry(LineInSize):
    """The fastest for one stretch of sizes."""

    from_bytes: Count
    """From this size on."""
    to_bytes: Count
    """Up to this size, from where the next is faster."""


class SizeChoice(LineInSize):
    """The fastest for one size."""

    size_bytes: PositiveInt
    """The size."""
    time_us: NonNegative
    """Its time, microseconds."""
    interval_us: NotRequired[Interval | None]
    """Where a library's time is with a probability of 90 %, as `plink cost` states it."""


class AdviceDocument(TypedDict):
    """Which algorithm in which order for which size.

    Printed by `plink advise --json`.
    """

    schema: Literal["plink.advice/1"]
    """Kind and version of this file."""
    model: Literal["alpha-beta", "contention", "simulated"]
    """The cost model."""
    capacities: str
    """Where the capacities come from: measured, or how they were inferred."""
    network: Fingerprint
    """Fingerprint of the network."""
    best: Annotated[list[SizeRangeEntry], Meta(min_length=1)]
    """The fastest, by ascending size."""
    lines: Annotated[list[LineInSize], Meta(min_length=1)]
    """All that were compared."""
    sizes: Annotated[list[SizeChoice], Meta(min_length=1)]
    """Round figures from the least size to the largest."""
    left_out: dict[str, str]
    """Algorithms without a cost, each with the reason."""
    smoothed: NotRequired[bool]
    """Present where round trips are fitted ones (`--smooth-latencies`)."""
