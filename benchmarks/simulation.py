"""Do the fast cost models rank orders as plink's simulator does? Made-up clouds of racks in pods, every algorithm.

``--seeds N`` takes N clouds instead of 20.
"""

import statistics
import sys
import time
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from benchmarks.clouds import Cloud, three_tier
from benchmarks.record import Bar, record, seeds_of
from solvers.costs.by_name import cost_function_for
from solvers.costs.fabric import Fabric, TierLinks
from solvers.schedules.catalogue import Options
from solvers.simulation.cost import SimulatedCost

HOSTS, CLOUDS, ORDERS = 64, 20, 26
SIZE_BYTES = 100e6
_MODELS = ("latency", "contention")
_TREES = ("tree", "double-binary-tree", "nccl-tree")
_PAIRWISE = (  # rounds in which each rank exchanges with one or few others
    "ring", "ring-chunked", "halving-doubling", "recursive-doubling", "bcube", "2lha",
)  # fmt: skip
BARS = dict.fromkeys(_PAIRWISE, 0.95) | dict.fromkeys(_TREES, 0.9)
_HOST_GBPS = 10.0
_OVERSUBSCRIPTION = (1.5, 4.0)  # of racks, and of pods once more: what enters over what leaves
_TOGETHER, _DISTURBED = 2, 16  # of the orders; the others are random

Order = npt.NDArray[np.intp]


def fabric_of_cloud(cloud: Cloud, seed: int) -> Fabric:
    """Return the cloud with true capacities: hosts of 10 Gbit/s, racks and pods oversubscribed at random."""
    rng = np.random.default_rng((seed, 2))
    n, rates = len(cloud), np.full(len(cloud), _HOST_GBPS)
    racks = np.bincount(cloud.rack_of) * _HOST_GBPS / rng.uniform(*_OVERSUBSCRIPTION, int(cloud.rack_of.max()) + 1)
    into = np.bincount(cloud.pod_of, racks[cloud.rack_of] / np.bincount(cloud.rack_of)[cloud.rack_of])
    pods = into / rng.uniform(*_OVERSUBSCRIPTION, len(into))
    return Fabric(
        tuple(f"host{k}" for k in range(n)), cloud.rtt_us, None, rates, rates, cloud.rack_of, racks, racks, "measured",
        outer_tiers=(TierLinks(cloud.pod_of, pods, pods),),
    )  # fmt: skip


def orders_of(cloud: Cloud, number: int, rng: np.random.Generator) -> list[Order]:
    """Return orders that no model chose: racks and pods together, these after 1 to 2N swaps, and random ones."""
    n = len(cloud)
    swaps = np.unique(np.geomspace(1, 2 * n, max(2, _DISTURBED)).round().astype(int))
    orders = []
    for k in range(number):
        hosts = rng.permutation(n)
        rack, pod = (rng.permutation(labels.max() + 1)[labels] for labels in (cloud.rack_of, cloud.pod_of))
        order = hosts[np.lexsort((rack[hosts], pod[hosts]))]
        if k >= _TOGETHER + _DISTURBED:
            order = rng.permutation(n)
        elif k >= _TOGETHER:
            for _ in range(int(swaps[(k - _TOGETHER) % len(swaps)])):
                i, j = rng.integers(n, size=2)
                order[[i, j]] = order[[j, i]]
        orders.append(order.astype(np.intp))
    return orders


def options_for(algo: str, cloud: Cloud, together: Order) -> Options:
    """Return the options: BCube of base 4 where the number of hosts allows it, 2LHA with as many ranks a group as racks
    have hosts."""
    labels = cloud.rack_of[together]
    groups = [np.flatnonzero(labels == label).tolist() for label in dict.fromkeys(labels.tolist())]
    quarters = round(np.log(len(cloud)) / np.log(4))
    base = 4 if 4**quarters == len(cloud) else 2
    return Options(base=base if algo == "bcube" else 2, groups=groups if algo == "2lha" else None)


def compare(algo: str, hosts: int, clouds: int, orders: int) -> dict[str, Any]:
    """Return the rank correlation with simulated times on each cloud, by model, the times of ``contention`` over them,
    and the seconds a simulation takes."""
    correlation: dict[str, list[float]] = {model: [] for model in _MODELS}
    ratios: list[float] = []
    seconds: list[float] = []
    for seed in range(clouds):
        cloud = three_tier(hosts, seed, ("powers", "uneven")[seed % 2])
        fabric = fabric_of_cloud(cloud, seed)
        drawn = orders_of(cloud, orders, np.random.default_rng((seed, 3)))
        options = options_for(algo, cloud, drawn[0])
        simulated_cost = SimulatedCost.of(algo, hosts, options, fabric, SIZE_BYTES)
        simulated = []
        for order in drawn:
            began = time.perf_counter()
            simulated.append(simulated_cost(order))
            seconds.append(time.perf_counter() - began)
        for model in _MODELS:
            cost_of = cost_function_for(algo, hosts, options, fabric, SIZE_BYTES, model)
            predicted = [cost_of(order) for order in drawn]
            correlation[model].append(round(float(spearmanr(predicted, simulated).statistic), 4))
            if model == "contention":
                ratios += [p / s for p, s in zip(predicted, simulated, strict=True)]
    row = {
        "spearman": correlation,
        "contention_over_simulated": [round(float(q), 3) for q in np.quantile(ratios, [0.0, 0.5, 1.0])],
        "seconds": round(statistics.median(seconds), 5),
    }
    print(f"{algo}: { ({model: min(values) for model, values in correlation.items()}) } at least; {row}", flush=True)
    return row


def bars_of(figures: dict[str, Any]) -> list[Bar]:
    """Return what is wanted: of every cloud."""
    bars = [
        Bar(f"{algo}, rank correlation of `contention`, least of the clouds",
            min(figures[algo]["spearman"]["contention"]), at_least=least)
        for algo, least in BARS.items()
    ]  # fmt: skip
    return [*bars, Bar("ring, seconds a simulation", figures["ring"]["seconds"], at_most=0.02)]


def main() -> int:
    """Run and record; the exit code."""
    clouds = seeds_of({HOSTS: CLOUDS})[HOSTS]
    figures = {algo: compare(algo, HOSTS, clouds, ORDERS) for algo in BARS}
    configuration = {
        "hosts": HOSTS, "clouds": clouds, "orders": ORDERS, "size_bytes": SIZE_BYTES, "host_gbps": _HOST_GBPS,
        "oversubscription": _OVERSUBSCRIPTION,
    }  # fmt: skip
    return record("simulation", configuration, figures, bars_of(figures))


if __name__ == "__main__":
    sys.exit(main())
