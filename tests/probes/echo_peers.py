"""Peers for an echo under test: another echo, or a hand-driven end that answers as the test says. No threads."""

import select
import socket
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from probes.agent.echo import Echo
from probes.stamp import Key, ntp_from_ns, pack_reflector, pack_sender, unpack_sender

WAIT_S = 60.0
GREETINGS = 1 << 20  # the sequence numbers of greetings begin here, those of probes at 0
HERE, THERE, ELSEWHERE = "127.0.0.1", "127.0.0.2", "127.0.0.3"
Question = tuple[int, int, int, int]


def sockets_of(echo: Echo) -> list[socket.socket]:
    """The reflecting socket of an echo, then those that send."""
    return [echo._reflector, *echo._senders]


def task(peer: tuple[str, int], **changes: Any) -> dict[str, Any]:
    """What a controller tells an agent; 40 probes, 8 under way, both SSIDs known."""
    usual = {"task": 1, "ssid_out": 11, "ssid_in": 22, "count": 40, "window": 8, "timeout_s": 5.0}
    return {"peer": [*peer], **usual, **changes}


class Running:
    """Echoes in one loop of this thread; a context manager that closes them."""

    def __init__(self, *echoes: Echo, beside: Iterable["HandDriven"] = ()) -> None:
        self.echoes, self.beside = echoes, {peer.sock.fileno(): peer for peer in beside}
        self.poll = select.epoll()
        for echo in echoes:
            echo.register(self.poll)
        for fd in self.beside:
            self.poll.register(fd, select.EPOLLIN)

    def turn(self) -> list[dict[str, Any]]:
        """Wait for packets once, let every echo go on; the results that came by it."""
        waits = [wait for echo in self.echoes if (wait := echo.poll_timeout_s()) is not None]
        for fd, _ in self.poll.poll(min([*waits, 0.05])):
            if fd in self.beside:
                self.beside[fd].serve()
            for echo in self.echoes:
                echo.on_readable(fd)
        return [result for echo in self.echoes if (result := echo.poll_result()) is not None]

    def results(self, number: int) -> list[dict[str, Any]]:
        """Turn until so many measurements are over; ordered by task."""
        results: list[dict[str, Any]] = []
        deadline = time.monotonic() + WAIT_S
        while len(results) < number:
            assert time.monotonic() < deadline, results
            results += self.turn()
        return sorted(results, key=lambda result: result["task"])

    def until(self, condition: Callable[[], bool]) -> None:
        """Turn until something is so."""
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline
            self.turn()

    def __enter__(self) -> "Running":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.poll.close()
        for echo in self.echoes:
            for sock in sockets_of(echo):
                sock.close()
        for peer in self.beside.values():
            peer.sock.close()


class HandDriven:
    """A peer with the run's key that answers as ``rule`` says.

    ``rule(question)``: what to send back for a probe, as (socket to send with, packet) pairs, in order.
    """

    def __init__(self, key: Key, rule: Callable[[Question], list[tuple[socket.socket, bytes]]]) -> None:
        self.sock = udp(THERE)
        self.key, self.rule = key, rule
        self.probes: list[Question] = []
        self.sources: list[tuple[str, int]] = []
        self.answers = 0  # to probes
        self.greeted = 0  # answers to greetings

    @property
    def address(self) -> tuple[str, int]:
        """Where it is."""
        return THERE, int(self.sock.getsockname()[1])

    def answer(
        self, question: Question, turnaround_ns: int = 0, ssid: int | None = None
    ) -> tuple[socket.socket, bytes]:
        """A right answer, numbered as a reflector numbers them, unless told otherwise."""
        if question[0] >= GREETINGS:
            number, self.greeted = self.greeted, self.greeted + 1
        else:
            number, self.answers = self.answers, self.answers + 1
        now = time.time_ns()
        question = (*question[:3], question[3] if ssid is None else ssid)
        packet = pack_reflector(self.key, number, ntp_from_ns(now + turnaround_ns), ntp_from_ns(now), question, 250)
        return self.sock, packet

    def serve(self) -> None:
        """Take every waiting probe."""
        while True:
            try:
                packet, peer = self.sock.recvfrom(2000)
            except BlockingIOError:
                return
            question = unpack_sender(self.key, packet)
            assert question is not None
            self.probes.append(question)
            self.sources.append(peer)
            for sock, answer in self.rule(question):
                sock.sendto(answer, peer)


def udp(address: str) -> socket.socket:
    """A socket that does not wait."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((address, 0))
    sock.setblocking(False)
    return sock


def probe(key: Key, sequence: int, ssid: int) -> bytes:
    """A sender's packet of now."""
    return pack_sender(key, sequence, ntp_from_ns(time.time_ns()), ssid)
