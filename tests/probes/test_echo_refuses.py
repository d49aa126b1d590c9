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


class Asked:
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
            self.echo.ready(reflector.fileno())
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
def asked() -> Iterator[Asked]:
    """An echo for all tests of this module: what one test does to it must not matter to another."""
    asked = Asked()
    yield asked
    asked.close()


def test_a_replay_of_everything_heard_so_far_is_not_answered(asked: Asked) -> None:
    packets = [probe(KEY, next(asked.numbers), SSID) for _ in range(50)]
    for packet in packets:
        asked.send(packet)
    numbers = [asked.next_answer()[0] for _ in packets]
    assert numbers == list(range(numbers[0], numbers[0] + 50))
    for packet in reversed(packets):
        asked.send(packet)
    asked.only_the_next_is_answered()


def test_a_replay_with_a_fresh_timestamp_is_not_answered(asked: Asked) -> None:
    number = next(asked.numbers)
    for _ in range(3):
        asked.send(probe(KEY, number, SSID))
    assert asked.next_answer()[1] == number
    asked.only_the_next_is_answered()


@given(st.integers(0, 2**16 - 1).filter(lambda ssid: ssid != SSID))
def test_another_session_is_not_answered(asked: Asked, ssid: int) -> None:
    asked.send(probe(KEY, next(asked.numbers), ssid))
    asked.only_the_next_is_answered()


def test_another_host_is_not_answered(asked: Asked) -> None:
    with udp(ELSEWHERE) as elsewhere:
        asked.send(probe(KEY, next(asked.numbers), SSID), elsewhere)
        asked.only_the_next_is_answered()
        with pytest.raises(BlockingIOError):
            elsewhere.recv(2000)


def test_a_number_beyond_all_probes_is_not_answered(asked: Asked) -> None:
    for sequence in (GREETINGS + 128, 2**32 - 1):
        asked.send(probe(KEY, sequence, SSID))
    asked.only_the_next_is_answered()


@given(st.binary(max_size=300) | st.binary(min_size=SIZE, max_size=SIZE))
def test_garbage_is_not_answered(asked: Asked, garbage: bytes) -> None:
    asked.send(garbage)
    asked.only_the_next_is_answered()


@given(st.data())
def test_a_probe_that_was_touched_is_not_answered(asked: Asked, data: st.DataObject) -> None:
    packet = bytearray(probe(KEY, next(asked.numbers), SSID))
    packet[data.draw(st.integers(0, SIZE - 1))] ^= data.draw(st.integers(1, 255))
    asked.send(bytes(packet))
    asked.only_the_next_is_answered()


@given(st.binary(max_size=300))
def test_garbage_at_the_sockets_that_send_does_nothing(asked: Asked, garbage: bytes) -> None:
    sender = sockets_of(asked.echo)[1]
    asked.peer.sendto(garbage, sender.getsockname())
    asked.echo.ready(sender.fileno())
    asked.only_the_next_is_answered()


def test_an_echo_without_a_task_answers_nobody() -> None:
    echo = Echo(KEY, HERE, source_ports=1)
    with udp(THERE) as peer:
        peer.sendto(probe(KEY, 0, 0), (HERE, echo.port))
        echo.ready(sockets_of(echo)[0].fileno())
        assert echo.proceed() is None
        # From now on it has one: the first answer is to the first probe after that.
        echo.begin(task((THERE, 9), ssid_in=SSID))
        peer.sendto(probe(KEY, 7, SSID), (HERE, echo.port))
        deadline = time.monotonic() + WAIT_S
        answer = b""
        while not answer and time.monotonic() < deadline:
            echo.ready(sockets_of(echo)[0].fileno())
            try:
                answer = peer.recv(2000)
            except BlockingIOError:
                continue
    read = unpack_reflector(KEY, answer)
    assert read is not None
    assert (read[0], read[5], read[3]) == (0, 7, SSID)
    for sock in sockets_of(echo):
        sock.close()


def test_greetings_are_answered_once_too_and_numbered_apart(asked: Asked) -> None:
    for _ in range(2):
        asked.send(probe(KEY, GREETINGS, SSID))
    asked.send(probe(KEY, GREETINGS + 1, SSID))
    assert [asked.next_answer() for _ in range(2)] == [(0, GREETINGS, SSID), (1, GREETINGS + 1, SSID)]
    asked.only_the_next_is_answered()


def test_the_session_before_is_not_answered_any_more() -> None:
    asked = Asked()
    asked.only_the_next_is_answered()
    asked.echo.begin(task((THERE, 9), ssid_in=SSID + 1))
    asked.send(probe(KEY, next(asked.numbers), SSID))
    number = next(asked.numbers)
    asked.send(probe(KEY, number, SSID + 1))
    assert asked.next_answer() == (0, number, SSID + 1)
    asked.close()
