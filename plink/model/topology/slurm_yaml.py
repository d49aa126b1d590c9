"""Slurm's topology.yaml: several named topologies in one file, of which the cluster's default is read."""

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
    """Whether some line begins a topology as those of a topology.yaml do."""
    return _FIRST.search(text) is not None


def from_slurm_yaml(text: str, where: str) -> Topology:
    """The first topology with ``cluster_default: true``, or the only one that is a tree or blocks.

    :raises InputError: when there is no such one, or it is wrong, naming line or key.
    """
    entries = [
        (f"{where}: [{index}]", object_of(entry, f"{where}: [{index}]"))
        for index, entry in enumerate(list_of(parse_yaml(text, where), where))
    ]
    usable = [(here, entry) for here, entry in entries if "tree" in entry or "block" in entry]
    default = [(here, entry) for here, entry in entries if str(entry.get("cluster_default")).lower() == "true"]
    chosen = default[:1] or usable
    if len(chosen) != 1:
        raise InputError(where, "which topology is meant? mark a tree or block one with cluster_default: true")
    here, entry = chosen[0]
    if "tree" in entry:
        return from_switches(_vertices(entry["tree"], "switches", "switch", f"{here}.tree"), where)
    if "block" not in entry:
        raise InputError(here, "the default topology is neither a tree nor made of blocks")
    block = object_of(entry["block"], f"{here}.block")
    place = f"{here}.block.block_sizes"
    texts = [text_of(size, place) or "" for size in list_of(block.get("block_sizes"), place)]
    blocks = _vertices(block, "blocks", "block", f"{here}.block")
    return from_blocks(blocks, block_sizes(texts, place), place, where)


def _vertices(value: Any, key: str, name: str, place: str) -> list[Vertex]:
    """Switches or blocks as the list under ``key`` has them, each called by its ``name``."""
    vertices = []
    for index, entry in enumerate(list_of(object_of(value, place).get(key), f"{place}.{key}")):
        here = f"{place}.{key}[{index}]"
        fields = {field: text_of(content, f"{here}.{field}") for field, content in object_of(entry, here).items()}
        title = fields.get(name)
        if title is None:
            raise InputError(here, f"it has no {name}")
        vertices.append(Vertex(title, fields.get("children"), fields.get("nodes"), here))
    return vertices
