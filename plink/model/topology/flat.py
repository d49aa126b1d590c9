"""Lists of hosts and what each hangs under: columns, JSON maps and objects, Hadoop's paths, ``plink.truth/1``."""

import csv
import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from msgspec import Meta

from plink.errors import InputError
from plink.model.codec import decode, schema_name
from plink.model.document import UNSET, Document, Unset
from plink.model.storage import JsonObject
from plink.model.topology.fields import text_of
from plink.model.topology.paths import Path, Topology, TopologyBuilder

_Place = str | int | Annotated[list[str | int], Meta(min_length=1)]


class Truth(Document, frozen=True, kw_only=True, tag="plink.truth/1"):
    """Where hosts really are.

    Read by `plink check --truth`; `plink lab up` leaves one in the lab's folder. One of positions and racks; where
    both are there, racks is passed over.
    """

    positions: dict[str, _Place] | Unset = UNSET
    """Of each host what it hangs under, from the top: [region, ..., rack], names or numbers; one alone may stand
    without brackets. Hosts that are missing are not judged by."""
    racks: dict[str, _Place] | Unset = UNSET
    """The rack of each host, by name or number."""
    digits: dict[str, list[Annotated[int, Meta(ge=0)]]] | Unset = UNSET
    """Of each host in a BCube its port on the switch of each level, level 0 first; `plink check` needs racks."""


TRUTH = schema_name(Truth)
LIST = "list"
_HOST_TITLES = ("host", "hostname", "name", "node", "nodename", "ip", "address", "server", "machine", "instance")
# Titles of levels, outermost first.
_LEVEL_TITLES = (
    "region", "zone", "az", "dc", "datacenter", "site", "room", "row", "pod", "block", "spine", "rack", "switch", "tor",
    "leaf",
)  # fmt: skip
_LARGE = {"region", "zone", "az"}
_Row = tuple[int, list[str]]
_NO_RACK = re.compile(r".*=.*|[0-9.]+:\d+")  # a setting of a hosts file, or an address with a port
_NO_HOST = re.compile(r".*=.*|[^\s:]+:\d+")  # that, or anything with a port
_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def is_map(document: Any) -> bool:
    """Return whether it is hosts with their racks, racks with their hosts, or objects with a host and where it is."""
    if isinstance(document, list):  # instances of clouds have a name and a zone, too
        return bool(document) and all(
            isinstance(entry, dict) and _titles((0, list(entry))) and not _LARGE.issuperset(_levels_of(entry))
            for entry in document
        )
    if not isinstance(document, dict) or not document or "schema" in document:
        return False
    values = document.values()
    return all(type(value) in (str, int) for value in values) or all(
        isinstance(value, list) and all(type(host) is str for host in value) for value in values
    )


def from_map(document: Any, location: str) -> Topology:
    """Return hosts under their rack, ``/dc/rack`` under both, or under the levels that objects name.

    :raises InputError: naming the host or the entry that is wrong.
    """
    places: dict[str, tuple[str, list[str]]] = {}
    for place, host, names in _pairs(document, location):
        if places.setdefault(host, (place, names))[1] != names:
            raise InputError(place, f"host {host!r} is listed twice, below {places[host][1]} and {names}")
    return _topology(places, location)


