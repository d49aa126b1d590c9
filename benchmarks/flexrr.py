"""Stragglers that are helped: FlexRR and what it is made of (Harlap thesis, Figures 3.6 to 3.10 and 3.12).

Eight workers with real servers and connections, on the loopback. A grain is a wait, as long as its worker is slow at
the time, so that processors are no limit; helpers wait as they are slow themselves. Figures are times over the ideal of
the drawn schedule. ``--only NAME``: one pattern, or ``simulated``:
sixteen workers in virtual time, with what Figure 3.12 varies.
"""

import functools
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.record import Bar, record
from benchmarks.results import RESULTS
from benchmarks.stragglers import DisruptedMachine, Pattern, PowerLaw, SlowWorker, Steady, ideal, uneven_costs
from plink.elastic import App, Objective, Params, Rebalance, StoppingCriterion, Table, train
from plink.model.consistency import BSP, SSP, Rule
from tests.runtime.agileml.simulated_helping import Course

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
_SENSITIVITY = {
    **{f"{count} helpers": Rebalance(helpers=count) for count in (1, 2, 3, 4, 8, 15)},
    **{f"follow-up {share:.1%}": Rebalance(initial=share / 2, follow_up=share) for share in (0.025, 0.1, 0.2, 0.3)},
    **{f"trigger {share:.0%}": Rebalance(trigger=share) for share in (0.05, 0.1, 0.4)},
    **{f"report at {share:.0%}": Rebalance(report=share) for share in (0.25, 0.5, 0.9)},
}
_SIMULATED_WORKERS, _SIMULATED_GRAINS, _SIMULATED_ITERATIONS, _SEEDS = 16, 60, 20, 3


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


def simulated() -> dict[str, float]:
    """Return time over ideal in virtual time, by pattern and mode, and at 400 % by setting; means over seeds."""
    patterns: dict[str, Callable[[int], Pattern]] = {
        **{f"slow worker {delay:.0%}": functools.partial(SlowWorker, delay) for delay in (0.5, 1.0, 2.0, 4.0)},
        **{
            f"disrupted machine {delay:.0%}": lambda seed, delay=delay: DisruptedMachine(delay, seed=seed)  # type: ignore[misc]
            for delay in (1.0, 4.0)
        },
        **{f"power-law {alpha:.0f}": functools.partial(PowerLaw, alpha) for alpha in (11.0, 7.0, 4.0)},
    }
    figures = {
        f"{name}, {mode}": _virtual(pattern, rule.apart, rebalance)
        for name, pattern in patterns.items()
        for mode, (rule, rebalance) in MODES.items()
    }
    slow = patterns["slow worker 400%"]
    return figures | {f"FlexRR, {label}": _virtual(slow, 1, each) for label, each in _SENSITIVITY.items()}


def _virtual(made: Callable[[int], Pattern], staleness: int, rebalance: Rebalance | None) -> float:
    ratios = []
    for seed in range(_SEEDS):
        pattern = made(seed)
        course = Course(
            _SIMULATED_WORKERS, _SIMULATED_GRAINS, _SIMULATED_ITERATIONS,
            lambda worker, clock, work, now, pattern=pattern: pattern.slowness(worker, work, now),  # type: ignore[misc]
            staleness, rebalance,
        )  # fmt: skip
        best = ideal(pattern, _SIMULATED_WORKERS, _SIMULATED_WORKERS * _SIMULATED_ITERATIONS)
        ratios.append(course.run() / best)
    return round(statistics.mean(ratios), 4)


def measured(name: str) -> dict[str, Any]:
    """Return the figures of one part."""
    if name == "simulated":
        return simulated()
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
        if name == "simulated":
            bars += [Bar(f"simulated: {key}", row[key], 1.1) for key in row if key.endswith("%, FlexRR")]
        if name == "slow worker 400 %":
            bars.append(Bar(f"{name}: share moved", row["FlexRR"]["moved"], at_least=0.12, at_most=0.3))
    return bars


def main() -> int:
    """Measure and record; the exit code."""
    file, names = RESULTS / "flexrr.json", [*PATTERNS, "simulated"]
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
