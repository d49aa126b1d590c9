"""Consistency rules where workers are not equally fast: time and accuracy at equal work (Zhao et al. 2019, Figure 4).

Four workers of real servers and clients on the loopback train a perceptron on scikit-learn's digits. Each mini-batch is
padded to 40 ms over its worker's speed, so that processors are no limit. ``ideal`` is the time if nobody ever waited.

``--only NAME``: a part. Those are the speeds; ``shares``: whole jobs of four local processes, one at half speed, by
``--shares slots`` and ``speed``; ``hosts``: the same by rule; ``bits``: whether elastic-bsp:1 learns what bsp does, to
the bit. Of whole jobs the seconds are those of a mini-batch of every shard, from the end of the first iteration to the
end of the last.
"""

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

from benchmarks import results
from benchmarks.record import Bar, record
from plink.elastic import App, Objective, Params, StoppingCriterion, Table, Values, train
from plink.model.consistency import parse_rule
from plink.records.elastic_log import Iteration, read_elastic_log
from tests.runtime.elastic.test_apps import PROGRAMS, WORKERS

_SPEEDS = {"equal": (1.0, 1.0, 1.0, 1.0), "one at half": (1.0, 1.0, 1.0, 0.5), "uneven": (1.0, 0.9, 0.7, 0.45)}
_RULES = ("bsp", "ssp:3", "elastic-bsp:15", "elastic-bsp:60", "asp:500ms", "ordered:12:500ms", "ordered:3:500ms")
_HOST_RULES = ("bsp", "elastic-bsp:15", "asp:500ms")
_JOBS: dict[str, tuple[tuple[str, ...], int]] = {  # options of the jobs of a part, and their clocks
    "shares": (("--shares slots", "--shares speed"), 300),
    "hosts": (tuple(f"--rule {rule}" for rule in _HOST_RULES), 150),
}
_STEP_S, _JITTER = 0.04, 0.1
_CLOCKS, _BATCHES, _RUNS = 150, 8, 3
_HIDDEN, _RATE = 64, 0.1
_TEST_ITEMS = 397

Matrix = npt.NDArray[np.float64]


class Digits(App[tuple[Matrix, npt.NDArray[np.int64]]]):
    """A perceptron with one hidden layer; the last row of each table is the bias."""

    tables = (Table("hidden", 65, _HIDDEN, "float64"), Table("out", _HIDDEN + 1, 10, "float64"))

    def __init__(self, speeds: tuple[float, ...], seed: int) -> None:
        self.shards, self.batches, self.seed = len(speeds), _BATCHES, seed
        self.stop, self.speeds = StoppingCriterion(clocks=_CLOCKS), speeds
        digits = load_digits()
        order = np.random.default_rng(seed).permutation(len(digits.target))
        pixels, labels = digits.data[order] / 16.0, digits.target[order]
        self.test = pixels[:_TEST_ITEMS], labels[:_TEST_ITEMS]
        self._train = pixels[_TEST_ITEMS:], labels[_TEST_ITEMS:]

    def initial(self, table: str, rows: range, random: np.random.Generator) -> Values:
        width = next(each.width for each in self.tables if each.name == table)
        return random.normal(scale=0.1, size=(len(rows), width))

    def load(self, shard: int) -> list[tuple[Matrix, npt.NDArray[np.int64]]]:
        own = [values[shard :: self.shards] for values in self._train]
        return [(own[0][k :: self.batches], own[1][k :: self.batches]) for k in range(self.batches)]

    def process(self, items: tuple[Matrix, npt.NDArray[np.int64]], params: Params) -> Objective:
        began = time.perf_counter()
        (hidden, out), loss = self.deltas(items, params.read("hidden"), params.read("out"))
        params.update("out", None, out)
        params.update("hidden", None, hidden)
        padded_s = _STEP_S / self.speeds[params.shard] * (1 + _JITTER * (2 * params.random.random() - 1))
        time.sleep(max(0.0, padded_s - (time.perf_counter() - began)))
        return Objective(loss, len(items[1]))

    def deltas(
        self, items: tuple[Matrix, npt.NDArray[np.int64]], hidden: Matrix, out: Matrix
    ) -> tuple[list[Matrix], float]:
        """Return what a mini-batch adds to both tables, and its loss."""
        pixels, labels = items
        active, scores = scores_of(pixels, hidden, out)
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        odds /= odds.sum(axis=1, keepdims=True)
        loss = -float(np.log(odds[np.arange(len(labels)), labels] + 1e-12).sum())
        odds[np.arange(len(labels)), labels] -= 1
        odds /= len(labels)
        back = (odds @ out[:-1].T) * (active > 0)
        of_hidden = -_RATE * np.vstack([pixels.T @ back, back.sum(axis=0)])
        return [of_hidden, -_RATE * np.vstack([active.T @ odds, odds.sum(axis=0)])], loss


def scores_of(pixels: Matrix, hidden: Matrix, out: Matrix) -> tuple[Matrix, Matrix]:
    """Return what the hidden units and the classes get."""
    active = np.maximum(0.0, pixels @ hidden[:-1] + hidden[-1])
    return active, active @ out[:-1] + out[-1]