def _pairs(document: Any, location: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the place for errors, the host and the names above it."""
    entries = document if isinstance(document, list) else []
    for number, entry in enumerate(entries):
        place, keys = f"{location}[{number}]", list(entry)
        host, levels = _titles((0, keys)) or (0, [])
        yield place, str(entry[keys[host]]), [str(entry[keys[level]]) for level in levels]
    if entries:
        return
    for name, value in document.items():
        place = f"{location}: {name}"
        yield from (
            ((place, host, [name]) for host in value) if isinstance(value, list) else [(place, name, [str(value)])]
        )


def _levels_of(entry: Mapping[str, Any]) -> set[str]:
    return {name for key in entry if (name := _plain(key)) in _LEVEL_TITLES}


def is_columns(text: str) -> bool:
    """Return whether every line has a host and its rack, or the first one has titles of such columns."""
    rows = list(_rows(text))
    return bool(rows) and (_titles(rows[0]) is not None or all(len(row) == 2 for _, row in rows))


def from_columns(text: str, location: str) -> Topology:
    """Return hosts under their rack, or under the levels that titles name.

    :raises InputError: naming the line that is wrong.
    """
    rows = list(_rows(text))
    columns = _titles(rows[0])
    host, levels = columns or (0, [1])
    places: dict[str, tuple[str, list[str]]] = {}
    for number, row in rows[columns is not None :]:
        place = f"{location}:{number}"
        if len(row) <= max(host, *levels):
            raise InputError(place, f"a host and where it is were expected, this is {' '.join(row)[:80]!r}")
        names = [row[level] for level in levels]
        wrong = [word for k, word in enumerate(row) if (_NO_RACK if k else _NO_HOST).fullmatch(word)]
        if wrong and not columns:
            raise InputError(
                place, f"{wrong[0][:80]!r} is no host and no rack: this is no topology, but maybe a hosts file"
            )
        if places.setdefault(row[host], (place, names))[1] != names:
            raise InputError(place, f"host {row[host]!r} is listed twice, below {places[row[host]][1]} and {names}")
    if not columns and _are_addresses_of_names(places):
        raise InputError(location, "each address has a name of its own, as in /etc/hosts, so nothing tells racks")
    return _topology(places, location)


def _are_addresses_of_names(places: Mapping[str, tuple[str, list[str]]]) -> bool:
    """Return whether several hosts are addresses, and what follows each could be the host's own name."""
    above = [names[0] for _, names in places.values()]
    try:
        for host in places:
            ipaddress.ip_address(host)
    except ValueError:
        return False
    several = len(above) > 2 or (len(above) == 2 and "localhost" in above)
    return several and len(above) == len(set(above)) and all(map(_HOST_NAME.fullmatch, above))


def from_truth(document: JsonObject, location: str) -> Topology:
    """Return hosts by where ``plink.truth/1`` says that they are.

    :raises InputError: naming the key that is wrong.
    """
    truth = decode(Truth, document, location)
    if truth.digits is not UNSET and truth.positions is truth.racks is UNSET:
        raise InputError(f"{location}: digits", "are those of a BCube, which has no racks to compare with")
    if truth.positions is truth.racks is UNSET:
        raise InputError(f"{location}: positions", "is missing: where each host is, from the top")
    positions = truth.positions or truth.racks or {}
    builder = TopologyBuilder("truth", location)
    for name, value in positions.items():
        builder.add(name, tuple(map(str, value)) if isinstance(value, list) else (str(value),), f"{location}: {name}")
    return builder.topology()


def _topology(places: Mapping[str, tuple[str, list[str]]], location: str) -> Topology:
    builder = TopologyBuilder(LIST, location)
    for host, (place, names) in places.items():
        parts = [part for name in names for part in (name.strip("/").split("/") if name[:1] == "/" else [name])]
        path: Path = tuple(text_of(part, place) for part in parts)
        builder.add(host, path, place)
    return builder.topology()


def _titles(row: _Row) -> tuple[int, list[int]] | None:
    """Return the column of the host and those of levels, outermost first; None where the row has no titles."""
    names = [_plain(name) for name in row[1]]
    hosts = [column for column, name in enumerate(names) if name in _HOST_TITLES]
    levels = sorted((_LEVEL_TITLES.index(name), column) for column, name in enumerate(names) if name in _LEVEL_TITLES)
    return (hosts[0], [column for _, column in levels]) if hosts and levels else None


def _plain(title: str) -> str:
    return title.lower().replace("_", "").replace(" ", "")


def _rows(text: str) -> Iterator[_Row]:
    """Yield number and fields of each line; ``#`` starts a comment."""
    lines = [line.split("#", 1)[0].strip() for line in text.splitlines()]
    first = next(filter(None, lines), "")
    delimiter = next((character for character in "\t;," if character in first), None)
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        if delimiter is None:
            row = [word for word in line.split() if word not in ("=", ":", "->")]
            row = [word.removesuffix(":") if not k else word for k, word in enumerate(row)] or [""]
        else:
            row = [field.strip() for field in next(csv.reader([line], delimiter=delimiter))]
        yield number, row
