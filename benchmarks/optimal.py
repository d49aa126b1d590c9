"""All-reduces against the least possible time: busiest links of made networks, schedules by wrong rates, a lab.

``--part NAME``: links, noise, simulated or lab; repeatable. Of the others the record keeps what it has. The lab needs
root; one of its 16 hosts falls to a quarter.
"""

import json
import statistics
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import results
from benchmarks.aggengine import alone, launched, listed_hosts
from benchmarks.labs import BenchLab, lab
from benchmarks.record import Bar, record
from plink.model.schedule import Schedule, forward_and_reverse
from solvers.costs.by_name import CONTENTION, pattern_for
from solvers.costs.fabric import BYTES_PER_US, Fabric, TierLinks
from solvers.costs.host_flows import by_classes
from solvers.costs.least_time import least_time_on, tier_tree
from solvers.costs.patterns import Pattern, masters_pattern, pattern_of
from solvers.planning import AllReduce, two_level_cost, weights_by
from solvers.schedules.catalogue import HUBS, Options
from solvers.schedules.hierarchical import two_level_masters, two_level_reduce_scatter
from solvers.schedules.hubs import busiest_time, hubs
from solvers.schedules.masters import Groups, equal_chunks
from solvers.schedules.verifier import verify
from solvers.simulation.cost import SimulatedCost
from solvers.spanning.least_time import alike_both_ways, least_time
from solvers.spanning.tier_tree import TierTree

KINDS = ("hosts of 1, 2, 4", "racks of 1, 2, 4", "one slow host", "hosts of 1 to 4")
_NETWORKS, _NOISY, _SIMULATED = 50, 30, 16
_WEIGHTS = ("sizes", "bandwidth", "least-time")
_APART = (1.2, 1.5, 3.0)  # times as fast as the other way, at most
_SIZE = 100e6
_LAB_SIZE, _REPEATS = 25_000_000, 3
_PROGRAM = str(Path(__file__).parent / "timing" / "aggregation.py")


