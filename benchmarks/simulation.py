"""Do the fast cost models rank orders as plink's simulator does? Made-up clouds of racks in pods, every algorithm.

``--seeds N`` takes N clouds instead of 20, ``--only NAME`` one algorithm; the others are kept as they were recorded.
"""

import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from benchmarks import results
from benchmarks.clouds import Cloud, three_tier
from benchmarks.record import Bar, each, record, seeds_of
from plink.model.network import Network
from solvers.costs.fabric import Fabric, TierLinks, fabric_of
from solvers.schedules.catalogue import Options
from solvers.simulation.contention import cost_by_model
from solvers.simulation.cost import SimulatedCost

HOSTS, CLOUDS, ORDERS = 64, 20, 26
SIZE_BYTES, SMALL_BYTES = 100e6, 64e3
_TIES = 0.02
# Model, and whether it knows the true capacities; else they are inferred from the round trips.
_MODELS = {"latency": ("latency", True), "contention": ("contention", True), "inferred": ("contention", False)}
_TREES = ("tree", "double-binary-tree", "nccl-tree")
_PAIRWISE = (  # rounds in which each rank exchanges with one or few others
    "ring", "ring-chunked", "halving-doubling", "recursive-doubling", "bcube", "2lha",
)  # fmt: skip
BARS = dict.fromkeys(_PAIRWISE, 0.95) | dict.fromkeys(_TREES, 0.9)
_HOST_GBPS = 10.0
_OVERSUBSCRIPTION = (1.5, 4.0)  # of racks, and of pods once more: what enters over what leaves
_TOGETHER, _DISTURBED = 2, 16  # of the orders; the others are random

Order = npt.NDArray[np.intp]
Vector = npt.NDArray[np.float64]


def fabric_of_cloud(cloud: Cloud, seed: int) -> Fabric:
    """Return the cloud with true capacities: hosts of 10 Gbit/s, racks and pods oversubscribed at random."""
    rng = np.random.default_rng((seed, 2))
    n, rates = len(cloud), np.full(len(cloud), _HOST_GBPS)
    racks = np.bincount(cloud.rack_of) * _HOST_GBPS / rng.uniform(*_OVERSUBSCRIPTION, int(cloud.rack_of.max()) + 1)
    racks = np.maximum(racks, _HOST_GBPS)  # no uplink is slower than one host, not even that of a rack of one
    into = np.bincount(cloud.pod_of, racks[cloud.rack_of] / np.bincount(cloud.rack_of)[cloud.rack_of])
    pods = np.maximum(into / rng.uniform(*_OVERSUBSCRIPTION, len(into)), _HOST_GBPS)
    return Fabric(
        tuple(f"host{k}" for k in range(n)), cloud.rtt_us, None, rates, rates, cloud.rack_of, racks, racks, "measured",
        outer_tiers=(TierLinks(cloud.pod_of, pods, pods),),
    )  # fmt: skip


def network_of_cloud(cloud: Cloud, seed: int, shared_links: bool) -> Network:
    """Return what ``plink probe`` would have written: round trips with noise, and the true capacities if asked."""
    network = cloud.network(np.random.default_rng((seed, 5)))
    if not shared_links:
        return network
    fabric, tiers = fabric_of_cloud(cloud, seed), []
    for tier in fabric.tiers:
        groups = []
        for group, gbps in enumerate(tier.out_gbps.tolist()):
            members = [fabric.names[host] for host in np.flatnonzero(tier.group_of == group)]
            groups.append({"members": members} | {
                f"{way}_{key}": value
                for way in ("out", "in")
                for key, value in (("gbps", gbps), ("one_flow_gbps", _HOST_GBPS), ("limited_by", "link"))
            })  # fmt: skip
        tiers.append({"groups": groups})
    return replace(network, details={**network.details, "shared_links": tiers})


def orders_of(cloud: Cloud, number: int, rng: np.random.Generator, disturbed: int = _DISTURBED) -> list[Order]:
    """Return orders that no model chose: racks and pods together, these after 1 to 2N swaps, and random ones."""
    n = len(cloud)
    swaps = np.unique(np.geomspace(1, 2 * n, max(2, disturbed)).round().astype(int))
    orders = []
    for k in range(number):
        hosts = rng.permutation(n)
        rack, pod = (rng.permutation(labels.max() + 1)[labels] for labels in (cloud.rack_of, cloud.pod_of))
        order = hosts[np.lexsort((rack[hosts], pod[hosts]))]
        if k >= _TOGETHER + disturbed:
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


def with_ties(values: Sequence[float], share: float) -> Vector:
    """Return the values, each replaced by the least that is within this share below it, counted from the least on."""
    tied, least = np.array(values, dtype=np.float64), -np.inf
    for k in np.argsort(tied, kind="stable").tolist():
        least = least if tied[k] <= least * (1 + share) else tied[k]
        tied[k] = least
    return tied


