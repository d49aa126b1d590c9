"""Read Slurm's topology.yaml: several named topologies, of which one is read."""

import re
from typing import Any

from plink.errors import InputError
from plink.model.hosts import Hosts
from plink.model.topology.fields import list_of, object_of, text_of
from plink.model.topology.matching import find_paths
from plink.model.topology.paths import Topology
from plink.model.topology.slurm import Vertex, from_blocks, from_switches
from plink.model.topology.slurm_conf import block_sizes
from plink.model.topology.yaml_text import parse_yaml

_FIRST = re.compile(r"^[ \t]*(-[ \t]+)?topology[ \t]*:", re.MULTILINE)
_Entry = tuple[str, dict[str, Any]]


def is_slurm_yaml(text: str) -> bool:
    """Return whether a line begins a topology as in a topology.yaml."""
    return _FIRST.search(text) is not None


def from_slurm_yaml(text: str, location: str, hosts: Hosts | None = None, name: str | None = None) -> Topology:
    """Return the topology of that name; else the one with most of the hosts; else the cluster's default, or the only
    one that is a tree or blocks.

    :raises InputError: when there is no such one, or more, or it is wrong, naming line or key.
    """
    entries = [
        (f"{location}: [{index}]", object_of(entry, f"{location}: [{index}]"))
        for index, entry in enumerate(list_of(parse_yaml(text, location), location))
    ]
    usable = [(entry_location, entry) for entry_location, entry in entries if "tree" in entry or "block" in entry]
    if not usable:
        raise InputError(location, "none of its topologies is a tree or made of blocks")
    if name is not None:
        candidates = [pair for pair in usable if pair[1].get("topology") == name]
    elif hosts is not None and len(usable) > 1:
        counts = [sum(path is not None for path in find_paths(_topology(*pair, location), hosts)) for pair in usable]
        candidates = _default([pair for pair, count in zip(usable, counts, strict=True) if count == max(counts)])
    else:
        candidates = _default(usable)
    if len(candidates) != 1:
        names = ", ".join(str(entry.get("topology")) for _, entry in candidates or usable)
        raise InputError(location, f"which topology is meant? name one of {names}, like {location}#NAME")
    entry_location, entry = candidates[0]
    return _topology(entry_location, entry, f"{location}#{entry.get('topology')}" if len(usable) > 1 else location)


def _default(entries: list[_Entry]) -> list[_Entry]:
    """Return the first with ``cluster_default: true``, all of them if none has."""
    return [pair for pair in entries if str(pair[1].get("cluster_default")).lower() == "true"][:1] or entries


def _topology(entry_location: str, entry: dict[str, Any], location: str) -> Topology:
    if "tree" in entry:
        return from_switches(_vertices(entry["tree"], "switches", "switch", f"{entry_location}.tree"), location)
    block = object_of(entry["block"], f"{entry_location}.block")
    place = f"{entry_location}.block.block_sizes"
    texts = [text_of(size, place) or "" for size in list_of(block.get("block_sizes"), place)]
    blocks = _vertices(block, "blocks", "block", f"{entry_location}.block")
    return from_blocks(blocks, block_sizes(texts, place), place, location)


def _vertices(value: Any, key: str, name: str, place: str) -> list[Vertex]:
    """Switches or blocks as the list under ``key`` has them, each called by its ``name``."""
    vertices = []
    for index, entry in enumerate(list_of(object_of(value, place).get(key), f"{place}.{key}")):
        entry_location = f"{place}.{key}[{index}]"
        fields = {
            field: text_of(content, f"{entry_location}.{field}")
            for field, content in object_of(entry, entry_location).items()
        }
        title = fields.get(name)
        if title is None:
            raise InputError(entry_location, f"it has no {name}")
        vertices.append(Vertex(title, fields.get("children"), fields.get("nodes"), entry_location))
    return vertices
