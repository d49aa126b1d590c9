"""The files that `plink spot` reads, and tables as it shows them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plink.cli.screen import say
from plink.errors import InputError, UsageError

if TYPE_CHECKING:
    from plink.model.spot.price_files import Histories
    from plink.model.spot.prices import Prices


def histories_from(files: Sequence[Path]) -> "Histories":
    """Read price and availability histories; say what was left out.

    :raises InputError: as the reader.
    """
    from plink.model.spot.price_files import read_histories

    histories = read_histories(files)
    for note in histories.notes:
        say(note)
    return histories


def need_prices(histories: "Histories", files: Sequence[Path]) -> "Prices":
    """Return the price histories.

    :raises InputError: when there are availability histories only.
    """
    if not histories.prices:
        raise InputError(", ".join(map(str, files)), "no prices in it; availability alone says nothing about costs")
    return histories.prices


def parse_time(text: str, option: str) -> float:
    """Return seconds since 1970 of a date or time; without a time zone it is UTC.

    :raises UsageError: naming the option.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option} {text}: write a date or time like 2016-06-11 or 2016-06-11T12:00Z") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def utc(time: float) -> str:
    """Return a time for a person, in UTC."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M")


def finite(value: float) -> float | None:
    """Return a number for JSON; None where it is infinite or unknown."""
    return value if value == value and abs(value) != float("inf") else None


def show_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows below their columns, numbers to the right."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=200)
    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        cells = [str(row[number]) for row in rows]
        is_text = any(cell[:1].isalpha() for cell in cells)
        table.add_column(column, justify="left" if is_text else "right")
    for row in rows:
        table.add_row(*map(str, row))
    console.print(table)
