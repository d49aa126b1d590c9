"""Measuring with what the host has: fping or Scapy, TCP handshakes, iperf3. Every run is bounded from outside.

Runs on the hosts: standard library only (Scapy where it happens to be installed and fping is not). What may take long
calls ``renew`` meanwhile, which raises where the run has nobody to report to any more.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from plink.remote.addresses import family_of, source_address_for
from probes.agent.summary import summary

_INTERVAL_MS = 10  # the shortest that fping allows everybody
_TCP_INFO_RTT = 68  # offset of tcpi_rtt (u32, microseconds) in struct tcp_info, linux/tcp.h
_GRACE_S = 5.0
_SSH_CONNECTS = 10  # sshd refuses more than that (MaxStartups)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TYPICAL_TTLS = (64, 128, 255)
_LOOK_S = 1.0


def nobody() -> None:
    """The ``renew`` of a run without a controller."""


def which(name: str) -> str | None:
    """A program of this host, also where a login without a profile does not look."""
    return shutil.which(name) or shutil.which(name, path=_PATH)


def run(argv: list[str], limit_s: float, renew: Callable[[], None]) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, and call ``renew`` every second meanwhile.

    :raises subprocess.TimeoutExpired: after ``limit_s``; the program has been killed, as it is when ``renew`` raises.
    """
    deadline = time.monotonic() + limit_s
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            while time.monotonic() < deadline:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    out, err = process.communicate(timeout=min(_LOOK_S, limit_s))
                    return subprocess.CompletedProcess(argv, process.returncode, out, err)
                renew()
            raise subprocess.TimeoutExpired(argv, limit_s)
        except BaseException:
            process.kill()
            raise


def icmp(task: dict[str, Any], renew: Callable[[], None] = nobody) -> dict[str, Any]:
    """Echoes to a peer; (``sent``, ``received``, percentiles, ...) or an ``error`` among them."""
    peer, count = task["peer"], task["count"]
    fping = which("fping")
    if fping is None:
        return _scapy(peer, count, task["timeout_s"], renew)
    argv = [
        fping,
        "-q",
        "-C",
        str(count),
        "-p",
        str(_INTERVAL_MS),
        "-t",
        str(int(task["timeout_s"] * 1000)),
        "-r",
        "0",
        peer,
    ]
    limit_s = count * (_INTERVAL_MS / 1000 + task["timeout_s"]) + _GRACE_S
    try:
        done = run(argv, limit_s, renew)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"sent": count, "error": f"fping: {error}", **summary([])}
    # "198.18.1.5 : 0.035 - 0.031": milliseconds, a dash for every echo that was lost
    words = done.stderr.rpartition(" : ")[2].split()
    round_trips = []
    for word in words:
        with contextlib.suppress(ValueError):
            round_trips.append(int(float(word) * 1e6))
    said = (done.stderr.strip().splitlines() or ["fping said nothing"])[-1]
    why = None if round_trips or " : " in said else said
    return {"sent": count, "error": why, "hops": _hops(peer) if round_trips else None, **summary(round_trips)}


def _hops(peer: str) -> int | None:
    """Routers on the way back from a peer, by the TTL of one echo; None without Scapy or the right to raw sockets."""
    return _scapy(peer, 1, 1.0, nobody).get("hops")


def _scapy(peer: str, count: int, timeout_s: float, renew: Callable[[], None]) -> dict[str, Any]:
    nothing = {"sent": count, **summary([])}
    try:
        with _nowhere_to_write():
            from scapy.config import conf
            from scapy.layers.inet import ICMP, IP
            from scapy.sendrecv import sr1
            from scapy.supersocket import L3RawSocket
    except ImportError:
        return {"error": "neither fping nor Scapy is installed there", **nothing}
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
        return {"error": "no fping there, and no right to open raw sockets (CAP_NET_RAW)", **nothing}
    hops = min(base - ttl for base in _TYPICAL_TTLS if base >= ttl) if round_trips else None
    return {"sent": count, "hops": hops, **summary(round_trips)}


@contextlib.contextmanager
def _nowhere_to_write() -> Iterator[None]:
    """Scapy leaves caches in the user's folders when it is imported; here they go with a temporary folder."""
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