def uneven(seed: int) -> Fabric:
    """Return 16 to 64 hosts in racks of 1 to 12, two or three tiers, oversubscribed 1 to 8 times; rates differ by one
    of ``KINDS``, in turns."""
    rng = np.random.default_rng(seed)
    hosts = int(rng.integers(16, 65))
    rack = np.repeat(np.arange(hosts), rng.integers(1, 13, hosts))[:hosts]
    gbps = 10.0 * [
        rng.choice([1, 2, 4], hosts), rng.choice([1, 2, 4], hosts)[rack], np.ones(hosts), rng.uniform(1, 4, hosts),
    ][seed % 4]  # fmt: skip
    if seed % 4 == 2:
        gbps[rng.integers(hosts)] *= rng.choice([0.5, 0.25])
    tiers = []
    for label in [rack, rack // 3][: 1 + seed % 2]:
        fastest = np.zeros(label.max() + 1)
        np.maximum.at(fastest, label, gbps)
        capacity = np.maximum(np.bincount(label, gbps) / rng.uniform(1, 8, len(fastest)), fastest)
        tiers.append(TierLinks(label, capacity, capacity))
    apart = (rack[:, None] != rack) * 60.0 + 20.0
    np.fill_diagonal(apart, 0.0)
    return Fabric(
        tuple(f"host-{k}" for k in range(hosts)), apart, None, gbps, gbps, rack, tiers[0].out_gbps, tiers[0].in_gbps,
        "measured", True, tuple(tiers[1:]),
    )  # fmt: skip


def uneven_tree(seed: int, apart: float = 1.0) -> TierTree:
    """Return the tree of these hosts, host k at rank k, every link up to so many times as fast, each way by itself."""
    fabric, rng = uneven(seed), np.random.default_rng((seed, 3))
    alike = tier_tree(fabric, np.arange(len(fabric.names)))
    out, into = (rates * rng.uniform(1, apart, len(rates)) for rates in (alike.out, alike.into))
    return replace(alike, out=out, into=into)


def most_messages(schedule: Schedule) -> int:
    """Return how many transfers the rank with the most sends and receives."""
    return int(np.bincount(np.append(schedule.source, schedule.target)).max())


def busiest_us_per_byte(pattern: Pattern, fabric: Fabric) -> float:
    """Return how long a pattern keeps the busiest link, microseconds a byte, host k at rank k."""
    moved = pattern.share * pattern.repeat[pattern.round]
    hosts = TierLinks(np.arange(len(fabric.names)), fabric.host_out_gbps, fabric.host_in_gbps)
    busiest = 0.0
    for tier in (hosts, *fabric.tiers):
        leaves, enters = tier.group_of[pattern.source], tier.group_of[pattern.target]
        crossing = np.where(leaves != enters, moved, 0.0)
        for ends, rates in ((leaves, tier.out_gbps), (enters, tier.in_gbps)):
            busiest = max(busiest, float((np.bincount(ends, crossing, len(rates)) / rates).max()))
    return busiest / BYTES_PER_US


def _groups(fabric: Fabric) -> Groups:
    return [np.flatnonzero(fabric.group_of == k).tolist() for k in np.unique(fabric.group_of)]


def _least(fabric: Fabric) -> float:
    least = least_time_on(fabric, np.arange(len(fabric.names)))
    assert least is not None
    return least.us_per_byte


def links() -> dict[str, Any]:
    """Busiest links over the least possible time, by schedule; hubs are proven. Messages of a rank, in two levels by
    sizes too. And hubs where links carry other rates out than in: there are trees for both ways, or for the slower."""
    rows = []
    for seed in range(_NETWORKS):
        fabric, began = uneven(seed), time.perf_counter()
        hosts = np.arange(len(fabric.names))
        tree = tier_tree(fabric, hosts)
        schedule = forward_and_reverse(*hubs(tree))
        seconds = time.perf_counter() - began
        least, groups = _least(fabric), _groups(fabric)
        two_levels = two_level_reduce_scatter(groups, *two_level_masters(groups))
        row: dict[str, Any] = {
            "kind": KINDS[seed % 4], "hosts": len(hosts), "chunks": schedule.chunks, "transfers": len(schedule),
            "messages": most_messages(schedule), "2lha messages": most_messages(forward_and_reverse(two_levels)),
            "seconds": seconds, "proven": not verify(schedule),
            "hubs": busiest_time(tree, schedule) / least,
            "ring": busiest_us_per_byte(pattern_for("ring", len(hosts), Options()), fabric) / least,
        }  # fmt: skip
        for by in _WEIGHTS:
            masters = equal_chunks(groups, 1024, weights_by(by, fabric, hosts, groups))
            row[f"2lha {by}"] = busiest_us_per_byte(masters_pattern(groups, *masters), fabric) / least
        for spread in _APART:
            apart = uneven_tree(seed, spread)
            both, one_way = (forward_and_reverse(*hubs(each)) for each in (apart, alike_both_ways(apart)))
            row |= {
                f"apart {spread:g}": busiest_time(apart, both) / least_time(apart).us_per_byte,
                f"apart {spread:g}, slower way": busiest_time(apart, one_way) / least_time(apart).us_per_byte,
                f"apart {spread:g} proven": not verify(both),
            }
        rows.append(row)
    return {"rows": rows}


def noise() -> dict[str, Any]:
    """Busiest links of hubs that were planned on rates off by some share, over the true least possible time; and on the
    classes of rates that a probe makes of them, whose repeated flows show the noise."""
    result: dict[str, Any] = {}
    for sigma in (0.03, 0.1):
        rows = []
        for seed in range(_NOISY):
            fabric, rng = uneven(seed), np.random.default_rng((seed, 7))
            own = fabric.host_out_gbps * rng.lognormal(0, sigma, len(fabric.names))
            capacity = fabric.group_out_gbps * rng.lognormal(0, sigma, len(fabric.group_out_gbps))
            hosts = np.arange(len(fabric.names))
            row: dict[str, Any] = {"kind": KINDS[seed % 4]}
            row["ring"] = busiest_us_per_byte(pattern_for("ring", len(hosts), Options()), fabric) / _least(fabric)
            for name, rates in (("hubs", own), ("hubs by classes", by_classes(own, sigma))):
                measured = replace(
                    fabric, host_out_gbps=rates, host_in_gbps=rates, group_out_gbps=capacity, group_in_gbps=capacity
                )
                planned = forward_and_reverse(*hubs(tier_tree(measured, hosts)))
                row[name] = busiest_us_per_byte(pattern_of(planned), fabric) / _least(fabric)
            rows.append(row)
        result[f"{sigma:g}"] = rows
    return result


def simulated() -> dict[str, Any]:
    """Seconds of 100 MB by ``contention``, over the least possible time."""
    rows = []
    for seed in range(_SIMULATED):
        fabric = uneven(seed)
        hosts, groups = np.arange(len(fabric.names)), _groups(fabric)
        least = _least(fabric) * _SIZE
        row: dict[str, Any] = {"kind": KINDS[seed % 4], "hosts": len(hosts)}
        for algo in (HUBS, "ring", "flat", "double-binary-tree"):
            options = Options(tree=tier_tree(fabric, hosts) if algo == HUBS else None)
            row[algo] = SimulatedCost.of(algo, len(hosts), options, fabric, _SIZE, CONTENTION)(hosts) / least
        for by in _WEIGHTS:
            masters = equal_chunks(groups, 8 * len(hosts), weights_by(by, fabric, hosts, groups))
            row[f"2lha {by}"] = two_level_cost(groups, masters, AllReduce(fabric, hosts, _SIZE, CONTENTION)) / least
        print(json.dumps(row), flush=True)
        rows.append(row)
    return {"rows": rows}


def _lab_times(bench: BenchLab) -> dict[str, Any]:
    """Median seconds of 25 MB, given order, by schedules that take turns; the least possible time by the probe."""
    names, racks = listed_hosts(bench), dict(zip(bench.names, bench.racks.tolist(), strict=True))
    (bench.folder / "given.txt").write_text("".join(f"{name}\n" for name in names))
    lines = [" ".join(name for name in names if racks[name] == rack) for rack in sorted(set(racks.values()))]
    (bench.folder / "racks.txt").write_text("".join(f"{line}\n" for line in lines))
    for words in (
        ("probe", bench.hosts_file),
        ("reorder", "--algo", "gloo", "--size", "25MB", "-o", "gloo.json"),
        ("plan", "--algo", HUBS, "--size", "25MB", "--order", "given.txt", "-o", "hubs.json"),
        *(("plan", "--algo", "2lha", "--weights", by, "--groups", "racks.txt", "--size", "25MB", "--order", "given.txt",
           "-o", f"{by}.json") for by in _WEIGHTS),
    ):  # fmt: skip
        if (done := bench.plink(*words)).code:
            raise SystemExit(done.stderr)
    ordered = json.loads((bench.folder / "gloo.json").read_text())["hosts"]
    groups: dict[str, Any] = {
        "gloo": {"kind": "gloo", "order": None},
        "gloo, plink's order": {"kind": "gloo", "order": [ordered.index(name) for name in names]},
        HUBS: {"kind": "plink", "order": None, "plan": str(bench.folder / "hubs.json")},
    }
    for by in _WEIGHTS:
        groups[f"2lha {by}"] = {"kind": "plink", "order": None, "plan": alone(bench, by)}
    (bench.folder / "sizes.json").write_text(
        json.dumps({"sizes": [_LAB_SIZE], "repeats": _REPEATS, "small_repeats": 1, "groups": groups})
    )
    words = ("--order", "given.txt", "--hosts", bench.hosts_file, _PROGRAM, str(bench.folder / "sizes.json"))
    (row,) = [line for line in launched(bench.folder, *words) if "size_bytes" in line]
    least = json.loads((bench.folder / "hubs.json").read_text())["least_time_us"] / 1e6
    return {"least_s": least, "seconds": {name: statistics.median(times) for name, times in row["seconds"].items()}}


def in_lab() -> dict[str, Any]:
    """The lab with one host at a quarter, and as it is."""
    figures = {}
    with lab("--racks", "4", "--hosts-per-rack", "4") as bench:
        bench.use_reno()
        slow = listed_hosts(bench)[5]
        bench.plink("lab", "shape", slow, "--rate", "50mbit", "--name", bench.name)
        figures["one host at a quarter"] = _lab_times(bench)
        bench.plink("lab", "heal", "--name", bench.name)
        figures["alike"] = _lab_times(bench)
    print(json.dumps(figures), flush=True)
    return figures


def _bars(figures: dict[str, Any]) -> list[Bar]:
    bars = []
    if "links" in figures:
        rows = figures["links"]["rows"]
        bars += [
            Bar("busiest link over the least possible time, worst", max(row["hubs"] for row in rows), at_most=1.01),
            Bar("schedules proven", sum(row["proven"] for row in rows), at_least=len(rows)),
            Bar("seconds for all", sum(row["seconds"] for row in rows), at_most=10),
            Bar("messages of a rank, times two levels', worst",
                max(row["messages"] / row["2lha messages"] for row in rows), at_most=2),
            Bar("busiest link over the least possible time, rates apart, worst",
                max(row[f"apart {spread:g}"] for row in rows for spread in _APART), at_most=1.02),
            Bar("schedules proven, rates apart",
                sum(row[f"apart {spread:g} proven"] for row in rows for spread in _APART),
                at_least=len(rows) * len(_APART)),
        ]  # fmt: skip
    if "noise" in figures:
        near, far = figures["noise"].values()
        bars += [
            Bar("the same by rates off by 3 %, worst", max(row["hubs"] for row in near), at_most=1.12),
            *(
                Bar(f"{name} better than the ring by rates off by 10 %",
                    sum(row[name] < row["ring"] for row in far), at_least=28)
                for name in ("hubs", "hubs by classes")
            ),
        ]  # fmt: skip
    if "simulated" in figures:
        ratios = [row[HUBS] for row in figures["simulated"]["rows"]]
        bars += [
            Bar("100 MB over the least possible time, median", statistics.median(ratios), at_most=1.08),
            Bar("100 MB over the least possible time, worst", max(ratios), at_most=1.25),
        ]
    if "lab" in figures:
        slow, even = (figures["lab"][name] for name in ("one host at a quarter", "alike"))
        rivals = ("gloo", "gloo, plink's order", "2lha sizes")
        bars += [
            Bar("lab, slow host: times the better of ring and 2LHA by sizes",
                min(slow["seconds"][name] for name in rivals) / slow["seconds"][HUBS], at_least=1.5),
            Bar("lab, slow host: of the least possible", slow["least_s"] / slow["seconds"][HUBS], at_least=0.85),
            Bar("lab, alike: over the best of the others",
                even["seconds"][HUBS] / min(even["seconds"][name] for name in rivals), at_most=1.02),
        ]  # fmt: skip
    return bars


_PARTS = {"links": links, "noise": noise, "simulated": simulated, "lab": in_lab}


def main() -> int:
    """Measure all parts, or those named, and record them beside earlier figures of others; 1 when a bar was missed."""
    named = [name for word, name in pairwise(sys.argv) if word == "--part"] or list(_PARTS)
    file = results.RECORDS / "optimal.json"
    earlier = json.loads(file.read_text())["figures"] if file.exists() else {}
    figures = {
        name: part() if name in named else earlier[name] for name, part in _PARTS.items() if name in (*named, *earlier)
    }
    return record(
        "optimal", {"networks": _NETWORKS, "noisy": _NOISY, "lab": "4 racks of 4"}, figures, _bars(figures), named
    )


if __name__ == "__main__":
    sys.exit(main())
