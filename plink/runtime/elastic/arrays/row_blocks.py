"""Vectors of some rows of one table, as they travel and wait, and what is done with several of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from plink.elastic.tables import Values
from plink.runtime.elastic.arrays.checked_sums import Overflow, add
from plink.runtime.elastic.arrays.layout import Rows, index, run_of, same_rows


@dataclass(frozen=True)
class RowBlock:
    """Vectors of some rows of one table: ``values`` has shape (len(rows), width)."""

    table: int
    rows: Rows
    values: Values


class TooLarge(ArithmeticError):
    """A sum that the type of a table cannot hold; ``row`` is numbered as in the blocks."""

    def __init__(self, block: RowBlock, place: int) -> None:
        self.table, self.row = block.table, int(block.rows[place])
        super().__init__(f"table {self.table}, row {self.row}")


def summed(first: RowBlock, second: RowBlock) -> RowBlock:
    """Return the sum of two blocks of the same rows, without changing them. :raises TooLarge: some sum is."""
    try:
        return RowBlock(first.table, first.rows, add(first.values, second.values))
    except Overflow as error:
        raise TooLarge(first, error.row) from None


def total(first: RowBlock, second: RowBlock) -> RowBlock:
    """Return the sum of two blocks of one table, whatever their rows. :raises TooLarge: some sum is."""
    if same_rows(first.rows, second.rows):
        return summed(first, second)
    ((_, rows),) = touched((first, second))
    result = RowBlock(first.table, rows, np.zeros((len(rows), first.values.shape[1]), first.values.dtype))
    for block in (first, second):
        places = np.searchsorted(np.asarray(rows), np.asarray(block.rows))
        part = summed(RowBlock(block.table, block.rows, result.values[places]), block)
        result.values[places] = part.values
    return result


def add_to(values: Sequence[Values] | Mapping[int, Values], blocks: Iterable[RowBlock]) -> None:
    """Add blocks to the values of their tables, by number, one after the other.

    :raises TooLarge: some sum is, and what the values are now is of no use.
    """
    for block in blocks:
        result = values[block.table][index(block.rows)]
        try:
            add(result, block.values, out=result)
        except Overflow as error:
            raise TooLarge(block, error.row) from None
        if not isinstance(block.rows, range):  # these were a copy
            values[block.table][block.rows] = result


def put(values: Sequence[Values], blocks: Iterable[RowBlock]) -> None:
    """Overwrite rows with those of the blocks."""
    for block in blocks:
        values[block.table][index(block.rows)] = block.values


def touched(blocks: Iterable[RowBlock]) -> list[tuple[int, Rows]]:
    """Return the rows that some blocks name, each once, by table."""
    by_table: dict[int, list[Rows]] = {}
    for block in blocks:
        by_table.setdefault(block.table, []).append(block.rows)
    return [(table, _union(rows)) for table, rows in sorted(by_table.items())]


def _union(all_rows: Sequence[Rows]) -> Rows:
    if all(same_rows(rows, all_rows[0]) for rows in all_rows[1:]):
        return all_rows[0]
    return run_of(np.unique(np.concatenate([np.asarray(rows, dtype=np.uint32) for rows in all_rows])))
