"""The parameters as the work on one shard at one clock sees them: read-param and update-param (Harlap thesis, 2.2)."""

from typing import Protocol

import numpy as np

from plink.elastic.tables import Table, Values
from plink.errors import InputError, PlinkError


class Store(Protocol):
    """What :class:`Params` needs of a client."""

    def table(self, name: str) -> Table:
        """Return a table. :raises InputError: there is none of that name."""

    def read(self, table: str, rows: object, *, own: bool = True) -> Values:
        """Return vectors, with or without this worker's updates of this clock."""

    def update(self, table: str, rows: object, deltas: object) -> None:
        """Add to vectors."""


class Params:
    """Parameters of one call of :meth:`App.process`.

    ``random``: numbers that are the same wherever and however often this work is done.

    :param grain: of a shard that is cut into several; None: it has one.
    """

    def __init__(self, store: Store, seed: int, shard: int, clock: int, grain: int | None = None) -> None:
        self._store, self.shard, self.clock, self._grain = store, shard, clock, grain
        self.random = np.random.default_rng((seed, shard, clock) if grain is None else (seed, shard, clock, grain))
        self.failed: PlinkError | None = None  # the last one, also if the program caught it

    @property
    def location(self) -> str:
        """Return the location for messages: ``shard 3 at clock 2``."""
        return f"shard {self.shard}{'' if self._grain is None else f', grain {self._grain},'} at clock {self.clock}"

    @property
    def grain(self) -> int:
        """Return the grain's number within the shard, from 0."""
        return self._grain or 0

    def read(self, table: str, rows: object = None) -> Values:
        """Return vectors as they were before this clock (or, by the rule, a few clocks ago), shape (len(rows), width).

        :param rows: numbers in any order, also repeated; None: all. The array is the caller's.
        :raises InputError: no such table or rows.
        """
        try:
            return self._store.read(table, self._rows(table, rows), own=False)
        except PlinkError as error:
            self.failed = error
            raise

    def update(self, table: str, rows: object, deltas: object) -> None:
        """Add ``deltas``, shape (len(rows), width), to vectors; a repeated row is added to repeatedly.

        An overflow ends the job: of a number, of the sum of what one worker adds at a clock, and of the sum of what
        all workers added, which the servers find when the clock is over.

        :raises InputError: no such table or rows, another shape, or numbers that the table cannot hold.
        """
        try:
            self._store.update(table, self._rows(table, rows), _converted(self._store.table(table), deltas))
        except PlinkError as error:
            self.failed = error
            raise

    def _rows(self, table: str, rows: object) -> object:
        return np.arange(self._store.table(table).rows) if rows is None else rows


def _converted(table: Table, deltas: object) -> object:
    """Return the deltas in the table's type, if that is of the same kind; raise InputError for an overflow."""
    values, dtype = np.asarray(deltas), np.dtype(table.dtype)
    if values.dtype == dtype or not np.can_cast(values.dtype, dtype, "same_kind"):
        return values  # the cache says what is wrong
    if dtype.kind == "f":
        with np.errstate(over="ignore"):  # the cache rejects infinities
            return values.astype(dtype)
    if values.size and not np.iinfo(dtype).min <= values.min() <= values.max() <= np.iinfo(dtype).max:
        raise InputError(f"update of table {table.name!r}", f"numbers that {dtype} cannot hold")
    return values.astype(dtype)
