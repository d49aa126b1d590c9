"""Rings: the sum of the hops against a minute of the best open TSP code at hand, the longest hop against its bound.

The TSP code is fast-tsp (Or-opt; MIT). ``python -m benchmarks.order_rings --fresh`` runs it again instead of taking
what is kept; ``--seeds N`` takes fewer clouds.
"""

import statistics
import sys
import time
from typing import Any

import numpy as np

from benchmarks.clouds import three_tier
from benchmarks.plain_annealing import fingerprint, recorded_run
from benchmarks.record import Bar, record, seeds_of
from benchmarks.results import RECORDS
from plink.model.network import Matrix
from solvers.costs.patterns import ring_pattern
from solvers.latency import ring_cost
from solvers.ordering.problem import ProgressCallback, SearchBudget
from solvers.ordering.ring import search_bottleneck, search_ring

BASELINES = RECORDS / "order-rings-baselines.json"
_TSP_S = 60
_TSP_SCALE = 65535  # its longest distance: whole numbers of 16 bits
_SEEDS = {64: 10, 256: 10, 1024: 10, 4096: 10}
_SECONDS = {64: 1.0, 256: 3.0, 1024: 10.0, 4096: 40.0}
_GAPS = {64: 0.0, 256: 0.001, 1024: 0.003, 4096: 0.01}
_MAX_SECONDS = {64: 15.0, 256: 15.0, 1024: 40.0}
_MAX_GAPS = {64: 0.0, 256: 0.0, 1024: 0.015}
_ENDING = 0.9  # of the time: what is left is for the last series and for the bound of the longest hop
_UNLIMITED_MOVES = 1 << 50
_EPSILON = 1e-9


def tsp_minute(cost: Matrix, seed: int, fresh: bool = False) -> dict[str, Any]:
    """Return the ring that fast-tsp finds in a minute, as kept or run now: its sum of hops by the true round trips."""

    def run() -> dict[str, Any]:
        import fast_tsp

        whole = np.rint(cost * (_TSP_SCALE / cost.max())).astype(int).tolist()
        began, worked = time.monotonic(), time.process_time()
        tour = fast_tsp.find_tour(whole, duration_seconds=_TSP_S)
        took, worked = time.monotonic() - began, time.process_time() - worked
        total = ring_cost(cost, np.array(tour))
        return {
            "cost": round(total, 6),
            "seconds": round(took, 2),
            "cpu_s": round(worked, 2),
            "seed": seed,
            "ended_by": "clock",
        }

    return recorded_run(BASELINES, f"fast-tsp {len(cost)} {fingerprint(ring_pattern(len(cost)), cost)}", run, fresh)


def _until(seconds: float) -> ProgressCallback:
    deadline = time.monotonic() + _ENDING * seconds
    return lambda _: time.monotonic() < deadline


def sum_of(hosts: int, seed: int, fresh: bool) -> dict[str, Any]:
    """Return one cloud's cheapest ring."""
    cost = three_tier(hosts, seed).rtt_us
    tsp = tsp_minute(cost, seed, fresh)
    began = time.monotonic()
    ring = search_ring(cost, seed, SearchBudget(_UNLIMITED_MOVES, _until(_SECONDS[hosts])))
    took = time.monotonic() - began
    return {
        "seed": seed,
        "tsp": tsp["cost"],
        "found": round(ring.cost, 3),
        "seconds": round(took, 2),
        "bound": round(ring.lower_bound, 3),
        "gap": round(ring.cost / tsp["cost"] - 1, 6) + 0.0,  # no -0.0
        "proven_gap": round(ring.cost / ring.lower_bound - 1, 6),
    }


def longest_of(hosts: int, seed: int) -> dict[str, Any]:
    """Return one cloud's ring with the shortest longest hop."""
    cost = three_tier(hosts, seed).rtt_us
    began = time.monotonic()
    ring = search_bottleneck(cost, seed, SearchBudget(_UNLIMITED_MOVES, _until(_MAX_SECONDS[hosts]), exhaustive=False))
    took = time.monotonic() - began
    return {
        "seed": seed,
        "longest": round(ring.longest, 3),
        "bound": round(ring.longest_bound, 3),
        "gap": round(ring.longest / ring.longest_bound - 1, 6),
        "sum": round(ring.cost, 3),
        "seconds": round(took, 2),
    }


def bars_of(figures: dict[str, Any]) -> list[Bar]:
    """Return what is wanted; a gap within rounding is none."""
    bars = []
    for kind, gaps, seconds in (("sum", _GAPS, _SECONDS), ("longest hop", _MAX_GAPS, _MAX_SECONDS)):
        to = "a minute of fast-tsp" if kind == "sum" else "its bound"
        for hosts, rows in figures[kind].items():
            gap = statistics.median(row["gap"] for row in rows)
            took = max(row["seconds"] for row in rows)
            most = gaps[int(hosts)]
            bars.append(Bar(f"{kind}, {hosts} hosts, gap to {to}, median", gap, at_most=most + _EPSILON))
            bars.append(Bar(f"{kind}, {hosts} hosts, s, worst", took, at_most=seconds[int(hosts)]))
    return bars


def main() -> int:
    """Run and record; the exit code."""
    fresh, all_seeds = "--fresh" in sys.argv[1:], seeds_of(_SEEDS)
    search_ring(three_tier(32, 0).rtt_us, 0, SearchBudget(1000, _until(1.0)))  # compiles
    search_bottleneck(three_tier(32, 0).rtt_us, 0, SearchBudget(1000, _until(1.0)))
    figures: dict[str, dict[str, list[dict[str, Any]]]] = {"sum": {}, "longest hop": {}}
    for hosts, number in all_seeds.items():
        figures["sum"][str(hosts)] = [sum_of(hosts, seed, fresh) for seed in range(number)]
        print(f"sum, {hosts} hosts: {figures['sum'][str(hosts)]}", flush=True)
    for hosts in _MAX_SECONDS:
        figures["longest hop"][str(hosts)] = [longest_of(hosts, seed) for seed in range(all_seeds[hosts])]
        print(f"longest hop, {hosts} hosts: {figures['longest hop'][str(hosts)]}", flush=True)
    configuration = {
        "seeds": all_seeds,
        "seconds": _SECONDS,
        "longest_seconds": _MAX_SECONDS,
        "tsp_seconds": _TSP_S,
    }
    return record("order-rings", configuration, figures, bars_of(figures))


if __name__ == "__main__":
    sys.exit(main())
