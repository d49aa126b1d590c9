"""How many steps a worker does in a superstep: planned by each worker by itself, from what all have written down.

Table ``plink.steps`` has a row for each shard. Whoever has a shard writes there, with every step, how many steps the
shard has had; and, in the row of its lowest shard, its number, how long a step takes it, and how many shards it has.
All is kept twice, by odd and even clocks: what was written at clock c - 1 stays until all have finished clock c. So all
workers see the same at clock c, however far others are, and plan the same barrier. No coordinator is needed, and a
worker with another plan would only be waited for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.elastic.tables import Table
from plink.runtime.agileml.worker.client import Client
from plink.runtime.agileml.worker.zipline import barrier

_TABLE = "plink.steps"
_STEPS, _CLOCK, _SECONDS, _SHARDS, _WORKER = range(5)
_COLUMNS = 5
_LEAST_S, _MOST_S = 1e-3, 600.0  # of a step, whatever a clock said
_LATEST_SHARE = 0.5  # of the mean, exponentially weighted, that the latest superstep gets

Rows = npt.NDArray[np.float64]


def steps_table(shards: int) -> Table:
    """Return the table of a job of so many shards."""
    return Table(_TABLE, shards, 2 * _COLUMNS, "float64")


@dataclass(frozen=True)
class StepPlan:
    """A worker's part of a superstep: ``steps`` of its shards, of which ``before`` says how many each has had."""

    steps: int
    before: Mapping[int, int]


class StepPlanner:
    """Planner of supersteps, as one worker sees it; for one thread."""

    def __init__(self, client: Client, shards: int, most_steps: int) -> None:
        self._client, self._all, self._most_steps = client, np.arange(shards), most_steps

    def clocks_done(self) -> int:
        """Return how many mini-batches of every shard are done on average, as of the clock before; waits for all to
        have finished it."""
        return int(self._previous()[:, _STEPS].sum() // len(self._all))

    def plan(self, shards: Sequence[int], most_clocks: int | None) -> StepPlan:
        """Return what to do at this clock: steps until the barrier, of which no more than are left of ``most_clocks``
        mini-batches of every shard."""
        previous = self._previous()
        before = {shard: int(previous[shard, _STEPS]) for shard in shards}
        workers = previous[(previous[:, _CLOCK] == self._client.now - 1) & (previous[:, _SECONDS] > 0)]
        own = np.flatnonzero(workers[:, _WORKER] == self._client.worker + 1)
        if not len(own):  # nobody knows yet how long it takes
            return StepPlan(1, before)
        _, steps = barrier(workers[:, _SECONDS, None] * np.arange(1, self._most_steps + 1))
        if most_clocks is not None:
            left = most_clocks * len(self._all) - float(previous[:, _STEPS].sum())
            share = left / float(steps @ workers[:, _SHARDS])
            steps = np.floor(steps * min(1.0, share))
        return StepPlan(max(1, int(steps[own[0]])), before)

    def note(self, plan: StepPlan, step: int, seconds: float) -> None:
        """Add to the updates of a step, from 0 on, that it is done; ``seconds``: mean of each step until now."""
        shards = list(plan.before)
        columns = self._columns(self._client.now)
        written = self._client.read(_TABLE, shards, own=False)[:, columns]
        rows = written.copy()
        rows[:, _STEPS] = [plan.before[shard] + step + 1 for shard in shards]
        rows[:, _CLOCK] = self._client.now
        rows[:, _SECONDS:] = 0.0
        rows[0, _SECONDS:] = self._smoothed(seconds), len(shards), self._client.worker + 1
        deltas = np.zeros((len(shards), 2 * _COLUMNS))
        deltas[:, columns] = rows - written
        self._client.update(_TABLE, shards, deltas)

    def _smoothed(self, seconds: float) -> float:
        previous = self._previous()
        seconds = min(max(seconds, _LEAST_S), _MOST_S)
        own = (previous[:, _WORKER] == self._client.worker + 1) & (previous[:, _CLOCK] == self._client.now - 1)
        if not own.any():
            return seconds
        return float(_LATEST_SHARE * seconds + (1 - _LATEST_SHARE) * previous[own, _SECONDS][0])

    def _previous(self) -> Rows:
        """Return what all wrote at the clock before, shape (shards, columns)."""
        read = self._client.read(_TABLE, self._all, own=False)
        return np.asarray(read[:, self._columns(self._client.now - 1)], dtype=np.float64)

    def _columns(self, clock: int) -> slice:
        first = clock % 2 * _COLUMNS
        return slice(first, first + _COLUMNS)
