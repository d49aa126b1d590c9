"""Both ends of a STAMP measurement in one thread: sends probes, reflects the peer's, and times the answers.

Runs on the hosts: standard library only. The two hosts of a pair measure each other at the same time: with the kernel's
timestamps on both sides, (T4 - T1) - (T3 - T2) leaves out whatever time a packet waits for either process.
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
import time
from typing import Any

from plink.transport.addresses import family_of
from probes import timestamps
from probes.agent.summary import is_precise, summary
from probes.datagrams import Inbox
from probes.stamp import (
    Key,
    ns_between,
    ntp_from_ns,
    pack_reflector,
    pack_sender,
    unpack_reflector,
    unpack_sender,
)

_HELLO_EVERY_S = 0.05
_FIRST_HELLO_EVERY_S, _FIRST_HELLOS = 0.002, 10  # the peer usually gets its request at the same time
_HELLO_S = 3.0  # the peer may get its request a little later than this end; where a request sets no `hello_s`
_READY_S = 0.5  # after both ends began: greetings from here on that are lost, the way loses
_MAX_LOST_IN_A_ROW = 64  # the path is down: the remaining probes are not sent
_TTL = 255  # RFC 8762 section 4.2.1
_NO_TTL = 0
_BATCHES = 4
_RECHECK_RATIO = 1.5  # as many samples as at the check before, until the next
_GREETINGS = 1 << 20  # sequence numbers from here on are greetings, below it probes
_SEQUENCES = _GREETINGS + 128


class Echo:
    """Sockets of one agent: one that reflects, and ``source_ports`` that send (each is an ECMP path of its own)."""

    def __init__(self, key: Key, address: str, source_ports: int) -> None:
        self._key, self._inbox = key, Inbox()
        self._reflector, self.stamps = _open(address, transmit_stamps=False)
        self._senders = [_open(address, transmit_stamps=True)[0] for _ in range(source_ports)]
        self.port = int(self._reflector.getsockname()[1])
        self._session: Session | None = None
        self._by_fd = {sock.fileno(): sock for sock in self._senders}

    def register(self, poll: select.epoll) -> None:
        """Register the sockets with an epoll object (it reports error queues by default)."""
        for sock in (self._reflector, *self._senders):
            poll.register(sock.fileno(), select.EPOLLIN)

    def begin(self, request: dict[str, Any]) -> None:
        """Begin to measure with one peer. A measurement in progress is dropped."""
        self._session = Session(request, self._senders, self._inbox)

    def on_readable(self, fd: int) -> None:
        """Process what waits at one of the sockets."""
        if fd == self._reflector.fileno():
            self._reflect()
        elif fd in self._by_fd:
            self._collect(self._by_fd[fd])

    def poll_result(self) -> dict[str, Any] | None:
        """Send the probes that are due, and return the result, once, when the measurement is done."""
        session = self._session
        if session is None or session.reported:
            return None
        session.send(self._key)
        if not session.is_over():
            return None
        session.reported = True
        return session.result()

    def poll_timeout_s(self) -> float | None:
        """Return for how long only packets need attention; None without a measurement."""
        session = self._session
        return None if session is None or session.reported else session.poll_timeout_s()

    def _reflect(self) -> None:
        """Answer every waiting probe of this session, each sequence number once."""
        session = self._session
        for _ in range(_BATCHES):  # what remains wakes the poll again
            try:
                waiting = self._inbox.receive(self._reflector)
            except OSError:  # an ICMP error from an earlier answer: more packets may wait here
                continue
            if not waiting:
                return
            for packet, peer, t2_ns, ttl in waiting:
                sender = unpack_sender(self._key, packet)
                # Unsigned, of another session, from another host, or seen before (replayed): no answer.
                if session is None or sender is None:
                    continue
                number = session.answer_number(sender[3], sender[0], peer)
                if number is None:
                    continue
                answer = pack_reflector(
                    self._key, number, ntp_from_ns(time.time_ns()), ntp_from_ns(abs(t2_ns)), sender, ttl
                )
                with contextlib.suppress(OSError):
                    self._reflector.sendto(answer, session.answer_address(peer))

    def _collect(self, sock: socket.socket) -> None:
        """Process every waiting answer."""
        session = self._session
        stamps = self._inbox.sent_at(sock)
        if session is not None:
            session.on_stamps(sock, stamps)
        for _ in range(_BATCHES):
            try:
                waiting = self._inbox.receive(sock)
            except OSError:  # "port unreachable" by ICMP: the probe counts as lost after its time-out
                continue
            if not waiting:
                return
            if session is not None:
                for packet, peer, t4_ns, _ in waiting:
                    answer = unpack_reflector(self._key, packet)
                    if answer is not None:
                        session.on_answer(answer, peer, t4_ns)


def _open(address: str, transmit_stamps: bool) -> tuple[socket.socket, bool]:
    sock = socket.socket(family_of(address), socket.SOCK_DGRAM)
    sock.bind((address, 0))
    sock.setblocking(False)
    # The buffer holds a burst that comes while the process waits for a core, and the error queue's copies.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    if sock.family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, _TTL)
        sock.setsockopt(socket.IPPROTO_IP, timestamps.IP_RECVTTL, int(not transmit_stamps))
    else:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, _TTL)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, int(not transmit_stamps))
    return sock, timestamps.enable(sock, transmit_stamps)


def _hello_due_s(number: int) -> float:
    """Return when the greeting of that number is sent, seconds after the beginning."""
    return min(number, _FIRST_HELLOS) * _FIRST_HELLO_EVERY_S + max(0, number - _FIRST_HELLOS) * _HELLO_EVERY_S


class Session:
    """One measurement with one peer, this end's half of it.

    It sends greetings until one is answered (the peer is ready), then ``count`` probes, at most ``window`` in flight;
    with a ``precision`` fewer, ``min_count`` at least, once the 10th percentile is known to within that share.
    Probes are numbered from 0; lists hold the data of each at its number. Greetings and the answers to them have
    numbers of their own: on a long path many are in flight when the first is answered, and how many of those arrive
    must not change the number of probes. But those that were lost when the peer must long have been ready count as lost
    probes: a way that comes and goes would show its good times alone.
    """

    def __init__(self, request: dict[str, Any], senders: list[socket.socket], inbox: Inbox) -> None:
        self.task: int = request["task"]
        self.reported = False
        self._peer: tuple[str, int] = (request["peer"][0], request["peer"][1])
        self._address = socket.inet_pton(family_of(self._peer[0]), self._peer[0].partition("%")[0])
        self._ports: dict[bytes, tuple[str, int]] = {}  # of the peer's sending sockets
        self._out, self._in = request["ssid_out"], request["ssid_in"]
        self._count: int = request["count"]
        self._window: int = request["window"]
        self._timeout_s: float = request["timeout_s"]
        self._hello_s: float = request.get("hello_s", _HELLO_S)
        # Without a precision all probes are sent.
        self._precision: float | None = request.get("precision")
        self._check_at: float = request.get("min_count", 0)
        self._seen = bytearray(_SEQUENCES >> 3)
        self._reflected = [0, 0]  # probes of the peer, its greetings
        self._senders = senders
        # Of each sending socket: the sequence of the packet that the kernel calls its number 0, 1, ...
        self._sequences: dict[int, list[int]] = {}
        for sock in senders:
            inbox.sent_at(sock)  # discard the stamps of the measurement before
            timestamps.enable(sock, transmit=True)
            self._sequences[sock.fileno()] = []
        self._sent_ns: list[int] = []
        self._stamped = bytearray()
        self._in_flight: dict[int, float] = {}  # sequence -> time of sending, oldest first
        self._hellos_sent = 0
        self._greeted = False
        self._peer_began_s = math.inf
        self._answered_greeting = 0, 0  # its number, and how many the peer had answered before
        self._began_s = time.monotonic()
        self._sent = self._lost_in_a_row = self._kernel_stamped = 0
        self._answers_sent = 0  # to probes, by the peer, as it numbers them
        self._ttl = _NO_TTL
        self._round_trips_ns: list[int] = []

    def answer_address(self, peer: bytes) -> tuple[str, int]:
        """Return where to answer the peer: its address, and the port at the end of ``peer``."""
        if peer not in self._ports:
            self._ports[peer] = (self._peer[0], int.from_bytes(peer[-2:], "big"))
        return self._ports[peer]

    def answer_number(self, ssid: int, sequence: int, peer: bytes) -> int | None:
        """Record a signed packet that this session expects, and return its answer's number; None for others."""
        if ssid != self._in or peer[:-2] != self._address or sequence >= _SEQUENCES:
            return None
        byte, bit = sequence >> 3, 1 << (sequence & 7)
        if self._seen[byte] & bit:
            return None
        self._seen[byte] |= bit
        kind = int(sequence >= _GREETINGS)
        if kind:
            began_s = time.monotonic() - _hello_due_s(sequence - _GREETINGS)
            self._peer_began_s = min(self._peer_began_s, began_s)
        self._reflected[kind] += 1
        return self._reflected[kind] - 1

    def send(self, key: Key) -> None:
        """Send as many probes as the window allows."""
        now = time.monotonic()
        self._expire(now)
        if not self._greeted:
            if now - self._began_s < self._hello_s and now - self._began_s >= _hello_due_s(self._hellos_sent):
                self._send_one(key, self._senders[0], _GREETINGS + self._hellos_sent, now)
                self._hellos_sent += 1
            return
        # Send in bursts of half a window at least, so that both ends process many packets per wake-up.
        if len(self._in_flight) > self._window // 2:
            return
        if self._precision is not None and self._check_at <= len(self._round_trips_ns) < self._count:
            self._check_at = _RECHECK_RATIO * len(self._round_trips_ns)
            if is_precise(self._round_trips_ns, self._precision):
                self._count = self._sent
        while (
            len(self._in_flight) < self._window
            and self._sent < self._count
            and self._lost_in_a_row < _MAX_LOST_IN_A_ROW
        ):
            self._sent_ns.append(0)
            self._stamped.append(0)
            self._send_one(key, self._senders[self._sent // self._window % len(self._senders)], self._sent, now)
            self._sent += 1

    def _send_one(self, key: Key, sock: socket.socket, sequence: int, now: float) -> None:
        sent_ns = time.time_ns()
        if sequence < _GREETINGS:
            self._sent_ns[sequence] = sent_ns
        self._in_flight[sequence] = now
        try:
            sock.sendto(pack_sender(key, sequence, ntp_from_ns(sent_ns), self._out), self._peer)
        except OSError:
            # The kernel refused it: restart the numbering of this socket's packets.
            timestamps.enable(sock, transmit=True)
            self._sequences[sock.fileno()] = []
            return
        self._sequences[sock.fileno()].append(sequence)

    def on_stamps(self, sock: socket.socket, stamps: list[tuple[int, int]]) -> None:
        """Record transmit stamps of one socket: (the kernel's number of the packet, time of sending)."""
        sequences = self._sequences[sock.fileno()]
        for number, sent_ns in stamps:
            if number < len(sequences) and sequences[number] < _GREETINGS:
                sequence = sequences[number]
                self._sent_ns[sequence] = sent_ns
                self._stamped[sequence] = 1

    def on_answer(self, answer: tuple[int, ...], peer: bytes, t4_ns: int) -> None:
        """Record a signed answer: (reflector's sequence, T3, error, SSID, T2, sequence, T1, error, TTL).

        ``t4_ns`` is negative when the kernel did not stamp it.
        """
        number, t3, _, ssid, t2, sequence, _, _, ttl = answer
        if ssid != self._out or peer[:-2] != self._address:
            return
        if sequence < self._sent:  # a late answer, too: its probe was lost in neither direction
            self._answers_sent = max(self._answers_sent, number + 1)
        if self._in_flight.pop(sequence, None) is None:  # late, or twice
            return
        self._lost_in_a_row = 0
        self._ttl = ttl
        if sequence >= _GREETINGS:
            self._greeted = True
            self._answered_greeting = sequence - _GREETINGS, number
            self._in_flight.clear()
            return
        if t4_ns > 0 and self._stamped[sequence]:
            self._kernel_stamped += 1
        self._round_trips_ns.append(abs(t4_ns) - self._sent_ns[sequence] - ns_between(t2, t3))

    def _expire(self, now: float) -> None:
        while self._in_flight:
            sequence, sent_s = next(iter(self._in_flight.items()))
            if now - sent_s < self._timeout_s:
                return
            del self._in_flight[sequence]
            self._lost_in_a_row += 1

    def poll_timeout_s(self) -> float:
        """Return the time until the next probe is due or times out."""
        now = time.monotonic()
        if not self._greeted:
            due_s = _hello_due_s(self._hellos_sent)
            # After the last greeting only the time-out remains.
            return max(0.0, self._began_s + (due_s if due_s < self._hello_s else self._hello_s + self._timeout_s) - now)
        oldest = next(iter(self._in_flight.values()), None)
        return 0.0 if oldest is None else max(0.0, oldest + self._timeout_s - now)

    def is_over(self) -> bool:
        """Return whether nothing more is to be sent or awaited."""
        if not self._greeted:
            return time.monotonic() - self._began_s > self._hello_s + self._timeout_s
        return not self._in_flight and (self._sent == self._count or self._lost_in_a_row >= _MAX_LOST_IN_A_ROW)

    def _lost_greetings(self) -> tuple[int, int]:
        """Return how many greetings were lost there, and answers to them back, half a second after the later of both
        ends began, which the peer's own greetings tell, and before the first that was answered."""
        answered, before = self._answered_greeting
        ready_s = max(self._began_s, self._peer_began_s) + _READY_S
        lost = sum(self._began_s + _hello_due_s(number) >= ready_s for number in range(answered))
        back = min(lost, before)
        return lost - back, back

    def result(self) -> dict[str, Any]:
        """Return the result of this end."""
        received = len(self._round_trips_ns)
        there, back = self._lost_greetings()
        reflected = max(received, min(self._sent, self._answers_sent)) + back
        return {
            "task": self.task,
            "sent": self._sent + there + back,
            "reflected": reflected,
            "clock": "kernel" if self._kernel_stamped * 2 > received else "user",
            "hops": _TTL - self._ttl if self._ttl else None,
            **summary(self._round_trips_ns),
        }
