"""How often the interval of a predicted gain holds what another probe of the same network says.

Simulated: hosts in racks in pods, with noise of round trips and of capacities. Lab: real probes, one after the other.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import plink
from benchmarks.clouds import three_tier
from benchmarks.labs import lab
from benchmarks.record import Bar, record
from plink.model.network import Network, symmetrised
from solvers.costs.by_name import cost_function_for, pattern_for
from solvers.costs.fabric import fabric_of
from solvers.ordering.cross_validation import CostModel, cross_validate, split_halves
from solvers.schedules.catalogue import Options

_PROBES, _HOSTS = 200, 32
_LAB_PROBES = 20
_SIZE_BYTES, _CONFIDENCE = 16e6, 0.9
_ALGORITHMS = ("ring", "halving-doubling")
_RTT_SIGMA, _RATE_SIGMA = 0.05, 0.03
_RUNS = 3  # of a capacity, whose range is in the file


def _probed(seed: int, probe: int) -> Network:
    """Return what a probe of a simulated network says."""
    cloud, rng = three_tier(_HOSTS, seed, sample_sigma=_RTT_SIGMA), np.random.default_rng((seed, probe))
    names = [f"host{k}" for k in range(_HOSTS)]
    tiers = []
    for labels, share in ((cloud.rack_of, 0.5), (cloud.pod_of, 0.2)):
        rows = []
        for label in np.unique(labels):
            members = np.flatnonzero(labels == label)
            row: dict[str, Any] = {"members": [names[k] for k in members], "interval": {}}
            for way in ("out", "in"):
                runs = np.sort(10.0 * max(1.0, share * len(members)) * rng.lognormal(0, _RATE_SIGMA, _RUNS)).tolist()
                row |= {f"{way}_gbps": runs[_RUNS // 2], f"{way}_one_flow_gbps": 10.0, f"{way}_limited_by": "link"}
                row["interval"][f"{way}_gbps"] = [runs[0], runs[-1]]
            rows.append(row)
        tiers.append({"groups": rows})
    return cloud.network(rng, {"shared_links": tiers, "host_flows": _flows(names, rng)})


def _flows(names: Sequence[str], rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return flows of each host with two partners: one way at a time, then both ways at once."""
    return [
        {"from": a, "to": b, "gbps": float(10.0 * rng.lognormal(0, _RATE_SIGMA)), "both_ways": both_ways}
        for distance in (1, 2)
        for first, second in zip(names, [*names[distance:], *names[:distance]], strict=True)
        for a, b in ((first, second), (second, first))
        for both_ways in (False, True)
    ]


def coverage(probes: Sequence[Network], algo: str, seed: int) -> dict[str, float]:
    """Return how often the interval of one probe holds the gain by the next, and its mean width.

    The order is one by a probe of its own, so that no interval is of samples that it was fitted on.
    """
    first, *others = probes
    baseline = np.random.default_rng(seed).permutation(len(first.hosts))
    request = plink.OrderRequest(algo=algo, size_bytes=_SIZE_BYTES, model="contention", max_moves=20_000, force=True)
    names = list(first.hosts.names)
    order = np.array([names.index(name) for name in plink.reorder(first, request).hosts])
    patterns = [(1.0, pattern_for(algo, len(first.hosts), Options()))]
    held, widths = 0, []
    for probe, (network, again) in enumerate(zip(others, [*others[1:], others[0]], strict=True)):
        halves = split_halves(network.half_rtts_us, symmetrised(network.latency_us))
        assert halves is not None
        fabric = replace(fabric_of(network), rtt_us=halves[0])
        model = CostModel(patterns, fabric, _SIZE_BYTES, "contention")
        validated = cross_validate(model, order, baseline, halves[1], probe, _CONFIDENCE)
        fresh = replace(fabric_of(again), rtt_us=symmetrised(again.half_rtts_us[0]))
        cost_of = cost_function_for(algo, len(first.hosts), Options(), fresh, _SIZE_BYTES, "contention")
        low, high = validated.interval
        held += low <= 1 - cost_of(order) / cost_of(baseline) <= high
        widths.append(high - low)
    return {"held": round(held / len(others), 4), "probes": len(others), "width": round(float(np.mean(widths)), 5)}


def _lab_probes() -> list[Network]:
    """Return real probes of two racks of four hosts."""
    with lab("--racks", "2", "--hosts-per-rack", "4", "--seed", "4") as bench:
        networks = []
        for k in range(_LAB_PROBES + 1):
            run = bench.plink("probe", bench.hosts_file, "--no-host-rates", "-o", f"{k}.json")
            if run.code == 0:
                networks.append(bench.network(f"{k}.json"))
        return networks


def main() -> int:
    """Run and record; the exit code."""
    simulated = [_probed(3, probe) for probe in range(_PROBES + 1)]
    figures = {"simulated": {algo: coverage(simulated, algo, 3) for algo in _ALGORITHMS}}
    if "--no-lab" not in sys.argv:
        real = _lab_probes()
        figures["lab"] = {algo: coverage(real, algo, 3) for algo in _ALGORITHMS}
    bars = [
        bar
        for algo, row in figures["simulated"].items()
        for bar in (
            Bar(f"{algo}, share of intervals of 90 % that hold the gain of another probe", row["held"], at_least=0.85),
            Bar(f"{algo}, the same, not too wide", row["held"], at_most=0.95),
        )
    ]
    configuration = {
        "hosts": _HOSTS, "probes": _PROBES, "lab_probes": _LAB_PROBES, "rtt_sigma": _RTT_SIGMA,
        "rate_sigma": _RATE_SIGMA, "size_bytes": _SIZE_BYTES, "confidence": _CONFIDENCE,
    }  # fmt: skip
    return record("gain-coverage", configuration, figures, bars)


if __name__ == "__main__":
    sys.exit(main())
