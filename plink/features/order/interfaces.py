"""What the interfaces of a network's hosts form: a BCube, rails, or neither."""

import itertools
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.features.order.algorithms import predictions_note
from plink.model.diagnosis import Finding, Severity
from plink.model.network import Network
from plink.model.network_file import InterfacesEntry
from plink.model.units import format_gbps, numbered
from solvers.costs.by_name import MIXED, TREES
from solvers.costs.fabric import Fabric, over_rails
from solvers.costs.host_flows import ports_without_flows
from solvers.diagnosis.bandwidth import slow_interfaces
from solvers.diagnosis.findings import merged
from solvers.ordering.interfaces import MISSING, BCube, Defect, Rails, recognise
from solvers.ordering.problem import RINGS
from solvers.schedules.catalogue import ALGORITHMS

BCUBE_ALGORITHMS = ("bml", "bcube", "multi-ring")
_FEW_PARTNERS = (*RINGS, *TREES, *MIXED, "multi-ring")  # of a rank: an order avoids a few pairs


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
    counts = sorted({len(interfaces) for interfaces in entry.names})
    each = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    prefix = f"{len(names)} hosts, {each} interfaces each: "
    switches = [[(host, interface) for host, interface in switch] for switch in entry.switches]
    try:
        shape = recognise(len(names), switches, names)
    except Defect as defect:
        faulty = [
            f"{names[host]}/{entry.names[host][interface]}" if interface != MISSING else names[host]
            for host, interface in defect.ports
        ]
        return InterfaceTopology(None, f"{prefix}neither BCube nor rails: {defect}", tuple(dict.fromkeys(faulty)))
    what = f"BCube({shape.base},{shape.levels})" if isinstance(shape, BCube) else f"{shape.interfaces.shape[1]} rails"
    return InterfaceTopology(shape, prefix + what + _rates(entry))


def most_hosts_relay(entry: InterfacesEntry | None) -> bool:
    """Return whether most hosts pass on what others send, as in a BCube: hosts differ in digits there, whether or not
    all its interfaces work, and form no groups."""
    return entry is not None and 2 * len({by for row in entry.relays for by in row} - {None}) > len(entry.relays)


def _rates(entry: InterfacesEntry) -> str:
    """Return what interfaces carry, in a few words; empty where that was not measured."""
    rows = [*(entry.out_gbps or ()), *(entry.in_gbps or ())]
    rates = sorted(rate for row in rows for rate in row if rate is not None)
    if not rates:
        return ""
    low, high = format_gbps(rates[0]), format_gbps(rates[-1])
    return f", {high} an interface" if low == high else f", {low} to {high} an interface"


def rail_names(network: Network) -> tuple[str, ...]:
    """Return the names of the interfaces on the rails, in their order; empty where hosts are on no rails, or interfaces
    of one rail have different names.

    :raises InputError: when the file's interfaces are invalid.
    """
    topology, entry = interface_topology(network), network.interfaces
    if topology is None or entry is None or not isinstance(topology.shape, Rails):
        return ()
    names = [
        {entry.names[host][interface] for host, interface in enumerate(column)}
        for column in topology.shape.interfaces.T.tolist()
    ]
    return tuple(min(rail) for rail in names) if all(len(rail) == 1 for rail in names) else ()


def own_options(network: Network, algo: str, ranks: int) -> dict[str, int]:
    """Return the options that interfaces give an algorithm: the base of a BCube of one rank a host.

    On rails it is that of one ring over all ranks, which has a part on each rail.

    :raises InputError: when the file's interfaces are invalid.
    """
    topology = interface_topology(network) if algo in BCUBE_ALGORITHMS else None
    shape = None if topology is None else topology.shape
    if isinstance(shape, BCube) and len(shape.digits) == ranks:
        return {"base": shape.base}
    return {"base": ranks} if isinstance(shape, Rails) and algo == "multi-ring" else {}


def unmeasured_notes(
    network: Network, fabric: Fabric, algorithms: Sequence[str], smooth_latencies: bool = False
) -> list[str]:
    """Return what to say of pairs that were not measured: those with predictions, and those that
    :func:`fabric_of_algorithm` fills for some of the algorithms."""
    notes = [note] if (note := predictions_note(network, smooth_latencies)) else []
    filled = [algo for algo in algorithms if algo not in _FEW_PARTNERS]
    if fabric.few_gaps and filled:
        pairs = numbered(fabric.few_gaps, "pair was", "pairs were")
        notes.append(
            f"{pairs} not measured; those that {', '.join(filled)} would use are taken to be as far "
            "as the farthest one, but a pair that is dead carries nothing"
        )
    return notes


