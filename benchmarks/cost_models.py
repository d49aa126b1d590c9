"""Do the cost models rank orders as the clock does? Predicted against measured all-reduces over orders in a lab."""

import functools
import importlib.metadata
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from benchmarks.labs import BenchLab, lab
from benchmarks.record import Bar, record
from benchmarks.thesis_plot import ThesisPlot
from benchmarks.timing import gloo, openmpi
from benchmarks.timing.orders import Names, Seconds
from solvers.checking import spread
from solvers.costs.closed_forms import CostFunction, Order, closed_form
from solvers.costs.evaluator import MODELS
from solvers.costs.fabric import Fabric, fabric_of
from solvers.costs.patterns import pattern_of
from solvers.schedules.catalogue import schedule_for

SIZE_BYTES = 16_000_000
ORDERS, WARM_UP, REPEATS = 10, 1, 2  # ten as in the thesis
_SEED, _EACH = 8, 100  # not the orders on which the model was chosen (7)
BARS = {"gloo": 0.95, "openmpi-ring": 0.95, "openmpi-rabenseifner": 0.9}

Measure = Callable[[BenchLab, Sequence[Names], int, int, int], Seconds]


def candidates(group_of: npt.NDArray[np.intp], rng: np.random.Generator) -> list[Order]:
    """Orders from the best to the worst: group after group, that with 1 to N swaps, at random, and in turns.

    Random orders alone all stand at the expensive end.
    """
    n = len(group_of)
    orders: list[Order] = []
    for _ in range(_EACH):
        hosts = rng.permutation(n)
        label = rng.permutation(group_of.max() + 1)[group_of[hosts]]
        together = hosts[np.argsort(label, kind="stable")]
        orders.append(together)
        for swaps in range(1, n + 1):
            order = together.copy()
            for _ in range(swaps):
                i, j = rng.integers(n, size=2)
                order[[i, j]] = order[[j, i]]
            orders.append(order)
        turn = np.zeros(n, dtype=np.intp)
        for group in range(group_of.max() + 1):
            turn[label == group] = np.arange((label == group).sum())
        orders.append(hosts[np.lexsort((label, turn))])
        orders.append(rng.permutation(n))
    return orders


def cost_functions(algo: str, fabric: Fabric) -> dict[str, CostFunction]:
    """Return the cost function of each model, in microseconds."""
    pattern = pattern_of(schedule_for(algo, len(fabric.names)))
    return {model: closed_form(pattern, fabric, SIZE_BYTES, model) for model in MODELS}


def compare(
    bench: BenchLab, fabric: Fabric, algo: str, measure: Measure, rng: np.random.Generator
) -> dict[str, Any]:  # fmt: skip
    """Return one collective: predicted and measured seconds of the chosen orders, and their rank correlation by
    model."""
    cost_of = cost_functions(algo, fabric)
    pool = candidates(fabric.group_of, rng)
    costs = np.array([cost_of["contention"](order) for order in pool])
    orders = [pool[index] for index in spread(costs, ORDERS, rng)]
    names = [[fabric.names[host] for host in order] for order in orders]
    samples = measure(bench, names, SIZE_BYTES, WARM_UP, REPEATS)
    measured = np.median(samples, axis=1)
    predicted = {model: np.array([cost_of[model](order) for order in orders]) for model in MODELS}
    if measured.min() < 0.9e-6 * predicted["alpha-beta"].min():
        raise SystemExit(f"{algo}: {measured.min():.3f} s is less than the links allow: something takes a short cut")
    correlation = {model: round(float(spearmanr(predicted[model], measured).statistic), 4) for model in MODELS}
    print(f"{algo}: measured {measured.min():.2f} to {measured.max():.2f} s; {correlation}", flush=True)
    return {
        "spearman": correlation,
        "predicted_s": {model: np.round(values / 1e6, 6).tolist() for model, values in predicted.items()},
        "measured_s": np.round(measured, 4).tolist(),
        "samples_s": np.round(samples, 4).tolist(),
        "orders": names,
        "cost_range_s": [round(float(costs.min()) / 1e6, 4), round(float(costs.max()) / 1e6, 4)],
    }


def _measure(algo: str) -> Measure:
    return gloo.measure if algo == "gloo" else functools.partial(openmpi.measure, algo=algo)


def thesis_plots(figures: dict[str, Any]) -> dict[str, ThesisPlot]:
    """For docs/results/theses.md."""
    from benchmarks.drawing import curves

    names = {"gloo": "Gloo ring", "openmpi-ring": "Open MPI ring", "openmpi-rabenseifner": "Open MPI Rabenseifner"}
    text = "; ".join(
        f"{names[algo]} {row['spearman']['contention']:.2f} (`latency` {row['spearman']['latency']:.2f})"
        for algo, row in figures.items()
    )
    orders = len(next(iter(figures.values()))["measured_s"])
    picture = curves(
        "table-6-4", "Measured against predicted time of an all-reduce",
        f"{orders} orders each, costs by contention",
        {names[algo]: (row["predicted_s"]["contention"], row["measured_s"]) for algo, row in figures.items()},
        "predicted (s)", "measured (s, median)",
    )  # fmt: skip
    table = ["| setup | `contention` | `latency` | `alpha-beta` | measured, s |", "|---" * 5 + "|"]
    for algo, row in figures.items():
        correlations = " | ".join(f"{row['spearman'][model]:.3f}" for model in ("contention", "latency", "alpha-beta"))
        seconds = row["measured_s"]
        table.append(f"| {names[algo]} | {correlations} | {min(seconds):.2f} to {max(seconds):.2f} |")
    return {"table-6-4": ThesisPlot(text, picture, "\n".join(table))}


def main() -> int:
    """Run and record; the exit code."""
    openmpi.check_installed()
    with lab("--seed", "4") as bench:
        probe = bench.plink("probe", bench.hosts_file, "--count", "2000", "-o", "network.json")
        if probe.code:
            raise SystemExit(probe.stderr)
        fabric = fabric_of(bench.network("network.json"))
        rng = np.random.default_rng(_SEED)
        figures = {algo: compare(bench, fabric, algo, _measure(algo), rng) for algo in BARS}
    configuration = {
        "racks": 4,
        "hosts_per_rack": 4,
        "host_rate": "200mbit",
        "uplink_rate": "200mbit",
        "size_bytes": SIZE_BYTES,
        "warm_up": WARM_UP,
        "repeats": REPEATS,
        "seed": _SEED,
        "torch": importlib.metadata.version("torch"),
        "openmpi": openmpi.version(),
        "capacities": fabric.capacities,
    }
    return record("cost-models", configuration, figures, bars_of(figures))


def bars_of(figures: dict[str, Any]) -> list[Bar]:
    """Return what is wanted."""
    return [
        Bar(f"{algo}, rank correlation of `contention`", figures[algo]["spearman"]["contention"], at_least=least)
        for algo, least in BARS.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
