"""Read price and availability histories from files.

Prices: ``plink.spot-prices/1``; what ``aws ec2 describe-spot-price-history`` prints as JSON (one page or several,
newest first) or as text, also what ``--query`` left of it; CSV, separated by commas, semicolons or tabs, with columns
for zone, type, timestamp and price, and product where there are several.
"""

import csv
import math
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from plink.errors import InputError, UsageError
from plink.model.codec import decode
from plink.model.document import UNSET, Document, Unset
from plink.model.spot.prices import (
    LINUX,
    AvailabilityTrace,
    Currency,
    Floats,
    Instant,
    Market,
    OfMarket,
    Price,
    Prices,
    PriceTrace,
    availability_from_json,
    is_availability,
)
from plink.model.storage import json_values, name_of, read_text
from plink.model.types import Name
from plink.model.units import format_moment, parse_moment

MIN_HOLE_S = 12 * 3600.0
# A gap in all markets is a hole where this many changes were due in it: no chance, even if they come in bursts.
MIN_MISSED_CHANGES = 40
_MAX_SHOWN_CHARACTERS = 40
_MAX_TIME_S = 1e11
# Titles of columns and keys in lower case, letters alone; of several the first one counts.
_TITLES = {
    "zone": ("availabilityzone", "zone", "az", "zonename", "availabilityzoneid", "region", "armregionname", "location"),
    "type": ("instancetype", "type", "instance", "machinetype", "vmsize", "sku", "armskuname", "flavor", "size"),
    "time": ("timestamp", "time", "date", "datetime", "effectivetime", "effectivestartdate", "ts", "start"),
    "price": ("spotprice", "price", "hourlyprice", "priceperhour", "usdperhour", "unitprice", "retailprice", "cost"),
    "product": ("productdescription", "product", "os", "platform", "operatingsystem"),
    "currency": ("currency", "currencycode"),
}
_AWS_KEYS = {"zone": "AvailabilityZone", "type": "InstanceType", "time": "Timestamp", "price": "SpotPrice"}
_DATE = re.compile(r"^\d{4}-\d\d-\d\d")
_PRODUCT = re.compile(r"linux|unix|windows", re.IGNORECASE)
_ZONE = re.compile(r"[a-z]+(-[a-z]+)+-?\d+(-?[a-z])?|[a-z]+\d-az\d+")


class MarketPrices(OfMarket, frozen=True, kw_only=True):
    """The history of one market."""

    product: Name
    """The operating system that the price is for."""
    times_s: Annotated[tuple[Instant, ...], Meta(min_length=1)]
    """When the price changed, seconds since 1970-01-01 UTC, increasing."""
    prices: Annotated[tuple[Price, ...], Meta(min_length=1)]
    """Money per instance and hour, from that time until the next."""
    until_s: Instant
    """The end of what is known."""
    holes_s: tuple[tuple[Instant, Instant], ...] | Unset = UNSET
    """From, to: times without prices. Each ends at one of `times_s`."""


class SpotPrices(Document, frozen=True, kw_only=True, tag="plink.spot-prices/1"):
    """Price histories of transient machines.

    Written by `plink spot read -o FILE`, read by all of `plink spot`.
    """

    currency: Currency
    """Of all prices."""
    markets: tuple[MarketPrices, ...]
    """One entry for each type, zone and product."""
    made: str | Unset = UNSET
    """How the prices were made, where they are not of a provider."""


@dataclass(frozen=True)
class Histories:
    """What files say about markets. ``notes``: what was left out or joined; ``currency``: of all prices; ``made``: how
    they were made, where they are not of a provider."""

    prices: Prices = field(default_factory=dict)
    availability: dict[Market, AvailabilityTrace] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    currency: str = "USD"
    made: str = ""

    def document(self) -> SpotPrices:
        """Return the prices as a document."""
        return SpotPrices(
            currency=self.currency,
            made=self.made or UNSET,
            markets=tuple(
                MarketPrices(
                    zone=market.zone,
                    type=market.type,
                    product=market.product,
                    times_s=tuple(trace.times.tolist()),
                    prices=tuple(trace.prices.tolist()),
                    until_s=trace.until,
                    holes_s=trace.holes or UNSET,
                )
                for market, trace in sorted(self.prices.items(), key=operator.itemgetter(0))
            ),
        )


