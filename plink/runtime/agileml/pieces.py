"""Vectors of some rows of one table, as they travel and wait, and what is done with several of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from plink.runtime.agileml.layout import Rows, Values, index, run_of, same_rows


@dataclass(frozen=True)
class Piece:
    """Vectors of some rows of one table: ``values`` has shape (len(rows), width)."""

    table: int
    rows: Rows
    values: Values


def add_to(values: Sequence[Values], pieces: Iterable[Piece]) -> None:
    for piece in pieces:
        values[piece.table][index(piece.rows)] += piece.values


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
