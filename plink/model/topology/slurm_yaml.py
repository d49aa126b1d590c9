"""Read Slurm's topology.yaml: several named topologies, of which the cluster's default is read."""

import re
from typing import Any

from plink.errors import InputError
from plink.model.topology.fields import list_of, object_of, text_of
from plink.model.topology.paths import Topology
from plink.model.topology.slurm import Vertex, from_blocks, from_switches
from plink.model.topology.slurm_conf import block_sizes
from plink.model.topology.yaml_text import parse_yaml

_FIRST = re.compile(r"^[ \t]*-[ \t]+topology[ \t]*:", re.MULTILINE)


def is_slurm_yaml(text: str) -> bool:
    """Return whether a line begins a topology as in a topology.yaml."""
    return _FIRST.search(text) is not None


def from_slurm_yaml(text: str, location: str) -> Topology:
    """Return the first topology with ``cluster_default: true``, or the only one that is a tree or blocks.

    :raises InputError: when there is no such one, or it is wrong, naming line or key.
    """
    entries = [
        (f"{location}: [{index}]", object_of(entry, f"{location}: [{index}]"))
        for index, entry in enumerate(list_of(parse_yaml(text, location), location))
    ]
    usable = [(entry_location, entry) for entry_location, entry in entries if "tree" in entry or "block" in entry]
    default = [
        (entry_location, entry)
        for entry_location, entry in entries
        if str(entry.get("cluster_default")).lower() == "true"
    ]
    candidates = default[:1] or usable
    if len(candidates) != 1:
        raise InputError(location, "which topology is meant? mark a tree or block one with cluster_default: true")
    entry_location, entry = candidates[0]
    if "tree" in entry:
        return from_switches(_vertices(entry["tree"], "switches", "switch", f"{entry_location}.tree"), location)
    if "block" not in entry:
        raise InputError(entry_location, "the default topology is neither a tree nor made of blocks")
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
