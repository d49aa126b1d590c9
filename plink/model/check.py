"""Checks of the cost model and of measured distances (``plink.check/1``), and the timed orders that they rest on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, structs

from plink.errors import InputError
from plink.model.codec import decode, schema_name, short_json
from plink.model.demo import DemoTimes
from plink.model.document import UNSET, Document, Part, Unset
from plink.model.network_file import HostCostsEntry, LibraryCostsEntry
from plink.model.storage import name_of, read_document
from plink.model.types import Count, NonNegative, PositiveInt, Quantity, Share

US_PER_S = 1e6
RankCorrelation = Annotated[float, Meta(ge=-1, le=1)]


class Affinity(Part, frozen=True, kw_only=True):
    """Physical affinity inference accuracy: the share of triplets whose order is right."""

    triplets: Count
    """How many the truth tells apart."""
    measured_triplets: Count
    """How many of them have both pairs measured."""
    measured: Share | None
    """Of the measured distances: the share of `measured_triplets`."""
    fitted_triplets: Count | None
    """How many of them have both pairs fitted, measured or not; null where there is no embedding."""
    fitted: Share | None
    """Of those an embedding fits: the share of `fitted_triplets`; null where there is none."""


class OrderTiming(Part, frozen=True, kw_only=True):
    """One order that was run."""

    order: str
    """Its name."""
    hosts: tuple[str, ...] | Unset = UNSET
    """Those that took its ranks, first rank first."""
    predicted_us: Quantity | None = None
    """Its cost by the model; microseconds but for the model `latency`, whose sums are no times."""
    achieved_s: Annotated[tuple[Quantity, ...], Meta(min_length=1)]
    """Seconds of each repetition, the slowest rank's."""


class CostCalibration(Part, frozen=True, kw_only=True):
    """Measured over predicted times: median, least, greatest over the orders. A model that ranks right may be off by a
    factor (software's overhead); what matters is that the factor is the same for all."""

    factor: float
    low: float
    high: float


class StatedGain(Part, frozen=True, kw_only=True):
    """How many times as fast the order with the lowest cost is as the median order, with its interval of 95 %."""

    gain: float
    interval: tuple[float, float] | None


class BaselineComparison(Part, frozen=True, kw_only=True):
    """Comparison with an earlier check: medians of the cheapest order's repetitions then and now, now over then, and
    the rank correlation then."""

    then_s: NonNegative
    now_s: NonNegative
    ratio: NonNegative
    spearman: RankCorrelation


class BenchmarkRun(Part, frozen=True, kw_only=True):
    """Benchmark of one collective in several orders; files by hand have no more."""

    algo: str | None = None
    """What was run: gloo, openmpi-..., or a schedule's name; null where that is not known."""
    model: str | None = None
    """The cost model that predicted."""
    size_bytes: Quantity | None = None
    """Bytes that were reduced."""
    ranks: PositiveInt | Unset = UNSET
    """How many took part: the hosts' slots."""
    options: tuple[str, ...] = ()
    """What the algorithm was told, as typed after --set."""
    groups: tuple[tuple[int, ...], ...] | Unset | None = UNSET
    """The ranks of each group, for two-level aggregation."""
    runs: Annotated[tuple[OrderTiming, ...], Meta(min_length=1)]
    """One entry an order."""


class CollectiveCheck(BenchmarkRun, frozen=True, kw_only=True):
    """One collective that was run in several orders, and how well the model ranked them."""

    spearman: RankCorrelation
    """Rank correlation of predicted costs and medians of measured times."""
    interval: tuple[float, float] | None
    """Its interval of 95 % (Bonett and Wright 2000); null where a perfect ranking of so few orders, or
    costs, would come by chance more often than once in ten."""
    orders: Annotated[int, Meta(ge=2)]
    """How many."""
    attainable: RankCorrelation | Unset = UNSET
    """The highest correlation there can be, where some predicted costs are equal; times `--min-spearman` it is what
    the correlation is held to."""
    calibration: CostCalibration | None
    """Measured over predicted times: median, least, greatest over the orders; null for a model without times."""
    gain: StatedGain | None
    """How many times as fast the order with the lowest cost is as the median order, with its interval of 95 %; null
    where orders were repeated differently often."""
    baseline: BaselineComparison | Unset | None = UNSET
    """With --max-regression: medians of the cheapest order's repetitions then and now, now over then, and the rank
    correlation then; null where the baseline has no such run."""


class FittedTiming(Part, frozen=True, kw_only=True):
    """One collective that was timed for the hosts' own costs."""

    algo: str
    """What was run."""
    size_bytes: Quantity
    """Bytes that were reduced."""
    measured_us: NonNegative
    """Median time, microseconds."""
    fitted_us: NonNegative
    """Time by the cost model with the fitted costs, microseconds."""


class CalibratedHosts(HostCostsEntry, frozen=True, kw_only=True):
    """Costs of hosts with the timings that they were fitted to."""

    model: Literal["alpha-beta", "contention"]
    """The cost model of the fit."""
    fitted: Annotated[tuple[FittedTiming, ...], Meta(min_length=1)]
    """The timings."""


