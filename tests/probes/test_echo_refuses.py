"""An agent's reflector answers the probes of its measurement, each once, and nothing else: no forgery, no replay."""

import itertools
import socket
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.agent.echo import Echo
from probes.stamp import SIZE, Key, unpack_reflector
from tests.probes.echo_peers import ELSEWHERE, GREETINGS, HERE, THERE, WAIT_S, probe, sockets_of, task, udp

KEY, OTHER = Key(b"the key of this run"), Key(b"another run's")
SSID = 22


class ReflectorUnderTest:
    """An echo that waits for a peer at THERE, and that peer's socket; sequence numbers are given out once."""

    def __init__(self) -> None:
        self.echo = Echo(KEY, HERE, source_ports=1)
        self.peer = udp(THERE)
        self.numbers = itertools.count()
        self.echo.begin(task(("127.0.0.2", 9), ssid_in=SSID))

    def close(self) -> None:
        """Close all sockets."""
        for sock in (self.peer, *sockets_of(self.echo)):
            sock.close()

    def send(self, packet: bytes, sock: socket.socket | None = None) -> None:
        """To the echo's reflector."""
        (sock or self.peer).sendto(packet, (HERE, self.echo.port))

    def next_answer(self) -> tuple[int, int, int]:
        """(reflector's number, sequence, SSID) of the next answer, which must come."""
        reflector = sockets_of(self.echo)[0]
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            self.echo.on_readable(reflector.fileno())
            try:
                packet = self.peer.recv(2000)
            except BlockingIOError:
                continue
            assert len(packet) == SIZE
            answer = unpack_reflector(KEY, packet)
            assert answer is not None
            return answer[0], answer[5], answer[3]
        raise AssertionError("no answer")

    def only_the_next_is_answered(self) -> None:
        """A right probe sent now gets the very next answer: whatever was sent before it got none."""
        number = next(self.numbers)
        self.send(probe(KEY, number, SSID))
        assert self.next_answer()[1:] == (number, SSID)


@pytest.fixture(scope="module")
def reflector() -> Iterator[ReflectorUnderTest]:
    """An echo for all tests of this module: what one test does to it must not matter to another."""
    reflector = ReflectorUnderTest()
    yield reflector
    reflector.close()


def test_replayed_messages_are_not_answered(reflector: ReflectorUnderTest) -> None:
    packets = [probe(KEY, next(reflector.numbers), SSID) for _ in range(50)]
    for packet in packets:
        reflector.send(packet)
    numbers = [reflector.next_answer()[0] for _ in packets]
    assert numbers == list(range(numbers[0], numbers[0] + 50))
    for packet in reversed(packets):
        reflector.send(packet)
    reflector.only_the_next_is_answered()


def test_a_replay_with_a_fresh_timestamp_is_not_answered(reflector: ReflectorUnderTest) -> None:
    number = next(reflector.numbers)
    for _ in range(3):
        reflector.send(probe(KEY, number, SSID))
    assert reflector.next_answer()[1] == number
    reflector.only_the_next_is_answered()


@given(st.integers(0, 2**16 - 1).filter(lambda ssid: ssid != SSID))
def test_another_session_is_not_answered(reflector: ReflectorUnderTest, ssid: int) -> None:
    reflector.send(probe(KEY, next(reflector.numbers), ssid))
    reflector.only_the_next_is_answered()


def test_another_host_is_not_answered(reflector: ReflectorUnderTest) -> None:
    with udp(ELSEWHERE) as elsewhere:
        reflector.send(probe(KEY, next(reflector.numbers), SSID), elsewhere)
        reflector.only_the_next_is_answered()
        with pytest.raises(BlockingIOError):
            elsewhere.recv(2000)


def test_a_number_beyond_all_probes_is_not_answered(reflector: ReflectorUnderTest) -> None:
    for sequence in (GREETINGS + 128, 2**32 - 1):
        reflector.send(probe(KEY, sequence, SSID))
    reflector.only_the_next_is_answered()


@given(st.binary(max_size=300) | st.binary(min_size=SIZE, max_size=SIZE))
def test_garbage_is_not_answered(reflector: ReflectorUnderTest, garbage: bytes) -> None:
    reflector.send(garbage)
    reflector.only_the_next_is_answered()


@given(st.data())
def test_a_probe_that_was_touched_is_not_answered(reflector: ReflectorUnderTest, data: st.DataObject) -> None:
    packet = bytearray(probe(KEY, next(reflector.numbers), SSID))
    packet[data.draw(st.integers(0, SIZE - 1))] ^= data.draw(st.integers(1, 255))
    reflector.send(bytes(packet))
    reflector.only_the_next_is_answered()


@given(st.binary(max_size=300))
def test_garbage_at_the_sockets_that_send_does_nothing(reflector: ReflectorUnderTest, garbage: bytes) -> None:
    sender = sockets_of(reflector.echo)[1]
    reflector.peer.sendto(garbage, sender.getsockname())
    reflector.echo.on_readable(sender.fileno())
    reflector.only_the_next_is_answered()


def test_an_echo_without_a_task_answers_nobody() -> None:
    echo = Echo(KEY, HERE, source_ports=1)
    with udp(THERE) as peer:
        peer.sendto(probe(KEY, 0, 0), (HERE, echo.port))
        echo.on_readable(sockets_of(echo)[0].fileno())
        assert echo.poll_result() is None
        # From now on it has one: the first answer is to the first probe after that.
        echo.begin(task((THERE, 9), ssid_in=SSID))
        peer.sendto(probe(KEY, 7, SSID), (HERE, echo.port))
        deadline = time.monotonic() + WAIT_S
        answer = b""
        while not answer and time.monotonic() < deadline:
            echo.on_readable(sockets_of(echo)[0].fileno())
            try:
                answer = peer.recv(2000)
            except BlockingIOError:
                continue
    read = unpack_reflector(KEY, answer)
    assert read is not None
    assert (read[0], read[5], read[3]) == (0, 7, SSID)
    for sock in sockets_of(echo):
        sock.close()


def test_greetings_are_answered_once_too_and_numbered_apart(reflector: ReflectorUnderTest) -> None:
    for _ in range(2):
        reflector.send(probe(KEY, GREETINGS, SSID))
    reflector.send(probe(KEY, GREETINGS + 1, SSID))
    assert [reflector.next_answer() for _ in range(2)] == [(0, GREETINGS, SSID), (1, GREETINGS + 1, SSID)]
    reflector.only_the_next_is_answered()


def test_the_session_before_is_not_answered_any_more() -> None:
    reflector = ReflectorUnderTest()
    reflector.only_the_next_is_answered()
    reflector.echo.begin(task((THERE, 9), ssid_in=SSID + 1))
    reflector.send(probe(KEY, next(reflector.numbers), SSID))
    number = next(reflector.numbers)
    reflector.send(probe(KEY, number, SSID + 1))
    assert reflector.next_answer() == (0, number, SSID + 1)
    reflector.close()
