"""Where hosts really are, for judging what was measured (``plink.truth/1``), or in another form that says it."""

from pathlib import Path

from plink.errors import InputError
from plink.model.groups import parse_groups
from plink.model.hosts import Hosts
from plink.model.storage import name_of, parse_document, read_text
from plink.model.topology import parse_topology, paths_for
from plink.model.topology.paths import Path as Position

SCHEMA = "plink.truth/1"
_KEYS = ("positions", "racks")
_TOPOLOGY = "SwitchName="  # what no list of groups has


def read_truth(path: str | Path, hosts: Hosts) -> list[Position | None]:
    """The position of each host, top level first (region, ..., rack), None for a host that the file does not have.

    The file is ``plink.truth/1`` (``positions``: {host: [region, ..., rack]}, or ``racks``: {host: rack}, as a lab
    writes it), groups (``plink.groups/1`` or one group a line), or any topology file that plink reads.

    :raises InputError: when it is none of these, or has none of the hosts.
    """
    where, text = name_of(path), read_text(path)
    start = text.lstrip()[:1]
    if start == "{":
        document = parse_document(text, where)
        if document.get("schema") == SCHEMA:
            return _listed(_positions(document, where), hosts, where)
        if document.get("schema") == "plink.groups/1":
            return _listed(_by_group(text, where), hosts, where)
    try:
        return paths_for(parse_topology(text, where), hosts)
    except InputError as error:
        if start in ("{", "[") or _TOPOLOGY in text:
            raise
        try:
            return _listed(_by_group(text, where), hosts, where)
        except InputError as other:
            raise other from error


def _by_group(text: str, where: str) -> dict[str, Position]:
    positions: dict[str, Position] = {}
    for number, group in enumerate(parse_groups(text, where)):
        for name in group:
            if positions.setdefault(name, (str(number),)) != (str(number),):
                raise InputError(where, f"{name} is in two groups")
    return positions


def _positions(document: dict[str, object], where: str) -> dict[str, Position]:
    key = next((key for key in _KEYS if key in document), _KEYS[0])
    found = document.get(key)
    if not isinstance(found, dict):
        raise InputError(f"{where}: {key}", "an object was expected, of each host where it is")
    positions: dict[str, Position] = {}
    for name, value in found.items():
        levels = value if isinstance(value, list) else [value]
        if not levels or not all(isinstance(level, str | int) and not isinstance(level, bool) for level in levels):
            raise InputError(f"{where}: {key}.{name}", "a name or number, or a list of them from the top, was expected")
        positions[name] = tuple(str(level) for level in levels)
    return positions


def _listed(positions: dict[str, Position], hosts: Hosts, where: str) -> list[Position | None]:
    if not any(name in positions for name in hosts.names):
        raise InputError(where, f"it has none of the hosts, which are called like {hosts.names[0]!r}")
    return [positions.get(name) for name in hosts.names]
