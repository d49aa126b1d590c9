"""Measurements by tools of the host: fping or Scapy, TCP handshakes, iperf3. Every run is bounded from outside.

Runs on the hosts: standard library only (Scapy where it is installed and fping is not). What may last long calls
``renew`` meanwhile, which raises once the controller is gone.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from plink.transport.addresses import family_of, source_address_for
from plink.transport.command_output import run_to_end
from probes.agent.summary import summary

_INTERVAL_MS = 10  # the shortest that fping allows everybody
_TCP_INFO_RTT = 68  # offset of tcpi_rtt (u32, microseconds) in struct tcp_info, linux/tcp.h
_GRACE_S = 5.0
_SSH_CONNECTS = 10  # sshd refuses more than that (MaxStartups)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_INITIAL_TTLS = (64, 128, 255)
_MAX_GREETING_BYTES = 1 << 16  # of an iperf3 server, until it listens


def no_lease() -> None:
    """Renew nothing: the ``renew`` of a run without a controller."""


def which(name: str) -> str | None:
    """Return the path of a program of this host, also where a login without a profile does not search."""
    return shutil.which(name) or shutil.which(name, path=_PATH)


def icmp(request: dict[str, Any], renew: Callable[[], None] = no_lease) -> dict[str, Any]:
    """Send ICMP echoes to a peer; (``sent``, ``received``, percentiles, ...), and an ``error`` where it failed."""
    peer, count = request["peer"], request["count"]
    fping = which("fping")
    if fping is None:
        return _scapy(peer, count, request["timeout_s"], renew)
    argv = [
        fping,
        "-q",
        "-C",
        str(count),
        "-p",
        str(_INTERVAL_MS),
        "-t",
        str(int(request["timeout_s"] * 1000)),
        "-r",
        "0",
        peer,
    ]
    limit_s = count * (_INTERVAL_MS / 1000 + request["timeout_s"]) + _GRACE_S
    try:
        process = run_to_end(argv, limit_s, renew=renew)
    except (OSError, subprocess.SubprocessError) as error:
        return {"sent": count, "error": f"fping: {error}", **summary([])}
    # "198.18.1.5 : 0.035 - 0.031": milliseconds, a dash for every lost echo
    fields = process.stderr.rpartition(" : ")[2].split()
    round_trips = []
    for field in fields:
        with contextlib.suppress(ValueError):
            round_trips.append(int(float(field) * 1e6))
    output = (process.stderr.strip().splitlines() or ["fping printed nothing"])[-1]
    failure = None if round_trips or " : " in output else output
    return {"sent": count, "error": failure, "hops": _hops(peer) if round_trips else None, **summary(round_trips)}


def _hops(peer: str) -> int | None:
    """Return the routers on the path from a peer, by one echo's TTL; None without Scapy or raw sockets."""
    return _scapy(peer, 1, 1.0, no_lease).get("hops")


def _scapy(peer: str, count: int, timeout_s: float, renew: Callable[[], None]) -> dict[str, Any]:
    no_result = {"sent": count, **summary([])}
    try:
        with _temporary_home():
            from scapy.config import conf
            from scapy.layers.inet import ICMP, IP
            from scapy.sendrecv import sr1
            from scapy.supersocket import L3RawSocket
    except ImportError:
        return {"error": "neither fping nor Scapy is installed there", **no_result}
    conf.verb = 0
    try:
        conf.L3socket = L3RawSocket
        round_trips: list[int] = []
        ttl = 0
        for sequence in range(count):
            renew()
            # The kernel's choice of source address: Scapy's own takes none for a host whose address is a /32.
            request = IP(src=source_address_for(peer), dst=peer) / ICMP(id=0x504C, seq=sequence & 0xFFFF)
            answer = sr1(request, timeout=timeout_s)
            if answer is not None:
                round_trips.append(int((float(answer.time) - float(request.sent_time or 0)) * 1e9))
                ttl = answer.ttl
    except OSError:
        return {"error": "no fping there, and no right to open raw sockets (CAP_NET_RAW)", **no_result}
    hops = min(base - ttl for base in _INITIAL_TTLS if base >= ttl) if round_trips else None
    return {"sent": count, "hops": hops, **summary(round_trips)}


@contextlib.contextmanager
def _temporary_home() -> Iterator[None]:
    """Import with a temporary home: Scapy writes caches to the user's folders when it is imported."""
    names = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
    before = {name: os.environ.get(name) for name in names}
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(dict.fromkeys(names, folder))
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def tcp(request: dict[str, Any], renew: Callable[[], None] = no_lease) -> dict[str, Any]:
    """Measure handshakes with the first of the ports that answers, each timed by the kernel (TCP_INFO)."""
    peer, count = request["peer"], request["count"]
    for index, port in enumerate(request["ports"]):
        if port and _connect(peer, port, 1.0) is not None:
            if index:
                count = min(count, _SSH_CONNECTS)
            rtts: list[int | None] = []
            while len(rtts) < count and rtts[-3:] != [None] * 3:  # three lost in a row: the path is down
                renew()
                rtts.append(_connect(peer, port, 1.0))
            return {
                "sent": len(rtts),
                "clock": "kernel",
                "port": port,
                "hops": _hops(peer),
                **summary([rtt for rtt in rtts if rtt is not None]),
            }
    return {
        "sent": count,
        "error": f"no TCP port of {', '.join(map(str, request['ports']))} is reachable",
        **summary([]),
    }


