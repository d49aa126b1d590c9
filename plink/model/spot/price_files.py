"""Read price and availability histories from files.

Prices: ``plink.spot-prices/1``; what ``aws ec2 describe-spot-price-history`` prints as JSON (one page or several,
newest first) or as text; CSV with the columns zone, type, timestamp and price, and product where there are several.
"""

import csv
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from plink.documents.codec import decode
from plink.documents.spot_prices import SpotPricesDocument
from plink.errors import InputError
from plink.model.spot.availability import AvailabilityTrace, availability_from_json, is_availability
from plink.model.spot.prices import Floats, Market, Prices, PriceTrace
from plink.model.storage import json_values, name_of, read_text

SCHEMA = "plink.spot-prices/1"
LINUX = "Linux/UNIX"
MIN_HOLE_S = 12 * 3600.0
# A gap in all markets is a hole where this many changes were due in it: no chance, even if they come in bursts.
MIN_MISSED_CHANGES = 40
_MAX_SHOWN_CHARACTERS = 40
_MAX_TIME_S = 1e11
_AWS_KEYS = ("AvailabilityZone", "InstanceType", "ProductDescription", "Timestamp", "SpotPrice")
# Column names of CSV files, in lower case and without anything but letters.
_COLUMNS = {
    "zone": "zone", "availabilityzone": "zone", "az": "zone",
    "type": "type", "instancetype": "type",
    "product": "product", "productdescription": "product", "os": "product",
    "timestamp": "time", "time": "time", "date": "time",
    "price": "price", "spotprice": "price",
    "currency": "currency",
}  # fmt: skip


@dataclass(frozen=True)
class Histories:
    """What files say about markets. ``notes``: what was left out or joined; ``currency``: of all prices."""

    prices: Prices = field(default_factory=dict)
    availability: dict[Market, AvailabilityTrace] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    currency: str = "USD"


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


def read_histories(paths: Iterable[str | Path]) -> Histories:
    """Read all files together: pages of one listing, or several markets.

    :raises InputError: when a file cannot be read, has no prices, or one of them cannot be; names the entry.
    """
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


def prices_to_json(prices: Prices, currency: str, made: str = "") -> dict[str, Any]:
    """Return the ``plink.spot-prices/1`` document of price histories."""
    return {
        "schema": SCHEMA,
        "currency": currency,
        **({"made": made} if made else {}),
        "markets": [
            {
                "zone": market.zone,
                "type": market.type,
                "product": market.product,
                "times_s": trace.times.tolist(),
                "prices": trace.prices.tolist(),
                "until_s": trace.until,
                **({"holes_s": [list(hole) for hole in trace.holes]} if trace.holes else {}),
            }
            for market, trace in sorted(prices.items(), key=operator.itemgetter(0))
        ],
    }


def _from_document(document: dict[str, Any], location: str, rows: _Rows) -> Iterator[tuple[Market, PriceTrace]]:
    checked = decode(SpotPricesDocument, document, location)
    rows.set_currency(checked["currency"], f"{location}: currency")
    markets: set[Market] = set()
    for number, entry in enumerate(checked["markets"]):
        market, at = Market(entry["zone"], entry["type"], entry["product"]), f"{location}: markets[{number}]"
        times, prices = np.array(entry["times_s"], dtype=float), np.array(entry["prices"], dtype=float)
        holes = tuple((float(a), float(b)) for a, b in entry.get("holes_s", ()))
        if market in markets:
            raise InputError(at, f"{market} was there before")
        if len(times) != len(prices):
            raise InputError(at, f"{len(times)} times_s and {len(prices)} prices; give one price for each time")
        if np.any(np.diff(times) <= 0):
            place = int(np.argmax(np.diff(times) <= 0)) + 1
            raise InputError(f"{at}.times_s[{place}]", "times must increase")
        if entry["until_s"] < times[-1]:
            raise InputError(f"{at}.until_s", "is before the last of times_s")
        edges = [edge for hole in holes for edge in hole]
        if edges != sorted(set(edges)) or not {b for _, b in holes} <= set(times.tolist()):
            raise InputError(f"{at}.holes_s", "holes follow each other, and each ends at one of times_s")
        if any(np.any((times > a) & (times < b)) for a, b in holes) or (edges and edges[0] < times[0]):
            raise InputError(f"{at}.holes_s", "a hole has no prices in it")
        markets.add(market)
        yield market, PriceTrace(times, prices, float(entry["until_s"]), holes)


