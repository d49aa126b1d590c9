"""Fit what hosts take for each message and byte to timed collectives."""

import datetime
from collections.abc import Sequence
from dataclasses import replace

from plink.errors import UsageError
from plink.features.check.benchmark import PlannedBenchmark, recorded_orders
from plink.features.check.request import CheckRequest
from plink.model.check import BenchmarkRun, CalibratedHosts
from plink.model.network import Network
from plink.model.units import format_bytes
from solvers.checking.host_costs import MIN_SIZES, CollectiveTiming, fit_host_costs
from solvers.costs.by_name import model_for
from solvers.costs.fabric import fabric_of

_SIZE_STEP, _SMALLEST_BYTES, _MAX_SIZES = 4, 1000, 7
_MIN_REPEATS = 10  # small collectives are noisy, and take no time


def plan_sizes(planned: PlannedBenchmark) -> PlannedBenchmark:
    """Return a benchmark of the cheapest order at several sizes, each a quarter of the next.

    :raises UsageError: when there are too few of them.
    """
    sizes = [planned.sizes_bytes[0] // _SIZE_STEP**k // 4 * 4 for k in range(_MAX_SIZES)]
    sizes = [size for size in reversed(sizes) if size >= _SMALLEST_BYTES]
    if len(sizes) < MIN_SIZES:
        least = _SMALLEST_BYTES * _SIZE_STEP ** (MIN_SIZES - 1)
        raise UsageError(
            f"--size {format_bytes(planned.sizes_bytes[0])}: --calibrate times {MIN_SIZES} sizes or more down to "
            f"{format_bytes(_SMALLEST_BYTES)}; give {format_bytes(least)} or more"
        )
    orders, repeats = [planned.orders[0]] * len(sizes), max(planned.repeats, _MIN_REPEATS)
    return replace(planned, orders=orders, sizes_bytes=tuple(sizes), repeats=repeats, for_costs=True)


def timings_of(planned: PlannedBenchmark, run: BenchmarkRun) -> list[CollectiveTiming]:
    """Return what a benchmark of :func:`plan_sizes` timed."""
    return [
        CollectiveTiming(planned.algo, planned.options, order, size, timing.achieved_s)
        for (order, _), size, timing in zip(planned.orders, planned.sizes_bytes, run.runs, strict=True)
    ]


def recorded_timings(run: BenchmarkRun, network: Network) -> list[CollectiveTiming]:
    """Return the timings of all orders of a recorded run with an algorithm and a size.

    :raises NoAnswer: where it is of other hosts.
    """
    assert run.algo is not None
    assert run.size_bytes is not None
    options, orders = recorded_orders(run, network)
    return [
        CollectiveTiming(run.algo, options, order, run.size_bytes, timing.achieved_s)
        for order, timing in zip(orders, run.runs, strict=True)
    ]


def fit_costs(network: Network, timings: Sequence[CollectiveTiming], request: CheckRequest) -> CalibratedHosts:
    """Fit the hosts' costs. The models ``latency`` and ``simulated`` stand for ``contention``, which has times and is
    fast.

    :raises NoAnswer: where the timings do not tell them.
    """
    fabric = fabric_of(network)
    is_alpha_beta = model_for(request.model or "auto", fabric, timed=True) == "alpha-beta"
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return fit_host_costs(fabric, timings, "alpha-beta" if is_alpha_beta else "contention", now)
