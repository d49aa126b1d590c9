"""Ground truth of where hosts are, to validate measurements (``plink.truth/1`` or another format)."""

from pathlib import Path

from plink.errors import InputError
from plink.model.codec import schema_name
from plink.model.groups import Groups, parse_groups
from plink.model.hosts import Hosts
from plink.model.storage import json_values, name_of, read_text
from plink.model.topology import parse_topology, paths_for
from plink.model.topology.flat import LIST
from plink.model.topology.matching import warn_of_missing
from plink.model.topology.paths import Path as Position

_SWITCH = "SwitchName="  # what no list of groups has


def read_truth(path: str | Path, hosts: Hosts) -> list[Position | None]:
    """Return the position of each host, top level first (region, ..., rack), None for a host that the file does not
    have.

    The file is ``plink.truth/1``, as a lab writes it, or any other topology file that plink reads, or groups
    (``plink.groups/1`` or one group a line; two hosts of a line are a group).

    :raises InputError: when it is none of these, or has none of the hosts.
    """
    location, text = name_of(path), read_text(path)
    is_json = text.lstrip()[:1] in ("{", "[")
    document = json_values(text, location)[0] if is_json else None
    if isinstance(document, dict) and document.get("schema") == schema_name(Groups):
        return _for_hosts(_by_group(text, location), hosts, location)
    try:
        topology = parse_topology(text, location)
        named = {name for path in topology.paths.values() for name in path}
        if is_json or topology.kind != LIST or named.isdisjoint(hosts.names):
            return paths_for(topology, hosts)
        return _for_hosts(_by_group(text, location), hosts, location)
    except InputError as error:
        if is_json or _SWITCH in text:
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


def _for_hosts(positions: dict[str, Position], hosts: Hosts, location: str) -> list[Position | None]:
    if not any(name in positions for name in hosts.names):
        raise InputError(location, f"it has none of the hosts, which are called like {hosts.names[0]!r}")
    warn_of_missing(location, [name for name in hosts.names if name not in positions], len(hosts))
    return [positions.get(name) for name in hosts.names]
