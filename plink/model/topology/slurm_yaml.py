"""Read Slurm's topology.yaml: several named topologies, of which one is read."""

import re
from typing import Any

import yaml

from plink.errors import InputError
from plink.model.hosts import Hosts
from plink.model.storage import JsonObject
from plink.model.topology.fields import list_of, object_of, text_of
from plink.model.topology.matching import find_paths
from plink.model.topology.paths import Topology
from plink.model.topology.slurm import Vertex, block_sizes, from_blocks, from_switches

_FIRST = re.compile(r"^[ \t]*(-[ \t]+)?topology[ \t]*:", re.MULTILINE)
_Entry = tuple[str, JsonObject]
_MAX_DEPTH = 16


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


def _topology(entry_location: str, entry: JsonObject, location: str) -> Topology:
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


class _Loader(yaml.BaseLoader):
    """YAML loader that reads every scalar as text, for ``no`` and ``1_0`` are host names, too. It refuses repeated
    keys, tags, deep nesting, and aliases, by which a short text can stand for any amount of memory."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        tag = getattr(event, "tag", None)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) or tag not in (None, "!"):
            raise yaml.MarkedYAMLError(problem="anchors, aliases and tags are not read", problem_mark=event.start_mark)
        if self._depth > _MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=event.start_mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(set(keys)) < len(node.value):
            raise yaml.MarkedYAMLError(problem="a key that comes twice, or is no text", problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: Any) -> Any:
        return None if node.value == "" and node.style is None else super().construct_scalar(node)


def parse_yaml(text: str, location: str) -> Any:
    """Parse lists, dicts with text keys, and texts; None for empty values.

    :raises InputError: naming the first line that is wrong or is not read.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # it makes nothing but lists, dicts and texts
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f":{mark.line + 1}"
        raise InputError(f"{location}{line}", f"no YAML that plink reads: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise InputError(location, f"no YAML that plink reads: {str(error).splitlines()[0]}") from None
