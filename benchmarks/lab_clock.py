"""The simulator against the clock of a lab: simulated and measured all-reduces of AggEngine, over orders, by algorithm.

Both sides have the same schedule: the ranks run it over one channel, message by message, the simulator has the lab as
``plink probe`` measured it. Hosts use TCP's Reno.
``--only 'ring, one tier'``: one part (3 minutes); ``--only ring``, ``--only 'one tier'``: several.
The others are kept as they were recorded.
"""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import results
from benchmarks.clouds import rank_correlation
from benchmarks.cost_models import candidates
from benchmarks.labs import BenchLab, lab
from benchmarks.record import Bar, record
from plink.model.schedule import Schedule
from solvers.checking import spread
from solvers.costs.closed_forms import Order
from solvers.costs.fabric import Fabric, fabric_of
from solvers.schedules.catalogue import Options, schedule_for
from solvers.simulation.collective import PreparedCollective

SIZE_BYTES = 16_000_000
RANKS, ORDERS, REPEATS = 16, 12, 3
_SEED, _TREE_SEGMENTS = 3, 16
# Of algorithms in which a rank receives from several at once: a channel takes them in one order, with 4 MiB under way.
# So large messages wait for each other, which the simulator leaves out.
_SEGMENTS, _STAGGER = 16, 2
_TIES = 0.02  # of measured and of simulated times
_PROGRAM = str(Path(__file__).parent / "timing" / "aggregation.py")
_HOSTS = ("--racks", "4", "--hosts-per-rack", "4", "--host-rate", "200mbit", "--seed", "4")
LABS = {
    "one tier": (*_HOSTS, "--uplink-rate", "200mbit"),
    "two tiers": (*_HOSTS, "--uplink-rate", "400mbit", "--pods", "2", "--pod-rate", "200mbit"),
}
ALGORITHMS = {
    "ring": Options(),
    "halving-doubling": Options(),
    "double-binary-tree": Options(segments=_TREE_SEGMENTS),
    "2lha": Options(groups=np.arange(RANKS).reshape(4, 4).tolist()),
    "bcube": Options(base=4),
}
_SEGMENTED = ("halving-doubling", "2lha", "bcube")


def in_segments(schedule: Schedule, segments: int) -> Schedule:
    """Return the schedule with every chunk cut into segments, each of which enters a round ``_STAGGER`` segments after
    it entered the one before, as in AggEngine's programs."""
    segment = np.repeat(np.arange(segments), len(schedule))
    columns = ("source", "target", "first", "count", "copies")
    source, target, first, count, copies = (np.tile(getattr(schedule, name), segments) for name in columns)
    rounds = (segment + _STAGGER * np.tile(schedule.round, segments)).astype(np.int32)
    first = (first + schedule.chunks * segment).astype(np.int32)
    by_round = np.argsort(rounds, kind="stable")
    return replace(
        schedule, chunks=schedule.chunks * segments, round=rounds[by_round], source=source[by_round],
        target=target[by_round], first=first[by_round], count=count[by_round], copies=copies[by_round],
    )  # fmt: skip


def simulated_s(schedule: Schedule, fabric: Fabric, orders: list[Order]) -> list[float]:
    """Return the simulated seconds of each order; AggEngine sends as soon as data are there."""
    collective = PreparedCollective.of(schedule, lockstep=False)
    return [collective.run(fabric, order, SIZE_BYTES).makespan_us / 1e6 for order in orders]


def _plan(bench: BenchLab, algo: str, schedule: Schedule) -> str:
    """Write the schedule for AggEngine: every message by it, over one channel, in no smaller segments."""
    from benchmarks.aggregation_file import aggregation_to_json
    from plink.model.segmentation import SegmentationConfig
    from plink.runtime.allreduce.aggregation import Aggregation, SizeClass

    whole = SegmentationConfig(chunk_bytes=1, segment_bytes=1 << 40, segments=1)
    aggregation = Aggregation((SizeClass(None, algo, schedule),), 1, whole, smallest_bytes=0)
    path = bench.folder / f"{algo}.json"
    path.write_text(json.dumps(aggregation_to_json(aggregation)))
    return str(path)


