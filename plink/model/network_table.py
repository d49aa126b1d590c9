"""Networks that others measured, as a table of text: a matrix with or without names, or a line a pair.

Separators are tabs, semicolons, commas or spaces. The unit is in a title (``rtt_ms``, ``Mbit/s``), in the corner of a
matrix, in a comment (``# in ms``), behind a value, or given. Round trips become microseconds, rates Gbit/s.
"""

import csv
import logging
import re
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from plink.errors import InputError
from plink.model.hostlist import check_name
from plink.model.storage import STANDARD, name_of
from plink.model.types import MAX_QUANTITY
from plink.model.units import MeasurementUnit, parse_unit

SMALLEST = (
    'the smallest network is {"schema": "plink.network/1", "hosts": [{"name": "a"}, {"name": "b"}], "latency_us": '
    "[[0, 31.5], [31.9, 0]]}, or a table whose lines are `rtt_us,a,b`, `a,0,31.5` and `b,31.9,0`"
)
_FROM = ("from", "source", "src", "sender", "client", "origin", "host1", "hosta", "node1", "nodea")
_TO = ("to", "destination", "dest", "dst", "receiver", "server", "target", "host2", "hostb", "node2", "nodeb")
# Words in titles of values; plink's own is the 10th percentile, so what is nearest to it comes first.
_VALUES = (
    "rtt", "latency", "ping", "p10", "min", "minimum", "median", "p50", "avg", "average", "mean", "delay", "bandwidth",
    "throughput", "rate", "speed", "value", "distance", "weight", "time",
)  # fmt: skip
_OTHERS = ("max", "maximum", "mdev", "std", "stddev", "stdev", "jitter", "loss", "p90", "p95", "p99", "count")
_MISSING = ("", "-", "-1", "nan", "null", "none", "na", "n/a", "x", "*", "?", "inf")
_NUMBER = re.compile(r"([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*([^\s\d].*)?")
_DECIMAL_COMMA = re.compile(r"\d+,\d+")
_THOUSANDS = re.compile(r"[1-9]\d{0,2},\d{3}")  # or a decimal comma
_WORDS = re.compile(r"[\s_()\[\]:=,]+")
_COMMENT_UNIT = re.compile(r"(?:.*\b(?:units?|in)[\s:=]+)?([a-zA-Z/]+)")

_log = logging.getLogger("plink.network")
Matrix = npt.NDArray[np.float64]
_Row = tuple[int, list[str]]
_Cell = tuple[str, str, str, int, MeasurementUnit | None]  # from, to, text, line, unit of its column


def parse_table(text: str, location: str, unit: str | None = None) -> tuple[list[str], dict[str, Matrix]]:
    """Return the names of N hosts, and matrices of shape (N, N) of what the table has: ``us`` (round trips), ``gbps``;
    NaN where a pair is missing, 0 on the diagonal. Of several values of a pair the median is taken.

    :param unit: of values without one. :raises InputError: for what is no such table, naming the line.
    """
    default_unit = None if unit is None else parse_unit(unit)
    if unit is not None and default_unit is None:
        raise InputError(location, f"{unit[:20]!r} is not a unit; known are us, ms, s, Mbit/s, Gbit/s and the like")
    rows, comment_unit, has_commas = _rows(text)
    if len(rows) < 2 or len(rows[0][1]) < 2:
        raise InputError(location, f"not a network; {SMALLEST}")
    values: dict[str, dict[tuple[str, str], list[float]]] = {}
    names: dict[str, None] = {}
    for source, target, cell, line, own_unit in _matrix(rows, location) or _pairs(rows, location):
        place = f"{location}:{line}"
        for name in (source, target):
            if name not in names:
                names[check_name(name, place)] = None
        if source != target and cell.lower() not in _MISSING:
            value = _value(cell, own_unit or default_unit or comment_unit, place, has_commas)
            values.setdefault(value[0], {}).setdefault((source, target), []).append(value[1])
    if not values:
        raise InputError(location, "no value of two different hosts in it")
    if "us" not in values:
        _log.warning("%s: it has rates and no round trips", location)
    return [*names], {quantity: _filled(by_pair, [*names]) for quantity, by_pair in values.items()}


def _filled(by_pair: dict[tuple[str, str], list[float]], names: list[str]) -> Matrix:
    index = {name: number for number, name in enumerate(names)}
    matrix = np.full((len(names), len(names)), np.nan)
    for (source, target), values in by_pair.items():
        matrix[index[source], index[target]] = values[0] if len(values) == 1 else float(np.median(values))
    np.fill_diagonal(matrix, 0.0)
    return matrix