def _connect(peer: str, port: int, timeout_s: float) -> int | None:
    """Return the nanoseconds of one handshake, None when it fails. A reset closes it: no TIME_WAIT remains."""
    with socket.socket(family_of(peer), socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout_s)
        try:
            sock.connect((peer, port))
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            return None
        return int(struct.unpack_from("I", info, _TCP_INFO_RTT)[0]) * 1000


class Iperf3Server:
    """At most one iperf3 server, for one test, killed at its deadline."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._deadline = 0.0

    def serve(self, address: str, limit_s: float) -> dict[str, Any]:
        """Start a server and wait until it listens; ``port`` or ``error``."""
        self.stop()
        program = which("iperf3")
        if program is None:
            return {"error": "iperf3 is not installed there"}
        with socket.socket(family_of(address)) as sock:
            sock.bind((address, 0))
            port = sock.getsockname()[1]
        # No periodic reports (-i 0): those of a hundred streams would fill the pipe.
        argv = [program, "-s", "-1", "-p", str(port), "-B", address, "--idle-timeout", "10", "--forceflush", "-i", "0"]
        self._process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        self._deadline = time.monotonic() + limit_s
        assert self._process.stdout is not None
        output, deadline = b"", time.monotonic() + _GRACE_S
        while b"listening" not in output:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0 or not select.select([self._process.stdout], [], [], remaining_s)[0]:
                self.stop()
                return {"error": f"the iperf3 server did not listen within {_GRACE_S:g} s"}
            data = self._process.stdout.read1(4096)  # type: ignore[attr-defined]
            if not data or len(output) > _MAX_GREETING_BYTES:
                self.stop()
                return {"error": f"the iperf3 server exited: {output.decode(errors='replace').strip()[:200]}"}
            output += data
        return {"port": port}

    def reap(self) -> None:
        """Stop the server if it has exited or its deadline has passed."""
        if self._process is not None and (self._process.poll() is not None or time.monotonic() > self._deadline):
            self.stop()

    def stop(self) -> None:
        """Kill the server, if any."""
        if self._process is not None:
            if self._process.returncode is None:  # not reaped, so that the group is its own still
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


def iperf3(request: dict[str, Any], renew: Callable[[], None] = no_lease) -> dict[str, Any]:
    """Run one iperf3 test as its client; ``gbps`` received and ``min_rtt_us``, or ``error``."""
    program = which("iperf3")
    if program is None:
        return {"error": "iperf3 is not installed there"}
    peer, port = request["peer"]
    if request["bytes"]:
        bound, limit_s = ["-n", str(request["bytes"])], 20.0 + _GRACE_S
    else:
        # Whole seconds only: iperf3 3.12 takes -t 0.3 as no limit at all. One more second is run but not counted (-O).
        seconds = max(1, round(request["seconds"]))
        bound, limit_s = ["-t", str(seconds), "-O", "1"], seconds + 1 + 2 * _GRACE_S
    argv = [
        program,
        "-J",
        "-c",
        peer,
        "-p",
        str(port),
        "-P",
        str(request["streams"]),
        "--connect-timeout",
        "3000",
        *bound,
    ]
    try:
        process = run_to_end(argv, limit_s, renew=renew)
    except subprocess.TimeoutExpired:
        return {"error": f"timed out after {limit_s:.0f} s; killed"}
    except (OSError, subprocess.SubprocessError) as error:
        return {"error": str(error)}
    return read_iperf3(process.stdout)


def read_iperf3(text: str) -> dict[str, Any]:
    """Parse the output of ``iperf3 -J``, whose errors come with exit status 0."""
    try:
        report = json.loads(text)
        if "error" in report:
            return {"error": str(report["error"]) or "iperf3 failed without a message"}
        end = report["end"]
        rtts = [stream["sender"].get("min_rtt") for stream in end["streams"]]
        gbps = end["sum_received"]["bits_per_second"] / 1e9
        if not 0 < gbps < 1e9:  # the test ended before the server had read anything
            return {"error": "the server received no data; the test was too short"}
        valid = [rtt for rtt in rtts if type(rtt) in (int, float) and 0 < rtt < math.inf]
        return {"gbps": gbps, "min_rtt_us": min(valid, default=None)}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return {"error": f"unreadable report: {' '.join(text.split())[:120]!r}"}
