"""Blocks: vectors of some rows of one table, as they travel and wait, and operations on several of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plink.elastic.tables import Values
from plink.runtime.elastic.arrays.array_pool import empty
from plink.runtime.elastic.arrays.layout import Indices, Rows, index, run_of, same_rows

_BLOCK_ELEMENTS = 1 << 16  # numbers
_ADVICE = {
    "float32": "smaller steps, or float64,",
    "float64": "smaller steps",
    "int32": "smaller numbers, or int64,",
    "int64": "smaller numbers",
}


class Overflow(ArithmeticError):
    """A sum that its type cannot hold; ``row`` is the first such row."""

    def __init__(self, row: int) -> None:
        super().__init__(f"row {row}")
        self.row = row


def no_room(dtype: str) -> str:
    """Return the end of a message about an overflow."""
    return f"more than {dtype} has room for ({_ADVICE[str(dtype)]} may help)"


def add(first: Values, second: Values, out: Values | None = None) -> Values:
    """Return the sums of two arrays, shape as both.

    :param out: where they go; this may be ``first``, but not ``second``. None: somewhere else.
    :raises Overflow: what is in ``out`` is of no use.
    """
    sums = empty(first.shape[0], first.shape[1], first.dtype) if out is None else out
    if sums.dtype.kind == "i":
        _add_whole(first, second, sums)
        return sums
    try:
        with np.errstate(over="raise", invalid="raise"):
            np.add(first, second, out=sums)
    except FloatingPointError:
        raise Overflow(_first(~np.isfinite(sums))) from None
    return sums


def add_at(values: Values, rows: Indices, added: Values) -> None:
    """Add vectors to rows of which some may come more than once.

    :raises Overflow: nothing has changed.
    """
    if values.dtype.kind == "i":
        _check_at(values, rows, added)
        np.add.at(values, rows, added)
        return
    before = values[rows]
    try:
        with np.errstate(over="raise", invalid="raise"):
            np.add.at(values, rows, added)
    except FloatingPointError:
        row = int(rows[_first(~np.isfinite(values[rows]))])
        values[rows] = before
        raise Overflow(row) from None


def _add_whole(first: Values, second: Values, sums: Values) -> None:
    """Add integers, and check for wrap-around."""
    block = max(1, _BLOCK_ELEMENTS // sums.shape[1])
    for start in range(0, len(sums), block):
        part = slice(start, start + block)
        more, now = second[part], np.add(first[part], second[part], out=sums[part])
        wrong = (now < now - more) != (more < 0)
        if wrong.any():
            raise Overflow(start + _first(wrong))


def _check_at(values: Values, rows: Indices, added: Values) -> None:
    """Check whether integers would wrap around; only where they may, sum them in a wider type."""
    room = np.iinfo(values.dtype)
    if _reach(values[rows]) + len(rows) * _reach(added) <= room.max:
        return
    wider: Any = np.int64 if room.bits < 64 else object
    each, which = np.unique(rows, return_inverse=True)
    sums = values[each].astype(wider)
    np.add.at(sums, which, added.astype(wider))
    wrong = (sums < room.min) | (sums > room.max)
    if wrong.any():
        raise Overflow(int(each[_first(wrong)]))


def _reach(numbers: Values) -> int:
    """Return the largest distance from 0."""
    return max(int(numbers.max()), -int(numbers.min()))


def _first(wrong: Any) -> int:
    """Return the first row in which something is wrong."""
    return int(np.flatnonzero(wrong.any(axis=1))[0])


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


def with_more(sums: Sequence[RowBlock], blocks: Iterable[RowBlock]) -> list[RowBlock]:
    """Return sums with what one more worker adds. :raises TooLarge: nothing has changed."""
    result = list(sums)
    for block in blocks:
        last = next((place for place in reversed(range(len(result))) if result[place].table == block.table), None)
        if last is not None and same_rows(result[last].rows, block.rows):
            result[last] = summed(result[last], block)
        else:
            result.append(block)
    return result
