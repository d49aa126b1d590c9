"""Consistency rules where workers are not equally fast: time and accuracy at equal work (Zhao et al. 2019, Figure 4).

Four workers of real servers and clients on the loopback train a perceptron on scikit-learn's digits. Each mini-batch is
padded to 40 ms over its worker's speed, so that processors are no limit. ``ideal`` is the time if nobody ever waited.

``--only shares``: whole jobs of four local processes, one at half speed, by ``--shares slots`` and ``speed``; the
seconds from the end of the first iteration to the end of the last.
"""

import json
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

_SPEEDS = {"equal": (1.0, 1.0, 1.0, 1.0), "one at half": (1.0, 1.0, 1.0, 0.5), "uneven": (1.0, 0.9, 0.7, 0.45)}
_RULES = ("bsp", "ssp:3", "elastic-bsp:15", "elastic-bsp:60")
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
    """Return seconds, and the share of test digits that are recognised."""
    app, began = Digits(speeds, seed), time.perf_counter()
    tables = train(app, workers=len(speeds), servers=2, rule=parse_rule(rule)).tables
    seconds = time.perf_counter() - began
    pixels, labels = app.test
    _, scores = scores_of(pixels, tables["hidden"], tables["out"])
    return {"seconds": seconds, "accuracy": float((scores.argmax(axis=1) == labels).mean())}


def shares_of(shares: str) -> dict[str, Any]:
    """Run a job of four local processes, one at half speed; return its seconds, and whether every clock counts once."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [
            sys.executable, "-m", "plink", "elastic", "run", "--runner", "local", "--slots", "4", "--shares", shares,
            str(Path(__file__).parent / "timing" / "half_speed_app.py"), "--folder", str(folder),
        ]  # fmt: skip
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        (log,) = folder.glob(".plink/runs/*/agile.jsonl")
        ends = [entry.at for entry in read_elastic_log(log) if isinstance(entry, Iteration)]
    return {"seconds": round(ends[-1] - ends[0], 2), "exact": done.returncode == 0 and "exact" in done.stdout}


def main() -> int:
    """Run in turns and record; the exit code."""
    if "--only" in sys.argv:
        figures = json.loads((results.RESULTS / "rules.json").read_text())["figures"]
        figures["shares"] = {shares: shares_of(shares) for shares in ("slots", "speed")}
        return _recorded(figures, ["shares"])
    figures = {"shares": {shares: shares_of(shares) for shares in ("slots", "speed")}}
    for name, speeds in _SPEEDS.items():
        ideal_s = _CLOCKS * len(speeds) * _STEP_S / sum(speeds)
        runs: dict[str, list[dict[str, float]]] = {rule: [] for rule in _RULES}
        for seed in range(_RUNS):
            for rule in _RULES:
                runs[rule].append(run(speeds, rule, seed))
        figures[name] = {"ideal_s": round(ideal_s, 2)} | {
            rule: {key: round(statistics.median(row[key] for row in each), 4) for key in each[0]}
            for rule, each in runs.items()
        }
    return _recorded(figures, list(figures))


def _recorded(figures: dict[str, Any], measured: list[str]) -> int:
    half, equal, shares = figures["one at half"], figures["equal"], figures["shares"]
    bars = [
        Bar(
            "one at half: shares by speed over equal shares",
            shares["speed"]["seconds"] / shares["slots"]["seconds"],
            0.65,
        ),
        Bar("one at half: shares by speed are exact", float(shares["speed"]["exact"]), at_least=1.0),
        Bar("one at half: elastic-bsp:15 over bsp", half["elastic-bsp:15"]["seconds"] / half["bsp"]["seconds"], 0.75),
        Bar("one at half: elastic-bsp:15 over ideal", half["elastic-bsp:15"]["seconds"] / half["ideal_s"], 1.15),
        Bar("equal: elastic-bsp:15 over bsp", equal["elastic-bsp:15"]["seconds"] / equal["bsp"]["seconds"], 1.02),
        *(
            Bar(f"{name}: accuracy below bsp's", row["bsp"]["accuracy"] - row["elastic-bsp:15"]["accuracy"], 0.01)
            for name, row in figures.items()
            if name in _SPEEDS
        ),
    ]
    configuration = {
        "clocks": _CLOCKS, "step_s": _STEP_S, "jitter": _JITTER, "batches": _BATCHES, "runs": _RUNS, "speeds": _SPEEDS,
    }  # fmt: skip
    return record("rules", configuration, figures, bars, measured)


if __name__ == "__main__":
    sys.exit(main())