def fabric_of_algorithm(network: Network, fabric: Fabric, algo: str) -> Fabric:
    """Return the fabric as an algorithm uses it: what plink runs itself uses all rails at once, libraries one. NCCL has
    costs of its own instead of the hosts'. Pairs without a round trip, where they are few, are as far as the farthest
    for algorithms in which a rank has more than a few partners.

    :raises InputError: when the file's interfaces are invalid.
    """
    if algo.startswith("nccl"):
        return fabric.links or fabric
    if algo not in _FEW_PARTNERS:
        fabric = fabric.with_few_gaps_filled
    is_own = algo in ALGORITHMS and ALGORITHMS[algo].source is None
    topology = interface_topology(network) if is_own else None
    return over_rails(fabric, topology.shape.interfaces) if topology and isinstance(topology.shape, Rails) else fabric


def exchanges_on_switches(shape: BCube, hosts: Sequence[int]) -> bool:
    """Return whether ranks that differ in one digit are on one switch; ``hosts``: the host of each rank."""
    digits, ranks = shape.digits[np.asarray(hosts)], np.arange(len(hosts))
    for step in (shape.base**level for level in range(shape.levels)):
        last = ranks // step % shape.base == shape.base - 1
        partners = np.where(last, ranks - (shape.base - 1) * step, ranks + step)
        if ((digits != digits[partners]).sum(axis=1) != 1).any():
            return False
    return True


def interface_warnings(network: Network) -> list[str]:
    """Return a warning for each dead, slow or wrongly cabled interface and each host that does not relay.

    :raises InputError: when the file's interfaces are invalid.
    """
    findings = merged([*interface_findings(network)])
    return [f"warning: {finding.line}" for finding in findings if finding.severity != Severity.INFO]


def interface_findings(network: Network) -> Iterator[Finding]:
    """Yield interfaces with the wrong cable or none, and hosts that do not pass on what others send through them.

    Only pairs that were tried count. Hosts that answer nobody are left out: they have findings of their own.
    """
    if network.whole is not None:
        of_whole, some = interface_findings(network.whole), set(network.hosts.names)
        yield from (finding for finding in of_whole if finding.concerns(some))
        return
    topology, entry = interface_topology(network), network.interfaces
    if topology is None or entry is None:
        return
    if topology.shape is None and topology.faulty:
        names = list(dict.fromkeys(interface.partition("/")[0] for interface in topology.faulty))
        advice = f"look at {', '.join(topology.faulty)}: `ip link`, and the cable"
        yield Finding("interface", Severity.ERROR, names, topology.text, advice)
    elif topology.shape is None:
        yield from _fewer(network, entry)
    yield from _slow(network, entry)
    yield from _asymmetric(network, entry)
    silent = _silent_pairs(network)
    answering = np.isfinite(network.rtt_us) & ~np.eye(len(silent), dtype=bool)
    lost: npt.NDArray[np.bool_] = np.logical_and(silent.any(axis=1), ~answering.any(axis=1))
    lost |= np.isin(network.hosts.names, [*network.lost_hosts])
    silent[lost] = silent[:, lost] = False
    dead = [ports for switch in entry.switches if (ports := _dead_ports(switch, silent, answering, lost))]
    for ports in dead:
        devices = [f"{network.hosts.names[host]}/{entry.names[host][interface]}" for host, interface in ports]
        hosts = [network.hosts.names[host] for host, _ in ports]
        evidence = (
            f"{devices[0]} reaches none of its neighbours{_where(topology.shape, ports)}"
            if len(ports) == 1
            else f"{' and '.join(devices)} do not reach each other{_where(topology.shape, ports)}"
        )
        yield Finding("interface", Severity.ERROR, hosts, evidence, "look at `ip link` there, the cable and the switch")
    blamed = {host for ports in dead for host, _ in ports}
    yield from _without_flows(network, entry, topology.shape, {*itertools.chain(*dead)})
    for relay, name in enumerate(network.hosts.names):
        pairs = [(i, j) for i, row in enumerate(entry.relays) for j, by in enumerate(row) if by == relay]
        failed = sum(bool(silent[i, j]) for i, j in pairs)
        if failed and not lost[relay] and relay not in blamed and not any(answering[i, j] for i, j in pairs):
            evidence = f"{failed} pairs of hosts send through it, and none gets an answer"
            yield Finding("relay", Severity.ERROR, [name], evidence, "there: sysctl net.ipv4.ip_forward=1", failed)


def _where(shape: BCube | Rails | None, ports: list[tuple[int, int]]) -> str:
    """Return the level of the switch of these ports, or their rail; empty where hosts form neither."""
    host, interface = ports[0]
    columns = [] if shape is None else np.flatnonzero(shape.interfaces[host] == interface).tolist()
    return f" on {'level' if isinstance(shape, BCube) else 'rail'} {columns[0]}" if columns else ""


