"""Costs against a referee that shares none of their code: ranks that play schedules in SimGrid as MPI programs do.

Made-up clouds of racks in pods, even and uneven ones, with the true capacities: do costs rank orders as the referee's
times do, and are they those times? ``--seeds N`` takes N clouds instead of 20, ``--only NAME`` one algorithm; the
others are kept as they were recorded.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import results
from benchmarks.clouds import (
    Order,
    fabric_of_cloud,
    network_of_cloud,
    options_for,
    orders_of,
    rank_correlation,
    three_tier,
)
from benchmarks.record import Bar, each, record, seeds_of
from benchmarks.simgrid import has_simgrid, run_simgrid
from plink.model.schedule import Schedule
from solvers.costs.by_name import cost_function_for
from solvers.costs.fabric import Fabric, fabric_of
from solvers.schedules.catalogue import schedule_for
from solvers.schedules.segmentation import options_at
from solvers.simulation.cost import cost_by_model

HOSTS, CLOUDS, ORDERS, DISTURBED = 64, 20, 16, 10
FIRST_SEED = 100  # no cloud that costs were made on
ALGORITHMS = (
    "ring", "gloo", "halving-doubling", "recursive-doubling", "bcube", "2lha", "tree", "double-binary-tree",
)  # fmt: skip
_RINGS = ("ring", "gloo")  # they post the next reception before they wait for one, in Gloo, Open MPI and NCCL
_TREES = ("tree", "double-binary-tree")
SIZES = (100e6, 1e6)
_CLOSE = (0.9, 1.1)


def played_us(
    folder: Path, fabric: Fabric, schedule: Schedule, orders: Sequence[Order], size_bytes: float
) -> list[float]:
    """Return the time of each order, microseconds, as SimGrid's player has it."""
    jobs = [_job(fabric, schedule, order, size_bytes) for order in orders]
    return run_simgrid(folder, fabric, jobs)


def _job(fabric: Fabric, schedule: Schedule, order: Order, size_bytes: float) -> dict[str, Any]:
    rounds: list[dict[int, tuple[list[Any], list[Any]]]] = [{} for _ in range(schedule.ranks)]
    sizes = (schedule.count * (size_bytes / schedule.chunks)).tolist()
    columns = schedule.round.tolist(), schedule.source.tolist(), schedule.target.tolist(), sizes
    for number, source, target, size in zip(*columns, strict=True):
        lag_s = fabric.rtt_us[order[source], order[target]] / 2e6
        rounds[source].setdefault(number, ([], []))[0].append((target, int(size)))
        rounds[target].setdefault(number, ([], []))[1].append((source, int(size), float(lag_s)))
    hosts = [fabric.names[host] for host in order]
    ahead = 1 if schedule.algo in _RINGS else 0
    return {
        "hosts": hosts,
        "rounds": [[played[number] for number in sorted(played)] for played in rounds],
        "ahead": ahead,
    }


def compare_on_cloud(algo: str, size_bytes: float, seed: int) -> dict[str, Any]:
    """Return the rank correlation of costs with the referee's times on one cloud, and the former over the latter.

    By ``contention``, which is what commands print; by rounds, which searches go by; by the capacities that plink
    assumes where none was measured; and by round trips.
    """
    cloud = three_tier(HOSTS, seed, ("powers", "uneven")[seed % 2])
    fabric = fabric_of_cloud(cloud, seed)
    orders = orders_of(cloud, ORDERS, np.random.default_rng((seed, 3)), DISTURBED)
    options = options_at(options_for(algo, cloud, orders[0]), algo, size_bytes)
    with tempfile.TemporaryDirectory() as folder:
        played = played_us(Path(folder), fabric, schedule_for(algo, HOSTS, options), orders, size_bytes)
    assumed = fabric_of(network_of_cloud(cloud, seed, shared_links=False))
    cost_functions = {
        "contention": cost_by_model(algo, HOSTS, options, fabric, size_bytes, "contention"),
        "by rounds": cost_function_for(algo, HOSTS, options, fabric, size_bytes, "contention"),
        "assumed capacities": cost_by_model(algo, HOSTS, options, assumed, size_bytes, "contention"),
        "latency": cost_function_for(algo, HOSTS, options, fabric, size_bytes, "latency"),
    }
    row = {}
    for name, cost_of in cost_functions.items():
        costs = [cost_of(order) for order in orders]
        ratios = [round(a / b, 4) for a, b in zip(costs, played, strict=True)]
        row[name] = {"spearman": rank_correlation(costs, played), "ratios": ratios}
    return row


def compare(algo: str, size_bytes: float, clouds: int) -> dict[str, Any]:
    """Return the rank correlations of all clouds, the quantiles of costs over played times, and how many are close."""
    rows = each(compare_on_cloud, [(algo, size_bytes, FIRST_SEED + k) for k in range(clouds)])
    figures: dict[str, Any] = {}
    for name in rows[0]:
        ratios = np.concatenate([row[name]["ratios"] for row in rows])
        figures[name] = {
            "spearman": [row[name]["spearman"] for row in rows],
            "over_played": [round(float(q), 3) for q in np.quantile(ratios, [0.0, 0.05, 0.5, 0.95, 1.0])],
            "close": round(float(np.mean((ratios >= _CLOSE[0]) & (ratios <= _CLOSE[1]))), 4),
        }
    print(f"{algo}, {size_bytes:g} bytes: {figures}", flush=True)
    return figures


def bars_of(figures: dict[str, Any]) -> list[Bar]:
    """Return what is wanted: correlations of every cloud, times of 95 % of all orders."""
    bars = []
    for algo, by_size in figures.items():
        for size, row in by_size.items():
            least = 0.93 if float(size) < SIZES[0] else 0.95 if algo in _TREES else 0.96
            of_size = f"{algo}, {float(size) / 1e6:g} MB"
            bars.append(Bar(f"{of_size}, least rank correlation", min(row["contention"]["spearman"]), at_least=least))
            bars.append(Bar(f"{of_size}, share of times within 10 %", row["contention"]["close"], at_least=0.95))
    return bars


def main() -> int:
    """Run and record; the exit code."""
    if not has_simgrid():
        print("needs SimGrid's Python bindings: apt-get install python3-simgrid", file=sys.stderr)
        return 1
    clouds = seeds_of({HOSTS: CLOUDS})[HOSTS]
    only = [sys.argv[sys.argv.index("--only") + 1]] if "--only" in sys.argv else list(ALGORITHMS)
    file = results.RECORDS / "referee.json"
    figures: dict[str, Any] = json.loads(file.read_text())["figures"] if file.exists() and "--only" in sys.argv else {}
    code = 0
    for algo in only:  # an hour is not lost with the last one
        figures[algo] = {f"{size:g}": compare(algo, size, clouds) for size in SIZES}
        numbers = {name: len(rows[f"{SIZES[0]:g}"]["contention"]["spearman"]) for name, rows in figures.items()}
        configuration = {"hosts": HOSTS, "clouds": numbers, "orders": ORDERS, "sizes_bytes": list(SIZES)}
        code = record("referee", configuration, figures, bars_of(figures))
    return code


if __name__ == "__main__":
    sys.exit(main())