def tcp(task: dict[str, Any], renew: Callable[[], None] = nobody) -> dict[str, Any]:
    """Handshakes with the first of the ports that answers; the kernel's own measurement of each (TCP_INFO)."""
    peer, count = task["peer"], task["count"]
    for which, port in enumerate(task["ports"]):
        if port and _connect(peer, port, 1.0) is not None:
            if which:
                count = min(count, _SSH_CONNECTS)
            found: list[int | None] = []
            while len(found) < count and found[-3:] != [None] * 3:  # three lost in a row: the way is cut
                renew()
                found.append(_connect(peer, port, 1.0))
            return {
                "sent": len(found),
                "clock": "kernel",
                "port": port,
                "hops": _hops(peer),
                **summary([rtt for rtt in found if rtt is not None]),
            }
    return {
        "sent": count,
        "error": f"no TCP port of {', '.join(map(str, task['ports']))} can be reached",
        **summary([]),
    }


def _connect(peer: str, port: int, timeout_s: float) -> int | None:
    """Nanoseconds of one handshake, None when it fails. Closed with a reset: no TIME_WAIT is left at either end."""
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
    """At most one iperf3 server, for one test, killed when its time is over whatever it does."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._kill_at = 0.0

    def serve(self, address: str, limit_s: float) -> dict[str, Any]:
        """Start one and wait until it listens; ``port`` or ``error``."""
        self.stop()
        program = which("iperf3")
        if program is None:
            return {"error": "iperf3 is not installed there"}
        with socket.socket(family_of(address)) as sock:
            sock.bind((address, 0))
            port = sock.getsockname()[1]
        # No reports every second (-i 0): nobody reads them, and those of a hundred streams fill the pipe.
        argv = [program, "-s", "-1", "-p", str(port), "-B", address, "--idle-timeout", "10", "--forceflush", "-i", "0"]
        self._process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        self._kill_at = time.monotonic() + limit_s
        assert self._process.stdout is not None
        said, deadline = b"", time.monotonic() + _GRACE_S
        while b"listening" not in said:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                self.stop()
                return {"error": "its iperf3 server does not come up"}
            data = self._process.stdout.read1(4096)  # type: ignore[attr-defined]
            if not data:
                self.stop()
                return {"error": f"its iperf3 server ended: {said.decode(errors='replace').strip()[:200]}"}
            said += data
        return {"port": port}

    def look(self) -> None:
        """End it when its time is over."""
        if self._process is not None and (self._process.poll() is not None or time.monotonic() > self._kill_at):
            self.stop()

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


def iperf3(task: dict[str, Any], renew: Callable[[], None] = nobody) -> dict[str, Any]:
    """One iperf3 test as its client: ``gbps`` received, ``retransmits``, ``min_rtt_us``, or ``error``."""
    program = which("iperf3")
    if program is None:
        return {"error": "iperf3 is not installed there"}
    peer, port = task["peer"]
    if task["bytes"]:
        bound, limit_s = ["-n", str(task["bytes"])], 20.0 + _GRACE_S
    else:
        # Whole seconds only: iperf3 3.12 reads -t 0.3 as no limit at all. One more second is run and left out (-O).
        seconds = max(1, round(task["seconds"]))
        bound, limit_s = ["-t", str(seconds), "-O", "1"], seconds + 1 + 2 * _GRACE_S
    argv = [program, "-J", "-c", peer, "-p", str(port), "-P", str(task["streams"]), "--connect-timeout", "3000", *bound]
    try:
        done = run(argv, limit_s, renew)
    except subprocess.TimeoutExpired:
        return {"error": f"no end within {limit_s:.0f} s; killed"}
    except OSError as error:
        return {"error": str(error)}
    return read_iperf3(done.stdout)


def read_iperf3(text: str) -> dict[str, Any]:
    """What ``iperf3 -J`` printed; it says "error" there and ends with exit status 0 all the same."""
    try:
        report = json.loads(text)
        if "error" in report:
            return {"error": str(report["error"]) or "iperf3 failed and does not say why"}
        end = report["end"]
        rtts = [stream["sender"].get("min_rtt") for stream in end["streams"]]
        gbps = end["sum_received"]["bits_per_second"] / 1e9
        if not 0 < gbps < 1e9:  # over before the server had read anything
            return {"error": "the server counted nothing; the test was too short"}
        known = [rtt for rtt in rtts if type(rtt) in (int, float) and 0 < rtt < math.inf]
        return {"gbps": gbps, "min_rtt_us": min(known, default=None)}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return {"error": f"unreadable report: {' '.join(text.split())[:120]!r}"}
