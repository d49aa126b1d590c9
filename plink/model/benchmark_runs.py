"""Benchmarks of rank orders, predicted and measured, as read from files.

``plink.check/1`` (`plink check --measure`): series of trials under ``checks``, or by hand a single one: ``{"schema":
"plink.check/1", "runs": [{"order": "given", "predicted_us": 910, "achieved_s": [0.51, 0.5]}]}``, ``predicted_us`` a
number or null; or what ``plink demo --json`` prints.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plink.documents.check import MeasuredBenchmark, MeasuredOrder, MeasuredRuns
from plink.documents.codec import decode, schema_name
from plink.documents.demo import DemoRuns
from plink.errors import InputError
from plink.model.storage import name_of, read_document

SCHEMA = schema_name(MeasuredRuns)
US_PER_S = 1e6


@dataclass(frozen=True)
class OrderTiming:
    """Measured times of one order. ``hosts``: first rank first, empty if unknown; ``predicted_us``: None if unknown;
    ``achieved_s``: seconds of each repetition."""

    order: str
    predicted_us: float | None
    achieved_s: tuple[float, ...]
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class BenchmarkRun:
    """Benchmark of one collective in several orders. ``algo``, ``size_bytes``, ``model`` and ``ranks`` are None if
    unknown; ``options``: as typed after ``--set``; ``groups``: the ranks of each group, for two-level aggregation."""

    orders: tuple[OrderTiming, ...]
    algo: str | None = None
    size_bytes: float | None = None
    model: str | None = None
    options: tuple[str, ...] = ()
    groups: tuple[tuple[int, ...], ...] | None = None
    ranks: int | None = None


def read_benchmark_runs(path: Path) -> tuple[BenchmarkRun, ...]:
    """Read measured runs from a file, at least one with at least one order.

    :raises InputError: when it cannot be read or is no such file, naming the key.
    """
    document, location = read_document(path), name_of(path)
    if document.get("schema") == schema_name(DemoRuns):
        demo = decode(DemoRuns, document, location)
        orders = (
            ("given", demo["predicted_baseline_s"], demo["baseline_samples_s"]),
            ("plink's", demo["predicted_plink_s"], demo["plink_samples_s"]),
        )
        return (BenchmarkRun(tuple(OrderTiming(name, US_PER_S * cost, tuple(times)) for name, cost, times in orders)),)
    if document.get("schema") != SCHEMA:
        schemas = f"{SCHEMA!r} or {schema_name(DemoRuns)!r}"
        raise InputError(f"{location}: schema", f"expected {schemas}, the kinds of file that hold measured runs")
    checked = decode(MeasuredRuns, document, location)
    if "checks" in checked:
        return tuple(_benchmark_run(entry) for entry in checked["checks"])
    if "runs" not in checked:
        raise InputError(f"{location}: runs", "is missing, and checks too: it holds no measured runs")
    return (BenchmarkRun(_order_timings(checked["runs"])),)


def _benchmark_run(entry: MeasuredBenchmark) -> BenchmarkRun:
    groups = entry.get("groups")
    return BenchmarkRun(
        _order_timings(entry["runs"]),
        entry.get("algo"),
        entry.get("size_bytes"),
        entry.get("model"),
        tuple(entry.get("options", ())),
        None if groups is None else tuple(map(tuple, groups)),
        entry.get("ranks"),
    )


def _order_timings(runs: Sequence[MeasuredOrder]) -> tuple[OrderTiming, ...]:
    return tuple(
        OrderTiming(
            "".join(character if character.isprintable() else "\ufffd" for character in run["order"]),
            run.get("predicted_us"),
            tuple(run["achieved_s"]),
            tuple(run.get("hosts", ())),
        )
        for run in runs
    )
