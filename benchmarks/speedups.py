"""Figure 6.16 of the PLink thesis: time in the worst order over time in the best, by algorithm and library.

A lab of 4 racks of 4 hosts. Best and worst are what `contention` says: the cheapest order that plink's search finds,
and the most expensive of 1,900 orders, from one group after the other to strict alternation. The hosts as listed, in
random order, are timed as well.
"""

import functools
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cost_models import candidates
from benchmarks.labs import BenchLab, lab
from benchmarks.order_spread import best_order
from benchmarks.record import Bar, record
from benchmarks.thesis_plot import ThesisPlot
from benchmarks.timing import gloo, openmpi
from benchmarks.timing.orders import Names
from solvers.costs.by_name import cost_function_for
from solvers.costs.fabric import Fabric, fabric_of
from solvers.schedules.catalogue import Options, schedule_for

_SIZE, _WARM_UP, _REPEATS = 8_000_000, 1, 2
_SEED = 9
_WHICH = ("best", "worst", "given")
_PROGRAM = Path(__file__).parent / "timing/aggregation.py"
_OURS = {
    "ring": Options(), "halving-doubling": Options(), "double-binary-tree": Options(), "bcube": Options(base=4),
    "2lha": Options(groups=[list(range(4 * k, 4 * k + 4)) for k in range(4)]),
}  # fmt: skip
_LIBRARIES = {
    "PyTorch/Gloo": ("gloo",),
    "Open MPI": ("openmpi-ring", "openmpi-recursive-doubling", "openmpi-rabenseifner"),
    "plink's AggEngine": tuple(_OURS),
}


def orders_of(fabric: Fabric, algo: str) -> dict[str, Any]:
    """Return the three orders as names, and their costs in seconds."""
    options, hosts = _OURS.get(algo, Options()), len(fabric.names)
    cost_of = cost_function_for(algo, hosts, options, fabric, _SIZE, "contention")
    pool = candidates(fabric.group_of, np.random.default_rng(_SEED))
    best = best_order(fabric, algo, options, _SIZE, "contention")
    orders = dict(zip(_WHICH, (min([best, *pool], key=cost_of), max(pool, key=cost_of), np.arange(hosts)), strict=True))
    return {
        "orders": {which: [fabric.names[host] for host in order] for which, order in orders.items()},
        "predicted_s": {which: round(float(cost_of(order)) / 1e6, 4) for which, order in orders.items()},
    }


def _by_engine(
    bench: BenchLab, orders: Sequence[Names], size_bytes: int, warm_up: int, repeats: int, *, algo: str
) -> list[list[float]]:  # fmt: skip
    """Return seconds of AggEngine's all-reduces by a schedule, shape (orders, repeats); the first of each never
    counts."""
    from benchmarks.aggregation_file import aggregation_to_json
    from plink.runtime.allreduce.aggregation import Aggregation, SizeClass

    del warm_up
    made = schedule_for(algo, len(bench.names), _OURS[algo])
    plan = bench.folder / f"{algo}.json"
    plan.write_text(json.dumps(aggregation_to_json(Aggregation((SizeClass(None, algo, made),), smallest_bytes=0))))
    baseline = [line.split()[0] for line in Path(bench.hosts_file).read_text().splitlines() if line and line[0] != "#"]
    groups = {
        str(k): {"kind": "plink", "order": [list(order).index(name) for name in baseline], "plan": str(plan)}
        for k, order in enumerate(orders)
    }
    request_file = bench.folder / f"{algo}.asked"
    request_file.write_text(json.dumps({"sizes": [size_bytes], "repeats": repeats, "groups": groups}))
    result = bench.folder / f"{algo}.seconds"
    run = bench.plink(
        "launch", "--order", "given", "--hosts", bench.hosts_file, "--env", "OMP_NUM_THREADS=1", str(_PROGRAM),
        str(request_file), str(result),
    )  # fmt: skip
    if run.code:
        raise SystemExit(f"{algo}: exit code {run.code}\n{run.stderr[-3000:]}")
    seconds = json.loads(result.read_text())["seconds"]
    return [seconds[str(k)] for k in range(len(orders))]