@dataclass
class _Rows:
    """Prices as they were read: by market (seconds, price), in the files' sequence."""

    by_market: dict[Market, list[tuple[float, float]]] = field(default_factory=dict)
    currency: str | None = None
    until: float = 0.0

    def add(self, market: Market, time: float, price: float) -> None:
        """Take one price."""
        self.by_market.setdefault(market, []).append((time, price))

    def set_currency(self, currency: str, location: str) -> None:
        """Check that all prices are in one currency.

        :raises InputError: for a second one.
        """
        if self.currency not in (None, currency):
            raise InputError(location, f"prices in {currency}, after others in {self.currency}; convert them first")
        self.currency = currency


def read_spot_histories(paths: str | Path | Iterable[str | Path]) -> Histories:
    """Read all files together: pages of one listing, or several markets.

    :raises InputError: when a file cannot be read, has no prices, or one of them cannot be; names the entry.
    """
    paths = [paths] if isinstance(paths, str | Path) else list(paths)
    rows = _Rows()
    complete: Prices = {}
    availability: dict[Market, AvailabilityTrace] = {}
    for path in paths:
        location, text = name_of(path), read_text(path)
        if text.lstrip()[:1] not in ("{", "["):
            _read_lines(text, location, rows)
            continue
        for number, document in enumerate(json_values(text, location)):
            at = location if not number else f"{location} (document {number + 1})"
            if is_availability(document):
                availability.update(availability_from_json(document, at))
            elif isinstance(document, dict) and "schema" in document:
                complete.update(_from_document(document, at, rows))
            else:
                _read_aws(document, at, rows)
    prices, joined = _joined(rows)
    if both := prices.keys() & complete.keys():
        raise InputError(str(min(both)), "two files have prices of this market, in two formats; give one of them")
    if not prices and not complete and not availability:
        raise InputError(", ".join(name_of(path) for path in paths) or "no files", "no prices in it")
    return Histories(complete | prices, availability, tuple(joined), rows.currency or "USD")


def _from_document(document: dict[str, Any], location: str, rows: _Rows) -> Iterator[tuple[Market, PriceTrace]]:
    checked = decode(SpotPrices, document, location)
    rows.set_currency(checked.currency, f"{location}: currency")
    markets: set[Market] = set()
    for number, entry in enumerate(checked.markets):
        market, at = Market(entry.zone, entry.type, entry.product), f"{location}: markets[{number}]"
        times, prices = np.array(entry.times_s, dtype=float), np.array(entry.prices, dtype=float)
        holes = () if entry.holes_s is UNSET else entry.holes_s
        if market in markets:
            raise InputError(at, f"{market} was there before")
        if len(times) != len(prices):
            raise InputError(at, f"{len(times)} times_s and {len(prices)} prices; give one price for each time")
        if np.any(np.diff(times) <= 0):
            place = int(np.argmax(np.diff(times) <= 0)) + 1
            raise InputError(f"{at}.times_s[{place}]", "times must increase")
        if entry.until_s < times[-1]:
            raise InputError(f"{at}.until_s", "is before the last of times_s")
        edges = [edge for hole in holes for edge in hole]
        if edges != sorted(set(edges)) or not {b for _, b in holes} <= set(times.tolist()):
            raise InputError(f"{at}.holes_s", "holes follow each other, and each ends at one of times_s")
        if any(np.any((times > a) & (times < b)) for a, b in holes) or (edges and edges[0] < times[0]):
            raise InputError(f"{at}.holes_s", "a hole has no prices in it")
        markets.add(market)
        yield market, PriceTrace(times, prices, entry.until_s, holes)


