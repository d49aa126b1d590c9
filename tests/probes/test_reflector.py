"""STAMP in unauthenticated mode, held against Scapy's reading of RFC 8762 and 8972 and over real sockets."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.reflector import SIZE, pack_sender, query, reflect, serve
from probes.stamp import ntp_from_ns

WAIT_S = 60.0
NOW_NS = 1_700_000_000_123_456_789
U16, U32, U64 = st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


@contextlib.contextmanager
def reflecting() -> Iterator[tuple[int, Callable[[], int]]]:
    """A reflector on loopback in a thread: its port, and what ends it and gives the number of its answers."""
    ready, ended, answered = threading.Event(), threading.Event(), list[int]()
    ports: list[int] = []

    def on_ready(port: int) -> None:
        ports.append(port)
        ready.set()

    def run() -> None:
        answered.append(serve("127.0.0.1", 0, on_ready, lambda: not ended.is_set()))

    def end() -> int:
        ended.set()
        thread.join(WAIT_S)
        return answered[0]

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(WAIT_S)
    try:
        yield ports[0], end
    finally:
        end()


def test_scapy_reads_the_senders_packet_field_by_field() -> None:
    from scapy.contrib.stamp import STAMPSessionSenderTestUnauthenticated as Sender

    t1 = ntp_from_ns(NOW_NS)
    packet = pack_sender(0xFFFFFFFE, t1, 0xBEEF)
    assert len(packet) == SIZE == 44
    read = Sender(packet)
    assert (read.seq, read.ssid, read.mbz, read.tlv_objects) == (0xFFFFFFFE, 0xBEEF, 0, [])
    estimate = read.err_estimate
    assert (estimate.S, estimate.Z, estimate.scale, estimate.multiplier) == (0, 0, 0, 1)
    assert packet[4:12] == t1.to_bytes(8, "big")
    assert read.ts == pytest.approx(NOW_NS / 1e9 + 2_208_988_800, abs=1e-6)
    again = Sender(seq=0xFFFFFFFE, ts=read.ts, ssid=0xBEEF)
    assert bytes(again)[:4] + bytes(again)[12:] == packet[:4] + packet[12:]


def test_scapy_packets_interoperate() -> None:
    """An independent sender with a TLV (extra padding) at our reflector, an independent reflector at our sender."""
    from scapy.contrib.stamp import STAMPSessionReflectorTestUnauthenticated as Reflector
    from scapy.contrib.stamp import STAMPSessionSenderTestUnauthenticated as Sender
    from scapy.contrib.stamp import STAMPTestTLV

    padding = STAMPTestTLV(type=1, len=6, value=b"abcdef")
    question = bytes(Sender(seq=5, ts=3.0e9, ssid=12, tlv_objects=[padding]))
    answer = reflect(question, 1, 2, 3)
    assert answer is not None
    read = Reflector(answer)
    assert (read.seq, read.seq_sender, read.ssid) == (5, 5, 12)
    assert [tlv.value for tlv in read.tlv_objects] == [b"abcdef"]

    packets: list[bytes] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(WAIT_S)

        def answer_two() -> None:
            for _ in range(2):
                packet, peer = sock.recvfrom(2000)
                packets.append(packet)
                probe = Sender(packet)
                fields = {"ts": probe.ts, "ts_rx": probe.ts, "ts_sender": probe.ts, "ssid": probe.ssid}
                sock.sendto(bytes(Reflector(seq=900, seq_sender=probe.seq, ttl_sender=64, **fields)), peer)

        thread = threading.Thread(target=answer_two)
        thread.start()
        result = query(sock.getsockname(), 2, 0.0, WAIT_S, ssid=3)
        thread.join(WAIT_S)
    assert (result.sent, result.received, result.clock_steps) == (2, 2, 0)
    assert [(Sender(packet).seq, Sender(packet).ssid, len(packet)) for packet in packets] == [(0, 3, 44), (1, 3, 44)]


@given(st.binary(max_size=200), U64, U64, st.integers(0, 255))
def test_an_answer_is_exactly_as_long_as_the_question(packet: bytes, t2: int, t3: int, ttl: int) -> None:
    answer = reflect(packet, t2, t3, ttl)
    assert answer is None or len(answer) == len(packet)
    assert (answer is None) == (len(packet) < SIZE or packet[13] == 0)


def test_a_reflector_answers_our_sender() -> None:
    with reflecting() as (port, end):
        result = query(("127.0.0.1", port), 200, 0.0, WAIT_S, ssid=1)
        assert end() == 200
    assert (result.sent, result.received, result.clock_steps) == (200, 200, 0)
    assert result.clock == "kernel"
    assert all(value > 0 for value in result.percentiles_us)
    assert result.percentiles_us == sorted(result.percentiles_us)


def test_a_reflector_survives_garbage_and_answers_only_what_is_stamp() -> None:
    with reflecting() as (port, end), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", port))
        sock.settimeout(WAIT_S)
        seen: list[int] = []

        @given(st.binary(max_size=43) | st.binary(min_size=44, max_size=300).map(lambda b: b[:13] + b"\0" + b[14:]))
        def fuzz(garbage: bytes) -> None:
            sock.send(garbage)
            sock.send(pack_sender(len(seen), 0, 1))  # what follows the garbage is the next thing answered
            answer = sock.recv(2000)
            assert len(answer) == SIZE
            assert int.from_bytes(answer[24:28], "big") == len(seen)
            seen.append(1)

        fuzz()
        assert end() == len(seen)


def test_answers_to_other_questions_are_not_counted() -> None:
    """A late or repeated answer carries another sender's sequence; a short one is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(WAIT_S)

        def answer_badly() -> None:
            for number in range(3):
                packet, peer = sock.recvfrom(2000)
                good = reflect(packet, ntp_from_ns(NOW_NS), ntp_from_ns(NOW_NS), 64)
                assert good is not None
                wrong = good[:24] + (number + 1000).to_bytes(4, "big") + good[28:]
                for answer in (b"", good[:40], wrong, *([good, good] if number < 2 else [])):
                    sock.sendto(answer, peer)

        thread = threading.Thread(target=answer_badly)
        thread.start()
        result = query(sock.getsockname(), 3, 0.0, 2.0, ssid=3)
        thread.join(WAIT_S)
    assert (result.sent, result.received) == (3, 2)


def test_nobody_there_is_loss_and_not_an_error() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        silent = query(sock.getsockname(), 2, 0.0, 0.05, ssid=1)
        port = sock.getsockname()[1]
    closed = query(("127.0.0.1", port), 2, 0.0, 0.05, ssid=1)
    for result in (silent, closed):
        assert (result.sent, result.received, result.percentiles_us) == (2, 0, [None] * 5)


def test_a_port_that_is_taken_is_an_os_error() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        with pytest.raises(OSError, match="in use"):
            serve("127.0.0.1", sock.getsockname()[1], lambda port: None, lambda: False)


def test_an_answer_is_not_answered() -> None:
    """Or one packet with a reflector's address as its source would go to and fro between two of them for ever."""
    answer = reflect(pack_sender(7, ntp_from_ns(10**18), 1), ntp_from_ns(10**18 + 5), ntp_from_ns(10**18 + 9), 64)
    assert answer is not None
    assert reflect(answer, 1, 2, 64) is None
