"""The kernel's own times of packets, on loopback: of sending, of arrival, numbered anew with every measurement."""

import select
import socket
import time

from probes import timestamps

WAIT_S = 60.0


def stamps_of(sock: socket.socket, number: int) -> list[tuple[int, int]]:
    """So many transmit stamps, waited for."""
    poll, departures = select.poll(), list[tuple[int, int]]()
    poll.register(sock, 0)
    deadline = time.monotonic() + WAIT_S
    while len(departures) < number:
        assert time.monotonic() < deadline
        poll.poll(50)
        departures += timestamps.sent_at(sock)
    return departures


def test_a_packet_leaves_and_arrives_by_the_kernels_clock() -> None:
    """Both within the time in which it was sent and read, and in that order."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as a,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as b,
    ):
        for sock in (a, b):
            sock.bind(("127.0.0.1", 0))
            sock.setblocking(False)
        b.setsockopt(socket.IPPROTO_IP, timestamps.IP_RECVTTL, 1)
        a.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 77)
        assert timestamps.enable(a, transmit=True)
        assert timestamps.enable(b, transmit=False)
        assert timestamps.sent_at(a) == []
        before = time.time_ns()
        for number in range(3):
            a.sendto(b"packet %d" % number, b.getsockname())
        stamps = stamps_of(a, 3)
        assert [number for number, _ in stamps] == [0, 1, 2]
        for number, left in stamps:
            assert select.select([b], [], [], WAIT_S)[0]
            packet, peer, arrived, ttl = timestamps.receive(b, 100)
            assert (packet, peer, ttl) == (b"packet %d" % number, a.getsockname(), 77)
            assert before <= left <= arrived <= time.time_ns()


def test_sequence_numbers_restart_with_a_new_request() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        for _ in range(2):
            timestamps.enable(sock, transmit=True)
            for _ in range(2):
                sock.sendto(b"x", sock.getsockname())
            assert [number for number, _ in stamps_of(sock, 2)] == [0, 1]


def test_without_stamps_a_process_reads_its_own_clock() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        before = time.time_ns()
        sock.sendto(b"x", sock.getsockname())
        _, _, arrived, ttl = timestamps.receive(sock, 100)
        assert before <= -arrived <= time.time_ns()
        assert ttl == 0
