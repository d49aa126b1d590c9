"""A fleet without hosts: agents are a function, and time passes only when somebody waits for it."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from plink.errors import HostError
from plink.model.hosts import Host, Hosts
from plink.transport.fleet import AgentMessage, Fleet
from probes.measurements import Measurements
from probes.methods import MeasurementContext, ProbeSettings
from probes.scheduler import ProbeScheduler
from probes.session import ProbeSession

# (host, what it is told) -> (seconds until it answers, the answer), or None when it never does
Behaviour = Callable[[str, dict[str, Any]], tuple[float, dict[str, Any]] | None]


@dataclass
class FakeFleet:
    """What a scheduler sees of a fleet."""

    behave: Behaviour
    now: float = 0.0
    sent: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)
    dead: set[str] = field(default_factory=set)
    _events: list[tuple[float, int, AgentMessage]] = field(default_factory=list)
    _order: "itertools.count[int]" = field(default_factory=itertools.count)

    def clock(self) -> float:
        """Seconds since the beginning."""
        return self.now

    def send(self, host: str, **body: Any) -> None:
        """A message to an agent."""
        self.sent.append((self.now, host, body))
        answer = None if host in self.dead else self.behave(host, body)
        if answer is not None:
            self.post(answer[0], AgentMessage(host, {"type": "done", "task": body["task"], **answer[1]}))

    def lose(self, host: str, after_s: float, reason: str = "killed") -> None:
        """Its connection will be cut; what it said before comes first."""
        self.dead.add(host)
        self.post(after_s, AgentMessage(host, None, HostError(host, f"its agent is gone: {reason}")))

    def post(self, after_s: float, message: AgentMessage) -> None:
        """Something will come."""
        heapq.heappush(self._events, (self.now + after_s, next(self._order), message))

    def receive(self, timeout_s: float) -> AgentMessage | None:
        """The next message within that time; the clock goes on."""
        until = self.now + max(0.0, timeout_s)
        if self._events and self._events[0][0] <= until:
            when, _, message = heapq.heappop(self._events)
            self.now = max(self.now, when)
            return message
        self.now = until
        return None


def scheduler_of(fleet: FakeFleet, n: int) -> ProbeScheduler:
    """A scheduler over hosts ``h0``, ``h1``, ..., each with a kernel and 8 cores of its own."""
    scheduler = ProbeScheduler(cast(Fleet, fleet), [f"h{i}" for i in range(n)], fleet.clock)
    for host in range(n):
        scheduler.set_machine(host, f"boot-{host}", 8)
    return scheduler


def session_of(fleet: FakeFleet, n: int, settings: ProbeSettings | None = None) -> ProbeSession:
    """A session whose agents are all ready; ``h3`` has address 10.0.0.3."""
    measurements = Measurements(Hosts(tuple(Host(f"h{i}", f"10.0.0.{i}") for i in range(n))))
    agents = {
        i: {"address": f"10.0.0.{i}", "port": 1000 + i, "stamps": True, "tcp_port": 2000 + i, "ssh_port": 22}
        for i in range(n)
    }
    context = MeasurementContext(settings or ProbeSettings(), agents, measurements)
    return cast(
        ProbeSession,
        SimpleNamespace(measurements=measurements, context=context, agents=agents, scheduler=scheduler_of(fleet, n)),
    )


def host_at(address: str) -> int:
    """Which host has an address."""
    return int(address.rpartition(".")[2])


def flows(gbps: Callable[[str, dict[str, Any]], float]) -> Behaviour:
    """Agents that listen for flows and report what they receive, by host and request."""

    def behave(host: str, body: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        if body["method"] == "flow_listen":
            return 0.01, {"port": 5000}
        return body["seconds"], {"gbps": gbps(host, body)} if "receive_token" in body else {}

    return behave


def round_trips(us: float | None, sent: int = 10) -> dict[str, Any]:
    """An agent's result: all alike, or all lost."""
    return {
        "sent": sent,
        "received": 0 if us is None else sent,
        "percentiles_us": [us] * 5,
        "halves_us": [us] * 2,
        "jitter_us": None if us is None else 0.0,
        "clock_steps": 0,
    }
