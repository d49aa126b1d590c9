"""Tables without borders, on standard output."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from plink.errors import printable


def show_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows below their columns, a line each, numbers to the right."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=200)
    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        cells = [str(row[number]) for row in rows]
        is_text = any(cell[:1].isalpha() for cell in cells)
        table.add_column(column, justify="left" if is_text else "right")
    for row in rows:
        table.add_row(*(printable(str(cell)) for cell in row))
    console.print(table)
