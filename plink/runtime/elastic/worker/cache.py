"""Cache of one table in a client: vectors it was given, and its own additions that are not sent yet.

Both are arrays of the size of the table; memory that was never touched costs nothing, the system gives it on first use.
"""

from collections.abc import Sequence

import numpy as np

from plink.elastic.tables import Table, Values
from plink.errors import InputError
from plink.runtime.elastic.arrays.array_pool import copied
from plink.runtime.elastic.arrays.layout import Indices, Layout, Places, rising
from plink.runtime.elastic.arrays.row_blocks import Overflow, RowBlock, add, add_at

_NONE = np.iinfo(np.int64).min


class Cache:
    """Cache of one table; for one thread."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._fetched: Values = np.zeros((table.rows, table.width), dtype=table.dtype)
        self._state = np.full(table.rows, _NONE)  # the clock of the state that a row was given from
        self._added: Values = np.zeros((table.rows, table.width), dtype=table.dtype)
        self._touched = np.zeros(table.rows, dtype=bool)
        self._read = np.zeros(table.rows, dtype=bool)  # at this clock
        self._read_before = np.zeros(table.rows, dtype=bool)  # at the one before

    def rows(self, rows: object) -> Indices:
        """Return row numbers as an array. :raises InputError: they are none, or not of this table."""
        result = np.asarray(rows)
        if result.ndim != 1 or (len(result) and result.dtype.kind not in "iu"):
            raise InputError(f"table {self.table.name!r}", f"rows of shape {result.shape} and type {result.dtype}")
        result = result.astype(np.int64, copy=False)
        if len(result) == 1:
            least = most = int(result[0])
        elif len(result):
            least, most = int(result.min()), int(result.max())
        else:
            return result
        if not 0 <= least <= most < self.table.rows:
            raise InputError(f"table {self.table.name!r}", f"rows {least} to {most}, it has {self.table.rows}")
        return result

    def missing(self, rows: Indices, least: int) -> Indices:
        """Return the rows that must be fetched before they may be read, as the state of clock ``least`` or a later one;
        each once, rising."""
        if len(rows) == 1:  # as fast as it can be: nothing is looked up that often
            return rows[:0] if self._state[rows[0]] >= least else rows
        requested = rows[self._state[rows] < least]
        return requested if rising(requested) else np.unique(requested)

    def give(self, rows: Indices, values: Values, state: int) -> None:
        """Keep vectors of the state of a clock, shape (len(rows), width)."""
        places = _places(rows)
        self._fetched[places] = values
        self._state[places] = state

    def fetched(self, rows: Indices) -> Values:
        """Return copies of the vectors without what was added at this clock, shape (len(rows), width)."""
        places = _places(rows)
        self._read[places] = True
        return copied(self._fetched, places, len(rows))

    def read(self, rows: Indices) -> Values:
        """Return copies of the vectors with one's own additions, shape (len(rows), width).

        :raises Overflow: some are too large.
        """
        places = _places(rows)
        self._read[places] = True
        result = copied(self._fetched, places, len(rows))
        own = self._touched[places]
        if own.any():
            if own.all():
                _sums(rows, result, self._added[places], out=result)
            else:
                result[own] = _sums(rows[own], result[own], self._added[rows[own]])
        return result

    def add(self, rows: Indices, deltas: object) -> None:
        """Add deltas, shape (len(rows), width); a row may come more than once.

        :raises InputError: another shape or kind of number, numbers that the table's type has no room for, or that
            are none. Floats are rounded to the table's.
        :raises Overflow: with what was added before there is a sum that it has no room for. Nothing was added then.
        """
        result, location = np.asarray(deltas), f"update of table {self.table.name!r}"
        if result.shape != (len(rows), self.table.width):
            raise InputError(location, f"shape {result.shape}, which must be {(len(rows), self.table.width)}")
        result = self._as_the_table(result, location)
        places = _places(rows)
        once = isinstance(places, slice) or rising(rows)
        if once and not self._touched[places].any():
            self._added[places] = result  # what was there is of a clock that is over
        else:
            fresh = rows[~self._touched[rows]]
            self._added[fresh] = 0
            if once:
                self._added[places] = _sums(rows, self._added[places], result)
            else:
                add_at(self._added, rows, result)
        self._touched[places] = True

    def _as_the_table(self, result: Values, location: str) -> Values:
        """Convert to the table's type, which must hold every number."""
        kind = np.dtype(self.table.dtype)
        if not np.can_cast(result.dtype, kind, "same_kind"):
            raise InputError(location, f"type {result.dtype}, the table has {kind}")
        if kind.kind == "i" and result.size and not np.can_cast(result.dtype, kind):
            least, most = int(result.min()), int(result.max())
            if least < np.iinfo(kind).min or most > np.iinfo(kind).max:
                raise InputError(location, f"numbers from {least} to {most}, for which {kind} has no room")
        with np.errstate(over="ignore"):  # checked below
            cast: Values = result.astype(kind, copy=False)
            # One pass: the sum is no number if any is none (or overflows, which is no better).
            if kind.kind == "f" and not np.isfinite(cast.sum()) and not np.isfinite(cast).all():
                raise InputError(location, f"it has infinities or numbers that are none (NaN) in {kind}")
        return cast

    def added_to(self) -> Indices:
        """Return the rows that were added to, rising."""
        return np.flatnonzero(self._touched)

    def added(self, rows: Indices) -> Values:
        """Return copies of the sums of what was added to some rows, shape (len(rows), width)."""
        return copied(self._added, _places(rows), len(rows))

    def sent(self, least: int) -> None:
        """Note that all additions are sent. What may be read at the next clock without a request, as it is of the state
        of ``least`` or a later one, includes one's own. Where that is too large the servers are asked: they have what
        others took away, or report that it is."""
        rows = self.added_to()
        remaining = rows[self._state[rows] >= least]
        try:
            self._fetched[remaining] = add(self._fetched[remaining], self._added[remaining])
        except Overflow:
            self._state[remaining] = _NONE
        self._touched[rows] = False

    def expected(self, least: int) -> Indices:
        """End a clock, and return the rows that the next one will probably fetch, rising: those that this one and the
        one before have read, unless they are of the state of clock ``least`` or a later one."""
        both = self._read & self._read_before & (self._state < least)
        self._read, self._read_before = self._read_before, self._read
        self._read[:] = False
        return np.flatnonzero(both)

    def discard(self) -> None:
        """Discard additions that were not sent."""
        self._touched[:] = False

    def forget_fetched(self) -> None:
        """Fetch everything anew when it is read next."""
        self._state[:] = _NONE

    def forget(self) -> None:
        """Forget everything: what was fetched and what was not sent."""
        self.forget_fetched()
        self.discard()