def _value(text: str, unit: MeasurementUnit | None, place: str, has_commas: bool) -> tuple[str, float]:
    """Return quantity and value of a field.

    :param has_commas: between fields: one within a field may be of a decimal or of thousands.
    :raises InputError: for what is no number, for a negative one, and for one without a unit.
    """
    if has_commas and _THOUSANDS.fullmatch(text):
        meanings = f"{text.replace(',', '')} or {text.replace(',', '.')}"
        raise InputError(place, f"{text!r} may be {meanings}; write it without a comma")
    match = _NUMBER.fullmatch(text.replace(",", ".") if _DECIMAL_COMMA.fullmatch(text) else text)
    if match is None and text.startswith("-") and _NUMBER.fullmatch(text[1:]):
        raise InputError(place, f"{text[:40]} is negative and cannot be a measurement")
    if match is None:
        raise InputError(place, f"{text[:40]!r} is not a number; {SMALLEST}")
    unit = parse_unit(match[2].strip()) if match[2] else unit
    if unit is None:
        file = place.rpartition(":")[0]
        if file == name_of(STANDARD):
            file = "/dev/stdin"  # `-#ms` would be an option
        reason = f"in which unit is {text[:20]}? write it into the header, like rtt_ms, or behind the name: {file}#ms"
        raise InputError(place, f"{reason} (us, ms, s, Mbit/s, Gbit/s)")
    value = float(match[1]) * unit.factor
    if not value < MAX_QUANTITY:
        raise InputError(place, f"{text[:40]} cannot be a measurement")
    return unit.quantity, value


def _rows(text: str) -> tuple[list[_Row], MeasurementUnit | None, bool]:
    """Return line number and fields of each row, the unit that a comment says, and whether commas separate fields."""
    lines, comments = [], []
    for number, raw in enumerate(text.splitlines(), start=1):
        line, _, comment = raw.partition("#")
        comments.append(comment.strip())
        if line.strip():
            lines.append((number, line.strip(" \r\n")))
    units = [parse_unit(match[1]) for comment in comments if (match := _COMMENT_UNIT.fullmatch(comment))]
    delimiter = next((character for character in "\t;," if lines and character in lines[0][1]), None)
    split = str.split if delimiter is None else lambda line: next(csv.reader([line], delimiter=delimiter))
    rows = [(number, [field.strip() for field in split(line)]) for number, line in lines]
    while rows and len(rows[0][1]) > 2 and all(row and row[-1] == "" for _, row in rows):
        rows = [(number, row[:-1]) for number, row in rows]
    return rows, next(filter(None, units), None), delimiter == ","


def _is_number(text: str) -> bool:
    return text.lower() in _MISSING or _NUMBER.fullmatch(text) is not None


def _are_numbers(fields: Sequence[str], count: int) -> bool:
    return len(fields) == count and all(map(_is_number, fields))


def _is_zero(text: str) -> bool:
    match = _NUMBER.fullmatch(text)
    return text.lower() in _MISSING or (match is not None and float(match[1]) == 0)


def _unit_of(title: str) -> MeasurementUnit | None:
    return next(filter(None, map(parse_unit, _WORDS.split(title))), None)


def _matrix(rows: Sequence[_Row], location: str) -> list[_Cell]:
    """Return the cells of a matrix, empty where it is none."""
    header, body = rows[0][1], rows[1:]
    columns, unit = header, None
    if all(len(row) == len(body) + 1 for _, row in body) and len(header) in (len(body), len(body) + 1):
        # Names in the first row and column, perhaps with something in the corner.
        columns = header[-len(body) :]
        unit = _unit_of(header[0]) if len(header) > len(body) else None
        is_plain = header[0].lower() not in _MISSING and all(
            row[k] != "" and _is_zero(row[k]) for k, (_, row) in enumerate(rows) if len(header) == len(rows)
        )
        numbers = all(map(_is_number, columns)) and (
            columns not in (_counted(0, columns), _counted(1, columns)) or (len(header) == len(rows) and is_plain)
        )
        if sorted(columns) == sorted(row[0] for _, row in body) and not numbers:
            named = [(number, row[0], row[1:]) for number, row in body]
            _refuse_twice(columns, [rows[0][0]] * len(columns), location)
            return _cells(named, columns, unit)
    if None not in _host_columns(header):
        return []
    if (
        not any(map(_is_number, header))
        and all(_are_numbers(row, len(header)) for _, row in body)
        and len(header) == len(body)
    ):
        _refuse_twice(header, [rows[0][0]] * len(header), location)
        return _cells([(number, header[k], row) for k, (number, row) in enumerate(body)], header, None)
    if all(_are_numbers(row[1:], len(rows)) and not _is_number(row[0]) for _, row in rows):
        _refuse_twice([row[0] for _, row in rows], [number for number, _ in rows], location)
        return _cells([(number, row[0], row[1:]) for number, row in rows], [row[0] for _, row in rows], None)
    is_square = all(_are_numbers(row, len(rows)) for _, row in rows)
    no_diagonal = all(_is_zero(row[k]) for k, (_, row) in enumerate(rows)) if is_square else False
    if is_square and (no_diagonal or len(rows) != 3):  # three rows of three numbers may be three pairs
        names = [f"host-{k}" for k in range(1, len(rows) + 1)]
        _log.warning("%s: it has no names; its hosts are called host-1 to host-%d", location, len(rows))
        return _cells([(number, names[k], row) for k, (number, row) in enumerate(rows)], names, None)
    return []


