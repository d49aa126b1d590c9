"""Figure 5.1 of the PLink thesis: how far random orders differ.

Costs of 500 of them, for each algorithm, on clouds on paper (64 hosts, `latency`) and on the lab as it was probed (16
hosts, `contention`); and on the lab some of them run, a ring by PyTorch/Gloo, beside the best order. Words (paper, lab)
measure these only; what is kept of the other stays.
"""

import statistics
import sys
from typing import Any

import numpy as np

from benchmarks.clouds import three_tier
from benchmarks.labs import lab
from benchmarks.record import Bar, record
from benchmarks.results import RECORDS
from benchmarks.thesis_plot import ThesisPlot
from benchmarks.timing import gloo
from plink.model.storage import read_document
from solvers.costs.by_name import cost_function_for
from solvers.costs.fabric import Fabric, fabric_of
from solvers.ordering.problem import Order, OrderingProblem, SearchBudget
from solvers.ordering.search import search
from solvers.schedules.catalogue import Options

_HOSTS, _ORDERS, _RUN = 64, 500, 24
_SIZE, _WARM_UP, _REPEATS = 8_000_000, 1, 2
_MOVES = 200_000
_SEED = 5
_ALGORITHMS = {
    "ring": Options(), "halving-doubling": Options(), "double-binary-tree": Options(), "bcube": Options(base=4),
}  # fmt: skip


def best_order(fabric: Fabric, algo: str, options: Options, size_bytes: float, model: str) -> Order:
    """Return what plink finds."""
    baseline = np.arange(len(fabric.names))
    task = OrderingProblem(fabric, baseline, algo, options, size_bytes, model)
    return search(task, _SEED, SearchBudget(_MOVES, exhaustive=False)).order


def random_orders(hosts: int) -> list[Order]:
    """Return the 500."""
    rng = np.random.default_rng(_SEED)
    return [rng.permutation(hosts) for _ in range(_ORDERS)]


def cost_spread(fabric: Fabric, model: str, algo: str, options: Options) -> dict[str, Any]:
    """Return what they cost, and the best order, microseconds."""
    hosts = len(fabric.names)
    cost_of = cost_function_for(algo, hosts, options, fabric, _SIZE, model)
    costs = [float(round(cost_of(order), 3)) for order in random_orders(hosts)]
    best = float(cost_of(best_order(fabric, algo, options, _SIZE, model)))
    return {
        "best_us": round(best, 3), "costs_us": costs, "worst_over_best_random": round(max(costs) / min(costs), 4),
        "median_over_best": round(statistics.median(costs) / best, 4),
    }  # fmt: skip


def on_lab(run: int, size_bytes: int, repeats: int) -> dict[str, Any]:
    """Probe the lab, compute its orders' costs, and run some orders, the best one last."""
    with lab("--seed", "4") as bench:
        probe = bench.plink("probe", bench.hosts_file, "--count", "2000", "-o", "network.json")
        if probe.code:
            raise SystemExit(probe.stderr)
        fabric = fabric_of(bench.network("network.json"))
        options = Options()
        cost_spreads = {algo: cost_spread(fabric, "contention", algo, option) for algo, option in _ALGORITHMS.items()}
        cost_spreads["gloo"] = cost_spread(fabric, "contention", "gloo", options)
        orders = [*random_orders(len(fabric.names))[:run], best_order(fabric, "gloo", options, _SIZE, "contention")]
        names = [[fabric.names[host] for host in order] for order in orders]
        seconds = np.round(gloo.measure(bench, names, size_bytes, _WARM_UP, repeats), 4).tolist()
    medians = [statistics.median(times) for times in seconds]
    print(f"run: {min(medians[:-1]):.3f} to {max(medians[:-1]):.3f} s, best order {medians[-1]:.3f} s", flush=True)
    return {"costs": cost_spreads, "run": {"orders": names, "seconds": seconds, "median_s": medians}}


def thesis_plots(figures: dict[str, Any]) -> dict[str, ThesisPlot]:
    """For docs/results/theses.md."""
    from benchmarks.drawing import spreads

    rows = {
        f"{where}, {algo}": [cost / row["best_us"] for cost in row["costs_us"]]
        for where, parts in (("lab", figures.get("lab", {}).get("costs", {})), ("paper", figures["paper"]))
        for algo, row in parts.items()
    }
    ring = figures["paper"]["ring"]
    text = (
        f"costs for 64 hosts on paper: the costliest of 500 {ring['worst_over_best_random']:.2f} times the cheapest, "
        f"the median {ring['median_over_best']:.2f} times the best order"
    )
    number = 0
    if "lab" in figures:
        run, on_lab = figures["lab"]["run"]["median_s"], figures["lab"]["costs"]["gloo"]
        number, best = len(run) - 1, run[-1]
        rows = {"lab, Gloo's ring, run": [seconds / best for seconds in run[:-1]], **rows}
        text = (
            f"run on the lab, a ring of 8 MB by Gloo: {number} orders take {min(run[:-1]):.2f} to {max(run[:-1]):.2f} "
            f"s, {max(run[:-1]) / min(run[:-1]):.2f} times, plink's {best:.2f} s; costs there: the costliest of 500 "
            f"{on_lab['worst_over_best_random']:.2f} times the cheapest; {text}"
        )
    picture = spreads(
        "figure-5-1", "Random orders: cost over that of the best order",
        f"costs of 500{f', {number} run' if number else ''}: lab of 16 hosts (contention), paper of 64 (latency)",
        rows, "times the best order; the line is the median", 1.0,
    )  # fmt: skip
    table = ["| where | algorithm | least | median | most | most / least |", "|---" * 6 + "|"]
    for name, values in rows.items():
        where, algo = name.split(", ", 1)
        least, most = min(values), max(values)
        columns = (least, statistics.median(values), most, most / least)
        table.append(f"| {where} | {algo} | " + " | ".join(f"{value:.2f}" for value in columns) + " |")
    return {"figure-5-1": ThesisPlot(text, picture, "Times the best order:\n\n" + "\n".join(table))}


def main() -> int:
    """Run and record; the exit code. ``--quick``: three orders of 1 MB, to see that it works; nothing is recorded."""
    quick, words = "--quick" in sys.argv, [word for word in sys.argv[1:] if not word.startswith("--")]
    path = RECORDS / "order-spread.json"
    figures: dict[str, Any] = read_document(path)["figures"] if words and path.exists() else {}
    if not words or "paper" in words:
        fabric = three_tier(_HOSTS, 0).fabric()
        figures["paper"] = {
            algo: cost_spread(fabric, "latency", algo, options) for algo, options in _ALGORITHMS.items()
        }
    if not words or "lab" in words:
        figures["lab"] = on_lab(3, 1_000_000, 1) if quick else on_lab(_RUN, _SIZE, _REPEATS)
    if quick:
        print(thesis_plots(figures)["figure-5-1"].ours)
        return 0
    bars = []
    if "lab" in figures:
        run = figures["lab"]["run"]["median_s"]
        bars.append(
            Bar("median of the random orders over plink's, run", statistics.median(run[:-1]) / run[-1], at_least=2.0)
        )
    configuration = {
        "hosts_on_paper": _HOSTS, "orders": _ORDERS, "run": _RUN, "size_bytes": _SIZE, "repeats": _REPEATS,
        "seed": _SEED,
        "lab": "4 racks of 4 hosts, 200 Mbit/s a host and a rack",
    }  # fmt: skip
    return record("order-spread", configuration, figures, bars)


if __name__ == "__main__":
    sys.exit(main())
