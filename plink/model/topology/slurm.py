"""Read Slurm's topology.conf: a switch or block per line, ``Key=value``, keys in any case (topology.conf(5)), and files
that it includes."""

import pathlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plink.errors import InputError
from plink.model.hostlist import MAX_HOSTS, expand_hostlist
from plink.model.storage import read_text
from plink.model.topology.paths import MAX_LEVELS, Path, Topology, TopologyBuilder

# A word is tried from its beginning alone: from each of its letters it would take its length squared.
_SETTING = re.compile(r"(?<![A-Za-z0-9_])([A-Za-z][A-Za-z0-9_]*)=(\"[^\"]*\"|\S*)")
_INCLUDE = re.compile(r"include\s+(\S+)", re.IGNORECASE)
_MAX_INCLUDED = 64  # files of one topology
_FIRST = re.compile(
    r"^[ \t]*((switchname|blockname|blocksizes|ringname)[ \t]*=|include[ \t]+\S+[ \t]*$)", re.IGNORECASE | re.MULTILINE
)
_KEYS = ("switchname", "switches", "nodes", "linkspeed", "blockname", "blocksizes")


@dataclass(frozen=True)
class Vertex:
    """A switch or a block: its name, the lists of switches and of nodes below it, its place in the file."""

    name: str
    switches: str | None
    nodes: str | None
    location: str


def from_switches(switches: Sequence[Vertex], location: str) -> Topology:
    """Return hosts by node name under their switches, the root first.

    :raises InputError: for a switch that is not defined, defined twice, below two others or below itself, or with both
        switches and nodes, and for a node under two switches.
    """
    defined: dict[str, Vertex] = {}
    for switch in switches:
        if switch.name in defined:
            raise InputError(switch.location, f"switch {switch.name!r} is defined twice")
        if switch.switches and switch.nodes:
            raise InputError(
                switch.location, f"switch {switch.name!r} has both switches and nodes, which Slurm refuses"
            )
        defined[switch.name] = switch
    parent: dict[str, str] = {}
    for switch in switches:
        for child in expand_hostlist(switch.switches, switch.location) if switch.switches else []:
            if child not in defined:
                raise InputError(switch.location, f"switch {child!r} is not defined")
            if child in parent:
                raise InputError(switch.location, f"switch {child!r} is below {parent[child]!r} and {switch.name!r}")
            parent[child] = switch.name
    builder = TopologyBuilder("slurm-tree", location)
    for switch in switches:
        if switch.nodes:
            path = _upwards(switch, parent)
            for node in expand_hostlist(switch.nodes, switch.location):
                builder.add(node, path, switch.location)
    return builder.topology()


def _upwards(switch: Vertex, parent: dict[str, str]) -> Path:
    path = [switch.name]
    while path[-1] in parent:
        path.append(parent[path[-1]])
        if len(path) > MAX_LEVELS:
            raise InputError(switch.location, f"more than {MAX_LEVELS} switches above its nodes")
    return tuple(reversed(path))


