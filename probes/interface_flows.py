"""Flows over each interface of hosts that have several: what it sends and receives.

An interface exchanges flows with two others on its switch, one way and then the other. Its rate is the best of them, so
that a slow partner does not make it look slow. Of a cable both ends have the same rates.
"""

import itertools
import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TypeVar

from msgspec import UNSET, structs

from probes.host_flows import DRAIN_S, FlowSettings
from probes.methods import FlowLimits, run_flows
from probes.scheduler import OUT_OF_TIME, ProbeTask, RequestBatches, TaskFailed
from probes.session import ProbeSession

Port = tuple[int, int]  # host and interface
Rates = dict[Port, float]
T = TypeVar("T")


def port_rounds(switches: Sequence[Sequence[Sequence[int]]]) -> list[list[tuple[Port, Port]]]:
    """Return rounds of pairs of ports on one switch; no host is in two pairs of a round.

    Each port is paired with the next one on its switch and the one before: with two, where there are three or more.
    """
    pending = list[tuple[Port, Port]]()
    for switch in switches:
        ports = [(host, interface) for host, interface in switch]
        pending += itertools.pairwise([*ports, ports[0]] if len(ports) > 2 else ports)
    return _disjoint_rounds(pending)


def _disjoint_rounds(pairs: Sequence[tuple[Port, Port]]) -> list[list[tuple[Port, Port]]]:
    pending = [pair for pair in pairs if pair[0][0] != pair[1][0]]
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


def _unclear_pairs(switches: Sequence[Sequence[Sequence[int]]], carrying: Container[Port]) -> list[tuple[Port, Port]]:
    """Return pairs that tell whether a port without any flow is at fault, for both that it met had none either: with
    ports of its switch that carry flows, else with those after the next ones."""
    pairs = set[tuple[Port, Port]]()
    for switch in switches:
        ports = [(host, interface) for host, interface in switch]
        good = [port for port in ports if port in carrying]
        for k, port in enumerate(ports if len(ports) > 3 else ()):
            if not any(other in carrying for other in (ports[k - 1], port, ports[(k + 1) % len(ports)])):
                others = [other for other in good if other[0] != port[0]]
                other = others[k % len(others)] if others else ports[(k + 2) % len(ports)]
                pairs.add((min(port, other), max(port, other)))
    return sorted(pairs)


def measure_interfaces(
    session: ProbeSession,
    settings: FlowSettings,
    advance: Callable[[int, int], None] = lambda done, total: None,
    keep_going: Callable[[], bool] = lambda: True,
) -> None:
    """Measure what each interface carries, and add it to the entry ``interfaces`` of the measurements, with the reason
    of those that carry nothing.

    Nothing is measured where hosts have one interface each, or where all flows of an earlier run that is resumed came
    through.

    :param keep_going: asked before each round; when it says no, what there was before is left as it is.
    """
    entry = session.measurements.details.interfaces
    if entry is UNSET or (entry.out_gbps is not UNSET and not entry.errors):
        return
    sent, received, errors = Rates(), Rates(), dict[Port, str]()

    def run(pairs: Sequence[tuple[Port, Port]]) -> None:
        time.sleep(DRAIN_S)
        tasks = [
            ProbeTask(
                (a[0], b[0]),
                _exchange(session, (a, b), settings, (sent, received), errors),
                lambda reason, ends=(a, b): errors.update(dict.fromkeys(ends, reason)),  # type: ignore[misc]
            )
            for a, b in pairs
        ]
        session.scheduler.run(tasks, cores_per_task=0)

    rounds = port_rounds(entry.switches)
    for done, pairs in enumerate(rounds, 1):
        if not keep_going():
            return
        run(pairs)
        advance(done, len(rounds))
    for pairs in _disjoint_rounds(_unclear_pairs(entry.switches, sent.keys() | received.keys())) if sent else ():
        if keep_going():
            run(pairs)
        else:  # nobody knows who is at fault
            unclear = {*itertools.chain(*pairs)} - sent.keys() - received.keys()
            errors |= dict.fromkeys(unclear, OUT_OF_TIME)
    if sent:
        lacking = {port: reason for port, reason in errors.items() if port not in sent or port not in received}

        def rows(table: Mapping[Port, T]) -> list[list[T | None]]:
            return [[table.get((host, k)) for k in range(len(names))] for host, names in enumerate(entry.names)]

        session.measurements.add(
            interfaces=structs.replace(
                entry, out_gbps=rows(sent), in_gbps=rows(received), errors=rows(lacking) if lacking else UNSET
            )
        )


def _exchange(
    session: ProbeSession,
    pair: tuple[Port, Port],
    settings: FlowSettings,
    rates: tuple[Rates, Rates],
    errors: dict[Port, str],
) -> RequestBatches:
    """Measure a flow each way between two interfaces; one that fails has no rate, and both ends its reason."""
    ports = dict(pair)  # by host
    entry = session.measurements.details.interfaces
    own = entry.addresses if entry else UNSET
    addresses = {host: own[host][interface] for host, interface in pair} if own else {}
    (a, _), (b, _) = pair
    for sender in (a, b):
        limits = FlowLimits(settings.seconds, settings.max_bytes, settings.accept_s)
        try:
            results = yield from run_flows(session.context, (a, b), (sender,), limits, addresses)
        except TaskFailed as error:
            errors.update(dict.fromkeys(pair, str(error)))
            continue
        for source, target, gbps in results:
            if (rate := round(gbps, 6)) <= 0:
                errors.update(dict.fromkeys(pair, "nothing came through"))
                continue
            for table, host in zip(rates, (source, target), strict=True):
                port = host, ports[host]
                table[port] = max(table.get(port, 0.0), rate)
