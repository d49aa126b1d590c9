"""DSSP in one worker: its records of its clocks, and the state it waits for."""

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from plink.model.rules.dssp import DSSP
from plink.runtime.elastic.worker.client import Client
from plink.runtime.elastic.worker.steps import CLOCK, SECONDS, WORKER, StepTable


class WorkerClock(NamedTuple):
    """The latest clock that a worker has finished, and the seconds of one."""

    finished: int
    seconds: float


class StalenessCredits:
    """Credits of one worker.

    :param lower, upper: bounds of the clocks that it may be ahead.
    """

    def __init__(self, lower: int, upper: int) -> None:
        self._lower, self._upper = lower, upper
        self._seen: dict[int, tuple[int, float]] = {}  # by worker: its clock, and when that was seen first
        self._until = -1  # the last clock that may begin on credit

    def bound(self, clock: int, own_s: float, others: Mapping[int, WorkerClock], now_s: float) -> int:
        """Return how many clocks this worker may be ahead when it begins ``clock``.

        :param own_s: seconds of a clock of this worker; 0: nothing is known yet.
        :param now_s: by any watch that does not go back.
        """
        for worker, other in others.items():
            if worker not in self._seen or self._seen[worker][0] != other.finished:
                self._seen[worker] = other.finished, now_s
        if not others:
            return self._lower
        slowest = min(others, key=lambda worker: (others[worker].finished, -others[worker].seconds))
        ahead = clock - 1 - others[slowest].finished
        if ahead <= self._lower:
            self._until = -1
            return self._lower
        if self._until < 0 and own_s > 0 and others[slowest].seconds > 0:
            credit = self._best(own_s, others[slowest].seconds, now_s - self._seen[slowest][1])
            self._until = clock - 1 + credit
        if clock <= self._until:
            return min(self._upper, ahead)
        self._until = -1  # after the wait it is decided anew
        return self._lower

    def _best(self, own_s: float, slowest_s: float, since_s: float) -> int:
        """Return the number of more clocks after which the slowest ends one soonest; the first of several."""
        first = max(0.0, slowest_s - since_s)  # from now on: the end of its present clock

        def wait(more: int) -> float:
            at = more * own_s
            periods = max(0.0, -(-(at - first) // slowest_s))
            return first + periods * slowest_s - at

        return min(range(self._upper - self._lower + 1), key=lambda more: (round(wait(more), 9), more))

    def roll_back(self) -> None:
        """Forget all: clocks are done again."""
        self._seen.clear()
        self._until = -1


class DynamicStaleness:
    """Staleness bound of one worker, from clock to clock; for one thread."""

    def __init__(self, client: Client, shards: int, rule: DSSP) -> None:
        self._client, self._table = client, StepTable(client, shards)
        self._credits, self._generation = StalenessCredits(rule.lower, rule.upper), client.generation

    def begin(self) -> None:
        """Let reads of the clock that begins wait for the state that is due by now."""
        client = self._client
        if client.generation != self._generation:
            self._credits.roll_back()
            self._generation = client.generation
        self._table.read(anew=True)
        clocks = {
            int(row[WORKER]) - 1: WorkerClock(int(row[CLOCK]), float(row[SECONDS]))
            for row in self._table.latest
            if row[WORKER] > 0
        }
        own = clocks.pop(client.worker, WorkerClock(0, 0.0))
        bound = self._credits.bound(client.now, own.seconds, clocks, time.monotonic())
        client.require(client.now - 1 - bound)

    def shards_added(self) -> None:
        """Read again what other workers wrote of their shards, of which this one has some now; call it when reads of
        this clock wait for the clock before."""
        self._table.read(anew=True)

    def note(self, shards: Sequence[int], seconds: float) -> None:
        """Write down that a clock was worked on, and for how long."""
        self._table.note(dict.fromkeys(shards, self._client.now - 1), 1, seconds)