def _measure(bench: BenchLab, fabric: Fabric, plan: str, orders: list[Order]) -> list[list[float]]:
    """Return the seconds of each repetition, the slowest rank's, by order."""
    lines = Path(bench.hosts_file).read_text().splitlines()
    launched = [fabric.names.index(line.split()[0]) for line in lines if line and not line.startswith("#")]
    groups = {
        str(k): {"kind": "plink", "order": np.argsort(order)[launched].tolist(), "plan": plan}
        for k, order in enumerate(orders)
    }
    request = bench.folder / "request.json"
    request.write_text(
        json.dumps({"sizes": [SIZE_BYTES], "repeats": REPEATS, "together": [[k] for k in groups], "groups": groups})
    )
    words = ["--order", "given", "--hosts", bench.hosts_file, "--env", "OMP_NUM_THREADS=1", _PROGRAM, str(request)]
    done = subprocess.run(
        [sys.executable, "-m", "plink", "launch", *words], cwd=bench.folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    texts = [line.partition("] ")[2] for line in done.stdout.splitlines()]
    rows = [json.loads(text) for text in texts if text.startswith("{")]
    seconds = {name: times for row in rows for name, times in row.get("seconds", {}).items()}
    return [seconds[name] for name in groups]


def compare(bench: BenchLab, fabric: Fabric, algo: str) -> dict[str, Any]:
    """Return simulated and measured seconds of orders at even steps of the simulated time, and how they agree."""
    schedule, rng = schedule_for(algo, RANKS, ALGORITHMS[algo]), np.random.default_rng(_SEED)
    schedule = in_segments(schedule, _SEGMENTS) if algo in _SEGMENTED else schedule
    pool = candidates(fabric.group_of, rng)
    costs = np.array(simulated_s(schedule, fabric, pool))
    orders = [pool[k] for k in spread(costs, ORDERS, rng)]
    simulated = simulated_s(schedule, fabric, orders)
    samples = _measure(bench, fabric, _plan(bench, algo, schedule), orders)
    measured = np.median(samples, axis=1)
    errors = np.array(simulated) / measured - 1
    row = {
        "simulated_s": np.round(simulated, 4).tolist(), "measured_s": np.round(measured, 4).tolist(),
        "samples_s": samples, "spearman": rank_correlation(simulated, measured.tolist(), _TIES),
        "spearman_without_ties": rank_correlation(simulated, measured.tolist()),
        "errors": np.round(errors, 4).tolist(), "largest_error": round(float(np.abs(errors).max()), 4),
        "capacities_gbps": {
            "hosts": np.round([fabric.host_out_gbps, fabric.host_in_gbps], 4).tolist(),
            "tiers": [np.round([tier.out_gbps, tier.in_gbps], 4).tolist() for tier in fabric.tiers],
        },
        "orders": [[fabric.names[host] for host in order] for order in orders],
    }  # fmt: skip
    print({key: row[key] for key in ("simulated_s", "measured_s", "spearman", "errors")}, flush=True)
    return row


def bars_of(figures: dict[str, Any]) -> list[Bar]:
    """Return what is wanted."""
    return [
        bar
        for part, row in figures.items()
        for bar in (
            Bar(f"{part}: rank correlation", row["spearman"], at_least=0.95),
            Bar(f"{part}: largest error of a simulated time", row["largest_error"], at_most=0.1),
        )
    ]


def main() -> int:
    """Run and record; the exit code."""
    parts = [f"{algo}, {name}" for algo in ALGORITHMS for name in LABS]
    only = [part for part in parts if "--only" not in sys.argv or sys.argv[sys.argv.index("--only") + 1] in part]
    file = results.RECORDS / "lab-clock.json"
    figures: dict[str, Any] = json.loads(file.read_text())["figures"] if file.exists() and "--only" in sys.argv else {}
    for name, options in LABS.items():
        algorithms = [algo for algo in ALGORITHMS if f"{algo}, {name}" in only]
        if not algorithms:
            continue
        with lab(*options) as bench:
            bench.use_reno()
            probe = bench.plink("probe", bench.hosts_file, "--count", "500", "-o", "network.json")
            if probe.code:
                raise SystemExit(probe.stderr)
            fabric = fabric_of(bench.network("network.json"))
            for algo in algorithms:
                print(algo, name, flush=True)
                figures[f"{algo}, {name}"] = compare(bench, fabric, algo)
    figures = {part: figures[part] for part in parts if part in figures}
    configuration = {
        "labs": LABS, "size_bytes": SIZE_BYTES, "orders": ORDERS, "repeats": REPEATS, "tree_segments": _TREE_SEGMENTS,
        "segments": dict.fromkeys(_SEGMENTED, _SEGMENTS), "ties": _TIES, "tcp": "reno",
    }  # fmt: skip
    return record("lab-clock", configuration, figures, bars_of(figures), only)


if __name__ == "__main__":
    sys.exit(main())
