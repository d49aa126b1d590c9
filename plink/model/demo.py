"""Result of a demo: what an order gained on an emulated cloud (``plink.demo/1``)."""

from typing import Annotated

from msgspec import Meta

from plink.model.document import Document
from plink.model.types import HostName, NonNegative, Positive, PositiveInt, Quantity

_Samples = Annotated[tuple[Quantity, ...], Meta(min_length=1)]


class DemoTimes(Document, frozen=True, kw_only=True, tag="plink.demo/1"):
    """What readers need of a demo: both orders' predictions and times."""

    predicted_baseline_s: Positive
    """What the link rates predict for the given order, seconds."""
    predicted_plink_s: Positive
    """What the link rates predict for plink's order, seconds."""
    baseline_samples_s: _Samples
    """Every repetition in the given order, the slowest rank's seconds."""
    plink_samples_s: _Samples
    """Every repetition in plink's order, the slowest rank's seconds."""


class Demo(DemoTimes, frozen=True, kw_only=True, tag="plink.demo/1"):
    """What an order gained on an emulated cloud.

    Printed by `plink demo --json`.
    """

    predicted_baseline_interval_s: tuple[NonNegative, NonNegative]
    """Where the time in the given order is with a probability of 90 %, as calibrated on labs, seconds."""
    predicted_plink_interval_s: tuple[NonNegative, NonNegative]
    """Where the time in plink's order is with a probability of 90 %, seconds."""
    hosts: Annotated[tuple[HostName, ...], Meta(min_length=2, extra_json_schema={"uniqueItems": True})]
    """Host names in plink's rank order."""
    racks_recovered: bool
    """Whether each rack's hosts stand in one block of the ring, by the lab's own truth."""
    baseline_s: Positive
    """Median time of the all-reduce in the given order, seconds."""
    plink_s: Positive
    """Median time in plink's order, seconds."""
    bound_s: Positive
    """No ring all-reduce is faster at the hosts' link rate, seconds."""
    speedup: Positive
    """baseline_s / plink_s."""
    group_count: PositiveInt
    """Groups of hosts that stood out in the measured round trips."""
    cost_baseline_us: NonNegative
    """Sum of the ring's round trips in the given order, microseconds."""
    cost_plink_us: NonNegative
    """Sum of the ring's round trips in plink's order, microseconds."""
    size_bytes: PositiveInt
    """Size of the all-reduce in bytes."""
    seed: int
    """What dealt hosts to racks and seeded the search."""
