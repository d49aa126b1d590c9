"""What all workers of a job must agree on, kept in tables of its own: the objective by iteration, and when to stop.

It is rolled back with the parameters, and who takes over finds it there. Whoever has piece 0 decides for all, and early
enough: nobody starts the clock that is not to be done without having seen it (by the rule that reads follow).
"""

from collections.abc import Iterable

import numpy as np

from plink.elastic.app import App, Items, check_app
from plink.elastic.objective import Objective
from plink.elastic.tables import Table
from plink.runtime.agileml.arrays.layout import Layout
from plink.runtime.agileml.worker.client import Client

# Rings: the objective of iteration i is in row i mod 64, and is taken away when it is 32 iterations old, long after the
# slowest worker has added to it. When to stop is one row, so that one message asks for it; the decision of clock c is
# in column c mod 64, for under a rule with staleness two may decide before either sees it.
_RING = 64
KEPT = _RING // 2
TABLES = (Table("plink.objective", _RING, 2, "float64"), Table("plink.stop", 1, _RING, "int64"))
_OBJECTIVE, _STOP = (table.name for table in TABLES)


def job_layout(app: App[Items], partitions: int) -> Layout:
    """Return the layout of all tables of a job, the program's first. :raises InputError: as :func:`check_app`."""
    check_app(app)
    return Layout((*app.tables, *TABLES), partitions)


class Progress:
    """As one worker sees it; ``batches`` clocks are an iteration, the first at clock 1."""

    def __init__(self, client: Client, batches: int) -> None:
        assert client.rule.apart <= KEPT - 2, f"workers may be {client.rule.apart} clocks apart, {KEPT} are kept"
        self._client, self._batches = client, batches

    def iteration(self, clock: int) -> int:
        """That a clock belongs to; clock 0 is before the first, iteration 0."""
        return (clock - 1) // self._batches

    @property
    def first_of_iteration(self) -> bool:
        """Whether an iteration begins with the present clock."""
        return (self._client.now - 1) % self._batches == 0

    def add(self, scores: Iterable[Objective]) -> None:
        """What the pieces of this worker say at the present clock. :raises InputError: it sums up to an infinity."""
        result = [(score.total, score.weight) for score in scores]
        if result:
            row = self.iteration(self._client.now) % _RING
            with np.errstate(over="ignore"):  # an infinity is refused by the cache
                total = np.sum(result, axis=0)
            self._client.update(_OBJECTIVE, [row], [total])

    @property
    def judged(self) -> int:
        """The latest iteration whose updates are all in sight: the last one under BSP, earlier ones with staleness;
        below 0 before there is any."""
        return self.iteration(self._client.rule.needs(self._client.now) + 1) - 1

    def objectives(self) -> dict[int, float]:
        """The means of the latest iterations up to :attr:`judged`, in order; without those of no weight."""
        iterations = np.arange(max(0, self.judged - KEPT + 2), self.judged + 1)
        result = self._client.read(_OBJECTIVE, iterations % _RING, own=False)
        return {
            int(iteration): float(total / weight)
            for iteration, (total, weight) in zip(iterations, result, strict=True)
            if weight
        }

    def make_room(self) -> None:
        """For iterations to come; once an iteration, by one worker, at its first clock."""
        old = self.iteration(self._client.now) - KEPT
        if old >= 0 and self.first_of_iteration:
            row = [old % _RING]
            self._client.update(_OBJECTIVE, row, -self._client.read(_OBJECTIVE, row, own=False))

    def stop_soon(self) -> None:
        """At the first clock that everyone will begin with this in sight."""
        now = self._client.now
        first = next(clock for clock in range(now + 1, now + _RING + 1) if self._client.rule.needs(clock) >= now)
        message = np.zeros((1, _RING), dtype=np.int64)
        message[0, now % _RING] = first
        self._client.update(_STOP, [0], message)

    def stops_at(self) -> int | None:
        """The first clock that is not to be done, if anybody said so."""
        message = self._client.read(_STOP, [0], own=False)
        return int(message[message > 0].min()) if (message > 0).any() else None
