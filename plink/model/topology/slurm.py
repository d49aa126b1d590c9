"""Build a topology of Slurm's switches (a tree) or blocks (that pair up to larger ones).

topology.conf(5) and topology.yaml(5), plugins ``topology/tree`` and ``topology/block``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from plink.errors import InputError
from plink.model.hostlist import MAX_HOSTS, expand_hostlist
from plink.model.topology.paths import MAX_LEVELS, Path, Topology, TopologyBuilder


@dataclass(frozen=True)
class Vertex:
    """A switch or a block: its name, the lists of switches and of nodes below it, its place in the file."""

    name: str
    switches: str | None
    nodes: str | None
    location: str


def from_switches(switches: Sequence[Vertex], location: str) -> Topology:
    """Return hosts by node name under their switches, the root first.

    :raises InputError: for a switch that is not defined, defined twice, below two others or below itself, and for a
        node under two switches.
    """
    defined: dict[str, Vertex] = {}
    for switch in switches:
        if switch.name in defined:
            raise InputError(switch.location, f"switch {switch.name!r} is defined twice")
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
        if path[-1] == switch.name:
            raise InputError(switch.location, f"switch {switch.name!r} is below itself")
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