def run(speeds: tuple[float, ...], rule: str, seed: int) -> dict[str, float]:
    """Return seconds, the share of test digits that are recognised and the loss on them; of rules that count them the
    share of updates that were dropped, and the mean and the largest delay of the others."""
    app, began = Digits(speeds, seed), time.perf_counter()
    result = train(app, workers=len(speeds), servers=2, rule=parse_rule(rule))
    seconds, tables, updates = time.perf_counter() - began, result.tables, result.updates.to_json()
    pixels, labels = app.test
    _, scores = scores_of(pixels, tables["hidden"], tables["out"])
    _, loss = app.deltas(app.test, tables["hidden"], tables["out"])
    trained = {
        "seconds": seconds, "accuracy": float((scores.argmax(axis=1) == labels).mean()), "loss": loss / len(labels)
    }  # fmt: skip
    if updates is None:
        return trained
    dropped = updates["dropped"] / (updates["applied"] + updates["dropped"])
    return trained | {
        "dropped": dropped, "mean_delay": updates["mean_delay"], "largest_delay": updates["largest_delay"],
    }  # fmt: skip


def job_of(options: str, clocks: int) -> dict[str, Any]:
    """Run a job of four local processes, one at half speed; return the seconds of a mini-batch of every shard, and
    whether every shard has had as many as were wanted."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [
            sys.executable, "-m", "plink", "elastic", "run", "--runner", "local", "--slots", "4", *options.split(),
            str(Path(__file__).parent / "timing" / "half_speed_app.py"), "--folder", str(folder),
            "--clocks", str(clocks),
        ]  # fmt: skip
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        (log,) = folder.glob(".plink/runs/*/elastic.jsonl")
        ends = [entry.at for entry in read_elastic_log(log) if isinstance(entry, Iteration)]
    (counts,) = map(json.loads, re.findall(r"clocks (\[.*\])", done.stdout))
    seconds = (ends[-1] - ends[0]) * len(counts) / sum(counts)
    return {"seconds": round(seconds, 4), "exact": done.returncode == 0 and set(counts) == {clocks}}


def bits() -> dict[str, bool]:
    """Return whether one step a superstep learns what BSP does, to the bit, by program and workers."""
    results_by_program = {}
    for program, made in PROGRAMS.items():
        for workers in WORKERS:
            bsp, elastic = (
                train(made(10), workers=workers, servers=2, rule=parse_rule(rule)).tables
                for rule in ("bsp", "elastic-bsp:1")
            )
            equal = all(np.array_equal(bsp[name], elastic[name]) for name in bsp)
            results_by_program[f"{program}, {workers} workers"] = equal
    return results_by_program


def at_speeds(name: str) -> dict[str, Any]:
    """Run all rules in turns; return medians."""
    speeds = _SPEEDS[name]
    runs: dict[str, list[dict[str, float]]] = {rule: [] for rule in _RULES}
    for seed in range(_RUNS):
        for rule in _RULES:
            runs[rule].append(run(speeds, rule, seed))
    medians = {
        rule: {key: round(statistics.median(row[key] for row in each), 4) for key in each[0]}
        for rule, each in runs.items()
    }
    return {"ideal_s": round(_CLOCKS * len(speeds) * _STEP_S / sum(speeds), 2), **medians}


def measured(name: str) -> dict[str, Any]:
    """Return the figures of a part."""
    if name in _JOBS:
        options, clocks = _JOBS[name]
        return {each.split()[1]: job_of(each, clocks) for each in options}
    return bits() if name == "bits" else at_speeds(name)


def bars_of(figures: dict[str, Any]) -> list[Bar]:
    """Return the bars of all parts that are there."""
    bars = []
    for name, row in figures.items():
        if name == "shares":
            ratio = row["speed"]["seconds"] / row["slots"]["seconds"]
            bars.append(Bar("one at half: shares by speed over equal shares", ratio, 0.65))
            bars.append(Bar("one at half: shares by speed are exact", float(row["speed"]["exact"]), at_least=1.0))
        elif name == "bits":
            bars.append(Bar("elastic-bsp:1 is bsp to the bit", float(all(row.values())), at_least=1.0))
        elif name == "equal":
            bars.append(Bar("equal: elastic-bsp:15 over bsp", _over(row, "bsp"), 1.02))
        elif name in ("one at half", "hosts"):
            bars.append(Bar(f"{name}: elastic-bsp:15 over bsp", _over(row, "bsp"), 0.75))
            if "asp:500ms" in row:
                bars.append(Bar(f"{name}: elastic-bsp:15 over asp", _over(row, "asp:500ms"), 1.15))
        if name == "one at half":
            bars.append(
                Bar(f"{name}: elastic-bsp:15 over ideal", row["elastic-bsp:15"]["seconds"] / row["ideal_s"], 1.15)
            )
        if name in _SPEEDS:
            below = row["bsp"]["accuracy"] - row["elastic-bsp:15"]["accuracy"]
            bars.append(Bar(f"{name}: accuracy below bsp's", below, 0.01))
    return bars


def _over(row: dict[str, Any], rule: str) -> float:
    return float(row["elastic-bsp:15"]["seconds"] / row[rule]["seconds"])


def main() -> int:
    """Measure and record; the exit code."""
    file, names = results.RECORDS / "rules.json", [*_SPEEDS, *_JOBS, "bits"]
    only = [sys.argv[sys.argv.index("--only") + 1]] if "--only" in sys.argv else names
    figures = json.loads(file.read_text())["figures"] if only != names else {}
    figures |= {name: measured(name) for name in only}
    figures = {name: figures[name] for name in names if name in figures}
    configuration = {
        "clocks": _CLOCKS, "step_s": _STEP_S, "jitter": _JITTER, "batches": _BATCHES, "runs": _RUNS, "speeds": _SPEEDS,
    }  # fmt: skip
    return record("rules", configuration, figures, bars_of(figures), only)


if __name__ == "__main__":
    sys.exit(main())
