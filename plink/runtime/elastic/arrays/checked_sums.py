"""Sums of vectors in the type of their table. One that the type has no room for is found: it would be an infinity, or
any number at all where integers are summed.

Floating-point units note that a sum was too large (IEEE 754, 7.4), and NumPy looks once an addition is done: it costs
nothing. Integers wrap around, and nobody notes it: then a sum is less than what something was added to, or more than
what something was taken from. What was summed is had back by taking it away again, block by block, within the caches.
"""

from typing import Any

import numpy as np

from plink.elastic.tables import Values
from plink.runtime.elastic.arrays.array_pool import empty
from plink.runtime.elastic.arrays.layout import Indices

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