class CalibratedLibrary(LibraryCostsEntry, frozen=True, kw_only=True):
    """Costs of a library with the timings that they were fitted to."""

    model: Literal["alpha-beta", "contention"]
    """The cost model of the fit."""
    fitted: Annotated[tuple[FittedTiming, ...], Meta(min_length=1)]
    """The timings."""


class Check(Document, frozen=True, kw_only=True, tag="plink.check/1"):
    """Whether the cost model ranks orders as the clock does, and how well what was measured tells the truth.

    Written by `plink check --measure`, printed by `plink check --json`; by hand for `plink report --results`:
    `runs` alone.
    """

    network: str | None = None
    """Fingerprint of the network that was judged; null where none was needed."""
    truth: str | Unset = UNSET
    """The file that says where hosts are."""
    affinity: Affinity | Unset = UNSET
    """Physical affinity inference accuracy: the share of triplets whose order is right."""
    unknown_hosts: tuple[str, ...] | Unset = UNSET
    """Hosts that the truth says nothing about."""
    ok: bool | Unset = UNSET
    """Whether all that was asked for was found to hold."""
    runs: Annotated[tuple[OrderTiming, ...], Meta(min_length=1)] | Unset = UNSET
    """By hand: one series of measured orders."""
    spearman: RankCorrelation | Unset = UNSET
    """The lowest of all checks."""
    host_costs: CalibratedHosts | Unset = UNSET
    """With --calibrate: what hosts take for each message and byte, as written to the network file."""
    library_costs: tuple[CalibratedLibrary, ...] | Unset = UNSET
    """With --calibrate: what NCCL takes besides the network, as written to the network file."""
    timings: tuple[BenchmarkRun, ...] | Unset = UNSET
    """With --measure --calibrate: what these costs were fitted to, a run a timing."""
    failures: tuple[str, ...] | Unset = UNSET
    """What falls short, or could not be judged, a sentence each."""
    checks: tuple[CollectiveCheck, ...] | Unset = UNSET
    """One entry a collective that was run."""


class _TimedOrders(Part, frozen=True, kw_only=True, tag_field="schema", tag=schema_name(Check)):
    """Check as readers need it: of files by hand, too."""

    runs: Annotated[tuple[OrderTiming, ...], Meta(min_length=1)] | Unset = UNSET
    checks: Annotated[tuple[BenchmarkRun, ...], Meta(min_length=1)] | Unset = UNSET
    timings: tuple[BenchmarkRun, ...] | Unset = UNSET


def read_benchmark_runs(path: str | Path) -> tuple[BenchmarkRun, ...]:
    """Read the runs of several orders, as :func:`read_recorded_runs`."""
    return read_recorded_runs(path)[0]


def read_recorded_runs(
    path: str | Path, for_costs: bool = False
) -> tuple[tuple[BenchmarkRun, ...], tuple[BenchmarkRun, ...]]:
    """Read measured runs, and what was timed for the costs of hosts, from a file: of ``plink.check/1``, also by hand
    (``{"schema": "plink.check/1", "runs": [{"order": "given", "predicted_us": 910, "achieved_s": [0.51, 0.5]}]}``), or
    what ``plink demo --json`` prints.

    :param for_costs: whether the latter are enough.
    :raises InputError: when it cannot be read or is no such file, naming the key.
    """
    document, location = read_document(path), name_of(path)
    if document.get("schema") == schema_name(DemoTimes):
        demo = decode(DemoTimes, document, location)
        orders = (
            ("given", demo.predicted_baseline_s, demo.baseline_samples_s),
            ("plink's", demo.predicted_plink_s, demo.plink_samples_s),
        )
        timings = (
            OrderTiming(order=name, predicted_us=US_PER_S * cost, achieved_s=times) for name, cost, times in orders
        )
        return (BenchmarkRun(runs=tuple(timings)),), ()
    if document.get("schema") != schema_name(Check):
        schemas = f"{schema_name(Check)!r} or {schema_name(DemoTimes)!r}"
        raise InputError(f"{location}: schema", f"expected {schemas}, got {short_json(document.get('schema'))}")
    timed = decode(_TimedOrders, document, location)
    runs = timed.checks or ((BenchmarkRun(runs=timed.runs),) if timed.runs else ())
    if not runs and not (for_costs and timed.timings):
        raise InputError(f"{location}: runs", "is missing, and checks too: it holds no measured runs")
    return tuple(structs.replace(run, runs=_printable(run.runs)) for run in runs), timed.timings or ()


def _printable(runs: Sequence[OrderTiming]) -> tuple[OrderTiming, ...]:
    """Return the orders with names that pages and terminals can show."""
    names = ["".join(each if each.isprintable() else "\ufffd" for each in run.order) for run in runs]
    return tuple(structs.replace(run, order=name) for run, name in zip(runs, names, strict=True))
