"""Write the measured tiers of a network as switches: for Slurm's ``topology/tree`` (topology.conf(5),
topology.yaml(5)), as Topograph's graph, and as labels of Kubernetes' nodes."""

from collections.abc import Iterator
from dataclasses import dataclass

from plink.errors import NoAnswer
from plink.model.hostlist import fold_hostlist
from plink.model.network import Network
from plink.model.storage import render_document


@dataclass(frozen=True)
class Switch:
    """A switch: names of the switches right below it, or of the nodes of a leaf."""

    name: str
    children: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


def switches_of(network: Network) -> list[Switch]:
    """Return a switch for each group of each tier, leaves first, and one over all; a host in no group is its own leaf.

    A group of one group of the tier below is no switch of its own.

    :raises NoAnswer: when the network has no shared links. :raises InputError: when their groups are invalid.
    """
    if not network.shared_links:
        raise NoAnswer(f"{network.location}: it has no tiers of shared links; `plink probe HOSTS` measures them")
    names = network.hosts.names
    place = {name: number for number, name in enumerate(names)}
    tiers = [[sorted(set(row.members), key=place.__getitem__) for row in tier.groups] for tier in network.shared_links]
    alone = set(names).difference(*tiers[0])
    leaves = sorted([*tiers[0], *([name] for name in alone)], key=lambda group: names.index(group[0]))
    switches = [Switch(f"leaf{number}", (), tuple(leaf)) for number, leaf in enumerate(leaves, 1)]
    tops = {switch.name: set(switch.nodes) for switch in switches}
    for level, groups in enumerate(tiers[1:], 2):
        number = 0
        for group in groups:
            children = [name for name, nodes in tops.items() if nodes <= set(group)]
            if len(children) > 1:
                number += 1
                switches.append(Switch(f"tier{level}-{number}", tuple(children)))
                tops[switches[-1].name] = set().union(*(tops.pop(child) for child in children))
    if len(tops) > 1:
        switches.append(Switch("root", tuple(tops)))
    return switches


def slurm_conf(switches: list[Switch]) -> str:
    """Return the text of a topology.conf."""
    lines = []
    for switch in switches:
        key, below = ("Nodes", switch.nodes) if switch.nodes else ("Switches", switch.children)
        lines.append(f"SwitchName={switch.name} {key}={fold_hostlist(below, suffixes=False)}\n")
    return "".join(lines)


def slurm_yaml(switches: list[Switch]) -> str:
    """Return the text of a topology.yaml with one topology; lists in quotes, for a name of digits is no number."""
    lines = ["- topology: plink\n", "  cluster_default: true\n", "  tree:\n", "    switches:\n"]
    for switch in switches:
        key, below = ("nodes", switch.nodes) if switch.nodes else ("children", switch.children)
        lines += [f"    - switch: {switch.name}\n", f'      {key}: "{fold_hostlist(below, suffixes=False)}"\n']
    return "".join(lines)


def topograph_json(switches: list[Switch]) -> str:
    """Return the text that Topograph's ``graph`` engine has of the same: layers of each host, the closest first."""
    instances = [{"id": node, "network_layers": layers} for node, layers in _layers(switches)]
    return render_document({"instances": instances})


def kubectl_commands(switches: list[Switch]) -> str:
    """Return shell commands that give Kubernetes' nodes the labels of Topograph 1.0; tier 0 is the closest."""
    lines = []
    for node, layers in _layers(switches):
        labels = " ".join(f"fabric.topograph.run/tier-{tier}={name}" for tier, name in enumerate(layers))
        lines.append(f"kubectl label --overwrite node {node} {labels}\n")
    return "".join(lines)


def _layers(switches: list[Switch]) -> Iterator[tuple[str, list[str]]]:
    """Yield each node with the switches above it, the closest first."""
    above = {child: switch.name for switch in switches for child in switch.children}
    for leaf in switches:
        layers = [leaf.name]
        while layers[-1] in above:
            layers.append(above[layers[-1]])
        for node in leaf.nodes:
            yield node, layers


WRITERS = {"slurm-conf": slurm_conf, "slurm-yaml": slurm_yaml, "topograph": topograph_json, "kubectl": kubectl_commands}