def rank_correlation(predicted: Sequence[float], simulated: Sequence[float], ties: float = 0.0) -> float:
    """Return Spearman's rho; times within a share of each other are ties. 1 where all simulated times are one tie."""
    both = [with_ties(values, ties) for values in (predicted, simulated)]
    if np.ptp(both[1]) == 0:
        return 1.0
    return 0.0 if np.ptp(both[0]) == 0 else round(float(spearmanr(*both).statistic), 4)


def compare_on_cloud(algo: str, size_bytes: float, seed: int) -> dict[str, Any]:
    """Return the rank correlations on one cloud by model, the ratios of times, and the seconds of each simulation."""
    plain: dict[str, float] = {}
    tied: dict[str, float] = {}
    ratios: list[float] = []
    seconds: list[float] = []
    cloud = three_tier(HOSTS, seed, ("powers", "uneven")[seed % 2])
    fabric = fabric_of_cloud(cloud, seed)
    inferred = fabric_of(network_of_cloud(cloud, seed, shared_links=False))
    drawn = orders_of(cloud, ORDERS, np.random.default_rng((seed, 3)))
    options = options_for(algo, cloud, drawn[0])
    simulated_cost = SimulatedCost.of(algo, HOSTS, options, fabric, size_bytes)
    simulated = []
    for order in drawn:
        began = time.perf_counter()
        simulated.append(simulated_cost(order))
        seconds.append(time.perf_counter() - began)
    for name, (model, has_capacities) in _MODELS.items():
        seen = fabric if has_capacities else inferred
        cost_of = cost_by_model(algo, HOSTS, options, seen, size_bytes, model)
        predicted = [cost_of(order) for order in drawn]
        plain[name] = rank_correlation(predicted, simulated)
        tied[name] = rank_correlation(predicted, simulated, _TIES)
        if name == "contention":
            ratios = [p / s for p, s in zip(predicted, simulated, strict=True)]
    return {"plain": plain, "tied": tied, "ratios": ratios, "seconds": seconds}


def compare(algo: str, size_bytes: float, clouds: int) -> dict[str, Any]:
    """Return the rank correlations with simulated times on each cloud, by model, with ties and without; the times of
    ``contention`` over the simulated ones, and the seconds that a simulation takes."""
    rows = each(compare_on_cloud, [(algo, size_bytes, seed) for seed in range(clouds)])
    plain, tied = ({name: [row[kind][name] for row in rows] for name in _MODELS} for kind in ("plain", "tied"))
    ratios = [ratio for row in rows for ratio in row["ratios"]]
    seconds = [value for row in rows for value in row["seconds"]]
    row = {
        "spearman": plain,
        "spearman_with_ties": tied,
        "clouds": clouds,
        "contention_over_simulated": [round(float(q), 3) for q in np.quantile(ratios, [0.0, 0.5, 1.0])],
        "seconds": round(statistics.median(seconds), 5),
    }
    print(
        f"{algo}, {size_bytes:g} bytes: { ({name: min(values) for name, values in plain.items()}) } at least",
        flush=True,
    )
    return row


def bars_of(figures: dict[str, Any]) -> list[Bar]:
    """Return what is wanted: of every cloud."""
    large, small = (f"{size:g}" for size in (SIZE_BYTES, SMALL_BYTES))
    bars = []
    for algo, row in figures.items():
        least = BARS[algo]
        for name, values, wanted in (
            ("`contention`, 100 MB", row[large]["spearman"]["contention"], least),
            ("inferred capacities, 100 MB", row[large]["spearman"]["inferred"], 0.95 if algo == "ring" else 0.85),
            ("`contention`, 64 kB, ties of 2 %", row[small]["spearman_with_ties"]["contention"], 0.8),
        ):
            bars.append(Bar(f"{algo}, {name}: least rank correlation of the clouds", min(values), at_least=wanted))
    if "ring" in figures:
        bars.append(Bar("ring, seconds a simulation", figures["ring"][large]["seconds"], at_most=0.02))
    return bars


def main() -> int:
    """Run and record; the exit code."""
    clouds = seeds_of({HOSTS: CLOUDS})[HOSTS]
    only = [sys.argv[sys.argv.index("--only") + 1]] if "--only" in sys.argv else list(BARS)
    file = results.RESULTS / "simulation.json"
    figures: dict[str, Any] = json.loads(file.read_text())["figures"] if file.exists() and "--only" in sys.argv else {}
    for algo in only:
        figures[algo] = {f"{size:g}": compare(algo, size, clouds) for size in (SIZE_BYTES, SMALL_BYTES)}
    figures = {algo: figures[algo] for algo in BARS if algo in figures}
    configuration = {
        "hosts": HOSTS, "clouds": clouds, "orders": ORDERS, "size_bytes": [SIZE_BYTES, SMALL_BYTES],
        "host_gbps": _HOST_GBPS, "oversubscription": _OVERSUBSCRIPTION, "ties": _TIES,
    }  # fmt: skip
    return record("simulation", configuration, figures, bars_of(figures), only)


if __name__ == "__main__":
    sys.exit(main())
