"""How one pair is measured: a generator of steps for each method, all behind one signature.

``steps(work, a, b)`` measures both directions of a pair and notes them in ``work.found``, failures too.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probes.conductor import Command, Errand, ErrandFailed, Steps
from probes.measurements import Measurements

_CONTROL_S = 10.0  # longer than any message takes over a slow connection
_HELLO_S = 3.0
_SSIDS = 1 << 16
_MOST_GBPS, _MOST_RTT_US = 1e9, 1e15
_UNREADABLE = "its agent answered with nothing that plink can read"
# The thesis sends 10,000 probes a pair; the tools below pay 10 ms, or a connection, for each.
_FPING_INTERVAL_S, _MOST_PINGS = 0.01, 200
_MOST_CONNECTS = 100  # nobody accepts while both ends measure: they must fit the backlog of the agents' port


@dataclass(frozen=True)
class Settings:
    """How pairs are measured.

    :param count: probes a pair, half of them in each direction.
    :param timeout_s: a probe not answered by then is lost.
    :param window: probes under way at once where the kernel stamps packets.
    :param source_ports: UDP source ports a host sends from; each may take another path (ECMP).
    :param streams: TCP connections of a bandwidth test. :param bandwidth_s: its length, or
    :param bandwidth_bytes: how much it moves, if given.
    :param handshakes: open a TCP port on the agents, for the tcp method.
    """

    count: int = 10_000
    timeout_s: float = 0.25
    window: int = 32
    source_ports: int = 4
    seed: int = 0
    streams: int = 1
    bandwidth_s: float = 2.0
    bandwidth_bytes: int | None = None
    handshakes: bool = False


@dataclass
class Work:
    """What the methods share: settings, what agents said of themselves, and what has been found."""

    settings: Settings
    ready: dict[int, dict[str, Any]]
    found: Measurements
    ssids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def address(self, host: int) -> str:
        """Where other hosts reach this one."""
        return str(self.ready[host]["address"])


def stamp(work: Work, a: int, b: int) -> Steps:
    """Both hosts send STAMP probes to each other and reflect the other's, at the same time."""
    settings = work.settings
    each = max(1, settings.count // 2)
    there, back = (next(work.ssids) % _SSIDS for _ in range(2))
    stamped = work.ready[a]["stamps"] and work.ready[b]["stamps"]
    window = settings.window if stamped else 1  # one's own clock would time the waiting of the others, too
    # At worst all but one of a window are lost each time.
    limit = _CONTROL_S + _HELLO_S + settings.timeout_s * (2 + each / window)

    def task(peer: int, ssid_out: int, ssid_in: int) -> dict[str, Any]:
        return {
            "method": "pair",
            "peer": [work.address(peer), work.ready[peer]["port"]],
            "ssid_out": ssid_out,
            "ssid_in": ssid_in,
            "count": each,
            "window": window,
            "timeout_s": settings.timeout_s,
        }

    try:
        forward, backward = yield [Command(a, task(b, there, back), limit), Command(b, task(a, back, there), limit)]
        work.found.note(a, b, "stamp", forward)
        work.found.note(b, a, "stamp", backward)
    except ErrandFailed as error:
        work.found.fail(a, b, str(error))
        work.found.fail(b, a, str(error))


def _tool(work: Work, a: int, b: int, name: str, body: Callable[[int], dict[str, Any]], limit_s: float) -> Steps:
    """Both hosts run a tool against each other, at the same time."""
    try:
        answers = yield [Command(a, body(b), limit_s), Command(b, body(a), limit_s)]
        for (i, j), answer in zip(((a, b), (b, a)), answers, strict=True):
            work.found.note(i, j, name, answer)
    except ErrandFailed as error:
        work.found.fail(a, b, str(error))
        work.found.fail(b, a, str(error))


def icmp(work: Work, a: int, b: int) -> Steps:
    """ICMP echoes by fping, or by Scapy where there is no fping (T 5.2.2)."""
    count = min(max(1, work.settings.count // 2), _MOST_PINGS)

    def body(peer: int) -> dict[str, Any]:
        return {"method": "icmp", "peer": work.address(peer), "count": count, "timeout_s": work.settings.timeout_s}

    return _tool(work, a, b, "icmp", body, _CONTROL_S + count * (_FPING_INTERVAL_S + work.settings.timeout_s))


def tcp(work: Work, a: int, b: int) -> Steps:
    """The kernel's round trip of TCP handshakes, to the agent's own port or, where that is closed, to SSH's."""
    count = min(max(1, work.settings.count // 2), _MOST_CONNECTS)

    def body(peer: int) -> dict[str, Any]:
        ports = [work.ready[peer]["tcp_port"], work.ready[peer]["ssh_port"]]
        return {"method": "tcp", "peer": work.address(peer), "ports": ports, "count": count}

    return _tool(work, a, b, "tcp", body, _CONTROL_S + 5.0 + count * 0.05)


def iperf3(work: Work, a: int, b: int) -> Steps:
    """Bandwidth from a to b, then from b to a: a one-off iperf3 server and one client each time."""
    settings, found = work.settings, work.found
    bandwidth = found.bandwidth_or_nothing()
    for i, j in ((a, b), (b, a)):
        limit = settings.bandwidth_s + 30.0
        try:
            (server,) = yield [Command(j, {"method": "iperf3_serve", "limit_s": limit}, _CONTROL_S)]
            if server.get("error") or type(server.get("port")) is not int:
                raise ErrandFailed(f"{found.hosts.names[j]}: {server.get('error', _UNREADABLE)}")
            (result,) = yield [
                Command(
                    i,
                    {
                        "method": "iperf3",
                        "peer": [work.address(j), server["port"]],
                        "seconds": settings.bandwidth_s,
                        "bytes": settings.bandwidth_bytes,
                        "streams": settings.streams,
                    },
                    limit + _CONTROL_S,
                )
            ]
            if result.get("error"):
                raise ErrandFailed(f"iperf3 on {found.hosts.names[i]}: {result['error']}")
            gbps: Any = result.get("gbps")
            if type(gbps) not in (int, float) or not 0 < gbps < _MOST_GBPS:
                raise ErrandFailed(f"iperf3 on {found.hosts.names[i]}: {_UNREADABLE}")
            bandwidth[i, j] = gbps
            found.bandwidth_errors.pop((i, j), None)
            never_tried = np.isnan(found.latency[i, j]) and (i, j) not in found.errors
            rtt: Any = result.get("min_rtt_us")
            if never_tried and type(rtt) in (int, float) and 0 < rtt < _MOST_RTT_US:
                found.percentiles[10][i, j] = rtt
        except ErrandFailed as error:
            found.bandwidth_errors[i, j] = str(error)


def errand(work: Work, method: str, a: int, b: int) -> Errand:
    """The measurement of one pair by the method named."""

    def unstarted(why: str) -> None:
        errors = work.found.bandwidth_errors if method == "iperf3" else work.found.errors
        errors[a, b] = errors[b, a] = why

    return Errand((a, b), METHODS[method](work, a, b), unstarted)


METHODS: dict[str, Callable[[Work, int, int], Steps]] = {"stamp": stamp, "icmp": icmp, "tcp": tcp, "iperf3": iperf3}
