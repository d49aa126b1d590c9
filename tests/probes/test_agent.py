"""The agent as it runs on a host, here a child process: what it says, does, refuses, and that it ends."""

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from plink.errors import PlinkError
from plink.model.hosts import Host, Hosts
from plink.transport.fleet import LEASE_S, Fleet
from probes.measurements import Measurements
from probes.methods import ProbeSettings
from probes.session import PROGRAM, ProbeSession
from probes.stamp import Key, unpack_reflector
from tests.child_hosts import WAIT_S, ChildHosts, ends
from tests.probes.echo_peers import probe, udp

KEY = bytes(range(32))
Ask = Callable[..., dict[str, Any]]


class AgentUnderTest:
    """One agent on this machine, and its controller."""

    def __init__(self, children: ChildHosts, lease_s: float = LEASE_S) -> None:
        deadline = time.monotonic() + WAIT_S
        self.tasks = 0
        while True:  # somebody else on this machine may be probing: one agent at a time
            self.fleet = Fleet(children, PROGRAM, lease_s)
            settings = {"key": KEY.hex(), "source_ports": 2, "handshakes": True}
            assert self.fleet.start([Host("a", "127.0.0.1")], settings) == {}
            self.fleet.send("a", method="begin", address="127.0.0.1")
            self.ready = self.hear()
            if self.ready["type"] == "ready":
                return
            assert self.ready == {"type": "busy"}
            assert time.monotonic() < deadline
            self.fleet.close()

    def hear(self) -> dict[str, Any]:
        """The next message, which must come."""
        message = self.fleet.receive(WAIT_S)
        assert message is not None
        assert message.body is not None, message.error
        return message.body

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        """One command and its answer."""
        self.tasks += 1
        self.fleet.send("a", method=do, task=self.tasks, **more)
        answer = self.hear()
        assert (answer["type"], answer["task"]) == ("done", self.tasks)
        return answer


@pytest.fixture(scope="module")
def children() -> Iterator[ChildHosts]:
    """Where the agents run; all ended afterwards."""
    with ChildHosts() as children:
        yield children


@pytest.fixture(scope="module")
def agent(children: ChildHosts) -> Iterator[AgentUnderTest]:
    """An agent that is ready."""
    agent = AgentUnderTest(children)
    yield agent
    agent.fleet.close()


def test_an_agent_says_where_it_is_and_what_it_is(agent: AgentUnderTest) -> None:
    ready = agent.ready
    assert ready["address"] == "127.0.0.1"
    assert ready["hostname"] == socket.gethostname()
    assert ready["cores"] == len(os.sched_getaffinity(0))
    assert ready["python"] == ".".join(map(str, sys.version_info[:3]))
    assert ready["stamps"] is True
    assert 0 < ready["port"] != ready["tcp_port"] > 0


def test_a_second_agent_of_a_host_finds_it_busy(agent: AgentUnderTest, children: ChildHosts) -> None:
    """Two probes of the same hosts at once are kept apart."""
    with Fleet(children, PROGRAM) as second:
        second.start([Host("a", "127.0.0.1")], {"key": KEY.hex(), "source_ports": 1})
        second.send("a", method="begin", address="127.0.0.1")
        reply = second.receive(WAIT_S)
        assert reply is not None
        assert reply.body == {"type": "busy"}
        end = second.receive(WAIT_S)
        assert end is not None
        assert end.body is None


def test_session_of_busy_hosts_is_refused(agent: AgentUnderTest, children: ChildHosts) -> None:
    hosts = Hosts((Host("a", "127.0.0.1"), Host("b", "127.0.0.1")))
    session = ProbeSession(Measurements(hosts), children, ProbeSettings(), time.monotonic)
    with session, pytest.raises(PlinkError, match="a, b: another plink probe is running on it"):
        session.start(lambda phase, done, total: None)


def test_session_of_one_host_is_refused(children: ChildHosts) -> None:
    hosts = Hosts((Host("a", "127.0.0.1"),))
    with pytest.raises(PlinkError, match="has no network to measure"):
        ProbeSession(Measurements(hosts), children, ProbeSettings(), time.monotonic)


def test_what_it_cannot_do_it_says(agent: AgentUnderTest) -> None:
    assert agent.ask("dance")["error"] == "unknown request 'dance'"
    assert agent.ask("flow_exchange", receive_token="00", seconds=1)["error"] == "nothing listens for the flow"


def test_it_measures_handshakes_with_its_own_port(agent: AgentUnderTest) -> None:
    """As many as a pair ever takes: nobody accepts while it measures, so they must fit the backlog."""
    result = agent.ask("tcp", peer="127.0.0.1", ports=[agent.ready["tcp_port"], None], count=100)
    assert (result["sent"], result["received"]) == (100, 100)


def test_it_says_what_its_host_is_like(agent: AgentUnderTest) -> None:
    result = agent.ask("inspect", peers=["127.0.0.1"])
    assert result["interface"] == "lo"
    assert result["mtu"] == 65536
    assert result["kernel"] == os.uname().release
    assert set(result["tools"]) == {"fping", "iperf3", "ethtool", "mpirun"}
    assert result["counters"] == {}


def test_reflector_answers_its_registered_pair(agent: AgentUnderTest) -> None:
    with udp("127.0.0.2") as peer:
        peer.settimeout(WAIT_S)
        task = {"ssid_out": 1, "ssid_in": 2, "count": 10, "window": 4, "timeout_s": 0.2, "task": 10_000}
        agent.fleet.send("a", method="pair", peer=["127.0.0.2", peer.getsockname()[1]], **task)
        assert len(peer.recv(2000)) == 112  # its greeting: it knows of the pair now
        peer.sendto(probe(Key(KEY), 5, 2), ("127.0.0.1", agent.ready["port"]))
        while True:
            answer = unpack_reflector(Key(KEY), peer.recv(2000))
            if answer is not None and answer[4]:  # T2: not another greeting
                break
        assert (answer[3], answer[5], answer[8]) == (2, 5, 64)
        result = agent.hear()
        assert (result["task"], result["received"], result["sent"]) == (10_000, 0, 0)


def test_it_ends_with_its_controller(children: ChildHosts) -> None:
    """Whatever way that went: the end of the line is all an agent needs to see."""
    before = len(children.started)
    fleet = Fleet(children, PROGRAM)
    fleet.start([Host("a", "127.0.0.1")], {"key": KEY.hex(), "source_ports": 1})
    fleet.send("a", method="begin", address="127.0.0.1")
    assert fleet.receive(WAIT_S) is not None
    fleet.close()
    assert all(ends(process.pid) for process in children.started[before:])
