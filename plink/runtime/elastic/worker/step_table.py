"""Table of what workers have done: the steps of each shard, and how long a step takes each worker.

``plink.steps`` has a row for each shard. Whoever has a shard writes there, with every step, how many steps the shard
has had; and, in the row of its lowest shard, its number, how long a step takes it, and how many shards it has. All is
kept twice, by odd and even clocks: what was written at clock c - 1 stays until its worker has finished clock c, so one
who redoes clock c finds how it began.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from plink.elastic.tables import Table
from plink.runtime.elastic.worker.client import Client

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