def _read_aws(document: Any, location: str, rows: _Rows) -> None:
    """Take the entries of one page, or what ``--query`` left of them: objects or lists."""
    entries, key = document, ""
    if isinstance(document, dict):
        key = "SpotPriceHistory"
        columns = _columns([*document])
        entries = [document] if "price" in columns else document.get(key)
    if not isinstance(entries, list):
        raise InputError(location, 'no price history: expected "schema", "SpotPriceHistory" or "metadata" in it')
    guessed: dict[str, int] | None = None
    for number, entry in enumerate(entries):
        at = f"{location}: {key}[{number}]"
        if isinstance(entry, dict):
            names = [*entry]
            columns = _columns(names)
            if missing := [quantity for quantity in _AWS_KEYS if quantity not in columns]:
                there = f"; there are {', '.join(names)[:80]}" if names else ""
                raise InputError(f"{at}.{_AWS_KEYS[missing[0]]}", f"is missing{there}")
            _add(rows, {quantity: (entry[names[k]], f"{at}.{names[k]}") for quantity, k in columns.items()}, at)
        elif isinstance(entry, list):
            guessed = guessed or _guessed_columns([str(cell) for cell in entry])
            if guessed is None or len(entry) <= max(guessed.values()):
                raise InputError(at, "expected a zone, a type, a time and a price")
            _add(rows, {quantity: (entry[k], f"{at}[{k}]") for quantity, k in guessed.items()}, at)
        else:
            raise InputError(at, "expected an object")


def _read_lines(text: str, location: str, rows: _Rows) -> None:
    """Take the lines of ``aws --output text`` or of CSV, whose columns are told by titles or by what is in them."""
    lines = text.splitlines()
    if any(line.startswith("SPOTPRICEHISTORY\t") for line in lines):
        lines = [line.partition("\t")[2] if line.startswith("SPOTPRICEHISTORY\t") else "" for line in lines]
    first = next(filter(str.strip, lines), "")
    delimiter = next((character for character in "\t;," if character in first), None)
    table: Iterable[list[str]] = map(str.split, lines) if delimiter is None else csv.reader(lines, delimiter=delimiter)
    columns: dict[str, int] | None = None
    for number, cells in enumerate(table, start=1):
        if not any(cell.strip() for cell in cells):
            continue
        at = f"{location}:{number}"
        if columns is None:
            columns = _columns(cells)
            if missing := [quantity for quantity in _AWS_KEYS if quantity not in columns]:
                if len(missing) < 3:
                    there = ", ".join(cells)[:80]
                    raise InputError(
                        at, f"no column of the {missing[0]}; call it {_TITLES[missing[0]][0]}; there are {there}"
                    )
                columns = _guessed_columns([cell.strip() for cell in cells])
            else:
                continue
        if columns is None:
            reason = "not a price history: expected JSON, or CSV with the columns zone,type,timestamp,price"
            raise InputError(at, reason)
        width = 1 + max(columns.values())
        if len(cells) < width:
            raise InputError(at, f"{width} columns were expected, this line has {len(cells)}")
        _add(rows, {quantity: (cells[k].strip(), at) for quantity, k in columns.items()}, at)


def _columns(titles: Sequence[str]) -> dict[str, int]:
    """Return which column or key each title is; empty fields are left out."""
    plain = ["".join(filter(str.isalpha, title.lower())) for title in titles]
    present = {quantity: [name for name in names if name in plain] for quantity, names in _TITLES.items()}
    return {quantity: plain.index(names[0]) for quantity, names in present.items() if names}


def _guessed_columns(cells: Sequence[str]) -> dict[str, int] | None:
    """Return what each cell of a line without titles is, by what is in it; None where that cannot be told."""
    rest = list(range(len(cells)))
    columns: dict[str, int] = {}
    for quantity, pattern in (("time", _DATE), ("product", _PRODUCT)):
        if matches := [k for k in rest if pattern.search(cells[k])]:
            columns[quantity] = matches[0]
            rest.remove(matches[0])
    prices = [k for k in rest if _is_number(cells[k])]
    if "time" not in columns and len(cells) == 4 and not cells[3].isalpha():
        return {"zone": 0, "type": 1, "time": 2, "price": 3}
    if "time" not in columns or len(prices) != 1 or len(rest) != 3:
        return None
    rest.remove(prices[0])
    is_type_first = "." in cells[rest[0]] or (_ZONE.fullmatch(cells[rest[1]]) and not _ZONE.fullmatch(cells[rest[0]]))
    kind, zone = rest if is_type_first else rest[::-1]
    return {**columns, "price": prices[0], "zone": zone, "type": kind}


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _add(rows: _Rows, fields: Mapping[str, tuple[Any, str]], location: str) -> None:
    """Take a price; ``fields``: value and place of each."""
    for quantity in ("zone", "type", "product", "currency"):
        value, at = fields.get(quantity, ("", ""))
        if not isinstance(value, str):
            raise InputError(at, "expected text")
    if not fields["zone"][0] or not fields["type"][0]:
        raise InputError(location, "zone and type are needed in each line")
    if currency := fields.get("currency", ("",))[0]:
        rows.set_currency(currency, fields["currency"][1])
    market = Market(fields["zone"][0], fields["type"][0], fields.get("product", ("",))[0] or LINUX)
    rows.add(market, _time(*fields["time"]), _price(*fields["price"]))


