"""The files that `plink spot` reads, and values as it shows them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plink.errors import InputError, UsageError
from plink.terminal.screen import say

if TYPE_CHECKING:
    from plink.model.spot.price_files import Histories
    from plink.model.spot.prices import Prices

# The same in all commands: MARKET comes first, histories are behind --prices. Some work without one of them.
_MARKET = typer.Argument(
    metavar="MARKET",
    help="The market file (market.toml). Its table `application` defaults to start_s = 120, add_s = 30, evict_s = 60 "
    "(seconds).",
)
_PRICES = typer.Option("--prices", metavar="FILE", help="Price or availability histories; once for each file.")
MarketPath = Annotated[Path, _MARKET]
OptionalMarketPath = Annotated[Path | None, _MARKET]
PricePaths = Annotated[list[Path], _PRICES]
OptionalPricePaths = Annotated[list[Path] | None, _PRICES]


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
