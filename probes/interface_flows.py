"""Flows over each interface of hosts that have several: what it sends and receives.

An interface exchanges flows with two others on its switch, one way and then the other. Its rate is the best of them, so
that a slow partner does not make it look slow. Of a cable both ends have the same rates.
"""

import itertools
import time
from collections.abc import Callable, Sequence

from msgspec import UNSET, structs

from probes.host_flows import DRAIN_S, FlowSettings
from probes.methods import FlowLimits, run_flows
from probes.scheduler import ProbeTask, RequestBatches, TaskFailed
from probes.session import ProbeSession

Port = tuple[int, int]  # host and interface
Rates = dict[Port, float]


def port_rounds(switches: Sequence[Sequence[Sequence[int]]]) -> list[list[tuple[Port, Port]]]:
    """Return rounds of pairs of ports on one switch; no host is in two pairs of a round.

    Each port is paired with the next one on its switch and the one before: with two, where there are three or more.
    """
    pending = []
    for switch in switches:
        ports = [(host, interface) for host, interface in switch]
        turns = itertools.pairwise([*ports, ports[0]] if len(ports) > 2 else ports)
        pending += [pair for pair in turns if pair[0][0] != pair[1][0]]
    rounds: list[list[tuple[Port, Port]]] = []
    while pending:
        busy: set[int] = set()
        chosen = []
        for pair in pending:
            hosts = {host for host, _ in pair}
            if not busy & hosts:
                busy |= hosts
                chosen.append(pair)
        rounds.append(chosen)
        pending = [pair for pair in pending if pair not in chosen]
    return rounds


def measure_interfaces(
    session: ProbeSession,
    settings: FlowSettings,
    advance: Callable[[int, int], None] = lambda done, total: None,
    keep_going: Callable[[], bool] = lambda: True,
) -> None:
    """Measure what each interface carries, and add it to the entry ``interfaces`` of the measurements.

    Nothing is measured where hosts have one interface each, or where an earlier run that is resumed has it.

    :param keep_going: asked before each round; nothing is kept when it says no.
    """
    entry = session.measurements.details.interfaces
    if entry is UNSET or entry.out_gbps is not UNSET:
        return
    sent: Rates = {}
    received: Rates = {}
    rounds = port_rounds(entry.switches)
    for done, pairs in enumerate(rounds, 1):
        if not keep_going():
            return
        time.sleep(DRAIN_S)
        tasks = [
            ProbeTask((a[0], b[0]), _exchange(session, (a, b), settings, (sent, received)), lambda reason: None)
            for a, b in pairs
            if {a[0], b[0]} <= session.agents.keys()
        ]
        session.scheduler.run(tasks, cores_per_task=0)
        advance(done, len(rounds))
    if sent:
        out_gbps, in_gbps = (
            [[rates.get((host, k)) for k in range(len(names))] for host, names in enumerate(entry.names)]
            for rates in (sent, received)
        )
        session.measurements.add(interfaces=structs.replace(entry, out_gbps=out_gbps, in_gbps=in_gbps))


def _exchange(
    session: ProbeSession, pair: tuple[Port, Port], settings: FlowSettings, rates: tuple[Rates, Rates]
) -> RequestBatches:
    """Measure a flow each way between two interfaces; one that fails has no rate."""
    ports = dict(pair)  # by host
    entry = session.measurements.details.interfaces
    own = entry.addresses if entry else UNSET
    addresses = {host: own[host][interface] for host, interface in pair} if own else {}
    (a, _), (b, _) = pair
    for sender in (a, b):
        limits = FlowLimits(settings.seconds, settings.max_bytes)
        try:
            results = yield from run_flows(session.context, (a, b), (sender,), limits, addresses)
        except TaskFailed:
            continue
        for source, target, gbps in results:
            if (rate := round(gbps, 6)) <= 0:
                continue  # nothing came through
            for table, host in zip(rates, (source, target), strict=True):
                port = host, ports[host]
                table[port] = max(table.get(port, 0.0), rate)
