"""What the interfaces of a network's hosts form: a BCube, rails, or neither."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.documents.network import InterfacesEntry
from plink.model.network import Network
from solvers.diagnosis.finding import Finding, Severity
from solvers.ordering.interfaces import BCube, Defect, Rails, recognise

BCUBE_ALGORITHMS = ("bml", "bcube")


@dataclass(frozen=True)
class InterfaceTopology:
    """``shape``: what the hosts form, None for neither. ``text``: that in a few words. ``faulty``: interfaces to look
    at, as ``node-03/eth1``."""

    shape: BCube | Rails | None
    text: str
    faulty: tuple[str, ...] = ()


def interface_topology(network: Network) -> InterfaceTopology | None:
    """Return what the interfaces form; None where every host uses one.

    :raises InputError: when the file's interfaces are invalid.
    """
    entry = network.interfaces
    if entry is None:
        return None
    names = network.hosts.names
    counts = sorted({len(interfaces) for interfaces in entry["names"]})
    each = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    prefix = f"{len(names)} hosts, {each} interfaces each: "
    switches = [[(host, interface) for host, interface in switch] for switch in entry["switches"]]
    try:
        shape = recognise(len(names), switches, names)
    except Defect as defect:
        faulty = [
            f"{names[host]}/{entry['names'][host][interface]}" if interface < len(entry["names"][host]) else names[host]
            for host, interface in defect.ports
        ]
        return InterfaceTopology(None, f"{prefix}neither BCube nor rails: {defect}", tuple(dict.fromkeys(faulty)))
    if isinstance(shape, BCube):
        return InterfaceTopology(shape, f"{prefix}BCube({shape.base},{shape.levels})")
    return InterfaceTopology(shape, f"{prefix}{shape.interfaces.shape[1]} rails")


def interface_findings(network: Network) -> Iterator[Finding]:
    """Yield interfaces with the wrong cable or none, and hosts that do not pass on what others send through them."""
    topology, entry = interface_topology(network), network.interfaces
    if topology is None or entry is None:
        return
    if topology.shape is None and topology.faulty:
        names = list(dict.fromkeys(interface.partition("/")[0] for interface in topology.faulty))
        advice = f"look at {', '.join(topology.faulty)}: `ip link`, and the cable"
        yield Finding("interface", Severity.ERROR, names, topology.text, advice)
    unreached = np.isnan(network.latency_us)
    dead = _dead_interfaces(entry, unreached)
    for host, interface in dead:
        name, device = network.hosts.names[host], entry["names"][host][interface]
        advice = f"there: `ip link show {device}`, and the cable"
        yield Finding("interface", Severity.ERROR, [name], f"{name}/{device} reaches none of its neighbours", advice)
    for relay, name in enumerate(network.hosts.names):
        pairs = [(i, j) for i, row in enumerate(entry["relays"]) for j, by in enumerate(row) if by == relay]
        by_dead = relay in {host for host, _ in dead}
        if pairs and not by_dead and all(unreached[i, j] for i, j in pairs):
            evidence = f"{len(pairs)} pairs of hosts send through it, and none gets an answer"
            yield Finding("relay", Severity.ERROR, [name], evidence, "there: sysctl net.ipv4.ip_forward=1", len(pairs))


def _dead_interfaces(entry: InterfacesEntry, unreached: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return (host, interface) where no neighbour on the same switch answers, though others of them hear each other.

    A host of which every interface is dead is left out: it is the host that is missing.
    """
    dead = []
    for switch in entry["switches"]:
        hosts = [host for host, _ in switch]
        silent = [k for k, host in enumerate(hosts) if all(unreached[host, other] for other in hosts if other != host)]
        dead += [(switch[k][0], switch[k][1]) for k in silent]
    number = Counter(host for host, _ in dead)
    return [(host, interface) for host, interface in sorted(dead) if number[host] < len(entry["names"][host])]
