"""Agents on many hosts as one: started, heard, missed when they die, ended all together. Hosts are child processes."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec import Struct, field

import plink.transport.fleet
from plink.errors import HostError
from plink.model.hosts import Host
from plink.transport.fleet import AgentConnection, AgentMessage, Fleet
from plink.transport.program import BOOTSTRAP, REMOTE_COMMAND, AgentProgram
from runners.child import ChildConnection
from tests.child_hosts import WAIT_S, ChildHosts, ends
from tests.lab.waiting import until

PROGRAM = AgentProgram(("tests.transport.fleet_agent",))
HOSTS = [Host(name, name) for name in ("a", "b", "c")]


@pytest.fixture
def children() -> Iterator[Callable[..., ChildHosts]]:
    """Makes connectors; what they started is gone after the test."""
    with contextlib.ExitStack() as stack:
        yield lambda *command: stack.enter_context(ChildHosts(*command))


def hear(fleet: Fleet) -> AgentMessage:
    """The next message, which must come."""
    message = fleet.receive(WAIT_S)
    assert message is not None
    return message


def start(fleet: Fleet, hosts: list[Host], first: str = "hello") -> dict[str, HostError]:
    """Start the test's agent on hosts."""
    settings: dict[str, Any] = {"first": first}
    return fleet.start(hosts, settings)


def test_every_agent_receives_and_answers(children: Callable[..., ChildHosts]) -> None:
    with Fleet(children(), PROGRAM) as fleet:
        counted = []
        assert fleet.start(HOSTS, {"first": "hello"}, lambda: counted.append(1)) == {}
        assert len(counted) == 3
        assert sorted(fleet.alive) == ["a", "b", "c"]
        fleet.send_all(method="say", text="zwölf\n")
        output = {message.host: message.body for message in (hear(fleet) for _ in HOSTS)}
        assert {host: body["said"] for host, body in output.items() if body} == {
            name: {"method": "say", "text": "zwölf\n"} for name in ("a", "b", "c")
        }
        assert len({body["pid"] for body in output.values() if body}) == 3
        fleet.send("b", method="say", text="only you")
        assert hear(fleet).host == "b"
        assert fleet.receive(0.0) is None


def test_a_greeting_before_hello_is_skipped(children: Callable[..., ChildHosts]) -> None:
    """A login shell may print what it likes, also a line that is almost the agent's."""
    noise = "import os\nos.write(1, b'Welcome to node-1!\\n{}\\nplink-agent-\\n\\xff no newline at the end')\n"
    with Fleet(children(sys.executable, "-c", noise + "os.write(1, b'\\n')\n" + BOOTSTRAP), PROGRAM) as fleet:
        assert start(fleet, HOSTS[:1]) == {}
        fleet.send("a", method="say")
        body = hear(fleet).body
        assert body is not None
        assert body["said"] == {"method": "say"}


def test_an_agent_that_dies_is_reported_and_the_others_go_on(children: Callable[..., ChildHosts]) -> None:
    with Fleet(children(), PROGRAM) as fleet:
        start(fleet, HOSTS)
        fleet.send("b", method="die", code=9)
        gone = hear(fleet)
        assert (gone.host, gone.body) == ("b", None)
        assert gone.error is not None
        assert str(gone.error) == "b: its agent is gone: it ended with exit status 9"
        assert sorted(fleet.alive) == ["a", "c"]
        fleet.send("b", method="say")  # to nobody: passed over
        fleet.send("c", method="say")
        assert hear(fleet).host == "c"


class Echo(Struct, tag_field="type", tag="echo"):
    """What the agent of these tests sends."""

    message: dict[str, str] = field(name="said")


def test_an_agent_with_a_protocol_error_is_lost(children: Callable[..., ChildHosts]) -> None:
    """What it said does not reach anybody, and the others go on."""
    program = AgentProgram(PROGRAM.modules, Echo)
    with Fleet(children(), program) as fleet:
        start(fleet, HOSTS[:2])
        fleet.send("a", method="say", text="hello")
        assert hear(fleet).body is not None
        fleet.send("a", method="say", text=5)
        gone = hear(fleet)
        assert gone.body is None
        assert str(gone.error) == "a: its agent is gone: invalid message: Expected `str`, got `int` - at `$.said[...]`"
        assert fleet.alive == ["b"]


