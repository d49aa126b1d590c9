"""``plink.check/1``: whether the cost model ranks orders as the clock does, and how true what was measured is."""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from plink.documents.network import HostCostsEntry
from plink.documents.types import Count, NonNegative, PositiveInt, Quantity, Share


class Affinity(TypedDict):
    """Physical affinity inference accuracy: the share of triplets whose order is right."""

    triplets: Count
    """How many there are to judge by."""
    measured: Share | None
    """Of the measured distances."""
    fitted: Share | None
    """Of those an embedding fits; null where there is none."""


class MeasuredOrder(TypedDict):
    """One order that was run."""

    order: str
    """Its name."""
    hosts: NotRequired[list[str]]
    """Those that took its ranks, first rank first."""
    predicted_us: NotRequired[Quantity | None]
    """Its cost by the model; microseconds but for the model `latency`, whose sums are no times."""
    achieved_s: Annotated[list[Quantity], Meta(min_length=1)]
    """Seconds of each repetition, the slowest rank's."""


class CalibrationEntry(TypedDict):
    """Measured over predicted times: median, least, greatest over the orders; null for a model without times."""

    factor: float
    low: float
    high: float


class GainEntry(TypedDict):
    """How many times as fast the order with the lowest cost is as the median order, with its interval of 95 %; null
    where orders were repeated differently often."""

    gain: float
    interval: Annotated[list[float], Meta(min_length=2, max_length=2)] | None


class Baseline(TypedDict):
    """With --max-regression: medians of the cheapest order's repetitions then and now, now over then, and the rank
    correlation then; null where the baseline has no such run."""

    then_s: NonNegative
    now_s: NonNegative
    ratio: NonNegative
    spearman: Annotated[float, Meta(ge=-1, le=1)]


class MeasuredBenchmark(TypedDict):
    """What readers need of a collective that was run: files by hand have nothing else."""

    algo: NotRequired[str | None]
    """What was run: gloo, openmpi-..., or a schedule's name; null where that is not known."""
    model: NotRequired[str | None]
    """The cost model that predicted."""
    size_bytes: NotRequired[Quantity | None]
    """Bytes that were reduced."""
    ranks: NotRequired[PositiveInt]
    """How many took part: the hosts' slots."""
    options: NotRequired[list[str]]
    """What the algorithm was told, as typed after --set."""
    groups: NotRequired[list[list[int]] | None]
    """The ranks of each group, for two-level aggregation."""
    runs: Annotated[list[MeasuredOrder], Meta(min_length=1)]
    """One entry an order."""


class CollectiveCheck(MeasuredBenchmark):
    """One collective that was run in several orders."""

    spearman: Annotated[float, Meta(ge=-1, le=1)]
    """Rank correlation of predicted costs and medians of measured times."""
    interval: Annotated[list[float], Meta(min_length=2, max_length=2)] | None
    """Its interval of 95 % (Bonett and Wright 2000); null where there are fewer than four orders."""
    orders: Annotated[int, Meta(ge=2)]
    """How many."""
    calibration: CalibrationEntry | None
    """Measured over predicted times: median, least, greatest over the orders; null for a model without times."""
    gain: GainEntry | None
    """How many times as fast the order with the lowest cost is as the median order, with its interval of 95 %; null
    where orders were repeated differently often."""
    baseline: NotRequired[Baseline | None]
    """With --max-regression: medians of the cheapest order's repetitions then and now, now over then, and the rank
    correlation then; null where the baseline has no such run."""


class FittedTiming(TypedDict):
    """One collective that was timed for the hosts' own costs."""

    algo: str
    """What was run."""
    size_bytes: Quantity
    """Bytes that were reduced."""
    measured_us: NonNegative
    """Median time, microseconds."""
    fitted_us: NonNegative
    """Time by the cost model with the fitted costs, microseconds."""


class CalibratedHosts(HostCostsEntry):
    """With --calibrate: what hosts take for each message and byte, as written to the network file."""

    model: Literal["alpha-beta", "contention"]
    """The cost model of the fit."""
    fitted: Annotated[list[FittedTiming], Meta(min_length=1)]
    """The timings."""


class MeasuredRuns(TypedDict):
    """What readers need of a check."""

    schema: Literal["plink.check/1"]
    """Kind and version of this file."""
    runs: NotRequired[Annotated[list[MeasuredOrder], Meta(min_length=1)]]
    """By hand: one series of measured orders."""
    checks: NotRequired[Annotated[list[MeasuredBenchmark], Meta(min_length=1)]]
    """One entry a collective that was run."""


class CheckDocument(TypedDict):
    """Whether the cost model ranks orders as the clock does, and how well what was measured tells the truth.

    Written by `plink check --measure`, printed by `plink check --json`; by hand for `plink report --results`:
    `runs` alone.
    """

    schema: Literal["plink.check/1"]
    """Kind and version of this file."""
    network: NotRequired[str | None]
    """Fingerprint of the network that was judged; null where none was needed."""
    truth: NotRequired[str]
    """The file that says where hosts are."""
    affinity: NotRequired[Affinity]
    """Physical affinity inference accuracy: the share of triplets whose order is right."""
    unknown_hosts: NotRequired[list[str]]
    """Hosts that the truth says nothing about."""
    ok: NotRequired[bool]
    """Whether all that was asked for was found to hold."""
    runs: NotRequired[Annotated[list[MeasuredOrder], Meta(min_length=1)]]
    """By hand: one series of measured orders."""
    spearman: NotRequired[Annotated[float, Meta(ge=-1, le=1)]]
    """The lowest of all checks."""
    host_costs: NotRequired[CalibratedHosts]
    """With --calibrate: what hosts take for each message and byte, as written to the network file."""
    failures: NotRequired[list[str]]
    """What falls short, or could not be judged, a sentence each."""
    checks: NotRequired[list[CollectiveCheck]]
    """One entry a collective that was run."""
