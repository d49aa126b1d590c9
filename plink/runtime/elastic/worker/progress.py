"""Progress of a job, in tables of its own: the objective by iteration, and when all workers stop.

The tables are rolled back with the parameters, and a host that takes over finds them there. The worker that has shard 0
decides for all, and early enough: no worker starts the clock after the last without having read the decision (by the
rule that reads follow).
"""

from collections.abc import Iterable
from enum import IntEnum

import numpy as np

from plink.elastic.app import App, Items, Objective, check_app
from plink.elastic.tables import Table
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.worker.client import Client
from plink.runtime.elastic.worker.steps import steps_table

# Rings: the objective of iteration i is in row i mod 64, and is taken away when it is 32 iterations old, long after the
# slowest worker has added to it. When to stop is one row, so that one message asks for it; the decision of clock c is
# in column c mod 64, for under a rule with staleness two may decide before either sees it. It is the clock times 4 plus
# the criterion that was met.
_RING = 64
HISTORY_ITERATIONS = _RING // 2
TABLES = (Table("plink.objective", _RING, 2, "float64"), Table("plink.stop", 1, _RING, "int64"))
_OBJECTIVE, _STOP = (table.name for table in TABLES)
_CRITERIA = 4


class Criterion(IntEnum):
    """Which part of the stopping criterion is met."""

    CLOCKS = 0
    SECONDS = 1
    PATIENCE = 2


def job_layout(app: App[Items], partitions: int) -> Layout:
    """Return the layout of all tables of a job, the program's first, with the moments of its optimisers behind the
    tables that have one. :raises InputError: as :func:`check_app`."""
    check_app(app)
    tables, optimisers = list(app.tables), app.optimisers
    with_optimiser = [place for place, table in enumerate(tables) if table.name in optimisers]
    moments = [moment for place in with_optimiser for moment in optimisers[tables[place].name].moments(tables[place])]
    end = max(with_optimiser, default=0) + 1
    tables[end:end] = moments
    return Layout(
        (*tables, *TABLES, steps_table(app.shards)), partitions, of_one_job=(_STOP,), optimisers=dict(optimisers)
    )


class Progress:
    """Shared progress of a job as one worker sees it; ``batches`` clocks are an iteration, the first at clock 1, or one
    under a rule with several steps a clock.

    :ivar batches: so many clocks.
    """

    def __init__(self, client: Client, batches: int) -> None:
        assert client.rule.apart <= HISTORY_ITERATIONS - 2, (
            f"workers may be {client.rule.apart} clocks apart, {HISTORY_ITERATIONS} are kept"
        )
        self._client, self.batches = client, 1 if client.rule.steps else batches

    def iteration(self, clock: int) -> int:
        """Return the iteration of a clock; clock 0 is before the first, iteration 0."""
        return (clock - 1) // self.batches

    @property
    def first_of_iteration(self) -> bool:
        """Return whether an iteration begins with the present clock."""
        return (self._client.now - 1) % self.batches == 0

    def add(self, scores: Iterable[Objective]) -> None:
        """Add the objectives of this worker's shards at the present clock.

        :raises InputError: it sums up to an infinity.
        """
        result = [(score.total, score.weight) for score in scores]
        if result:
            row = self.iteration(self._client.now) % _RING
            with np.errstate(over="ignore"):  # an infinity is refused by the cache
                total = np.sum(result, axis=0)
            self._client.update(_OBJECTIVE, [row], [total])

    @property
    def evaluated_iteration(self) -> int:
        """Return the latest iteration whose updates are all visible: the last one under BSP, earlier ones with
        staleness; below 0 before there is any."""
        return self.iteration(self._client.rule.needs(self._client.now) + 1) - 1

    def objectives(self) -> dict[int, float]:
        """Return the mean objectives of the latest iterations up to :attr:`evaluated_iteration`, in order; without
        those of no weight."""
        iterations = np.arange(max(0, self.evaluated_iteration - HISTORY_ITERATIONS + 2), self.evaluated_iteration + 1)
        result = self._client.read(_OBJECTIVE, iterations % _RING, own=False)
        return {
            int(iteration): float(total / weight)
            for iteration, (total, weight) in zip(iterations, result, strict=True)
            if weight
        }

    def make_room(self) -> None:
        """Clear the row of a coming iteration; once an iteration, by one worker, at its first clock."""
        old = self.iteration(self._client.now) - HISTORY_ITERATIONS
        if old >= 0 and self.first_of_iteration:
            row = [old % _RING]
            self._client.update(_OBJECTIVE, row, -self._client.read(_OBJECTIVE, row, own=False))

    def stop_soon(self, criterion: Criterion) -> None:
        """Stop at the first clock that every worker begins with this in sight, because this is met."""
        now = self._client.now
        first = next(clock for clock in range(now + 1, now + _RING + 1) if self._client.rule.needs(clock) >= now)
        message = np.zeros((1, _RING), dtype=np.int64)
        message[0, now % _RING] = first * _CRITERIA + criterion
        self._client.update(_STOP, [0], message)

    def stops_at(self) -> tuple[int, Criterion] | None:
        """Return the first clock that is not to be done, if any worker set one, and which criterion was met."""
        message = self._client.read(_STOP, [0], own=False)
        if not (message > 0).any():
            return None
        clock, criterion = divmod(int(message[message > 0].min()), _CRITERIA)
        return clock, Criterion(criterion)
