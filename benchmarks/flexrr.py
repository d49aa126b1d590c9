"""Stragglers that are helped, with real servers: FlexRR and what it is made of (Harlap thesis, Figures 3.6 to 3.10).

Eight workers with real servers and connections, on the loopback. A grain is a wait, as long as its worker is slow at
the time, so that processors are no limit; helpers wait as they are slow themselves. Figures are times over the ideal of
the drawn schedule. ``--only NAME``: one pattern. :mod:`benchmarks.helping_courses` has more in virtual time.
"""

import json
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.record import Bar, record
from benchmarks.results import RESULTS
from benchmarks.stragglers import DisruptedMachine, Pattern, PowerLaw, SlowWorker, Steady, ideal, uneven_costs
from plink.elastic import App, Objective, Params, Rebalance, StoppingCriterion, Table, train
from plink.model.consistency import BSP, SSP, Rule

WORKERS, GRAINS, ITERATIONS, ITERATION_S = 8, 30, 16, 0.45
_SHARDS_EACH = 3
_SEED = 7
MODES: dict[str, tuple[Rule, Rebalance | None]] = {
    "BSP": (BSP(), None), "SSP": (SSP(1), None), "BSP RR": (BSP(), Rebalance()), "FlexRR": (SSP(1), Rebalance()),
}  # fmt: skip
PATTERNS: dict[str, Pattern] = {
    "slow worker 0 %": Steady(),
    "slow worker 100 %": SlowWorker(1.0, _SEED),
    "slow worker 400 %": SlowWorker(4.0, _SEED),
    "disrupted machine 200 %": DisruptedMachine(2.0, seed=_SEED),
    "power-law 11": PowerLaw(11.0, _SEED),
    "power-law 4": PowerLaw(4.0, _SEED),
    "uneven": Steady(),
}


class Hindered(App[int]):
    """Counts, and waits; the shard of an uneven half costs more."""

    tables = (Table("n", 240, 4, "float64"),)
    shards = WORKERS * _SHARDS_EACH
    grains = GRAINS // _SHARDS_EACH

    def __init__(self, pattern: Pattern, costs: Sequence[float] | None = None) -> None:
        self.stop, self._pattern = StoppingCriterion(clocks=ITERATIONS), pattern
        self._costs = costs or [1.0] * self.shards
        self._work, self._started = [0.0] * WORKERS, 0.0
        self._starting = threading.Lock()
        self.ended = 0.0

    def load(self, shard: int) -> list[int]:
        return [shard]

    def part(self, items: int, grain: int) -> int:
        return items

    def process(self, items: int, params: Params) -> Objective:
        begun = time.perf_counter()
        with self._starting:
            self._started = self._started or begun
        worker, cost = int(threading.current_thread().name.rsplit("-", 1)[1]), self._costs[items] / GRAINS
        params.read("n", range(items, 240, self.shards))
        now = (begun - self._started) / ITERATION_S
        seconds = cost * ITERATION_S * self._pattern.slowness(worker, self._work[worker], now)
        self._work[worker] += cost
        params.update("n", [items], np.ones((1, 4)))
        time.sleep(max(0.0, begun + seconds - time.perf_counter()))
        self.ended = time.perf_counter()
        return Objective(0.0, 1.0)

    @property
    def seconds(self) -> float:
        """Return the time from the first grain to the end of the last."""
        return self.ended - self._started


def run(pattern: Pattern, rule: Rule, rebalance: Rebalance | None, costs: Sequence[float] | None) -> dict[str, float]:
    """Return seconds, time over ideal, and the share of the work that helpers did."""
    app = Hindered(pattern, costs)
    trained = train(app, workers=WORKERS, servers=2, rule=rule, rebalance=rebalance)
    assert (trained.tables["n"][: app.shards] == ITERATIONS * app.grains).all(), "a grain was lost, or counts twice"
    best_s = ideal(pattern, WORKERS, WORKERS * ITERATIONS) * ITERATION_S
    return {
        "seconds": round(app.seconds, 3), "over_ideal": round(app.seconds / best_s, 4), "moved": round(trained.moved, 4)
    }  # fmt: skip


def measured(name: str) -> dict[str, Any]:
    """Return the figures of one part."""
    # Shards are assigned in turns: heavy is what the first half of the workers has.
    heavy = [shard for shard in range(Hindered.shards) if shard % WORKERS < WORKERS // 2]
    costs = uneven_costs(Hindered.shards, heavy) if name == "uneven" else None
    return {mode: run(PATTERNS[name], *each, costs) for mode, each in MODES.items()}


def bars_of(figures: dict[str, Any]) -> list[Bar]:
    """Return the bars of all parts that are there."""
    bars = []
    limits = {
        "slow worker 0 %": 1.10, "slow worker 100 %": 1.10, "slow worker 400 %": 1.20,
        "disrupted machine 200 %": 1.12, "power-law 11": 1.10, "uneven": 1.12,
    }  # fmt: skip
    beside = {"slow worker 0 %": 1.02, "slow worker 100 %": 0.8, "slow worker 400 %": 0.6,
              "disrupted machine 200 %": 0.6}  # fmt: skip
    for name, row in figures.items():
        if name in limits:
            bars.append(Bar(f"{name}: FlexRR over ideal", row["FlexRR"]["over_ideal"], limits[name]))
        if name in beside:
            ratio = row["FlexRR"]["seconds"] / row["BSP"]["seconds"]
            bars.append(Bar(f"{name}: FlexRR over BSP", round(ratio, 4), beside[name]))
        if name in limits and name != "slow worker 0 %":
            others = min(row[mode]["seconds"] for mode in ("SSP", "BSP RR"))
            bars.append(Bar(f"{name}: FlexRR over SSP and BSP RR", round(row["FlexRR"]["seconds"] / others, 4), 1.0))
        if name == "slow worker 400 %":
            bars.append(Bar(f"{name}: share moved", row["FlexRR"]["moved"], at_least=0.12, at_most=0.3))
    return bars


def main() -> int:
    """Measure and record; the exit code."""
    file, names = RESULTS / "flexrr.json", list(PATTERNS)
    only = [sys.argv[sys.argv.index("--only") + 1]] if "--only" in sys.argv else names
    figures: dict[str, Any] = json.loads(file.read_text())["figures"] if file.exists() and only != names else {}
    figures |= {name: measured(name) for name in only}
    figures = {name: figures[name] for name in names if name in figures}
    configuration = {
        "workers": WORKERS, "grains": GRAINS, "iterations": ITERATIONS, "iteration_s": ITERATION_S, "seed": _SEED,
    }  # fmt: skip
    return record("flexrr", configuration, figures, bars_of(figures), only)


if __name__ == "__main__":
    sys.exit(main())