def from_blocks(blocks: Sequence[Vertex], sizes: Sequence[int], sizes_location: str, location: str) -> Topology:
    """Return hosts by node name, under the larger blocks that their block pairs up to, and the block.

    ``sizes``: nodes of the base block and of the larger ones, as ``BlockSizes`` has them; a larger one of m times the
    base size is m blocks that follow each other in the file.

    :raises InputError: for sizes that are not growing powers of two of the first, a block defined twice, or a node in
        two of them.
    """
    factors = [size // sizes[0] for size in sizes]
    for before, size, factor in zip((0, *sizes), sizes, factors, strict=False):
        if size <= before or size != factor * sizes[0] or factor & (factor - 1) or size > MAX_HOSTS:
            raise InputError(sizes_location, f"block size {size} is not a larger power of two of {sizes[0]}")
    builder = TopologyBuilder("slurm-block", location)
    names: set[str] = set()
    for index, block in enumerate(blocks):
        if block.name in names:
            raise InputError(block.location, f"block {block.name!r} is defined twice")
        names.add(block.name)
        larger = [f"block of {factor} #{index // factor}" for factor in reversed(factors) if factor > 1]
        for node in expand_hostlist(block.nodes, block.location) if block.nodes else []:
            builder.add(node, (*larger, block.name), block.location)
    return builder.topology()


def is_slurm_conf(text: str) -> bool:
    """Return whether a line begins as those of a topology.conf."""
    return _FIRST.search(text) is not None


def from_slurm_conf(text: str, location: str) -> Topology:
    """Return the topology of ``topology/tree`` or ``topology/block``.

    :raises InputError: naming the line that is wrong.
    """
    switches: list[Vertex] = []
    blocks: list[Vertex] = []
    sizes: list[int] = []
    sizes_location = location
    for entry_location, line in _lines(text, location, []):
        settings = _settings(line, entry_location)
        nodes = settings.get("nodes")
        if "switchname" in settings:
            switches.append(Vertex(settings["switchname"], settings.get("switches"), nodes, entry_location))
        elif "blockname" in settings:
            blocks.append(Vertex(settings["blockname"], None, nodes, entry_location))
        elif "blocksizes" not in settings:
            raise InputError(entry_location, "neither SwitchName, BlockName nor BlockSizes is on this line")
        if "blocksizes" in settings:
            sizes, sizes_location = block_sizes(settings["blocksizes"].split(","), entry_location), entry_location
    if switches and (blocks or sizes):
        raise InputError(location, "it has both switches and blocks; Slurm reads one of them")
    return from_blocks(blocks, sizes, sizes_location, location) if blocks else from_switches(switches, location)


def block_sizes(texts: list[str], location: str) -> list[int]:
    """Parse ``BlockSizes`` as numbers.

    :raises InputError: when one is no whole number from 1 on.
    """
    for text in texts:
        if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
            raise InputError(location, f"block size {text[:80]!r} is not a whole number from 1 on")
    return [int(text) for text in texts]


def _lines(text: str, location: str, included: list[str]) -> Iterator[tuple[str, str]]:
    """Yield place and text of each line, without comments, and those of files that it includes.

    :param included: files before this one. :raises InputError: for one that cannot be read, and for too many.
    """
    for number, line in _joined_lines(text):
        entry_location = f"{location}:{number}"
        if match := _INCLUDE.fullmatch(line):
            path = str(pathlib.Path(location).parent / match[1].strip('"'))
            if len(included) >= _MAX_INCLUDED:
                raise InputError(entry_location, f"more than {_MAX_INCLUDED} files are included, maybe in a circle")
            included.append(path)
            yield from _lines(read_text(path), path, included)
        else:
            yield entry_location, line


def _joined_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line, without comments; a backslash at the end joins it to the next."""
    first_number, pending = 0, ""
    for number, raw in enumerate(text.splitlines(), start=1):
        first_number = first_number if pending else number
        content = raw.split("#", 1)[0].rstrip()
        line = pending + (content.lstrip() if pending.endswith(",") else content)
        if line.endswith("\\"):
            pending = line[:-1]
            continue
        pending = ""
        if line.strip():
            yield first_number, line.strip()
    if pending.strip():
        yield first_number, pending.strip()


def _settings(line: str, entry_location: str) -> dict[str, str]:
    """Return keys in lower case, values without quotes."""
    line = "=".join(part.strip() for part in line.split("="))
    rest = _SETTING.sub("", line).split()
    if rest:
        raise InputError(entry_location, f"{rest[0][:80]!r} is not of the form Key=value")
    settings: dict[str, str] = {}
    for key, value in _SETTING.findall(line):
        if key.lower() == "ringname":
            raise InputError(entry_location, "topology/ring is not read, only tree and block")
        if key.lower() not in _KEYS:
            raise InputError(
                entry_location,
                f"unknown key {key[:40]!r}; known are SwitchName, Switches, Nodes, BlockName, BlockSizes",
            )
        if key.lower() in settings:
            raise InputError(entry_location, f"{key} is given twice")
        settings[key.lower()] = value.strip('"')
        if not settings[key.lower()]:
            raise InputError(entry_location, f"{key} has no value")
    return settings
