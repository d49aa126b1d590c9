"""Tiers of shared links: found in noise, measured on a two-tier lab, and what orders by them gain.

Orders are searched on what a probe of the lab measured, on the true tree, and on racks alone. Their costs are those of
the simulator on the true tree.
"""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
from msgspec import structs

import plink
from benchmarks.labs import BenchLab, lab
from benchmarks.record import Bar, record
from plink.features.measure.shared_links import find_tiers
from plink.model.codec import convert
from plink.model.document import UNSET
from plink.model.hosts import Host, Hosts
from plink.model.network import Network
from plink.model.network_file import SharedTierEntry
from probes.measurements import Measurements

_ALGORITHMS = ("ring", "halving-doubling", "2lha")
_SIZE_BYTES = 16e6
_MODELS = ("contention", "simulated")
_SEEDS = {"measured": 3, "true": 3, "racks": 3, "racks only": 9}
_MOVES = 20_000
_HOST, _RACK, _POD = 0.06, 0.12, 0.06  # Gbit/s
_CLOUDS, _SIGMA = 100, 0.08
_PODS, _RACKS_PER_POD, _HOSTS_PER_RACK = 2, 2, 4
_LAB = (
    "--pods", str(_PODS), "--racks", str(_PODS * _RACKS_PER_POD), "--hosts-per-rack", str(_HOSTS_PER_RACK),
    "--host-rate", "60mbit", "--uplink-rate", "120mbit", "--pod-rate", "60mbit", "--seed", "5",
)  # fmt: skip


