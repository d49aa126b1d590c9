"""Probing methods: one pair is measured by a generator of request batches.

``method(context, a, b)`` measures both directions of a pair and records results and errors in ``context.measurements``.
"""

import contextlib
import itertools
import secrets
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from probes.flow_reference import FlowReference
from probes.measurements import Measurements
from probes.scheduler import AgentBody, AgentRequest, ProbeTask, RequestBatches, TaskFailed

_CONTROL_S = 10.0  # longer than any message takes over a slow connection
_SSIDS = 1 << 16
_MAX_FLOW_S = 20.0  # of a flow with a number of bytes
_MAX_GBPS, _MAX_RTT_US = 1e6, 1e15
_UNREADABLE = "its agent sent a malformed answer"
# The thesis sends 10,000 probes a pair; the tools below pay 10 ms, or a connection, for each.
_FPING_INTERVAL_S, _MAX_ECHOES = 0.01, 200
MIN_COUNT = 500  # probes a pair before the first look at their precision
_MAX_HANDSHAKES = 100  # agents accept none while they measure: all must fit the backlog of their port


@dataclass(frozen=True)
class ProbeSettings:
    """Settings of measurements.

    :param count: probes a pair at most, half of them in each direction.
    :param precision: with this, STAMP probes of a direction end once its 10th percentile is known to within this share.
    :param timeout_s: a probe without an answer by then is lost.
    :param window: probes in flight where the kernel stamps packets.
    :param source_ports: UDP source ports a host sends from; each may take another path (ECMP).
    :param streams: TCP connections of an iperf3 test.
    :param bandwidth_s: duration of a bandwidth test, or
    :param bandwidth_bytes: its number of bytes.
    :param handshakes: open a TCP port on the agents, for the tcp method.
    :param hello_s: how long a STAMP measurement waits for the first sign of the other host.
    """

    count: int = 10_000
    precision: float | None = None
    timeout_s: float = 0.25
    window: int = 32
    source_ports: int = 4
    seed: int = 0
    streams: int = 1
    bandwidth_s: float = 0.5
    bandwidth_bytes: int | None = None
    handshakes: bool = False
    hello_s: float = 3.0


@dataclass
class MeasurementContext:
    """What the methods share: settings, the first report of each agent by host index, and results.

    ``flow_reference``: what flows reach one way at a time, as far as it is known.
    """

    settings: ProbeSettings
    agents: dict[int, AgentBody]
    measurements: Measurements
    ssids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    flow_reference: FlowReference | None = None

    def address(self, host: int) -> str:
        """Return the address at which other hosts reach this one."""
        return str(self.agents[host]["address"])