def measured(bench: BenchLab, fabric: Fabric, library: str, algo: str, size_bytes: int, repeats: int) -> dict[str, Any]:
    """Return one bar of the figure."""
    orders = orders_of(fabric, algo)
    measure: Any = gloo.measure
    if library != "PyTorch/Gloo":
        measure = functools.partial(openmpi.measure if library == "Open MPI" else _by_engine, algo=algo)
    seconds = measure(bench, list(orders["orders"].values()), size_bytes, _WARM_UP, repeats)
    samples = {which: [round(float(s), 5) for s in row] for which, row in zip(_WHICH, seconds, strict=True)}
    median = {which: statistics.median(row) for which, row in samples.items()}
    row = orders | {"library": library, "samples_s": samples, "speedup": round(median["worst"] / median["best"], 3),
                   "over_given": round(median["given"] / median["best"], 3)}  # fmt: skip
    print(f"{library}, {algo}: {row['speedup']} ({row['over_given']} over the given order)", flush=True)
    return row


def thesis_plots(figures: dict[str, Any]) -> dict[str, ThesisPlot]:
    """For docs/results/theses.md."""
    from benchmarks.drawing import strips

    rows = figures["setups"]
    gains = {name: row["speedup"] for name, row in rows.items()}
    text = (
        f"{min(gains.values()):.1f} to {max(gains.values()):.1f}: "
        + ", ".join(f"{name} {gain:.2f}" for name, gain in gains.items())
    )  # fmt: skip
    picture = strips(
        "figure-6-16", "Worst over best order", "each worst sample over the best order's median; 16 lab hosts, 8 MB",
        {
            name: [s / statistics.median(row["samples_s"]["best"]) for s in row["samples_s"]["worst"]]
            for name, row in rows.items()
        },
        "times",
    )  # fmt: skip
    table = ["| setup | best, s | worst, s | worst / best | predicted | given / best |", "|---" * 6 + "|"]
    for name, row in rows.items():
        best, worst = (statistics.median(row["samples_s"][which]) for which in ("best", "worst"))
        predicted = row["predicted_s"]["worst"] / row["predicted_s"]["best"]
        table.append(
            f"| {name} | {best:.2f} | {worst:.2f} | {row['speedup']:.2f} | {predicted:.2f} | {row['over_given']:.2f} |"
        )
    return {"figure-6-16": ThesisPlot(text, picture, "\n".join(table))}


def main() -> int:
    """Run and record; the exit code. ``--quick``: once 1 MB each, to see that it works; nothing is recorded."""
    quick = "--quick" in sys.argv
    openmpi.check_installed()
    size_bytes, repeats = (1_000_000, 1) if quick else (_SIZE, _REPEATS)
    with lab("--seed", "4") as bench:
        probe = bench.plink("probe", bench.hosts_file, "--count", "2000", "-o", "network.json")
        if probe.code:
            raise SystemExit(probe.stderr)
        fabric = fabric_of(bench.network("network.json"))
        setups = {
            f"{library}, {algo.removeprefix('openmpi-')}": measured(bench, fabric, library, algo, size_bytes, repeats)
            for library, algos in _LIBRARIES.items()
            for algo in algos
        }
    setups["PyTorch/Gloo, ring"] = setups.pop("PyTorch/Gloo, gloo")
    if quick:
        print(thesis_plots({"setups": setups})["figure-6-16"].details)
        return 0
    bars = [
        Bar(f"worst over best: {name}", setups[name]["speedup"], at_least=2.5)
        for name in ("PyTorch/Gloo, ring", "Open MPI, ring")
    ]
    configuration = {
        "lab": "4 racks of 4 hosts, 200 Mbit/s a host and a rack", "size_bytes": _SIZE, "repeats": _REPEATS,
        "seed": _SEED,
        "openmpi": openmpi.version(),
    }  # fmt: skip
    return record("speedups", configuration, {"setups": setups}, bars)


if __name__ == "__main__":
    sys.exit(main())
