"""Counting that is slowed down by waits, for FlexRR's benchmark: workers are slow by a drawn pattern.

A grain is a wait, as long as its worker is slow at the time, so that processors are no limit; who helps waits as it is
slow itself. By ``plink elastic run`` on the hosts of a lab, whose numbers are in their names: ``--pattern NAME``
(:data:`PATTERNS`).
"""

import argparse
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.stragglers import DisruptedMachine, Pattern, PowerLaw, SlowWorker, Steady, uneven_costs
from plink.elastic import App, Objective, Params, StoppingCriterion, Table

WORKERS, GRAINS, ITERATIONS = 8, 30, 16
LAB_ITERATION_S = 1.0
SEED = 7
_SHARDS_EACH = 3
PATTERNS: dict[str, Pattern] = {
    "slow worker 0 %": Steady(),
    "slow worker 100 %": SlowWorker(1.0, SEED),
    "slow worker 400 %": SlowWorker(4.0, SEED),
    "disrupted machine 200 %": DisruptedMachine(2.0, seed=SEED),
    "power-law 11": PowerLaw(11.0, SEED),
    "power-law 4": PowerLaw(4.0, SEED),
    "uneven": Steady(),
}


class Hindered(App[int]):
    """Counts, and waits. ``own_number``: of the calling worker; ``costs``: of the shards, in mean shards."""

    tables = (Table("n", 240, 4, "float64"),)
    shards = WORKERS * _SHARDS_EACH
    grains = GRAINS // _SHARDS_EACH

    def __init__(
        self, pattern: Pattern, iteration_s: float, own_number: Callable[[], int], costs: Sequence[float] | None = None
    ) -> None:
        self.stop, self._pattern = StoppingCriterion(clocks=ITERATIONS), pattern
        self._iteration_s, self._own_number = iteration_s, own_number
        self._costs = costs or [1.0] * self.shards
        self._work, self._starting = [0.0] * WORKERS, threading.Lock()
        self.began = self.ended = 0.0

    def load(self, shard: int) -> list[int]:
        """Return the number of the shard."""
        return [shard]

    def part(self, items: int, grain: int) -> int:
        """Return the same for every grain."""
        return items

    def process(self, items: int, params: Params) -> Objective:
        """Read, count, wait."""
        began = time.time()
        with self._starting:
            self.began = self.began or began
        worker, cost = self._own_number(), self._costs[items] / GRAINS
        params.read("n", range(items, 240, self.shards))
        now = (began - self.began) / self._iteration_s
        seconds = cost * self._iteration_s * self._pattern.slowness(worker, self._work[worker], now)
        self._work[worker] += cost
        params.update("n", [items], np.ones((1, 4)))
        time.sleep(max(0.0, began + seconds - time.time()))
        self.ended = time.time()
        return Objective(0.0, 1.0)

    def is_exact(self, counts: object) -> bool:
        """Return whether every grain of every iteration counts once in the table."""
        return bool((np.asarray(counts)[: self.shards] == ITERATIONS * self.grains).all())


class HinderedHost(Hindered):
    """The only worker of a host."""

    def __init__(self, name: str) -> None:
        number = int(re.sub(r"\D", "", socket.gethostname())) - 1
        heavy = range(self.shards // 2)  # each host has a run of shards
        costs = uneven_costs(self.shards, heavy) if name == "uneven" else None
        super().__init__(PATTERNS[name], LAB_ITERATION_S, lambda: number, costs)

    def result(self, params: Params) -> None:
        """Say whether the counts are right."""
        print(json.dumps({"exact": self.is_exact(params.read("n"))}), flush=True)


def make(arguments: list[str] | None = None) -> HinderedHost:
    """Return the program as told on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pattern", choices=PATTERNS, required=True)
    return HinderedHost(parser.parse_args(arguments).pattern)
