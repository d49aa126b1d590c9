"""Orders of ``plink reorder``, simulated: from round trips alone, and from a file with all capacities.

Also NCCL's mix of a tree and a ring against the orders of either. ``--seeds N`` takes N clouds instead of 20,
``--jobs N`` shares them among N processes.
"""

import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.clouds import Cloud, Order, fabric_of_cloud, network_of_cloud, options_for, orders_of, three_tier
from benchmarks.record import Bar, each, record, seeds_of
from plink.features.order.request import OrderRequest
from plink.features.order.run import reorder
from plink.model.network import Network
from solvers.costs.by_name import cost_function_for
from solvers.costs.fabric import Fabric
from solvers.ordering.problem import OrderingProblem, SearchBudget
from solvers.ordering.search import search
from solvers.schedules.catalogue import Options
from solvers.simulation.cost import SimulatedCost

HOSTS, CLOUDS = 64, 20
ALGORITHMS = ("halving-doubling", "bcube", "2lha")
SIZES = {100e6: CLOUDS, 1e6: 4, 64e3: 4}  # bytes, and of how many clouds
NCCL_SIZES, NCCL_HOSTS, NCCL_SEEDS = (64e3, 1e6, 100e6), (9, 32), 4
_MOVES = 60_000
_RANDOM_ORDERS = 11


def order_by_reorder(network: Network, algo: str, size_bytes: float, model: str = "auto") -> tuple[Order, Options]:
    """Return the order of ``plink reorder`` with a fixed number of moves, and the algorithm's options in it."""
    base = 4 if algo == "bcube" else 2
    request = OrderRequest(algo, size_bytes, model, {"base": base} if algo == "bcube" else {}, max_moves=_MOVES)
    order = reorder(network, request)
    index = {name: host for host, name in enumerate(network.hosts.names)}
    hosts = np.array([index[name] for name in order.hosts], dtype=np.intp)
    return hosts, Options(base=base, groups=order.groups or None)


def simulated_orders(cloud: Cloud, seed: int, algo: str, size_bytes: float) -> dict[str, float]:
    """Return simulated times over that of the order for the true network: of the orders by ``auto`` and by ``latency``
    from round trips alone, by ``auto`` from measured round trips and all capacities, of the better of two orders that
    keep racks and pods together, and the median random order."""
    fabric = fabric_of_cloud(cloud, seed)
    exact = network_of_cloud(replace(cloud, sample_sigma=0.0), seed, shared_links=True)
    full, rtt_only = (network_of_cloud(cloud, seed, shared_links=has_links) for has_links in (True, False))
    by_auto = order_by_reorder(rtt_only, algo, size_bytes)
    together, rng = orders_of(cloud, 2, np.random.default_rng((seed, 3))), np.random.default_rng((seed, 6))

    def simulated(order: Order, options: Options) -> float:
        return SimulatedCost.of(algo, len(cloud), options, fabric, size_bytes)(order)

    best = simulated(*order_by_reorder(exact, algo, size_bytes))
    times = {
        "auto": simulated(*by_auto),
        "latency": simulated(*order_by_reorder(rtt_only, algo, size_bytes, "latency")),
        "full": simulated(*order_by_reorder(full, algo, size_bytes)),
        "together": min(simulated(order, options_for(algo, cloud, order)) for order in together),
        "random": float(np.median([simulated(rng.permutation(len(cloud)), by_auto[1]) for _ in range(_RANDOM_ORDERS)])),
    }
    return {name: round(us / best, 4) for name, us in times.items()}


def searched_order(fabric: Fabric, algo: str, size_bytes: float) -> Order:
    """Return the order of a search by ``contention`` with a fixed number of moves; the baseline is random."""
    hosts = np.random.default_rng(1).permutation(len(fabric.names))
    problem = OrderingProblem(fabric, hosts, algo, Options(), size_bytes, "contention")
    return search(problem, 0, SearchBudget(_MOVES)).order


def nccl_over_the_better(hosts: int, seed: int, size_bytes: float) -> float:
    """Return what the order for ``nccl`` costs over the better of those for its tree and its ring, by its own cost."""
    fabric = fabric_of_cloud(three_tier(hosts, seed), seed)
    cost_of = cost_function_for("nccl", hosts, Options(), fabric, size_bytes, "contention")
    costs = {algo: cost_of(searched_order(fabric, algo, size_bytes)) for algo in ("nccl", "nccl-tree", "nccl-ring")}
    return round(costs["nccl"] / min(costs["nccl-tree"], costs["nccl-ring"]), 4)


def _cloud(seed: int) -> Cloud:
    return three_tier(HOSTS, seed, ("powers", "uneven")[seed % 2])


def main() -> int:
    """Run and record; the exit code."""
    began, clouds = time.monotonic(), seeds_of({HOSTS: CLOUDS})[HOSTS]
    figures: dict[str, Any] = {}
    calls = [
        (_cloud(seed), seed, algo, size)
        for size, number in SIZES.items()
        for algo in ALGORITHMS
        for seed in range(min(number, clouds))
    ]
    answered = list(zip(calls, each(simulated_orders, calls), strict=True))
    for size in SIZES:
        for algo in ALGORITHMS:
            rows = [row for (_, _, *of), row in answered if of == [algo, size]]
            figures[f"{algo} {size:g}"] = {name: [row[name] for row in rows] for name in rows[0]}
            most = {name: max(row[name] for row in rows) for name in rows[0]}
            print(f"{algo}, {size:g} bytes: at most {most}, {time.monotonic() - began:.0f} s", flush=True)
    cases = [(hosts, seed, size) for hosts in NCCL_HOSTS for size in NCCL_SIZES for seed in range(NCCL_SEEDS)]
    nccl: dict[str, list[float]] = {}
    for (hosts, _, size), ratio in zip(cases, each(nccl_over_the_better, cases), strict=True):
        nccl.setdefault(f"{hosts} hosts, {size:g} bytes", []).append(ratio)
    bars = []
    for algo in ALGORITHMS:
        row = figures[f"{algo} {100e6:g}"]
        bars.append(Bar(f"{algo}, round trips alone, over the true topology's order", max(row["auto"]), at_most=1.15))
        bars.append(Bar(f"{algo}, full file, over the true topology's order", max(row["full"]), at_most=1.02))
        worst = max(ours / random for ours, random in zip(row["full"], row["random"], strict=True))
        bars.append(Bar(f"{algo}, full file, over the median random order", round(worst, 4), at_most=1.0))
    bars += [Bar(f"nccl, {name}, over the better of both", max(values), at_most=1.0) for name, values in nccl.items()]
    configuration = {"hosts": HOSTS, "clouds": clouds, "moves": _MOVES, "random_orders": _RANDOM_ORDERS}
    return record("order-models", configuration, figures | {"nccl": nccl}, bars)


if __name__ == "__main__":
    sys.exit(main())
