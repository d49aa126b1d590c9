"""Vectors of some rows of one table, as they travel and wait, and what is done with several of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from plink.elastic.tables import Values
from plink.runtime.agileml.arrays.checked_sums import Overflow, add
from plink.runtime.agileml.arrays.layout import Rows, index, run_of, same_rows


@dataclass(frozen=True)
class Piece:
    """Vectors of some rows of one table: ``values`` has shape (len(rows), width)."""

    table: int
    rows: Rows
    values: Values


class TooLarge(ArithmeticError):
    """A sum that the type of a table has no room for; ``row`` is numbered as in the pieces."""

    def __init__(self, piece: Piece, place: int) -> None:
        self.table, self.row = piece.table, int(piece.rows[place])
        super().__init__(f"table {self.table}, row {self.row}")


def summed(first: Piece, second: Piece) -> Piece:
    """Of two that have the same rows, which stay as they are. :raises TooLarge: some sum is."""
    try:
        return Piece(first.table, first.rows, add(first.values, second.values))
    except Overflow as error:
        raise TooLarge(first, error.row) from None


def add_to(values: Sequence[Values], pieces: Iterable[Piece]) -> None:
    """One after the other. :raises TooLarge: some sum is, and what the values are now is of no use."""
    for piece in pieces:
        result = values[piece.table][index(piece.rows)]
        try:
            add(result, piece.values, out=result)
        except Overflow as error:
            raise TooLarge(piece, error.row) from None
        if not isinstance(piece.rows, range):  # these were a copy
            values[piece.table][piece.rows] = result


def put(values: Sequence[Values], pieces: Iterable[Piece]) -> None:
    """In the place of what was there."""
    for piece in pieces:
        values[piece.table][index(piece.rows)] = piece.values


def touched(pieces: Iterable[Piece]) -> list[tuple[int, Rows]]:
    """The rows that some pieces name, each once, by table."""
    by_table: dict[int, list[Rows]] = {}
    for piece in pieces:
        by_table.setdefault(piece.table, []).append(piece.rows)
    return [(table, _union(rows)) for table, rows in sorted(by_table.items())]


def _union(all_rows: Sequence[Rows]) -> Rows:
    if all(same_rows(rows, all_rows[0]) for rows in all_rows[1:]):
        return all_rows[0]
    return run_of(np.unique(np.concatenate([np.asarray(rows, dtype=np.uint32) for rows in all_rows])))
