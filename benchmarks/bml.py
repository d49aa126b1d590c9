"""BML over hosts with several interfaces against all-reduces over one (Wang et al., NeurIPS 2018, Figure 5).

A BCube and a star of as many hosts with one interface of the same rate, side by side and in turns. On the BCube ranks
are in the order of ``plink reorder --algo bml``, found from a probe. ``--only NAME``: one of ``BCube(3,2)``,
``BCube(2,3)`` (a hypercube of cables), ``BCube(4,2)`` and ``simulated``; the others are kept as they were recorded.
"""

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import plink
from benchmarks import results
from benchmarks.bcube import bcube_interfaces
from benchmarks.labs import BenchLab, lab
from benchmarks.record import Bar, record
from plink.model.order import read_order

if TYPE_CHECKING:
    from benchmarks.thesis_plot import ThesisPlot
    from plink.model.order import RankOrder

_PROGRAM = str(Path(__file__).parent / "timing" / "allreduce.py")
_SIZES = (65_536, 262_144, 1_000_000, 4_000_000, 25_000_000)
_SIMULATED = "simulated"
_SIMULATED_GBPS = 40.0  # as on the paper's testbed
_SIMULATED_SHAPES = ((4, 2), (8, 2), (16, 2), (32, 2), (4, 3))
_SIMULATED_BYTES = 1e9
_MAX_SIMULATED_EXCHANGE = 256  # hosts that all exchange with all
_MAX_IN_SIMGRID = 64  # hosts
_ROUNDS, _REPEATS = 2, 3
GLOO = "gloo"


@dataclass(frozen=True)
class Shape:
    """A BCube, the rate of its interfaces in bit/s, and the algorithms that are timed on it and on the star."""

    base: int
    levels: int
    rate: int
    on_bcube: tuple[str, ...]
    on_star: tuple[str, ...]

    @property
    def hosts(self) -> int:
        """How many there are."""
        return self.base**self.levels

    def bound_s(self, size_bytes: int) -> float:
        """Return what BML cannot beat: 2(N-1)/(kN) of the vector over one interface."""
        return 2 * (self.hosts - 1) / (self.levels * self.hosts) * 8 * size_bytes / self.rate


SHAPES = {
    "BCube(3,2)": Shape(3, 2, 100_000_000, ("bml", "flat", "bcube", "multi-ring", GLOO), ("flat", GLOO)),
    "BCube(2,3)": Shape(2, 3, 67_000_000, ("bml", "multi-ring"), ("flat", GLOO)),
    "BCube(4,2)": Shape(4, 2, 90_000_000, ("bml", "flat"), ("flat",)),
}
# What BML has to be faster than at the largest size: network, algorithm, times.
_FASTER: dict[str, tuple[tuple[str, str, float], ...]] = {
    "BCube(3,2)": (("star", "flat", 1.85), ("star", GLOO, 1.85), ("bcube", "flat", 1.35), ("bcube", "bcube", 1.35)),
    "BCube(2,3)": (("star", GLOO, 2.6), ("star", "flat", 2.6)),
    "BCube(4,2)": (("star", "flat", 1.85), ("bcube", "flat", 1.44)),
}