def added_blocks(layout: Layout, caches: Sequence[Cache]) -> dict[int, tuple[RowBlock, ...]]:
    """Return what was added to the caches of all tables, by partition."""
    blocks: dict[int, tuple[RowBlock, ...]] = {}
    for table, cache in enumerate(caches):
        rows = cache.added_to()
        for partition, where, local in layout.cut(rows):
            blocks[partition] = (*blocks.get(partition, ()), RowBlock(table, local, cache.added(rows[where])))
    return blocks


def _sums(rows: Indices, first: Values, second: Values, out: Values | None = None) -> Values:
    """Return sums of these rows of a table. :raises Overflow: of a row of the table."""
    try:
        return add(first, second, out)
    except Overflow as error:
        raise Overflow(int(rows[error.row])) from None


def _places(rows: Indices) -> Places:
    """Return a slice where the rows are evenly spaced and rise, as all of a partition are: several times as fast."""
    if len(rows) > 1:
        step = int(rows[1]) - int(rows[0])
        if step > 0 and int(rows[-1]) - int(rows[0]) == step * (len(rows) - 1) and bool((np.diff(rows) == step).all()):
            return slice(int(rows[0]), int(rows[-1]) + 1, step)
    elif len(rows):
        return slice(int(rows[0]), int(rows[0]) + 1)
    return rows