def _read_aws(document: Any, location: str, rows: _Rows) -> None:
    """Take the entries of one page."""
    entries, key = document, ""
    if isinstance(document, dict):
        key = "SpotPriceHistory"
        entries = [document] if "SpotPrice" in document else document.get(key)
    if not isinstance(entries, list):
        raise InputError(location, 'no price history: expected "schema", "SpotPriceHistory" or "metadata" in it')
    for number, entry in enumerate(entries):
        at = f"{location}: {key}[{number}]"
        if not isinstance(entry, dict):
            raise InputError(at, "expected an object")
        for name in _AWS_KEYS:
            if not isinstance(entry.get(name), str) and name not in ("SpotPrice", "Timestamp"):
                raise InputError(f"{at}.{name}", "is missing" if name not in entry else "expected text")
        if isinstance(currency := entry.get("Currency"), str):
            rows.set_currency(currency, f"{at}.Currency")
        rows.add(
            Market(entry["AvailabilityZone"], entry["InstanceType"], entry["ProductDescription"]),
            _time(entry.get("Timestamp"), f"{at}.Timestamp"),
            _price(entry.get("SpotPrice"), f"{at}.SpotPrice"),
        )


def _read_lines(text: str, location: str, rows: _Rows) -> None:
    """Take the lines of ``aws --output text`` or of CSV."""
    lines = text.splitlines()
    if any(line.startswith("SPOTPRICEHISTORY\t") for line in lines):
        for number, line in enumerate(lines, 1):
            if line.startswith("SPOTPRICEHISTORY\t"):
                cells = line.split("\t")
                if len(cells) != 6:
                    raise InputError(f"{location}:{number}", f"6 columns were expected, this line has {len(cells)}")
                _, zone, kind, product, price, time = cells
                at = f"{location}:{number}"
                rows.add(Market(zone, kind, product), _time(time, at), _price(price, at))
        return
    table = csv.reader(lines)
    columns: Sequence[str] = ()
    for cells in table:
        if not any(cell.strip() for cell in cells):
            continue
        at = f"{location}:{table.line_num}"
        if not columns:
            columns, is_header = _columns(cells, at)
            if is_header:
                continue
        if len(cells) < len(columns):
            raise InputError(at, f"{len(columns)} columns were expected, this line has {len(cells)}")
        row = dict(zip(columns, (cell.strip() for cell in cells), strict=False))
        if "currency" in row:
            rows.set_currency(row["currency"], at)
        market = Market(row["zone"], row["type"], row.get("product") or LINUX)
        if not market.zone or not market.type:
            raise InputError(at, "zone and type are needed in each line")
        rows.add(market, _time(row["time"], at), _price(row["price"], at))


def _columns(cells: Sequence[str], location: str) -> tuple[list[str], bool]:
    """Return what each column is, and whether this line is a header; without one: zone, type, timestamp, price."""
    names = [_COLUMNS.get("".join(c for c in cell.lower() if c.isalpha()), cell) for cell in cells]
    if {"zone", "type", "time", "price"} <= set(names):
        return names, True
    if len(cells) == 4 and not names[3].isalpha():
        return ["zone", "type", "time", "price"], False
    raise InputError(location, "not a price history: expected JSON, or CSV with the columns zone,type,timestamp,price")


def _time(value: Any, location: str) -> float:
    """Return seconds since 1970; without a time zone it is UTC."""
    time: float | None = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        time = float(value) if 0 <= value < _MAX_TIME_S else None  # an integer may be larger than any float
    elif isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
            time = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
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
        raise InputError(location, f"expected a price above 0, like 0.0311, got {_shown(value)}")
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
    notes = [f"{repeated} prices are there twice and count once"] if repeated else []
    if contradicted:
        notes.append(f"{contradicted} prices have the time of another one of their market; the later line counts")
    changes = np.unique(np.concatenate([times for times, _ in columns.values()]))
    gaps = holes_in(changes)
    for begin, end in gaps:
        notes.append(f"no prices of any market for {(end - begin) / 3600:.0f} h from {_utc(begin)}: a hole")
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


def _utc(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M UTC")
