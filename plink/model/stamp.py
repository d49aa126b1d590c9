"""Round trips to a STAMP reflector (``plink.stamp/1``)."""

from typing import Annotated, Literal

from msgspec import Meta

from plink.model.document import Document
from plink.model.types import Count, Name, NonNegative, Positive, PositiveInt


class StampResult(Document, frozen=True, kw_only=True, tag="plink.stamp/1"):
    """Round trips to a STAMP reflector.

    Printed by `plink stamp --json`.
    """

    target: Name
    """As it was typed: HOST or HOST:PORT."""
    sent: PositiveInt
    """How many probes."""
    clock: Literal["kernel", "user"]
    """Whose times of departure and arrival most round trips are made of: the kernel's, or this process's."""
    received: Count
    """How many were answered in time."""
    clock_steps: Count
    """Round trips that are left out of what follows because a clock was set meanwhile: they came out negative."""
    percentiles_us: Annotated[list[Positive | None], Meta(min_length=5, max_length=5)]
    """1st, 10th, 50th, 90th and 99th percentile of the round trips, microseconds; null without any."""
    halves_us: Annotated[list[Positive | None], Meta(min_length=2, max_length=2)]
    """10th percentile of even and of odd samples, microseconds; null without any."""
    jitter_us: NonNegative | None
    """Mean difference of one round trip from the next, microseconds; null with fewer than two."""