def clouds_exact(clouds: int) -> int:
    """Return in how many clouds of 64 hosts the tiers are found exactly: 8 racks in 4 pods in 2 zones."""
    exact = 0
    for seed in range(clouds):
        rng = np.random.default_rng((seed, 7))
        rack = rng.permutation(np.repeat(np.arange(8), 8))
        apart = [labels[:, None] != labels for labels in (rack, rack // 2, rack // 4)]
        rtt = np.select(apart[::-1], [250.0, 140.0, 80.0], 40.0)
        measurements = Measurements(Hosts(tuple(Host(f"h{k}", f"10.0.0.{k}") for k in range(64))))
        halves = [rtt * rng.lognormal(0, _SIGMA * np.sqrt(2), rtt.shape) for _ in range(2)]
        for matrix, values in zip((measurements.latency, *measurements.halves),
                                  (np.sqrt(halves[0] * halves[1]), *halves), strict=True):  # fmt: skip
            matrix[:] = values
            np.fill_diagonal(matrix, 0.0)
        truth = [
            sorted(np.flatnonzero(rack // size == label).tolist() for label in range(8 // size)) for size in (1, 2, 4)
        ]
        exact += [sorted(groups) for groups in find_tiers(measurements)] == truth
    return exact


def _tree(bench: BenchLab, network: Network) -> list[SharedTierEntry]:
    """Return the true tiers of the lab, as a file has them."""
    names = network.hosts.names
    rack_of = np.array([bench.racks[bench.names.index(name)] for name in names])
    pod_of = np.array([bench.blueprint.pod_of(int(rack)) for rack in rack_of])
    tiers = []
    for labels, gbps in ((rack_of, _RACK), (pod_of, _POD)):
        row = {"out_gbps": gbps, "in_gbps": gbps, "out_one_flow_gbps": _HOST, "in_one_flow_gbps": _HOST}
        groups = [[names[k] for k in np.flatnonzero(labels == label)] for label in np.unique(labels)]
        tiers.append({"groups": [{"members": members, **row} for members in groups]})
    return convert(list[SharedTierEntry], tiers, "tree")


def _with_tiers(network: Network, tiers: list[SharedTierEntry]) -> Network:
    return replace(network, details=structs.replace(network.details, shared_links=tiers))


def _without_pods(network: Network) -> Network:
    """Return a network whose round trips show racks and nothing else: the same between any two of them."""
    (tier,) = network.shared_links
    names = network.hosts.names
    rack = np.array([next(k for k, row in enumerate(tier.groups) if name in row.members) for name in names])
    rtt, inside = network.latency_us, rack[:, None] == rack
    far = float(np.nanmedian(rtt[~inside]))
    details = structs.replace(network.details, halves_us=UNSET, percentiles_us=UNSET)
    return replace(network, latency_us=np.where(inside, rtt, far), details=details)


def _worst_error(bench: BenchLab, network: Network) -> float:
    """Return the largest relative error of a capacity; 1 where the groups are not the true ones."""
    errors = []
    for tier, true in zip(network.shared_links, _tree(bench, network), strict=False):
        expected = {frozenset(row.members): row for row in true.groups}
        for row in tier.groups:
            truth = expected.get(frozenset(row.members))
            errors += [abs((row.gbps(way) or 0.0) / truth.gbps(way) - 1) if truth else 1.0 for way in ("out", "in")]
    return max(errors, default=1.0) if len(network.shared_links) == 2 else 1.0


def orders_on(bench: BenchLab, network: Network) -> dict[str, Any]:
    """Return costs, us, of orders by several trees, on the true tree.

    These are the measured tree, the true one, racks with all round trips (which show pods, too), and racks only.
    """
    true = _with_tiers(network, _tree(bench, network))
    racks = _with_tiers(network, network.shared_links[:1])
    sources = {"measured": network, "true": true, "racks": racks, "racks only": _without_pods(racks)}
    result: dict[str, Any] = {}
    for algo in _ALGORITHMS:
        costs: dict[str, dict[str, list[float]]] = {model: {name: [] for name in sources} for model in _MODELS}
        for name, source in sources.items():
            for seed in range(_SEEDS[name]):
                request = plink.OrderRequest(
                    algo=algo, size_bytes=_SIZE_BYTES, model="contention", max_moves=_MOVES, force=True, seed=seed
                )
                order = plink.reorder(source, request)
                for model in _MODELS:
                    cost_request = plink.CostRequest(algo=algo, size_bytes=_SIZE_BYTES, model=model, random=0)
                    costs[model][name].append(round(plink.cost(true, order, cost_request).cost_us))
        result[algo] = costs
    return result


def _ratio(costs: dict[str, list[float]], name: str, other: str) -> float:
    """Return the mean of one source's costs over that of another's."""
    return round(float(np.mean(costs[name]) / np.mean(costs[other])), 4)


def main() -> int:
    """Run and record; the exit code."""
    with lab(*_LAB) as bench:
        run = bench.plink("probe", bench.hosts_file, "-o", "pods.json")
        network = bench.network("pods.json")
        measured = {
            "seconds": round(run.seconds, 1),
            "exit_code": run.code,
            "worst_error": round(_worst_error(bench, network), 4),
        }
        orders = orders_on(bench, network)
    figures = {
        "probe": measured,
        "orders": orders,
        "ratios": {
            model: {
                algo: {
                    "measured / true": _ratio(orders[algo][model], "measured", "true"),
                    "racks / measured": _ratio(orders[algo][model], "racks", "measured"),
                    "racks only / measured": _ratio(orders[algo][model], "racks only", "measured"),
                }
                for algo in _ALGORITHMS
            }
            for model in _MODELS
        },
        "clouds_exact": clouds_exact(_CLOUDS),
    }
    configuration = {
        "lab": " ".join(_LAB), "size_bytes": _SIZE_BYTES, "seeds": _SEEDS, "moves": _MOVES, "clouds": _CLOUDS,
        "sigma": _SIGMA,
    }  # fmt: skip
    return record("tiers", configuration, figures, bars_of(figures))


def bars_of(figures: dict[str, Any]) -> list[Bar]:
    """Return what is wanted."""
    ratios = figures["ratios"]["simulated"]
    bars = [Bar("worst error of a capacity", figures["probe"]["worst_error"], at_most=0.15)]
    for algo, row in ratios.items():
        bars += [
            Bar(f"{algo}, cost over that by the true tree", row["measured / true"], at_most=1.03),
            Bar(f"{algo}, mean cost by racks only over that by measured", row["racks only / measured"], at_least=1.3),
        ]
    return [*bars, Bar("share of clouds with all tiers exact", figures["clouds_exact"] / _CLOUDS, at_least=0.95)]


if __name__ == "__main__":
    sys.exit(main())
