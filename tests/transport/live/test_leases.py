"""Leases held against the clock: who renews is kept, who falls silent is given up, on time."""

import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import plink.transport.fleet
from plink.model.hosts import Host
from plink.transport.fleet import AgentConnection, Fleet
from plink.transport.stdio_channel import AgentStdioChannel, ControllerLost
from runners.child import ChildConnection
from tests.child_hosts import ChildHosts
from tests.transport.test_fleet import HOSTS, PROGRAM, Grumbling, children, hear, start
from tests.transport.test_stdio_channel import LONG, Pipes

__all__ = ["children"]


def test_agents_wait_for_whoever_is_slow_to_take_their_messages(
    children: Callable[..., ChildHosts], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For longer than a lease, and nothing is lost: the last messages are sent when the first have been taken."""
    monkeypatch.setattr(plink.transport.fleet, "MAX_QUEUED_MESSAGES", 4)
    with Fleet(children(), PROGRAM, lease_s=0.5) as fleet:
        start(fleet, HOSTS[:1])
        fleet.send("a", method="flood", count=2000)
        time.sleep(1.5)
        taken_from = time.monotonic()
        bodies = [hear(fleet).body or {} for _ in range(2001)]
        assert [body.get("type") for body in bodies] == ["flood"] * 2000 + ["echo"]
        assert bodies[-2]["at"] > taken_from


def test_an_agent_is_missed_whatever_its_line_says(children: Callable[..., ChildHosts]) -> None:
    """One that died and one that says nothing any more; the leases of the others are renewed as before."""
    with Fleet(Grumbling(children()), PROGRAM, lease_s=0.5) as fleet:
        start(fleet, HOSTS)
        fleet.send("a", method="die", code=9)
        assert hear(fleet).host == "a"
        fleet.send("b", method="sleep", seconds=2)
        assert str(hear(fleet).error) == "b: its agent is gone: no heartbeat for 0.5 s"
        assert fleet.receive(1.0) is None
        assert fleet.alive == ["c"]


def test_agents_keep_while_other_hosts_are_connected_to(children: Callable[..., ChildHosts]) -> None:
    """For several leases: the last host is slow to log in."""
    connector = children()

    class Slow:
        def open(self, host: Host) -> AgentConnection:
            if host.name == "b":
                time.sleep(1.5)
            return connector.open(host)

    with Fleet(Slow(), PROGRAM, lease_s=0.5) as fleet:
        start(fleet, HOSTS[:2])
        assert fleet.receive(0.0) is None
        assert sorted(fleet.alive) == ["a", "b"]


def test_lease_renewal_never_splits_a_message(children: Callable[..., ChildHosts]) -> None:
    """A long message goes out piece by piece, while the renewals come from a thread of their own."""
    connector = children()

    class Pieces:
        def __init__(self, line: ChildConnection) -> None:
            self.read, self.exit_reason, self.close = line.read, line.exit_reason, line.close
            self._line = line

        def write(self, data: bytes) -> None:
            if len(data) > 500_000:
                self._line.write(data[:1000])
                time.sleep(0.5)
                data = data[1000:]
            self._line.write(data)

    class InPieces:
        def open(self, host: Host) -> AgentConnection:
            return Pieces(connector.open(host))

    with Fleet(InPieces(), PROGRAM, lease_s=1.0) as fleet:
        start(fleet, HOSTS[:1])
        fleet.send("a", method="say", text="x" * 1_000_000)
        assert len((hear(fleet).body or {})["said"]["text"]) == 1_000_000


def test_a_silent_controller_loses_its_lease() -> None:
    """A network that swallows a connection closes nothing: the lease must end an agent by itself, and on time."""
    pipes = Pipes(lease_s=0.2)
    try:
        began = time.monotonic()
        with pytest.raises(ControllerLost):
            pipes.line.receive(LONG)
        assert 0.2 <= time.monotonic() - began < 2.0
        with pytest.raises(ControllerLost):
            pipes.line.renew()
    finally:
        pipes.close()


def test_alive_renews_the_lease_and_is_no_message() -> None:
    """Kept alive for longer than its lease, then left alone: it ends one lease after the last sign of life, not two."""
    lease = 0.3
    pipes = Pipes(lease)
    try:
        began = time.monotonic()
        while time.monotonic() - began < 2 * lease:
            pipes.say(b'{"method": "alive"}\n')
            assert pipes.line.receive(lease / 3) is None
        pipes.say(b'{"method": "alive"}\n')
        assert pipes.line.receive(lease / 2) is None
        left_alone = time.monotonic()
        with pytest.raises(ControllerLost):
            pipes.line.receive(LONG)
        assert time.monotonic() - left_alone < 0.9 * lease
    finally:
        pipes.close()


@pytest.fixture
def pipes() -> Iterator[tuple[int, int, int, int]]:
    """The two ends of what the agent hears, and of what it says."""
    ends = (*os.pipe(), *os.pipe())
    yield ends
    for end in ends:
        os.close(end)


def test_a_line_that_nobody_reads_counts_as_cut_after_the_lease(pipes: tuple[int, int, int, int]) -> None:
    """A blocking write would keep the agent, and its ranks, for as long as TCP tries."""
    line = AgentStdioChannel(0.3, read_fd=pipes[0], write_fd=pipes[3])
    began = time.monotonic()
    with pytest.raises(ControllerLost):
        line.send(text="x" * (1 << 20))
    assert 0.25 < time.monotonic() - began < 5


def test_a_controller_that_reads_nothing_and_renews_the_lease_is_waited_for(pipes: tuple[int, int, int, int]) -> None:
    """Its terminal is held up; what it said meanwhile is obeyed later. When it closes the line, that is the end."""
    line = AgentStdioChannel(0.5, read_fd=pipes[0], write_fd=pipes[3])
    began = time.monotonic()

    def renew() -> None:
        os.write(pipes[1], b'{"method": "end"}\n')
        while time.monotonic() - began < 1.5:
            os.write(pipes[1], b'{"method": "alive"}\n')
            time.sleep(0.1)

    controller = threading.Thread(target=renew)
    controller.start()
    with pytest.raises(ControllerLost):
        line.send(text="x" * (1 << 20))
    assert time.monotonic() - began > 1.5
    controller.join()
    assert line.receive(0.0) == {"method": "end"}


def test_a_slow_reader_gets_all_of_it(pipes: tuple[int, int, int, int]) -> None:
    """A full line that is read again is no reason to give up."""
    read, write = os.pipe()
    got = bytearray()

    def drain() -> None:
        while data := os.read(read, 1 << 16):
            got.extend(data)
            time.sleep(0.02)

    reader = threading.Thread(target=drain)
    reader.start()
    AgentStdioChannel(2.0, read_fd=pipes[0], write_fd=write).send(text="x" * (1 << 20))
    os.close(write)
    reader.join(timeout=10)
    os.close(read)
    assert bytes(got) == b'{"text": "' + b"x" * (1 << 20) + b'"}\n'
