"""STAMP reflector for everybody, and a sender for any STAMP reflector: unauthenticated mode.

RFC 8762 sections 4.2.1 and 4.3.1, with the SSID of RFC 8972 section 3: packets of 44 bytes both ways, big-endian::

    sender     sequence 0  timestamp T1 4  error estimate 12  SSID 14
    reflector  sequence 0  timestamp T3 4  error estimate 12  SSID 14  T2 16
               sender's sequence 24  sender's timestamp T1 28  sender's error estimate 36  sender's TTL 40
"""

import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Literal

from plink.model.stamp import StampResult
from plink.transport.addresses import family_of
from probes import timestamps
from probes.agent.summary import summary
from probes.stamp import ERROR_ESTIMATE, ns_between, ntp_from_ns

SIZE = 44
PORT = 18862  # 862, the assigned port, is privileged
_SENDER = struct.Struct("!IQHH28x")
_REFLECTOR = struct.Struct("!IQHHQIQH2xB3x")
_MBZ = slice(16, 44)  # zero in a sender's packet; times and numbers in a reflector's
_POLL_S = 0.5


def pack_sender(sequence: int, t1: int, ssid: int) -> bytes:
    """Return a Session-Sender packet; ``t1`` is an NTP timestamp."""
    return _SENDER.pack(sequence, t1, ERROR_ESTIMATE, ssid)


def reflect(packet: bytes, t2: int, t3: int, ttl: int) -> bytes | None:
    """Return the answer to a packet, of the same length (padding and TLVs are echoed); None for what is no probe.

    Stateless: the answer's sequence number is the sender's (RFC 8762 section 4.3).
    """
    if len(packet) < SIZE:  # an answer would be longer than the probe
        return None
    sequence, t1, error, ssid = _SENDER.unpack_from(packet)
    if any(packet[_MBZ]):  # an answer of another reflector: answering it would make a loop
        return None
    if error & 0xFF == 0:  # RFC 4656 section 4.1.2: a multiplier of zero is no error estimate, so this is no STAMP
        return None
    return _REFLECTOR.pack(sequence, t3, ERROR_ESTIMATE, ssid, t2, sequence, t1, error, ttl) + packet[SIZE:]


def _socket(address: str, port: int, transmit_stamps: bool) -> socket.socket:
    sock = socket.socket(family_of(address), socket.SOCK_DGRAM)
    try:
        sock.bind((address, port))
    except OSError:
        sock.close()
        raise
    if sock.family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_IP, timestamps.IP_RECVTTL, 1)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 255)
    timestamps.enable(sock, transmit_stamps)
    sock.settimeout(_POLL_S)
    return sock


def serve(address: str, port: int, on_ready: Callable[[int], None], keep_going: Callable[[], bool]) -> int:
    """Reflect probes of any sender until ``keep_going`` is false, and return the number of answers.

    :raises OSError: when the port cannot be bound.
    """
    answers = 0
    with _socket(address, port, transmit_stamps=False) as sock:
        on_ready(sock.getsockname()[1])
        while keep_going():
            try:
                packet, peer, t2_ns, ttl = timestamps.receive(sock, 65536)
            except OSError:  # a time-out, or an ICMP error from an earlier answer
                continue
            answer = reflect(packet, ntp_from_ns(abs(t2_ns)), ntp_from_ns(time.time_ns()), ttl)
            if answer is not None:
                try:
                    sock.sendto(answer, peer)
                    answers += 1
                except OSError:
                    continue
    return answers


def query(target: tuple[str, int], count: int, interval_s: float, timeout_s: float, ssid: int) -> StampResult:
    """Probe any STAMP reflector, one packet at a time, and return the summary of its round trips.

    :param target: its address and port.
    :raises OSError: when there is no route to it.
    """
    round_trips: list[int] = []
    address, port = target
    stamped = 0
    with _socket("::" if ":" in address else "0.0.0.0", 0, transmit_stamps=True) as sock:
        sock.connect(target)
        # Non-blocking, not a time-out: Python would wait at the error queue too.
        sock.setblocking(False)
        for sequence in range(count):
            sent_ns = time.time_ns()
            answer = _probe(sock, sequence, sent_ns, ssid, timeout_s)
            if answer is not None:
                t2, t3, t4_ns, kernel_sent_ns = answer
                stamped += kernel_sent_ns is not None and t4_ns > 0
                round_trips.append(abs(t4_ns) - (kernel_sent_ns or sent_ns) - ns_between(t2, t3))
            time.sleep(interval_s)
    clock: Literal["kernel", "user"] = "kernel" if 2 * stamped > len(round_trips) else "user"
    return StampResult(target=f"{address}:{port}", sent=count, clock=clock, **summary(round_trips))


def _probe(
    sock: socket.socket, sequence: int, sent_ns: int, ssid: int, timeout_s: float
) -> tuple[int, int, int, int | None] | None:
    """Send one probe, and return its (T2, T3, time of arrival, time of departure if the kernel stamped it)."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    deadline = time.monotonic() + timeout_s
    departures: dict[int, int] = {}
    try:
        sock.send(pack_sender(sequence, ntp_from_ns(sent_ns), ssid))
        while (remaining_s := deadline - time.monotonic()) > 0:
            poll.poll(1000 * remaining_s)
            departures.update(timestamps.sent_at(sock))  # stamps in the error queue would wake the poll again and again
            try:
                packet, _, t4_ns, _ = timestamps.receive(sock, 65536)
            except BlockingIOError:
                continue
            if len(packet) >= SIZE:
                _, t3, _, _, t2, sequence_answered, _, _, _ = _REFLECTOR.unpack_from(packet)
                if sequence_answered == sequence:
                    return t2, t3, t4_ns, departures.get(sequence)
    except OSError:
        return None
    return None
