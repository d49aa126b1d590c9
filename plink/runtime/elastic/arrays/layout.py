"""Tables of vectors, cut once and for all into N partitions (Harlap thesis, 4.2.3: reassigned, never re-sharded)."""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from plink.elastic.app import RESERVED
from plink.elastic.optimisers import Optimiser
from plink.elastic.tables import Table
from plink.errors import InputError

Indices = npt.NDArray[np.integer[Any]]
# Rows of one partition: a run of neighbours, which needs no numbers, or numbers in strictly rising order.
Rows = range | Indices
Places = slice | Indices


@dataclass(frozen=True)
class Layout:
    """Position of every row: row r is in partition ``r mod N`` as its number ``r // N``.

    :ivar of_one_job: names of tables that another job, which goes on from a checkpoint, begins with zeros.
    :ivar optimisers: by the name of the table that it is for; its moments are among the tables.
    """

    tables: tuple[Table, ...]
    partitions: int
    of_one_job: tuple[str, ...] = ()
    optimisers: Mapping[str, Optimiser] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise InputError("layout", f"{self.partitions} partitions")
        names = [table.name for table in self.tables]
        if not names or len(set(names)) < len(names):
            raise InputError("layout", f"tables must have names of their own: {', '.join(names) or 'there are none'}")

    @cached_property
    def fingerprint(self) -> int:
        """Return 32 bits that are equal where tables and partitions are."""
        return zlib.crc32(repr((self.tables, self.partitions)).encode())

    @cached_property
    def reserved(self) -> frozenset[int]:
        """Return the numbers of plink's own tables."""
        return frozenset(number for number, table in enumerate(self.tables) if table.name.startswith(RESERVED))

    def table(self, name: str) -> int:
        """Return the number of a table. :raises InputError: there is none of that name."""
        for number, table in enumerate(self.tables):
            if table.name == name:
                return number
        raise InputError(
            f"table {name!r}", f"there is none of that name, only {', '.join(table.name for table in self.tables)}"
        )

    def rows_in(self, table: int, partition: int) -> int:
        """Return how many rows of a table a partition has."""
        return len(range(partition, self.tables[table].rows, self.partitions))

    def rows_of(self, partition: int, rows: Rows) -> Indices:
        """Return the numbers in their table of rows of a partition."""
        numbers = np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows.astype(np.int64)
        return numbers * self.partitions + partition

    def cut(self, rows: Indices) -> Iterator[tuple[int, Places, Rows]]:
        """Yield the partitions that hold some of the rows, each with the positions in ``rows`` and the numbers there.

        :param rows: of one table, in strictly rising order.
        """
        first, number = int(rows[0]) if len(rows) else 0, self.partitions
        if len(rows) and int(rows[-1]) - first + 1 == len(rows):  # neighbours stay neighbours: nothing to look up
            for start in range(min(number, len(rows))):
                local = (first + start) // number
                count = len(range(start, len(rows), number))
                yield (first + start) % number, slice(start, None, number), range(local, local + count)
            return
        primaries = rows % number
        for partition in np.unique(primaries):
            places = np.flatnonzero(primaries == partition)
            yield int(partition), places, run_of((rows[places] // number).astype(np.uint32))


def run_of(rows: Indices) -> Rows:
    """Return the same rows, as a range where they are neighbours; they rise strictly."""
    if len(rows) and int(rows[-1]) - int(rows[0]) + 1 == len(rows):
        return range(int(rows[0]), int(rows[-1]) + 1)
    return rows


def index(rows: Rows) -> Places:
    """Return what to index the vectors of a partition with; a range costs no copy."""
    return slice(rows.start, rows.stop) if isinstance(rows, range) else rows


def rising(rows: Indices) -> bool:
    """Return whether every row is above the one before."""
    return len(rows) < 2 or bool((rows[1:] > rows[:-1]).all())


def same_rows(first: Rows, second: Rows) -> bool:
    """Return whether both name the same rows in the same form."""
    if isinstance(first, range) or isinstance(second, range):
        return isinstance(first, range) and isinstance(second, range) and first == second
    return len(first) == len(second) and bool((first == second).all())
