"""DSSP in one worker: what it writes down of its clocks, and which state it waits for."""

import time
from collections.abc import Sequence

from plink.model.rules.dssp import DSSP
from plink.runtime.elastic.worker.client import Client
from plink.runtime.elastic.worker.staleness_credits import StalenessCredits, WorkerClock
from plink.runtime.elastic.worker.step_table import CLOCK, SECONDS, WORKER, StepTable


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
