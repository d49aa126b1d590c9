"""A batch of datagrams in one call: what Python's own calls would say of each, both address families."""

import socket
import time

import pytest

from probes import timestamps
from probes.datagrams import Inbox

WAIT_S = 60.0


def pair(address: str) -> tuple[socket.socket, socket.socket]:
    """Two sockets on an address: one that stamps what it sends, one that stamps what comes and wants its TTL."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sockets = socket.socket(family, socket.SOCK_DGRAM), socket.socket(family, socket.SOCK_DGRAM)
    for sock in sockets:
        sock.bind((address, 0))
        sock.setblocking(False)
    assert timestamps.enable(sockets[0], transmit=True)
    if family == socket.AF_INET:
        sockets[1].setsockopt(socket.IPPROTO_IP, timestamps.IP_RECVTTL, 1)
    else:
        sockets[1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
    return sockets


def taken(inbox: Inbox, sock: socket.socket, number: int) -> list[tuple[bytes, bytes, int, int]]:
    """So many datagrams, waited for."""
    datagrams: list[tuple[bytes, bytes, int, int]] = []
    deadline = time.monotonic() + WAIT_S
    while len(datagrams) < number:
        assert time.monotonic() < deadline, datagrams
        datagrams += inbox.receive(sock)
    return datagrams


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_batch_says_of_each_packet_what_recvmsg_would(address: str) -> None:
    sender, receiver = pair(address)
    with sender, receiver:
        assert timestamps.enable(receiver, transmit=False)
        inbox = Inbox()
        before = time.time_ns()
        for number in range(100):  # more than one batch
            sender.sendto(bytes([number]) * (number + 1), receiver.getsockname()[:2])
        datagrams = taken(inbox, receiver, 100)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        here = socket.inet_pton(family, address) + sender.getsockname()[1].to_bytes(2, "big")
        assert [(packet, peer, ttl) for packet, peer, _, ttl in datagrams] == [
            (bytes([number]) * (number + 1), here, 64) for number in range(100)
        ]
        stamps: list[tuple[int, int]] = []
        while len(stamps) < 100:
            stamps += inbox.sent_at(sender)
        assert [number for number, _ in stamps] == list(range(100))
        for (_, left), (_, _, arrived, _) in zip(stamps, datagrams, strict=True):
            assert before <= left <= arrived <= time.time_ns()
        assert inbox.receive(receiver) == []
        assert inbox.sent_at(sender) == []


def test_without_the_kernels_stamps_the_time_is_ones_own_and_negative() -> None:
    """And what an earlier batch left in the buffers is not taken for this one's."""
    stamped, receiver = pair("127.0.0.1")
    with stamped, receiver:
        assert timestamps.enable(receiver, transmit=False)
        inbox = Inbox()
        stamped.sendto(b"a", receiver.getsockname())
        assert taken(inbox, receiver, 1)[0][2] > 0
        receiver.setsockopt(socket.SOL_SOCKET, timestamps.SO_TIMESTAMPING, 0)
        before = time.time_ns()
        stamped.sendto(b"b", receiver.getsockname())
        ((packet, _, arrived, ttl),) = taken(inbox, receiver, 1)
        assert (packet, ttl) == (b"b", 64)
        assert -time.time_ns() <= arrived <= -before
        receiver.setsockopt(socket.IPPROTO_IP, timestamps.IP_RECVTTL, 0)
        stamped.sendto(b"c", receiver.getsockname())
        assert taken(inbox, receiver, 1)[0][3] == 0


def test_a_packet_that_is_too_long_is_cut_and_one_that_is_empty_is_empty() -> None:
    sender, receiver = pair("127.0.0.1")
    with sender, receiver:
        sender.sendto(b"x" * 5000, receiver.getsockname())
        sender.sendto(b"", receiver.getsockname())
        long, empty = taken(Inbox(), receiver, 2)
        assert len(long[0]) == 128
        assert empty[0] == b""


def test_an_icmp_error_is_raised_and_the_socket_goes_on() -> None:
    """Port unreachable, on a socket that is connected: the only ones that hear of it."""
    sender, receiver = pair("127.0.0.1")
    with sender:
        sender.connect(receiver.getsockname())
        receiver.close()
        sender.send(b"nobody is there")
        with pytest.raises(ConnectionRefusedError):
            taken(Inbox(), sender, 1)
        assert Inbox().receive(sender) == []
