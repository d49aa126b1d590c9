"""Both ends of a STAMP measurement in one thread: send probes, reflect the peer's, keep what the answers say.

Runs on the hosts: standard library only. The two hosts of a pair measure each other at the same time: with the kernel's
timestamps on both sides, (T4 - T1) - (T3 - T2) leaves out whatever time a packet waits for either process.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from typing import Any

from plink.remote.addresses import family_of
from probes import timestamps
from probes.agent.summary import summary
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
_HELLO_SOONER_S, _SOONER = 0.002, 10  # the first few: the peer usually hears of the measurement in a moment
_HELLO_S = 3.0  # the peer may hear of the measurement a little later than this end
_MOST_LOST = 64  # in a row: the way is cut, the rest is not tried
_TTL = 255  # RFC 8762 section 4.2.1
_NO_TTL = 0
_BATCHES = 4
_GREETINGS = 1 << 20  # sequence numbers from here on are greetings, below it probes
_MOST_SEQUENCES = _GREETINGS + 128


class Echo:
    """The sockets of one agent: one that reflects, and ``source_ports`` that send (each is an ECMP path of its own)."""

    def __init__(self, key: Key, address: str, source_ports: int) -> None:
        self._key, self._inbox = key, Inbox()
        self._reflector, self.stamps = _open(address, transmit_stamps=False)
        self._senders = [_open(address, transmit_stamps=True)[0] for _ in range(source_ports)]
        self.port = int(self._reflector.getsockname()[1])
        self._session: Session | None = None
        self._by_fd = {sock.fileno(): sock for sock in self._senders}

    def register(self, poll: select.epoll) -> None:
        """Let a poll wake up for these sockets (error queues wake it by themselves)."""
        for sock in (self._reflector, *self._senders):
            poll.register(sock.fileno(), select.EPOLLIN)

    def begin(self, task: dict[str, Any]) -> None:
        """Measure with one peer from now on; what is left of the measurement before is dropped."""
        self._session = Session(task, self._senders, self._inbox)

    def ready(self, fd: int) -> None:
        """One of the sockets has something."""
        if fd == self._reflector.fileno():
            self._reflect()
        elif fd in self._by_fd:
            self._collect(self._by_fd[fd])

    def proceed(self) -> dict[str, Any] | None:
        """Send what may be sent; the result, once, when the measurement is over."""
        session = self._session
        if session is None or session.told:
            return None
        session.send(self._key)
        if not session.is_over():
            return None
        session.told = True
        return session.result()

    def waits_s(self) -> float | None:
        """For how long there is nothing to do unless a packet comes; None when only the controller can begin any."""
        session = self._session
        return None if session is None or session.told else session.waits_s()

    def _reflect(self) -> None:
        """Answer every waiting probe of this session, each sequence number once."""
        session = self._session
        for _ in range(_BATCHES):  # what is left wakes the poll again
            try:
                waiting = self._inbox.receive(self._reflector)
            except OSError:  # an ICMP error from an earlier answer; says nothing about what waits here
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
                    self._reflector.sendto(answer, session.at_port(peer))

    def _collect(self, sock: socket.socket) -> None:
        """Take in every waiting answer."""
        session = self._session
        stamps = self._inbox.sent_at(sock)
        if session is not None:
            session.stamp(sock, stamps)
        for _ in range(_BATCHES):
            try:
                waiting = self._inbox.receive(sock)
            except OSError:  # "port unreachable" by ICMP: the probe counts as lost when its time is over
                continue
            if not waiting:
                return
            if session is not None:
                for packet, peer, t4_ns, _ in waiting:
                    answer = unpack_reflector(self._key, packet)
                    if answer is not None:
                        session.answered(answer, peer, t4_ns)


def _open(address: str, transmit_stamps: bool) -> tuple[socket.socket, bool]:
    sock = socket.socket(family_of(address), socket.SOCK_DGRAM)
    sock.bind((address, 0))
    sock.setblocking(False)
    # A burst of probes may find the process waiting for a core: room for it, and for the error queue's copies.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    if sock.family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, _TTL)
        sock.setsockopt(socket.IPPROTO_IP, timestamps.IP_RECVTTL, int(not transmit_stamps))
    else:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, _TTL)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, int(not transmit_stamps))
    return sock, timestamps.enable(sock, transmit_stamps)


def _hello_due_s(number: int) -> float:
    """When the greeting of that number is sent, seconds after the beginning."""
    return min(number, _SOONER) * _HELLO_SOONER_S + max(0, number - _SOONER) * _HELLO_EVERY_S


class Session:
    """One measurement with one peer, this end's half of it.

    First greetings until one is answered (the peer is there), then ``count`` probes, at most ``window`` under way.
    Probes are numbered from 0, and what is known of one stands in lists at its number. Greetings have numbers of their
    own, and so have the answers to them: on a long way many are under way when the first is answered, and how many of
    those arrive must not matter to how many probes do.
    """

    def __init__(self, task: dict[str, Any], senders: list[socket.socket], inbox: Inbox) -> None:
        self.task: int = task["task"]
        self.told = False
        self._peer: tuple[str, int] = (task["peer"][0], task["peer"][1])
        self._address = socket.inet_pton(family_of(self._peer[0]), self._peer[0].partition("%")[0])
        self._ports: dict[bytes, tuple[str, int]] = {}  # of the peer's sending sockets
        self._out, self._in = task["ssid_out"], task["ssid_in"]
        self._count: int = task["count"]
        self._window: int = task["window"]
        self._timeout_s: float = task["timeout_s"]
        self._seen = bytearray(_MOST_SEQUENCES >> 3)
        self._reflected = [0, 0]  # probes of the peer, its greetings
        self._senders = senders
        # Of each sending socket: the sequence of the packet that the kernel calls its number 0, 1, ...
        self._sequences: dict[int, list[int]] = {}
        for sock in senders:
            inbox.sent_at(sock)  # what is left of the measurement before would be taken for this one's
            timestamps.enable(sock, transmit=True)
            self._sequences[sock.fileno()] = []
        self._left_ns: list[int] = []
        self._stamped = bytearray()
        self._under_way: dict[int, float] = {}  # sequence -> when sent, oldest first
        self._hellos = 0
        self._greeted = False
        self._began_s = time.monotonic()
        self._sent = self._lost_in_a_row = self._kernel_stamped = 0
        self._answers_sent = 0  # to probes, by the peer, as it numbers them
        self._ttl = _NO_TTL
        self._round_trips_ns: list[int] = []

    def at_port(self, peer: bytes) -> tuple[str, int]:
        """Where to answer the peer: its address, the port that stands after it in ``peer``."""
        if peer not in self._ports:
            self._ports[peer] = (self._peer[0], int.from_bytes(peer[-2:], "big"))
        return self._ports[peer]

    def answer_number(self, ssid: int, sequence: int, peer: bytes) -> int | None:
        """The number of the answer to a signed packet that this session waits for, and notes; None for any other."""
        if ssid != self._in or peer[:-2] != self._address or sequence >= _MOST_SEQUENCES:
            return None
        byte, bit = sequence >> 3, 1 << (sequence & 7)
        if self._seen[byte] & bit:
            return None
        self._seen[byte] |= bit
        kind = int(sequence >= _GREETINGS)
        self._reflected[kind] += 1
        return self._reflected[kind] - 1

    def send(self, key: Key) -> None:
        """Send as many probes as may be under way."""
        now = time.monotonic()
        self._expire(now)
        if not self._greeted:
            if now - self._began_s < _HELLO_S and now - self._began_s >= _hello_due_s(self._hellos):
                self._send_one(key, self._senders[0], _GREETINGS + self._hellos, now)
                self._hellos += 1
            return
        # Bursts rather than a trickle: half a window at least, so that both ends work on many packets a wake-up.
        if len(self._under_way) > self._window // 2:
            return
        while len(self._under_way) < self._window and self._sent < self._count and self._lost_in_a_row < _MOST_LOST:
            self._left_ns.append(0)
            self._stamped.append(0)
            self._send_one(key, self._senders[self._sent // self._window % len(self._senders)], self._sent, now)
            self._sent += 1

    def _send_one(self, key: Key, sock: socket.socket, sequence: int, now: float) -> None:
        left_ns = time.time_ns()
        if sequence < _GREETINGS:
            self._left_ns[sequence] = left_ns
        self._under_way[sequence] = now
        try:
            sock.sendto(pack_sender(key, sequence, ntp_from_ns(left_ns), self._out), self._peer)
        except OSError:
            # Refused on its way out; the kernel's numbering of this socket's packets starts anew.
            timestamps.enable(sock, transmit=True)
            self._sequences[sock.fileno()] = []
            return
        self._sequences[sock.fileno()].append(sequence)

    def stamp(self, sock: socket.socket, stamps: list[tuple[int, int]]) -> None:
        """Transmit stamps of one socket have come: (the kernel's number of the packet, when it left)."""
        sequences = self._sequences[sock.fileno()]
        for number, left_ns in stamps:
            if number < len(sequences) and sequences[number] < _GREETINGS:
                sequence = sequences[number]
                self._left_ns[sequence] = left_ns
                self._stamped[sequence] = 1

    def answered(self, answer: tuple[int, ...], peer: bytes, t4_ns: int) -> None:
        """A signed answer: (reflector's sequence, T3, error, SSID, T2, sequence, T1, error, TTL); ``t4_ns`` is negative
        when the kernel did not stamp it."""
        number, t3, _, ssid, t2, sequence, _, _, ttl = answer
        if ssid != self._out or peer[:-2] != self._address:
            return
        if sequence < self._sent:  # also one that comes late: it was lost on neither way
            self._answers_sent = max(self._answers_sent, number + 1)
        if self._under_way.pop(sequence, None) is None:  # late, or twice
            return
        self._lost_in_a_row = 0
        self._ttl = ttl
        if sequence >= _GREETINGS:
            self._greeted = True
            self._under_way.clear()
            return
        if t4_ns > 0 and self._stamped[sequence]:
            self._kernel_stamped += 1
        self._round_trips_ns.append(abs(t4_ns) - self._left_ns[sequence] - ns_between(t2, t3))

    def _expire(self, now: float) -> None:
        while self._under_way:
            sequence, sent_s = next(iter(self._under_way.items()))
            if now - sent_s < self._timeout_s:
                return
            del self._under_way[sequence]
            self._lost_in_a_row += 1

    def waits_s(self) -> float:
        """Until the next probe is due or given up."""
        now = time.monotonic()
        if not self._greeted:
            due_s = _hello_due_s(self._hellos)
            # After the last of them only the end is waited for.
            return max(0.0, self._began_s + (due_s if due_s < _HELLO_S else _HELLO_S + self._timeout_s) - now)
        oldest = next(iter(self._under_way.values()), None)
        return 0.0 if oldest is None else max(0.0, oldest + self._timeout_s - now)

    def is_over(self) -> bool:
        """Whether there is nothing more to send or to wait for."""
        if not self._greeted:
            return time.monotonic() - self._began_s > _HELLO_S + self._timeout_s
        return not self._under_way and (self._sent == self._count or self._lost_in_a_row >= _MOST_LOST)

    def result(self) -> dict[str, Any]:
        """What this end found out."""
        received = len(self._round_trips_ns)
        reflected = max(received, min(self._sent, self._answers_sent))
        return {
            "task": self.task,
            "sent": self._sent,
            "reflected": reflected,
            "clock": "kernel" if self._kernel_stamped * 2 > received else "user",
            "hops": _TTL - self._ttl if self._ttl else None,
            **summary(self._round_trips_ns),
        }
