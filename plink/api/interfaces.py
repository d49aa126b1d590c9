"""What the interfaces of a network's hosts form: a BCube, rails, or neither."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.network import Network
from probes.measurements import NOT_TRIED
from solvers.diagnosis.finding import Finding, Severity
from solvers.ordering.interfaces import MISSING, BCube, Defect, Rails, recognise

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
            f"{names[host]}/{entry['names'][host][interface]}" if interface != MISSING else names[host]
            for host, interface in defect.ports
        ]
        return InterfaceTopology(None, f"{prefix}neither BCube nor rails: {defect}", tuple(dict.fromkeys(faulty)))
    if isinstance(shape, BCube):
        return InterfaceTopology(shape, f"{prefix}BCube({shape.base},{shape.levels})")
    return InterfaceTopology(shape, f"{prefix}{shape.interfaces.shape[1]} rails")


def exchanges_on_switches(shape: BCube, hosts: Sequence[int]) -> bool:
    """Return whether ranks that differ in one digit are on one switch; ``hosts``: the host of each rank."""
    digits, ranks = shape.digits[np.asarray(hosts)], np.arange(len(hosts))
    for step in (shape.base**level for level in range(shape.levels)):
        last = ranks // step % shape.base == shape.base - 1
        partners = np.where(last, ranks - (shape.base - 1) * step, ranks + step)
        if ((digits != digits[partners]).sum(axis=1) != 1).any():
            return False
    return True


def interface_findings(network: Network) -> Iterator[Finding]:
    """Yield interfaces with the wrong cable or none, and hosts that do not pass on what others send through them.

    Only pairs that were tried count. Hosts that answer nobody are left out: they have findings of their own.
    """
    topology, entry = interface_topology(network), network.interfaces
    if topology is None or entry is None:
        return
    if topology.shape is None and topology.faulty:
        names = list(dict.fromkeys(interface.partition("/")[0] for interface in topology.faulty))
        advice = f"look at {', '.join(topology.faulty)}: `ip link`, and the cable"
        yield Finding("interface", Severity.ERROR, names, topology.text, advice)
    silent = _silent_pairs(network)
    answering = np.isfinite(network.rtt_us) & ~np.eye(len(silent), dtype=bool)
    lost: npt.NDArray[np.bool_] = np.logical_and(silent.any(axis=1), ~answering.any(axis=1))
    silent[lost] = silent[:, lost] = False
    dead = [ports for switch in entry["switches"] if (ports := _dead_ports(switch, silent, answering, lost))]
    for ports in dead:
        devices = [f"{network.hosts.names[host]}/{entry['names'][host][interface]}" for host, interface in ports]
        hosts = [network.hosts.names[host] for host, _ in ports]
        evidence = (
            f"{devices[0]} reaches none of its neighbours" if len(ports) == 1
            else f"{' and '.join(devices)} do not reach each other"
        )  # fmt: skip
        yield Finding("interface", Severity.ERROR, hosts, evidence, "look at `ip link` there, the cable and the switch")
    blamed = {host for ports in dead for host, _ in ports}
    for relay, name in enumerate(network.hosts.names):
        pairs = [(i, j) for i, row in enumerate(entry["relays"]) for j, by in enumerate(row) if by == relay]
        failed = sum(bool(silent[i, j]) for i, j in pairs)
        if failed and relay not in blamed and not any(answering[i, j] for i, j in pairs):
            evidence = f"{failed} pairs of hosts send through it, and none gets an answer"
            yield Finding("relay", Severity.ERROR, [name], evidence, "there: sysctl net.ipv4.ip_forward=1", failed)


def _silent_pairs(network: Network) -> npt.NDArray[np.bool_]:
    """Return the pairs, shape (N, N), that were tried and have a round trip in neither direction."""
    index = {name: k for k, name in enumerate(network.hosts.names)}
    tried = np.zeros((len(index), len(index)), dtype=bool)
    for error in network.errors:
        if error["why"] != NOT_TRIED and error["from"] in index and error["to"] in index:
            tried[index[error["from"]], index[error["to"]]] = True
    return (tried | tried.T) & np.isnan(network.rtt_us)


def _dead_ports(
    switch: list[list[int]],
    silent: npt.NDArray[np.bool_],
    answering: npt.NDArray[np.bool_],
    lost: npt.NDArray[np.bool_],
) -> list[tuple[int, int]]:
    """Return the (host, interface) pairs on a switch that no other host on it answers; both ends of a cable."""
    hosts = [host for host, _ in switch if not lost[host]]
    return [
        (host, interface)
        for host, interface in switch
        if any(silent[host, other] for other in hosts) and not any(answering[host, other] for other in hosts)
    ]