def _refuse_twice(names: Sequence[str], lines: Sequence[int], location: str) -> None:
    """:raises InputError: for a host that a matrix has twice, naming its line."""
    seen = set[str]()
    for name, line in zip(names, lines, strict=True):
        if name in seen:
            raise InputError(f"{location}:{line}", f"host {name[:40]!r} is listed twice")
        seen.add(name)


def _counted(first: int, columns: list[str]) -> list[str]:
    return [str(number) for number in range(first, first + len(columns))]


def _cells(
    rows: Sequence[tuple[int, str, list[str]]], columns: Sequence[str], unit: MeasurementUnit | None
) -> list[_Cell]:
    return [
        (source, target, text, number, unit)
        for number, source, row in rows
        for target, text in zip(columns, row, strict=True)
    ]


def _pairs(rows: Sequence[_Row], location: str) -> Iterator[_Cell]:
    """Yield the values of a line a pair: two hosts and a value, or columns that titles name.

    :raises InputError: when they are no such lines.
    """
    titles = rows[0][1]
    source, target = _host_columns(titles)
    if source is not None and target is not None:
        columns = _value_columns(titles, {source, target})
        if len(titles) > 2 + len(columns):
            read = " and ".join(repr(titles[column]) for column, _ in columns)
            _log.warning("%s: of its values %s is read", location, read or "none")
        rows = rows[1:]
    elif len(titles) == 3:
        source, target, columns = 0, 1, [(2, _unit_of(titles[2]))]
        if not _is_number(titles[2]):
            rows = rows[1:]
    else:
        columns = []
    if source is None or target is None or not columns:
        raise InputError(location, f"not a network: its rows and columns are no matrix and no pairs; {SMALLEST}")
    for number, row in rows:
        if len(row) <= max(source, target, *(column for column, _ in columns)):
            raise InputError(f"{location}:{number}", f"{len(row)} fields, {len(titles)} were expected, as above")
        for column, unit in columns:
            yield row[source], row[target], row[column], number, unit


def _host_columns(titles: Sequence[str]) -> tuple[int | None, int | None]:
    """Return the columns of both hosts of a pair, None where no title says so."""
    plain = [re.sub(r"[^a-z0-9]", "", title.lower()) for title in titles]
    source = next((column for column, title in enumerate(plain) if title in _FROM), None)
    return source, next((column for column, title in enumerate(plain) if title in _TO), None)


def _value_columns(titles: Sequence[str], hosts: set[int]) -> list[tuple[int, MeasurementUnit | None]]:
    """Return the column of round trips and that of rates, with their units, as far as the titles tell."""
    best: dict[str, tuple[int, int, MeasurementUnit | None]] = {}
    for column, title in enumerate(titles):
        words = [word.lower() for word in _WORDS.split(title)]
        unit = _unit_of(title)
        ranks = [rank for rank, word in enumerate(_VALUES) if word in words]
        if column in hosts or set(words) & set(_OTHERS) or not (ranks or unit):
            continue
        candidate = (min(ranks, default=len(_VALUES)), column, unit)
        quantity = unit.quantity if unit else ""
        if quantity not in best or candidate[0] < best[quantity][0]:
            best[quantity] = candidate
    titled = [best[quantity] for quantity in ("us", "gbps") if quantity in best] or list(best.values())
    return [(column, unit) for _, column, unit in titled]
