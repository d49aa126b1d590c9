"""Fit what hosts take for each message and byte, and write it into the network file (``plink check --calibrate``).

Imported when the command runs: it needs the solvers.
"""

import datetime
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from plink.api.algorithms import options_of
from plink.cli.order_benchmark import BenchmarkConfig, PlannedBenchmark
from plink.documents.check import CalibratedHosts, FittedTiming
from plink.documents.network import HostCostsEntry
from plink.errors import NoAnswer, PlinkError, UsageError
from plink.model.benchmark_runs import BenchmarkRun
from plink.model.network import Network, read_network
from plink.model.request import parse_settings
from plink.model.units import format_bytes, format_us
from plink.report.words import host_costs
from plink.terminal.screen import say
from solvers.checking.host_costs import MIN_SIZES, CollectiveTiming, fit_host_costs
from solvers.costs.by_name import model_for
from solvers.costs.fabric import fabric_of

_SIZE_STEP, _SMALLEST_BYTES, _MAX_SIZES = 4, 1000, 7
_MIN_REPEATS = 10  # small collectives are noisy, and take no time


def sizes_of(config: BenchmarkConfig) -> tuple[int, ...]:
    """Return the sizes to time, each a quarter of the next, up to that of the benchmark.

    :raises UsageError: when there are too few of them.
    """
    sizes = [config.size_bytes // _SIZE_STEP**k // 4 * 4 for k in range(_MAX_SIZES)]
    sizes = [size for size in reversed(sizes) if size >= _SMALLEST_BYTES]
    if len(sizes) < MIN_SIZES:
        least = _SMALLEST_BYTES * _SIZE_STEP ** (MIN_SIZES - 1)
        raise UsageError(
            f"--size {format_bytes(config.size_bytes)}: --calibrate times {MIN_SIZES} sizes or more down to "
            f"{format_bytes(_SMALLEST_BYTES)}; give {format_bytes(least)} or more"
        )
    return tuple(sizes)


def timing_plan(planned: PlannedBenchmark) -> PlannedBenchmark:
    """Return a benchmark of the cheapest order at several sizes."""
    sizes = sizes_of(planned.config)
    config = replace(planned.config, repeats=max(planned.config.repeats, _MIN_REPEATS))
    return replace(planned, orders=[planned.orders[0]] * len(sizes), config=config, sizes_bytes=sizes)


def describe_timings(planned: PlannedBenchmark) -> None:
    """Say what will be timed."""
    sizes = planned.sizes_bytes
    say(
        f"{planned.algo}: {len(sizes)} sizes, {format_bytes(sizes[0])} to {format_bytes(sizes[-1])}, "
        f"{planned.config.repeats} times each, for the hosts' own costs"
    )


def timings_from(planned: PlannedBenchmark, series: BenchmarkRun) -> list[CollectiveTiming]:
    """Return what was timed by :func:`timing_plan`."""
    order = planned.orders[0][0]
    groups = None if planned.groups is None else [list(group) for group in planned.groups]
    return [
        _timing(planned.algo, planned.options, groups, order, size, timing.achieved_s)
        for size, timing in zip(planned.sizes_bytes, series.orders, strict=True)
    ]


def recorded_timings(network: Network, runs: Sequence[BenchmarkRun]) -> list[CollectiveTiming]:
    """Return the timings of recorded runs, those of every order.

    :raises NoAnswer: where a run lacks its algorithm, size or hosts, or is of other hosts.
    """
    index_of = {name: k for k, name in enumerate(network.hosts.names)}
    slots = np.array([host.slots for host in network.hosts], dtype=np.intp)
    timings = []
    for series in runs:
        groups = None if series.groups is None else [list(group) for group in series.groups]
        for timing in series.orders:
            if series.algo is None or series.size_bytes is None or set(timing.hosts) != set(index_of):
                raise NoAnswer(f"--calibrate: order {timing.order} needs its algorithm, size and all hosts of NETWORK")
            hosts = np.array([index_of[name] for name in timing.hosts], dtype=np.intp)
            order = np.repeat(hosts, slots[hosts])
            timings.append(_timing(series.algo, series.options, groups, order, series.size_bytes, timing.achieved_s))
    return timings


def _timing(
    algo: str, options: Sequence[str], groups: list[list[int]] | None, order: Any, size_bytes: float,
    seconds: tuple[float, ...],
) -> CollectiveTiming:  # fmt: skip
    return CollectiveTiming(algo, options_of(parse_settings(list(options)), [algo], groups), order, size_bytes, seconds)


def calibrate(network: Network, network_file: Path, timings: Sequence[CollectiveTiming], model: str) -> CalibratedHosts:
    """Fit the hosts' costs, write them into the network file and return the entry of plink.check/1.

    :raises NoAnswer: where the timings do not tell them: the file is as it was.
    :param model: ``latency`` and ``simulated`` stand for ``contention``, which has times and is fast.
    :raises PlinkError: when the file has changed meanwhile.
    """
    fabric = fabric_of(network)
    fitted_by: Literal["alpha-beta", "contention"] = (
        "alpha-beta" if model_for(model, fabric, timed=True) == "alpha-beta" else "contention"
    )
    costs = fit_host_costs(fabric, timings, fitted_by)
    entry: HostCostsEntry = {
        "overhead_us": round(costs.overhead_us, 4),
        "overhead_interval_us": _rounded(costs.overhead_interval_us),
        "byte_ns": round(costs.byte_ns, 5),
        "byte_interval_ns": _rounded(costs.byte_interval_ns),
        "algorithms": list(dict.fromkeys(timing.algo for timing in timings)),
        "timings": len(timings),
        "error": round(costs.error, 4),
        "measured_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    }
    present = read_network(network_file)
    if present.fingerprint() != network.fingerprint():
        raise PlinkError(f"{network_file} has changed since this began: the hosts' costs are not written; run it again")
    replace(present, details=present.details | {"host_costs": entry}).write(network_file)
    fitted: list[FittedTiming] = [
        {
            "algo": timing.algo,
            "size_bytes": timing.size_bytes,
            "measured_us": round(timing.median_us, 3),
            "fitted_us": round(fitted_us, 3),
        }
        for timing, fitted_us in zip(timings, costs.fitted_us, strict=True)
    ]
    return {**entry, "model": fitted_by, "fitted": fitted}


def _rounded(interval: tuple[float, float] | None) -> list[float] | None:
    return None if interval is None else [round(interval[0], 5), round(interval[1], 5)]


def show_host_costs(entry: CalibratedHosts) -> None:
    """Print the fitted costs and every timing beside its fit."""
    print(f"{host_costs(entry)}; the fit is off by {entry['error']:.1%} in the median")
    for row in entry["fitted"]:
        print(
            f"  {row['algo']}, {format_bytes(int(row['size_bytes']))}: {format_us(row['measured_us'])} measured, "
            f"{format_us(row['fitted_us'])} fitted"
        )