def test_a_line_without_end_is_the_end_of_its_agent(
    children: Callable[..., ChildHosts], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much a host writes, this process keeps no more than a line's worth of it."""
    monkeypatch.setattr(plink.transport.fleet, "MAX_LINE_BYTES", 1 << 20)
    with Fleet(children(), PROGRAM) as fleet:
        start(fleet, HOSTS[:2])
        fleet.send("a", method="endless")
        gone = hear(fleet)
        assert gone.error is not None
        assert str(gone.error) == "a: its agent is gone: it sent more than 1 MiB without the end of a line"
        assert fleet.alive == ["b"]


def test_junk_is_the_end_of_its_agent(children: Callable[..., ChildHosts]) -> None:
    """A host that may be anybody's by now keeps this process busy for a MiB, and no longer."""
    with Fleet(children(), PROGRAM) as fleet:
        start(fleet, HOSTS[:2])
        fleet.send("a", method="junk")
        gone = hear(fleet)
        assert str(gone.error) == "a: its agent is gone: it sent more than 1 MiB that is no message"
        assert fleet.alive == ["b"]


def test_flood_of_messages_does_not_outlast_a_deadline(children: Callable[..., ChildHosts]) -> None:
    """Who waits for another host's answer until a deadline hears of it, however much this one sends."""
    with Fleet(children(), PROGRAM, lease_s=600) as fleet:
        start(fleet, HOSTS[:1])
        fleet.send("a", method="flood", count=10**9)
        hear(fleet)
        deadline = time.monotonic() + 0.1
        while fleet.receive(deadline - time.monotonic()) is not None:
            assert time.monotonic() < deadline + 10
            time.sleep(0.02)  # what it takes to do something with each


@pytest.mark.extended
def test_interrupt_is_obeyed_while_junk_floods_in() -> None:
    controller = (
        "import sys\n"
        "from plink.model.hosts import Host\n"
        "from plink.transport.fleet import Fleet\n"
        "from plink.transport.program import AgentProgram\n"
        "from runners.child import LocalConnector\n"
        "import plink.transport.fleet\n"
        "plink.transport.fleet.MAX_JUNK_BYTES = 1 << 60\n"
        "with Fleet(LocalConnector(), AgentProgram(('tests.transport.fleet_agent',))) as fleet:\n"
        "    fleet.start([Host(name, name) for name in 'abcd'], {'first': 'hello'})\n"
        "    fleet.send_all(method='junk')\n"
        "    print('flooded', flush=True)\n"
        "    while True:\n"
        "        fleet.receive(1.0)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", controller], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "flooded\n"
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        try:
            process.wait(WAIT_S)
            assert time.monotonic() - began < 2
        finally:
            process.kill()


def test_closing_does_not_wait_for_messages_to_be_taken(
    children: Callable[..., ChildHosts], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plink.transport.fleet, "MAX_QUEUED_MESSAGES", 4)
    connector = children()
    with Fleet(connector, PROGRAM, lease_s=600) as fleet:
        start(fleet, HOSTS)
        fleet.send_all(method="flood", count=2000)
        hear(fleet)
    assert connector.all_end()


@pytest.mark.parametrize(
    ("first", "reason"),
    [("die", ": it ended with exit status 3"), ("babble", ": its login shell, or another program")],
)
def test_an_agent_without_hello_is_a_failure(first: str, reason: str, children: Callable[..., ChildHosts]) -> None:
    with Fleet(children(), PROGRAM) as fleet:
        failures = start(fleet, HOSTS[:2], first)
        assert sorted(failures) == ["a", "b"]
        for error in failures.values():
            assert error.reason.startswith("no agent could be started" + reason)
        assert fleet.alive == []


def test_the_remote_command_survives_a_shell(children: Callable[..., ChildHosts]) -> None:
    connector = children("/bin/sh", "-c", REMOTE_COMMAND)
    connector.environment["PATH"] = os.path.dirname(sys.executable)
    with Fleet(connector, PROGRAM) as fleet:
        assert start(fleet, HOSTS[:1]) == {}


def test_a_host_without_python_says_so(children: Callable[..., ChildHosts]) -> None:
    connector = children("/bin/sh", "-c", REMOTE_COMMAND)
    connector.environment["PATH"] = "/nonexistent"
    with Fleet(connector, PROGRAM) as fleet:
        failures = start(fleet, HOSTS[:1])
        assert failures["a"].reason == "no agent could be started: it ended with exit status 127"


class Grumbling:
    """Lines that are closed, and raise all the same."""

    def __init__(self, connector: ChildHosts) -> None:
        self._connector = connector

    def open(self, host: Host) -> AgentConnection:
        class Raises(ChildConnection):
            def close(self) -> None:
                super().close()
                raise EOFError

        line = self._connector.open(host)
        line.__class__ = Raises
        return line


def test_closing_ends_every_child_whatever_their_lines_say(children: Callable[..., ChildHosts]) -> None:
    connector = children()
    fleet = Fleet(Grumbling(connector), PROGRAM, lease_s=600)
    start(fleet, HOSTS)
    fleet.close()
    assert connector.all_end()


def test_an_error_on_the_way_ends_every_child(children: Callable[..., ChildHosts]) -> None:
    connector = children()

    def interrupted() -> None:
        with Fleet(connector, PROGRAM, lease_s=600) as fleet:
            start(fleet, HOSTS)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert connector.all_end()


def test_nobody_waits_for_a_connection_being_made_once_it_is_interrupted() -> None:
    """One Ctrl-C ends the process, although a connector is stuck: no limit of its own has to run out."""
    controller = (
        "import os\nimport threading\n"
        "from plink.model.hosts import Host\nfrom plink.transport.fleet import Fleet\n"
        "from plink.transport.program import AgentProgram\n"
        "class Stuck:\n"
        "    def open(self, host):\n"
        "        os.write(1, b'waiting\\n')\n"  # in one piece, although two threads write
        "        threading.Event().wait()\n"
        "with Fleet(Stuck(), AgentProgram(('tests.transport.fleet_agent',))) as fleet:\n"
        "    fleet.start([Host('a', 'a'), Host('b', 'b')], {})\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", controller], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        try:
            process.wait(WAIT_S)
        finally:
            process.kill()


def test_hosts_that_hang_are_given_up(children: Callable[..., ChildHosts]) -> None:
    """A connection that is made too late is closed, and its host stays without an agent."""
    connector, answered = children(), threading.Event()

    class HangsOnce:
        def open(self, host: Host) -> AgentConnection:
            if host.name == "b":
                answered.wait(WAIT_S)
            return connector.open(host)

    with Fleet(HangsOnce(), PROGRAM) as fleet:
        failures = fleet.start([Host("a", "a"), Host("b", "b")], {"first": "hello"}, limit_s=3.0)
        assert list(failures) == ["b"]
        answered.set()
        until(lambda: len(connector.started) == 2 and connector.started[1].poll() is not None, WAIT_S, "the late agent")
        assert fleet.alive == ["a"]


def test_what_is_no_trouble_of_a_host_is_raised(children: Callable[..., ChildHosts]) -> None:
    """A defect in a connector does not count as a host that failed; failures come in the order of the hosts."""

    class Fails:
        def __init__(self, error: Exception) -> None:
            self.error = error

        def open(self, host: Host) -> AgentConnection:
            time.sleep(0.2 if host.name == "a" else 0)
            raise self.error

    with Fleet(Fails(HostError("x", "down")), PROGRAM) as fleet:
        assert list(start(fleet, HOSTS)) == ["a", "b", "c"]
    with Fleet(Fails(ZeroDivisionError()), PROGRAM) as fleet, pytest.raises(ZeroDivisionError):
        start(fleet, HOSTS)


def test_agents_end_when_their_controller_is_killed() -> None:
    """kill -9: nothing is closed in order, and the agent ends all the same."""
    controller = (
        "import sys, threading\n"
        "from plink.model.hosts import Host\nfrom plink.transport.fleet import Fleet\n"
        "from plink.transport.program import AgentProgram\nfrom runners.child import LocalConnector\n"
        "fleet = Fleet(LocalConnector(), AgentProgram(('tests.transport.fleet_agent',)))\n"
        "fleet.start([Host('a', 'a')], {'first': 'hello'})\n"
        "fleet.send('a', method='say')\n"
        "print(fleet.receive(20).body['pid'], flush=True)\n"
        "threading.Event().wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", controller], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        agent = int(process.stdout.readline())
        process.kill()
        assert ends(agent)