def stamp(context: MeasurementContext, a: int, b: int) -> RequestBatches:
    """Measure by STAMP: both hosts send probes to each other and reflect the other's at the same time."""
    settings = context.settings
    each = max(1, settings.count // 2)
    ssid_ab, ssid_ba = (next(context.ssids) % _SSIDS for _ in range(2))
    stamped = context.agents[a]["stamps"] and context.agents[b]["stamps"]
    window = settings.window if stamped else 1  # a process's own clock would include the time in its queue
    # In the worst case all but one probe of each window are lost.
    timeout_s = _CONTROL_S + settings.hello_s + settings.timeout_s * (2 + each / window)

    def request(peer: int) -> AgentBody:
        ssid_out, ssid_in = (ssid_ab, ssid_ba) if peer == b else (ssid_ba, ssid_ab)
        return {
            "method": "pair",
            "peer": [context.address(peer), context.agents[peer]["port"]],
            "ssid_out": ssid_out,
            "ssid_in": ssid_in,
            "count": each,
            "min_count": min(each, MIN_COUNT // 2),
            "precision": settings.precision,
            "window": window,
            "timeout_s": settings.timeout_s,
            "hello_s": settings.hello_s,
        }

    yield from _both_ways(context, a, b, "stamp", request, timeout_s)


def _both_ways(
    context: MeasurementContext, a: int, b: int, name: str, request: Callable[[int], AgentBody], timeout_s: float
) -> RequestBatches:
    """Measure by what both hosts run against each other at the same time."""
    try:
        answers = yield [AgentRequest(a, request(b), timeout_s), AgentRequest(b, request(a), timeout_s)]
        for (i, j), answer in zip(((a, b), (b, a)), answers, strict=True):
            context.measurements.record(i, j, name, answer)
    except TaskFailed as error:
        context.measurements.record_error(a, b, str(error))
        context.measurements.record_error(b, a, str(error))


def icmp(context: MeasurementContext, a: int, b: int) -> RequestBatches:
    """Measure by ICMP echoes of fping, or of Scapy where fping is missing (T 5.2.2)."""
    count = min(max(1, context.settings.count // 2), _MAX_ECHOES)

    def request(peer: int) -> AgentBody:
        return {
            "method": "icmp",
            "peer": context.address(peer),
            "count": count,
            "timeout_s": context.settings.timeout_s,
        }

    timeout_s = _CONTROL_S + count * (_FPING_INTERVAL_S + context.settings.timeout_s)
    return _both_ways(context, a, b, "icmp", request, timeout_s)


def tcp(context: MeasurementContext, a: int, b: int) -> RequestBatches:
    """Measure by TCP handshakes, timed by the kernel, with the agent's port or, where that is closed, SSH's."""
    count = min(max(1, context.settings.count // 2), _MAX_HANDSHAKES)

    def request(peer: int) -> AgentBody:
        ports = [context.agents[peer]["tcp_port"], context.agents[peer]["ssh_port"]]
        return {"method": "tcp", "peer": context.address(peer), "ports": ports, "count": count}

    return _both_ways(context, a, b, "tcp", request, _CONTROL_S + 5.0 + count * 0.05)


def iperf3(context: MeasurementContext, a: int, b: int) -> RequestBatches:
    """Measure bandwidth from a to b, then from b to a, by an iperf3 server and client for each direction."""
    settings, measurements = context.settings, context.measurements
    bandwidth = measurements.bandwidth_matrix()
    for i, j in ((a, b), (b, a)):
        timeout_s = settings.bandwidth_s + 30.0
        try:
            (server,) = yield [AgentRequest(j, {"method": "iperf3_serve", "limit_s": timeout_s}, _CONTROL_S)]
            if server.get("error") or type(server.get("port")) is not int:
                raise TaskFailed(f"{measurements.hosts.names[j]}: {server.get('error', _UNREADABLE)}")
            (result,) = yield [
                AgentRequest(
                    i,
                    {
                        "method": "iperf3",
                        "peer": [context.address(j), server["port"]],
                        "seconds": settings.bandwidth_s,
                        "bytes": settings.bandwidth_bytes,
                        "streams": settings.streams,
                    },
                    timeout_s + _CONTROL_S,
                )
            ]
            if result.get("error"):
                raise TaskFailed(f"iperf3 on {measurements.hosts.names[i]}: {result['error']}")
            gbps: Any = result.get("gbps")
            if type(gbps) not in (int, float) or not 0 < gbps < _MAX_GBPS:
                raise TaskFailed(f"iperf3 on {measurements.hosts.names[i]}: {_UNREADABLE}")
            bandwidth[i, j] = gbps
            measurements.bandwidth_errors.pop((i, j), None)
            untried = np.isnan(measurements.latency[i, j]) and (i, j) not in measurements.errors
            rtt: Any = result.get("min_rtt_us")
            if untried and type(rtt) in (int, float) and 0 < rtt < _MAX_RTT_US:
                measurements.percentiles[10][i, j] = rtt
        except TaskFailed as error:
            measurements.bandwidth_errors[i, j] = str(error)


class FlowLimits(NamedTuple):
    """A flow ends after ``seconds``, or after ``max_bytes`` if given; it fails when it does not connect for
    ``accept_s``."""

    seconds: float
    max_bytes: int | None
    accept_s: float = 5.0


Listening = list[AgentBody]  # what the receivers of flows answered


def listen_for_flows(
    pair: tuple[int, int], senders: Sequence[int], addresses: Mapping[int, str | None] | None = None
) -> Generator[list[AgentRequest], list[AgentBody], Listening]:
    """Let the hosts of a pair that receive from these senders listen, and return what they answer.

    :param addresses: of receivers, where others than the usual ones are to be used.
    """
    own = {host: address for host in pair if (address := (addresses or {}).get(host))}
    return (
        yield [
            AgentRequest(host, {"method": "flow_listen"} | ({"address": own[host]} if host in own else {}), _CONTROL_S)
            for host in (sum(pair) - sender for sender in senders)
        ]
    )


def run_flows(
    context: MeasurementContext,
    pair: tuple[int, int],
    senders: Sequence[int],
    limits: FlowLimits,
    addresses: Mapping[int, str | None] | None = None,
    listening: Listening | None = None,
) -> Generator[list[AgentRequest], list[AgentBody], list[tuple[int, int, float]]]:
    """Run a TCP flow from each of these senders, at the same time; return (sender, receiver, Gbit/s) of each.

    :param addresses: of receivers, where others than the usual ones are to be used. :param listening: where receivers
        listen already, as :func:`listen_for_flows` returned it.
    :raises TaskFailed: when a rate could not be measured.
    """
    receivers = [sum(pair) - sender for sender in senders]
    if listening is None:
        listening = yield from listen_for_flows(pair, senders, addresses)
    requests: dict[int, AgentBody] = {host: {} for host in pair}
    for sender, receiver, answer in zip(senders, receivers, listening, strict=True):
        if type(answer.get("port")) is not int:
            raise TaskFailed(f"{context.measurements.hosts.names[receiver]} cannot listen for a flow")
        token = secrets.token_hex(32)
        requests[receiver] |= {"receive_token": token}
        peer = [(addresses or {}).get(receiver) or context.address(receiver), answer["port"]]
        requests[sender] |= {"send_token": token, "peer": peer}
    answers = yield [
        AgentRequest(host, {"method": "flow_exchange", **request, **limits._asdict()}, limits.seconds + _CONTROL_S)
        for host, request in requests.items()
    ]
    results = dict(zip(requests, answers, strict=True))
    rates = []
    for sender, receiver in zip(senders, receivers, strict=True):
        rate: Any = results[receiver].get("gbps")
        if type(rate) not in (int, float) or not 0 <= rate < _MAX_GBPS:
            reason = results[receiver].get("error") or results[sender].get("error")
            raise TaskFailed(context.measurements.reported(reason or "no rate was reported"))
        rates.append((sender, receiver, float(rate)))
    return rates


def flow(context: MeasurementContext, a: int, b: int) -> RequestBatches:
    """Measure bandwidth by a TCP flow each way: both at once where it is known what hosts reach one way, and they
    reach it; else one after the other."""
    settings, measurements, reference = context.settings, context.measurements, context.flow_reference
    bandwidth = measurements.bandwidth_matrix()
    seconds = settings.bandwidth_s if settings.bandwidth_bytes is None else _MAX_FLOW_S
    limits = FlowLimits(seconds, settings.bandwidth_bytes)
    pairs, at_once = [(a, b), (b, a)], dict[tuple[int, int], float]()
    if reference is not None and reference.allows_both(a, b):
        with contextlib.suppress(TaskFailed):  # which way it failed is seen one way at a time
            rates = yield from run_flows(context, (a, b), (a, b), limits)
            at_once = {(sender, receiver): gbps for sender, receiver, gbps in rates}
            pairs = [pair for pair in pairs if reference.is_doubtful(*pair, at_once[pair])]
    for pair, gbps in at_once.items():
        bandwidth[pair] = gbps
        measurements.bandwidth_errors.pop(pair, None)
    for sender, receiver in pairs:
        try:
            ((_, _, gbps),) = yield from run_flows(context, (a, b), (sender,), limits)
            if reference is not None and (sender, receiver) in at_once:
                reference.note_repeat(at_once[sender, receiver], gbps)
            bandwidth[sender, receiver] = max(gbps, at_once.get((sender, receiver), 0.0))
            measurements.bandwidth_errors.pop((sender, receiver), None)
        except TaskFailed as error:
            if (sender, receiver) not in at_once:
                measurements.bandwidth_errors[sender, receiver] = str(error)


def probe_task(context: MeasurementContext, method: str, a: int, b: int) -> ProbeTask:
    """Return the task that measures one pair by the named method."""

    def on_skipped(reason: str) -> None:
        errors = context.measurements.bandwidth_errors if method in BANDWIDTH_METHODS else context.measurements.errors
        errors[a, b] = errors[b, a] = reason

    return ProbeTask((a, b), METHODS[method](context, a, b), on_skipped)


METHODS: dict[str, Callable[[MeasurementContext, int, int], RequestBatches]] = {
    "stamp": stamp,
    "icmp": icmp,
    "tcp": tcp,
    "iperf3": iperf3,
    "flow": flow,
}
BANDWIDTH_METHODS = ("iperf3", "flow")
