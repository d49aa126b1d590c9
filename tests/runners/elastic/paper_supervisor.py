"""A supervisor whose hosts and controllers are on paper: what it starts, and what it tells, is written down."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from plink.errors import HostError
from plink.model.hosts import Host, Hosts
from runners.child import LocalConnector
from runners.elastic import supervisor as supervisor_module
from runners.elastic.controller import encode
from runners.elastic.supervisor import JobEnd, JobSettingsOverride, Supervisor, SupervisorCallbacks
from runners.job.runner import Job
from solvers.elastic import commands, events
from solvers.elastic.member import Member
from solvers.elastic.settings import Settings
from tests.runners.elastic.test_small_parts import hello_of


@dataclass
class Paper:
    """``unreachable``: hosts that cannot be started. ``hello``: what some say first that others do not, by name.
    ``short_lived``: hosts whose nodes end after their first message. ``taken``: those that are lost then,
    for a ``reason``. ``tries``: to start some, in order. ``told``: what each controller was, in order. ``said``: to the
    user."""

    unreachable: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    short_lived: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    reason: str = "no power"
    hello: dict[str, dict[str, Any]] = field(default_factory=dict)
    tries: list[list[str]] = field(default_factory=list)
    sent: list[list[dict[str, Any]]] = field(default_factory=list)
    log: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    def supervisor(self, tiers: str) -> Supervisor:
        """Of a job that runs, with hosts h0, h1 ...: a letter a host, r or t."""
        supervisor = self.of = self._supervisor()
        _, members = supervisor._group(hosts(tiers))
        for member in members:
            supervisor._members[member.number] = replace(member, hello=hello_of(**self.hello.get(member.name, {})))
        supervisor._settings = Settings(keys="", partitions=2, shards=8, shapes=((8, 125),), started=0.0, began=0.0)
        supervisor._start_controller(events.JobStarted)
        for member in members:
            self.says(commands.LogLine(member.line("joined", "")))
        return supervisor

    def run(self, tiers: str) -> JobEnd:
        """A job from its start, which ends as soon as it has begun."""
        supervisor = self.of = self._supervisor()
        tell = supervisor._tell_controller
        supervisor._tell_controller = lambda message: (tell(message), supervisor._end(0, ""))  # type: ignore[method-assign, assign]
        return supervisor.run(hosts(tiers))

    def _supervisor(self) -> Supervisor:
        report = SupervisorCallbacks(
            sink=lambda number, stream, line: None, log=self.log.append, note=self.notes.append, say=self.shown.append,
            on_placement=lambda findings: None,
        )  # fmt: skip
        return Supervisor(
            LocalConnector(), Job("python3", (), ("/",)), JobSettingsOverride(), report, None, time.monotonic
        )

    def says(self, item: commands.Command | commands.LogEntry) -> None:
        """The controller that there is."""
        self.of._handle_controller_message(self.of._term, json.loads(json.dumps(encode(item))))

    def dies(self) -> None:
        """The controller: another is started."""
        self.of._handle_controller_message(self.of._term, None)

    def until(self, what: Callable[[], bool], seconds: float = 300.0) -> None:
        """The supervisor's thread runs until something has happened."""
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, "that did not come"
            self.of._run_next()

    def events_of(self, kind: str) -> list[dict[str, Any]]:
        """What the last controller was told, of a kind."""
        return [message for message in self.sent[-1] if message["type"] == kind]


def host(name: str, tier: str) -> Host:
    """One that nobody looks for."""
    return Host(name, "127.0.0.1", tier="reliable" if tier == "r" else "transient")


def hosts(tiers: str) -> Hosts:
    """h0, h1 ..."""
    return Hosts(tuple(host(f"h{k}", tier) for k, tier in enumerate(tiers)))


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Any:
    """In place of groups of hosts and of controllers."""
    paper = Paper()

    class Group:
        def __init__(self, launcher: Any, hosts: Hosts, numbers: Mapping[str, int], hear: Any) -> None:
            self._hosts, self._numbers, self._hear = hosts, numbers, hear
            self.addresses = dict.fromkeys(numbers.values(), "127.0.0.1")

        def start(self, *arguments: Any) -> None:
            paper.tries.append(self._hosts.names)
            for name in self._hosts.names:
                if name in paper.unreachable:  # as prepare() does: one that fails, fails all
                    raise HostError(name, "no route to host")
            for name, number in self._numbers.items():
                if name not in paper.silent:
                    self._hear(number, hello_of(**paper.hello.get(name, {})), "")
                if name in paper.short_lived:
                    self._hear(number, None, "its node ended with exit code 1")
                if name in paper.taken:
                    self._hear(number, None, paper.reason)

        def last_lines(self, number: int) -> list[str]:
            return []

        def tell(self, number: int, message: dict[str, Any]) -> None:
            pass

        def end(self, number: int) -> None:
            pass

        def close(self) -> None:
            pass

    class Controller:
        silent = False

        def __init__(self, hear: Any, errors: Path | None) -> None:
            self._sent: list[dict[str, Any]] = []
            paper.sent.append(self._sent)
            self.tell = self._sent.append

        def close(self) -> None:
            pass

    monkeypatch.setattr(supervisor_module, "Group", Group)
    monkeypatch.setattr(supervisor_module, "ControllerProcess", Controller)
    yield paper
    paper.of.control_socket.close()


def lose(supervisor: Supervisor, number: int, reason: str) -> Member:
    """As when a node's line ends."""
    member = supervisor._members[number]
    supervisor._handle_message(number, None, reason)
    return member