def _fewer(network: Network, entry: InterfacesEntry) -> Iterator[Finding]:
    """Yield hosts with fewer interfaces on a switch, or with a rate, than most hosts have: they may be meant to."""
    ports = {(host, k) for switch in entry.switches for host, k in switch}
    for table in (entry.out_gbps, entry.in_gbps):
        ports |= {(host, k) for host, row in enumerate(table or ()) for k, rate in enumerate(row) if rate is not None}
    rows = [[name for k, name in enumerate(names) if (host, k) in ports] for host, names in enumerate(entry.names)]
    usual, how_many = Counter(map(len, rows)).most_common(1)[0]
    if 2 * how_many <= len(rows):
        return
    for host, names in enumerate(rows):
        if 0 < len(names) < usual:  # of a host with none nothing is known
            evidence = f"{numbered(len(names), 'interface')} ({', '.join(names)}), most hosts have {usual}"
            advice = "if it should have as many: look at `ip link`, `ip address` and the cables there"
            yield Finding("interface", Severity.INFO, [network.hosts.names[host]], evidence, advice)


def _without_flows(
    network: Network, entry: InterfacesEntry, shape: BCube | Rails | None, named: Container[tuple[int, int]]
) -> Iterator[Finding]:
    """Yield interfaces through which flows came one way at most, but those that are ``named`` already."""
    whats = {("out",): "sends nothing to", ("in",): "receives nothing from", ("out", "in"): "reaches none of"}
    advice = "look at `ip link` there, the cable, the switch and the firewall"
    for (host, k), ways in ports_without_flows(network).items():
        if (host, k) not in named:
            where, reason = _where(shape, [(host, k)]), entry.errors[host][k] if entry.errors else None
            evidence = f"its {entry.names[host][k]} {whats[ways]} its neighbours{where} ({reason})"
            yield Finding("interface", Severity.ERROR, [network.hosts.names[host]], evidence, advice)


def _slow(network: Network, entry: InterfacesEntry) -> Iterator[Finding]:
    """Yield interfaces that carry far less than the others, with their hosts."""
    out_gbps, in_gbps = (entry.out_gbps or None), (entry.in_gbps or None)
    if out_gbps is None or in_gbps is None:
        return
    cables = [((a, k), (b, m)) for (a, k), (b, m) in (ports for ports in entry.switches if len(ports) == 2)]
    for slow in slow_interfaces(out_gbps, in_gbps, cables):
        devices = " - ".join(f"{network.hosts.names[host]}/{entry.names[host][k]}" for host, k in slow.ports)
        rates = " and ".join(f"{way} at most {format_gbps(rate)}" for way, rate in slow.ways.items())
        evidence = f"{devices} {rates}, other interfaces {format_gbps(slow.usual_gbps)} (median)"
        hosts = [network.hosts.names[host] for host, _ in slow.ports]
        yield Finding("slow interface", Severity.ERROR, hosts, evidence, "look at its cable, `ethtool` and `tc qdisc`")


def _asymmetric(network: Network, entry: InterfacesEntry) -> Iterator[Finding]:
    """Yield one finding of hosts that send to a neighbour by one switch and get its packets by another."""
    switch_of = {(host, interface): k for k, ports in enumerate(entry.switches) for host, interface in ports}
    used, relays = entry.used, entry.relays
    pairs = []
    for i, j in itertools.combinations(range(len(used)), 2):
        is_direct = relays[i][j] is None and relays[j][i] is None
        if is_direct and used[i][j] is not None and used[j][i] is not None:
            switches = switch_of.get((i, int(used[i][j]))), switch_of.get((j, int(used[j][i])))
            if None not in switches and switches[0] != switches[1]:
                pairs.append((i, j))
    if pairs:
        (i, j), names = pairs[0], network.hosts.names
        ends = [f"{names[a]} sends by {entry.names[a][int(used[a][b])]}" for a, b in ((i, j), (j, i))]
        evidence = f"ways there and back differ: between {names[i]} and {names[j]}, {' and '.join(ends)}"
        hosts = list(dict.fromkeys(names[host] for pair in pairs for host in pair))
        yield Finding("interface", Severity.INFO, hosts, evidence, "compare `ip route get` on both hosts", len(pairs))


def _silent_pairs(network: Network) -> npt.NDArray[np.bool_]:
    """Return the pairs, shape (N, N), that were tried and have a round trip in neither direction."""
    index = {name: k for k, name in enumerate(network.hosts.names)}
    tried = np.zeros((len(index), len(index)), dtype=bool)
    for error in network.errors:
        if error.was_tried and error.source in index and error.target in index:
            tried[index[error.source], index[error.target]] = True
    return (tried | tried.T) & np.isnan(network.rtt_us)


def _dead_ports(
    switch: Sequence[tuple[int, int]],
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
