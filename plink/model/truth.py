"""Ground truth of where hosts are, to validate measurements (``plink.truth/1`` or another format)."""

from collections.abc import Mapping
from pathlib import Path

from plink.documents.codec import decode, schema_name
from plink.documents.groups import GroupsDocument
from plink.documents.truth import TruthDocument
from plink.errors import InputError
from plink.model.groups import parse_groups
from plink.model.hosts import Hosts
from plink.model.storage import name_of, parse_document, read_text
from plink.model.topology import parse_topology, paths_for
from plink.model.topology.paths import Path as Position

SCHEMA = schema_name(TruthDocument)
_TOPOLOGY = "SwitchName="  # what no list of groups has


def read_truth(path: str | Path, hosts: Hosts) -> list[Position | None]:
    """Return the position of each host, top level first (region, ..., rack), None for a host that the file does not
    have.

    The file is ``plink.truth/1`` (``positions``: {host: [region, ..., rack]}, or ``racks``: {host: rack}, as a lab
    writes it), groups (``plink.groups/1`` or one group a line), or any topology file that plink reads.

    :raises InputError: when it is none of these, or has none of the hosts.
    """
    location, text = name_of(path), read_text(path)
    start = text.lstrip()[:1]
    if start == "{":
        document = parse_document(text, location)
        if document.get("schema") == SCHEMA:
            return _for_hosts(_positions(document, location), hosts, location)
        if document.get("schema") == schema_name(GroupsDocument):
            return _for_hosts(_by_group(text, location), hosts, location)
    try:
        return paths_for(parse_topology(text, location), hosts)
    except InputError as error:
        if start in ("{", "[") or _TOPOLOGY in text:
            raise
        try:
            return _for_hosts(_by_group(text, location), hosts, location)
        except InputError as group_error:
            raise group_error from error


def _by_group(text: str, location: str) -> dict[str, Position]:
    positions: dict[str, Position] = {}
    for number, group in enumerate(parse_groups(text, location)):
        for name in group:
            if positions.setdefault(name, (str(number),)) != (str(number),):
                raise InputError(location, f"{name} is in two groups")
    return positions


def _positions(document: dict[str, object], location: str) -> dict[str, Position]:
    checked = decode(TruthDocument, document, location)
    if "digits" in checked and not {"positions", "racks"} & set(checked):
        raise InputError(f"{location}: digits", "are those of a BCube, which has no racks to compare with")
    if "positions" not in checked and "racks" not in checked:
        raise InputError(f"{location}: positions", "is missing: where each host is, from the top")
    levels: Mapping[str, str | int | list[str | int]] = checked.get("positions") or checked.get("racks") or {}
    return {
        name: tuple(map(str, value)) if isinstance(value, list) else (str(value),) for name, value in levels.items()
    }


def _for_hosts(positions: dict[str, Position], hosts: Hosts, location: str) -> list[Position | None]:
    if not any(name in positions for name in hosts.names):
        raise InputError(location, f"it has none of the hosts, which are called like {hosts.names[0]!r}")
    return [positions.get(name) for name in hosts.names]