def _time(value: Any, location: str) -> float:
    """Return seconds since 1970; without a time zone it is UTC."""
    time: float | None = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        time = float(value) if 0 <= value < _MAX_TIME_S else None  # an integer may be larger than any float
    elif isinstance(value, str):
        try:
            time = parse_moment(value.strip())
        except UsageError:
            try:
                time = float(value)
            except ValueError:
                time = None
    if time is None or not 0 <= time < _MAX_TIME_S:
        raise InputError(location, f"expected a time like 2016-06-11T00:00:01Z, got {_shown(value)}")
    return time


def _price(value: Any, location: str) -> float:
    try:
        price = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        price = math.nan
    if not 0 < price < 1e9:
        raise InputError(location, f"expected a price above 0 and below 1e9, like 0.0311, got {_shown(value)}")
    return price


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(value)[:_MAX_SHOWN_CHARACTERS]


def _joined(rows: _Rows) -> tuple[Prices, list[str]]:
    """Sort what was read, without what is there twice, and find holes; say so."""
    if not rows.by_market:
        return {}, []
    columns: dict[Market, tuple[Floats, Floats]] = {}
    repeated = contradicted = 0
    for market, pairs in rows.by_market.items():
        newest_first = pairs[0][0] > pairs[-1][0]
        pairs = pairs[::-1] if newest_first else pairs
        unique = list(dict.fromkeys(pairs))
        repeated += len(pairs) - len(unique)
        at = dict(sorted(unique, key=operator.itemgetter(0)))  # of equal times the later line counts
        contradicted += len(unique) - len(at)
        columns[market] = (np.fromiter(at, dtype=float), np.fromiter(at.values(), dtype=float))
    notes = [f"prices that are there twice and count once: {repeated}"] if repeated else []
    if contradicted:
        notes.append(f"prices with the time of another one of their market (the later line counts): {contradicted}")
    changes = np.unique(np.concatenate([times for times, _ in columns.values()]))
    gaps = holes_in(changes)
    for begin, end in gaps:
        notes.append(
            f"no prices of any market for {(end - begin) / 3600:.0f} h from {format_moment(begin)} UTC: a hole"
        )
    until = float(changes[-1])
    return {market: _trace(times, prices, gaps, until) for market, (times, prices) in columns.items()}, notes


def holes_in(changes: Floats) -> list[tuple[float, float]]:
    """Return the gaps in which prices are missing, by the times at which any market changed, shape (C,), increasing.

    Long gaps alone are none: quiet markets have them. Here many changes were due, by the rate outside of the gap.
    """
    gaps = np.diff(changes)
    total = float(gaps.sum())
    holes = []
    for place in np.flatnonzero(gaps >= MIN_HOLE_S):
        outside = total - gaps[place]
        if outside > 0 and gaps[place] * (len(gaps) - 1) / outside >= MIN_MISSED_CHANGES:
            holes.append((float(changes[place]), float(changes[place + 1])))
    return holes


def _trace(times: Floats, prices: Floats, gaps: Iterable[tuple[float, float]], until: float) -> PriceTrace:
    """Return the history of one market: after a gap its price is not known before its own next change."""
    holes: list[tuple[float, float]] = []
    for begin, end in gaps:
        if times[0] > begin or (holes and holes[-1][1] > begin):
            continue
        following = times[times >= end]
        if not len(following):
            return PriceTrace(times, prices, begin, tuple(holes))
        holes.append((begin, float(following[0])))
    return PriceTrace(times, prices, until, tuple(holes))
