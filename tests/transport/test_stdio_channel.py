"""The agent's end of the line: messages however they are cut, and what counts as the end."""

import contextlib
import json
import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.transport.stdio_channel import HELLO, AgentStdioChannel, ControllerLost

LONG = 60.0


class Pipes:
    """A lifeline and the controller's ends of its pipes."""

    def __init__(self, lease_s: float) -> None:
        self.agent_in, self.to_agent = os.pipe()
        self.from_agent, self.agent_out = os.pipe()
        self.line = AgentStdioChannel(lease_s, self.agent_in, self.agent_out)

    def say(self, data: bytes) -> None:
        """Bytes from the controller."""
        os.write(self.to_agent, data)

    def close(self) -> None:
        """Close what is still open."""
        for fd in (self.agent_in, self.to_agent, self.from_agent, self.agent_out):
            try:
                os.close(fd)
            except OSError:
                continue


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    """A line whose lease outlasts the test."""
    made = Pipes(LONG)
    yield made
    made.close()


def test_hello_is_the_first_line(pipes: Pipes) -> None:
    pipes.line.hello()
    assert os.read(pipes.from_agent, 100) == (HELLO + "\n").encode()


def test_messages_come_in_order(pipes: Pipes) -> None:
    pipes.say(b'{"method": "a"}\n{"method": "b", "n": 1}\n')
    assert pipes.line.receive(LONG) == {"method": "a"}
    assert pipes.line.receive(LONG) == {"method": "b", "n": 1}
    assert pipes.line.receive(0.0) is None


@given(st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=9), min_size=1), max_size=5), st.data())
def test_messages_are_the_same_wherever_they_are_cut(bodies: list[dict[str, str]], data: st.DataObject) -> None:
    messages = [{"method": "x", "body": body} for body in bodies]
    stream = "".join(json.dumps(message) + "\n" for message in messages).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pipes = Pipes(LONG)
    try:
        received = []
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            if end > start:
                pipes.say(stream[start:end])
            while (message := pipes.line.receive(0.0)) is not None:
                received.append(message)
        assert received == messages
    finally:
        pipes.close()


def test_the_end_of_input_is_the_end(pipes: Pipes) -> None:
    pipes.say(b'{"method": "last"}\n')
    os.close(pipes.to_agent)
    assert pipes.line.receive(LONG) == {"method": "last"}
    with pytest.raises(ControllerLost):
        pipes.line.receive(LONG)


def test_the_end_of_input_is_seen_without_waiting(pipes: Pipes) -> None:
    pipes.line.renew()
    os.close(pipes.to_agent)
    with pytest.raises(ControllerLost):
        pipes.line.renew()


def test_a_message_seen_by_renew_is_kept(pipes: Pipes) -> None:
    pipes.say(b'{"method": "a"}\n')
    pipes.line.renew()
    assert pipes.line.receive(0.0) == {"method": "a"}


def test_alive_is_answered_once_and_between_messages(pipes: Pipes) -> None:
    """Also by an agent that is busy and only renews; what it was told before stays for later."""
    os.set_blocking(pipes.from_agent, False)
    pipes.say(b'{"method": "a"}\n{"method": "alive"}\n')
    pipes.line.renew()
    assert os.read(pipes.from_agent, 1000) == b'{"type": "alive"}\n'
    assert pipes.line.receive(0.0) == {"method": "a"}
    pipes.say(b'{"method": "alive"}\n')
    assert pipes.line.receive(0.0) is None
    pipes.line.renew()
    pipes.line.send(**{"type": "x"})
    assert os.read(pipes.from_agent, 1000) == b'{"type": "alive"}\n{"type": "x"}\n'


def test_a_full_line_is_not_waited_for_with_a_sign_of_life(pipes: Pipes) -> None:
    os.set_blocking(pipes.agent_out, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipes.agent_out, b"x" * (1 << 16))
    os.set_blocking(pipes.agent_out, True)
    pipes.say(b'{"method": "alive"}\n{"method": "end"}\n')
    assert pipes.line.receive(0.0) == {"method": "end"}


def test_what_is_sent_is_one_line_of_json(pipes: Pipes) -> None:
    pipes.line.send(**{"type": "x", "text": "two\nlines \udcff"})
    data = os.read(pipes.from_agent, 1000)
    assert data.count(b"\n") == 1
    assert json.loads(data) == {"type": "x", "text": "two\nlines \udcff"}


def test_sending_to_nobody_is_the_end(pipes: Pipes) -> None:
    os.close(pipes.from_agent)
    with pytest.raises(ControllerLost):
        pipes.line.send(**{"type": "x"})