def _time(bench: BenchLab, algo: str, order: str) -> list[dict[str, Any]]:
    backend = () if algo == GLOO else ("--backend", algo)
    words = ["--order", order, "--hosts", bench.hosts_file, *backend, "--env", "OMP_NUM_THREADS=1", _PROGRAM]
    done = subprocess.run(
        [sys.executable, "-m", "plink", "launch", *words, str(_REPEATS), *map(str, _SIZES)],
        cwd=bench.folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    lines = [line.partition("] ")[2] for line in done.stdout.splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]


def _measure(shape: Shape) -> list[dict[str, Any]]:
    """Return a row for each network, algorithm and size: samples of all rounds, their median, the least idle share."""
    rate = f"{shape.rate}bit"
    on_bcube = ("--topology", "bcube", "--base", str(shape.base), "--levels", str(shape.levels), "--host-rate", rate)
    on_star = ("--racks", "1", "--hosts-per-rack", str(shape.hosts), "--host-rate", rate)
    samples: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    with contextlib.ExitStack() as labs:
        bcube = labs.enter_context(lab("--seed", "3", *on_bcube, suffix="bcube"))
        star = labs.enter_context(lab("--seed", "3", *on_star, suffix="star"))
        for words in (("probe", bcube.hosts_file, "--count", "200", "--no-shared-links"), ("reorder", "--algo", "bml")):
            if (run := bcube.plink(*words)).code:
                raise SystemExit(run.stderr)
        if (run := star.plink("probe", star.hosts_file, "--count", "200", "--no-shared-links")).code:
            raise SystemExit(run.stderr)
        predicted = {**_predictions(bcube, shape.on_bcube, True), **_predictions(star, shape.on_star, False)}
        ways = [("bcube", bcube, algo, ".plink/order.json") for algo in shape.on_bcube]
        ways += [("star", star, algo, "given") for algo in shape.on_star]
        for _ in range(_ROUNDS):
            for network, bench, algo, order in ways:
                for row in _time(bench, algo, order):
                    samples.setdefault((network, algo, row["bytes"]), []).append(row)
                print(network, algo, [row["seconds"] for row in samples[network, algo, _SIZES[-1]]], flush=True)
    return [
        {
            "network": network, "algorithm": algo, "bytes": size,
            "seconds": [value for row in rows for value in row["seconds"]],
            "median_s": statistics.median(value for row in rows for value in row["seconds"]),
            "predicted_s": predicted[network, algo, size],
            "idle": min(row["idle"] for row in rows), "bml_bound_s": round(shape.bound_s(size), 4),
        }
        for (network, algo, size), rows in samples.items()
    ]  # fmt: skip


def _predictions(bench: BenchLab, algorithms: tuple[str, ...], ordered: bool) -> dict[tuple[str, str, int], float]:
    """Return the seconds that ``contention`` says, by network, algorithm and size; nothing is calibrated."""
    network = bench.network(".plink/network.json")
    order: RankOrder | None = read_order(bench.folder / ".plink" / "order.json") if ordered else None
    kind = "bcube" if ordered else "star"
    return {
        (kind, algo, size): plink.cost(network, order, plink.CostRequest(algo, size, "contention", random=0)).cost_us
        / 1e6
        for algo in algorithms
        for size in _SIZES
    }


def _simulate() -> list[dict[str, Any]]:
    """Return Figure 5 in times of the whole vector on one link: simulated, by SimGrid too, and as re-derived."""
    from benchmarks.simgrid import has_simgrid, simgrid_us
    from solvers.costs.fabric import Fabric
    from solvers.costs.interfaces import interface_paths
    from solvers.schedules.catalogue import Options, schedule_for
    from solvers.simulation.collective import PreparedCollective

    rows: list[dict[str, Any]] = []
    in_simgrid = has_simgrid()
    for base, levels in _SIMULATED_SHAPES:
        n = base**levels
        identity = np.arange(n)
        rate, group, free = np.full(n, _SIMULATED_GBPS), np.zeros(n, dtype=np.intp), np.full(1, np.inf)
        names = tuple(map(str, range(n)))
        star = Fabric(names, np.zeros((n, n)), None, rate, rate, group, free, free, "measured")
        bcube = replace(star, paths=interface_paths(bcube_interfaces(base, levels), names, (rate, rate)))
        whole_us = _SIMULATED_BYTES / (_SIMULATED_GBPS * 125)
        ways = (
            ("bml on a BCube", "bml", bcube, 2 * (n - 1) / (levels * n)),
            ("flat on a BCube", "flat", bcube, 2 * (base - 1) / base),
            ("flat on a star", "flat", star, 2 * (n - 1) / n),
        )
        for name, algo, fabric, derived in ways:
            if algo == "flat" and n > _MAX_SIMULATED_EXCHANGE:  # a million transfers a round
                continue
            collective = PreparedCollective.of(schedule_for(algo, n, Options(base=base)))
            simulated_us = collective.run(fabric, identity, _SIMULATED_BYTES).makespan_us
            row = {"shape": f"BCube({base},{levels})", "way": name, "derived": round(derived, 4),
                   "simulated": round(simulated_us / whole_us, 4)}  # fmt: skip
            if in_simgrid and n <= _MAX_IN_SIMGRID:
                with tempfile.TemporaryDirectory() as folder:
                    (other_us,) = simgrid_us(Path(folder), fabric, collective, [identity], _SIMULATED_BYTES)
                row["simgrid"] = round(other_us / whole_us, 4)
            rows.append(row)
    return rows


def _bars(figures: dict[str, Any]) -> Iterator[Bar]:
    """Yield the bars of all that is recorded."""
    for name, rows in figures.items():
        if name == _SIMULATED:
            errors = [abs(row["simulated"] / row["derived"] - 1) for row in rows]
            yield Bar("Figure 5, simulated against derived: largest error", max(errors), at_most=0.01)
            if others := [abs(row["simgrid"] / row["derived"] - 1) for row in rows if "simgrid" in row]:
                yield Bar("Figure 5, SimGrid against derived: largest error", max(others), at_most=0.05)
            continue
        median = {(row["network"], row["algorithm"], row["bytes"]): row["median_s"] for row in rows}
        size = max(row["bytes"] for row in rows)
        (bml,) = (row for row in rows if (row["network"], row["algorithm"], row["bytes"]) == ("bcube", "bml", size))
        if name == "BCube(3,2)":
            yield Bar("BML over its bound", bml["median_s"] / bml["bml_bound_s"], at_most=1.09)
        for network, algo, least in _FASTER[name]:
            faster = median[network, algo, size] / bml["median_s"]
            yield Bar(f"{name}: BML against {algo} on the {network}", faster, at_least=least)
        if name == "BCube(3,2)" and ("bcube", "multi-ring", size) in median:
            yield Bar(
                "BML against two rings, 25 MB", median["bcube", "multi-ring", size] / bml["median_s"], at_least=1.0
            )
            for short in sorted(size for network, algo, size in median if algo == "multi-ring" and size <= 262_144):
                faster = median["bcube", "multi-ring", short] / median["bcube", "bml", short]
                yield Bar(f"BML against two rings, {short} bytes", faster, at_least=1.3)
        yield Bar(f"{name}: idle share of the processors", bml["idle"], at_least=0.2)
        if "predicted_s" in bml:
            yield from _predicted_bars(name, rows)


def _predicted_bars(name: str, rows: list[dict[str, Any]]) -> Iterator[Bar]:
    from scipy.stats import spearmanr

    predicted, measured = ([row[key] for row in rows] for key in ("predicted_s", "median_s"))
    yield Bar(
        f"{name}: Spearman of predicted and measured", float(spearmanr(predicted, measured).statistic), at_least=0.95
    )
    errors = [abs(row["predicted_s"] / row["median_s"] - 1) for row in rows if row["bytes"] > 1_000_000]
    yield Bar(f"{name}: largest error of predicted times above 1 MB", max(errors), at_most=0.15)


def thesis_plots(figures: dict[str, Any]) -> "dict[str, ThesisPlot]":
    """For docs/results/theses.md: times of each way over BML's, and those that theory says."""
    from benchmarks.drawing import spreads
    from benchmarks.thesis_plot import ThesisPlot

    rows: dict[str, list[float]] = {}
    for name, measured in figures.items():
        if name == _SIMULATED:
            continue
        size = max(row["bytes"] for row in measured)
        largest = [row for row in measured if row["bytes"] == size]
        (bml,) = (row["median_s"] for row in largest if (row["network"], row["algorithm"]) == ("bcube", "bml"))
        for row in largest:
            rows[f"{name}, {row['algorithm']} on the {row['network']}"] = [value / bml for value in row["seconds"]]
    median = {name: statistics.median(values) for name, values in rows.items()}
    star = " and ".join(
        f"{median[f'{name}, flat on the star']:.2f} times on {name} (in theory {SHAPES[name].levels})"
        for name in figures
        if name != _SIMULATED
    )
    text = f"BML is faster than sharded servers on a star: {star}"
    if _SIMULATED in figures:
        worst = max(abs(row["simulated"] / row["derived"] - 1) for row in figures[_SIMULATED])
        text += f"; *simulated* for up to 1,024 hosts: within {100 * worst:.2g} % of the re-derived times"
    picture = spreads("bml-figure-5", "All-reduce of 25 MB over that of BML", "lab; medians", rows, "times BML", 1.0)
    table = ["| shape | way | derived | simulated | by SimGrid |", "|---" * 5 + "|"]
    table += [
        f"| {row['shape']} | {row['way']} | {row['derived']:.4f} | {row['simulated']:.4f} | {row.get('simgrid', '')} |"
        for row in figures.get(_SIMULATED, ())
    ]
    details = "Times of the whole vector on one link:\n\n" + "\n".join(table)
    return {"bml-figure-5": ThesisPlot(text, picture, details if len(table) > 2 else "")}


def main() -> int:
    """Return the exit code: 1 when a bar is missed."""
    every = (*SHAPES, _SIMULATED)
    only = [sys.argv[sys.argv.index("--only") + 1]] if "--only" in sys.argv else list(every)
    file = results.RECORDS / "bml.json"
    figures: dict[str, Any] = json.loads(file.read_text())["figures"] if file.exists() and "--only" in sys.argv else {}
    for name in only:
        figures[name] = _simulate() if name == _SIMULATED else _measure(SHAPES[name])
    figures = {name: figures[name] for name in every if name in figures}
    configuration = {"sizes": _SIZES, "rounds": _ROUNDS, "repeats": _REPEATS}
    return record("bml", configuration, figures, list(_bars(figures)), only)


if __name__ == "__main__":
    sys.exit(main())
