"""The parameters as the work on one piece at one clock sees them: read-param and update-param (Harlap thesis, 2.2)."""

from typing import Protocol

import numpy as np

from plink.errors import InputError, PlinkError
from plink.runtime.agileml.layout import Layout, Table, Values


class Store(Protocol):
    """What is asked of a client."""

    layout: Layout

    def read(self, table: str, rows: object, *, own: bool = True) -> Values:
        """Vectors, with or without one's own additions of this clock."""

    def update(self, table: str, rows: object, deltas: object) -> None:
        """Add to vectors."""


class Params:
    """Of one call. ``random``: numbers that are the same wherever and however often this is done.

    :param grain: of a piece that is worked on in several; None: it has but one.
    """

    def __init__(self, store: Store, seed: int, piece: int, clock: int, grain: int | None = None) -> None:
        self._store, self.piece, self.clock, self._grain = store, piece, clock, grain
        self.random = np.random.default_rng((seed, piece, clock) if grain is None else (seed, piece, clock, grain))
        self.failed: PlinkError | None = None  # the last, should the program have swallowed it

    @property
    def where(self) -> str:
        """For messages: ``piece 3 at clock 2``."""
        return f"piece {self.piece}{'' if self._grain is None else f', grain {self._grain},'} at clock {self.clock}"

    @property
    def grain(self) -> int:
        """Of the piece, from 0."""
        return self._grain or 0

    def read(self, table: str, rows: object = None) -> Values:
        """Vectors as they were before this clock (or, by the rule, a few clocks ago), shape (len(rows), width).

        :param rows: numbers in any order, of which some may come twice; None: all. The array is the caller's.
        :raises InputError: no such table or rows.
        """
        try:
            return self._store.read(table, self._rows(table, rows), own=False)
        except PlinkError as error:
            self.failed = error
            raise

    def update(self, table: str, rows: object, deltas: object) -> None:
        """Add ``deltas``, shape (len(rows), width), to vectors; a row that comes twice is added to twice.

        What cannot be held ends the job: a number, a sum of what one worker adds at a clock, and, found by the servers
        when the clock is over, a sum of what all have added, neither an infinity nor an integer that wrapped around.

        :raises InputError: no such table or rows, another shape, or numbers that the table cannot hold.
        """
        try:
            number = self._store.layout.table(table)
            fitting = _fitting(self._store.layout.tables[number], deltas)
            self._store.update(table, self._rows(table, rows), fitting)
        except PlinkError as error:
            self.failed = error
            raise

    def _rows(self, table: str, rows: object) -> object:
        layout = self._store.layout
        return np.arange(layout.tables[layout.table(table)].rows) if rows is None else rows


def _fitting(table: Table, deltas: object) -> object:
    """In the table's type, if that is of the same kind; what does not fit a narrower one is refused."""
    found, wanted = np.asarray(deltas), np.dtype(table.dtype)
    if found.dtype == wanted or not np.can_cast(found.dtype, wanted, "same_kind"):
        return found  # the cache says what is wrong
    if wanted.kind == "f":
        with np.errstate(over="ignore"):  # an infinity is refused by the cache
            return found.astype(wanted)
    if found.size and not np.iinfo(wanted).min <= found.min() <= found.max() <= np.iinfo(wanted).max:
        raise InputError(f"update of table {table.name!r}", f"numbers that {wanted} cannot hold")
    return found.astype(wanted)
