"""Number of steps that a worker does at a clock, under rules that have several of them.

ElasticBSP: a clock is a superstep. All workers see at clock c what all wrote at clock c - 1, however far others are,
and plan the same barrier, each by itself. No coordinator is needed, and a worker with another plan would only be waited
for.

ASP: the worker that has shard 0 ends its clock after some time, and ends the job; the others end theirs when they read
that a worker has ended it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.elastic.tables import Table
from plink.model.consistency import Rule
from plink.model.rules.asp import ASP
from plink.model.rules.elastic_bsp import ElasticBSP
from plink.runtime.elastic.worker.client import Client
from plink.runtime.elastic.worker.zipline import barrier

_TABLE = "plink.steps"
STEPS, CLOCK, SECONDS, SHARDS, WORKER = range(5)
_COLUMNS = 5
_LEAST_S, _MOST_S = 1e-3, 600.0  # of a step, whatever a clock said
_LATEST_SHARE = 0.5  # of the mean, exponentially weighted, that the latest clock gets

Rows = npt.NDArray[np.float64]


def steps_table(shards: int) -> Table:
    """Return the table of a job of so many shards."""
    return Table(_TABLE, shards, 2 * _COLUMNS, "float64")


class StepTable:
    """The table as one worker sees it; for one thread. It is read once a clock, and written from what was read.

    Where a shard has no row the job goes on from a checkpoint of another rule: each clock of that was one step.
    """

    def __init__(self, client: Client, shards: int) -> None:
        self._client, self._all = client, np.arange(shards)
        self._rows: Rows = np.zeros((shards, 2 * _COLUMNS))
        self._read_at = (-1, -1)  # clock, generation
        self._first_clock = client.now  # that it works in, or goes back to

    def read(self, anew: bool = False) -> None:
        """Read the table, unless it was read at this clock already; ``anew``: in any case, and from the servers."""
        now = self._client.now, self._client.generation
        self._first_clock = max(1, min(self._first_clock or 1, self._client.now))
        if anew:
            self._client.forget_fetched(_TABLE)
        if anew or self._read_at != now:
            self._rows = np.asarray(self._client.read(_TABLE, self._all, own=False), dtype=np.float64)
            self._read_at = now

    def forget(self) -> None:
        """Read it anew, though the clock is the same: it is begun again."""
        self._read_at = (-1, -1)

    @property
    def previous(self) -> Rows:
        """What was written at the clock before, shape (shards, columns)."""
        rows = self._rows[:, self._columns(self._client.now - 1)].copy()
        later = self._rows[:, self._columns(self._client.now)][:, CLOCK]
        missing = (rows[:, CLOCK] == 0) & ((later == 0) | (later == self._client.now))
        rows[missing, STEPS] = self._first_clock - 1
        return rows

    @property
    def latest(self) -> Rows:
        """What was written last in each row, whatever the clock, shape (shards, columns)."""
        return self._latest(self._rows)

    def clocks_done(self) -> int:
        """Ask the servers how many mini-batches of every shard are done on average. What :meth:`read` read stays: a
        step that was noted may not be sent yet."""
        self._client.forget_fetched(_TABLE)
        rows = np.asarray(self._client.read(_TABLE, self._all, own=False), dtype=np.float64)
        return int(self._latest(rows)[:, STEPS].sum() // len(self._all))

    def before(self, shards: Sequence[int]) -> dict[int, int]:
        """Return how many steps shards had before this clock."""
        return {shard: int(self.previous[shard, STEPS]) for shard in shards}

    def note(self, before: Mapping[int, int], steps: int, seconds: float | None) -> None:
        """Add to the updates of a step that so many are done at this clock; ``seconds``: mean of each until now; None:
        as it was.

        :param before: of each of one's shards, as :meth:`before` returns it.
        """
        shards = list(before)
        if not shards:
            return
        columns = self._columns(self._client.now)
        rows = np.zeros((len(shards), _COLUMNS))
        rows[:, STEPS] = [before[shard] + steps for shard in shards]
        rows[:, CLOCK] = self._client.now
        rows[0, SECONDS:] = self._smoothed(seconds), len(shards), self._client.worker + 1
        deltas = np.zeros((len(shards), 2 * _COLUMNS))
        deltas[:, columns] = rows - self._rows[shards, columns]
        self._client.update(_TABLE, shards, deltas)
        self._rows[shards, columns] = rows

    def _smoothed(self, seconds: float | None) -> float:
        own = self.previous[self.previous[:, WORKER] == self._client.worker + 1]
        earlier = float(own[0, SECONDS]) if len(own) and own[0, CLOCK] == self._client.now - 1 else 0.0
        if seconds is None:
            return earlier
        seconds = min(max(_LEAST_S, seconds), _MOST_S)  # the least for NaN, too
        return _LATEST_SHARE * seconds + (1 - _LATEST_SHARE) * earlier if earlier > 0 else seconds

    def _columns(self, clock: int) -> slice:
        first = clock % 2 * _COLUMNS
        return slice(first, first + _COLUMNS)

    def _latest(self, rows: Rows) -> Rows:
        halves = rows.reshape(len(rows), 2, _COLUMNS)
        latest: Rows = halves[self._all, halves[:, :, CLOCK].argmax(axis=1)]
        latest[latest[:, CLOCK] == 0, STEPS] = self._first_clock - 1
        return latest


_WORK_CHECKS = 10  # a clock: whether what was asked for is done


@dataclass(frozen=True)
class StepPlan:
    """A worker's part of a clock: ``before`` says how many steps each of its shards has had. ``over``: whether the
    clock ends after so many of its steps."""

    before: Mapping[int, int]
    over: Callable[[int], bool]


def planner_of(rule: Rule, client: Client, shards: int) -> "SuperstepPlanner | TimedPlanner | None":
    """Return the planner of a rule; None for a rule whose clocks have one step."""
    table = StepTable(client, shards)
    if isinstance(rule, ElasticBSP):
        return SuperstepPlanner(client, table, rule.most_steps)
    return TimedPlanner(client, table, rule.clock_s) if isinstance(rule, ASP) else None


class SuperstepPlanner:
    """Planner of ElasticBSP's supersteps, as one worker sees it; for one thread."""

    def __init__(self, client: Client, table: StepTable, most_steps: int) -> None:
        self._client, self.table, self._most_steps = client, table, most_steps
        self.stopping = self.done = False

    def finished(self, most_clocks: int) -> bool:
        """Return whether so many mini-batches of every shard are done on average as of the clock before; waits for all
        to have finished it."""
        self.table.read()
        previous = self.table.previous
        return bool(previous[:, STEPS].sum() // len(previous) >= most_clocks)

    def plan(self, shards: Sequence[int], most_clocks: int | None) -> StepPlan:
        """Return the steps until the barrier, of which no more than is left of ``most_clocks`` mini-batches of every
        shard."""
        self.table.read()
        steps = self._steps(most_clocks)
        return StepPlan(self.table.before(shards), lambda done: done >= steps)

    def _steps(self, most_clocks: int | None) -> int:
        previous = self.table.previous
        workers = previous[(previous[:, CLOCK] == self._client.now - 1) & (previous[:, SECONDS] > 0)]
        own = np.flatnonzero(workers[:, WORKER] == self._client.worker + 1)
        if not len(own):  # nobody knows yet how long it takes
            return 1
        _, steps = barrier(workers[:, SECONDS, None] * np.arange(1, self._most_steps + 1))
        if most_clocks is not None:
            left = most_clocks * len(previous) - float(previous[:, STEPS].sum())
            share = left / float(steps @ workers[:, SHARDS])
            steps = np.floor(steps * min(1.0, share))
        return max(1, int(steps[own[0]]))


class TimedPlanner:
    """Planner of ASP's clocks.

    :param clock_s: after which the worker that has shard 0 ends its clock; but not sooner than the slowest worker does
        a step, or that one would fall behind.

    When the job is about to end (``stopping``) clocks have no steps any more. ``done``: what was asked for is; the
    worker that has shard 0 is to end the job.
    """

    def __init__(self, client: Client, table: StepTable, clock_s: float) -> None:
        self._client, self.table, self._clock_s = client, table, clock_s
        self.stopping = self.done = False

    def finished(self, most_clocks: int) -> bool:
        """Return False: the worker that has shard 0 decides on the first clock that nobody begins."""
        return False

    def plan(self, shards: Sequence[int], most_clocks: int | None) -> StepPlan:
        """Return the steps until the end of the clock."""
        self.table.read()
        began, leads, now = time.monotonic(), 0 in shards, self._client.now
        latest = self.table.latest
        clock_s = max(self._clock_s, float(latest[:, SECONDS].max()))
        check_s = began + clock_s / _WORK_CHECKS
        finished = most_clocks is not None and bool(latest[:, STEPS].sum() // len(latest) >= most_clocks)
        self.done = leads and finished

        def over(steps: int) -> bool:
            nonlocal check_s
            if finished or self.stopping or self._client.latest_finished >= now:
                return True
            if not leads:
                return False
            if most_clocks is not None and (not steps or time.monotonic() >= check_s):
                check_s = time.monotonic() + clock_s / _WORK_CHECKS
                self.done = self.table.clocks_done() >= most_clocks
            return self.done or (steps > 0 and time.monotonic() >= began + clock_s)

        return StepPlan(self.table.before(shards), over)
