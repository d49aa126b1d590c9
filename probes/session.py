"""Measurement session: agents on all hosts, then rounds of disjoint pairs."""

import math
import secrets
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from plink.errors import PlinkError, UnknownHost
from plink.model.hostlist import fold_hostlist
from plink.model.network_file import MachineIdentity
from plink.transport.fleet import Connector, Fleet, Progress, sample_peers
from plink.transport.program import AgentProgram
from probes.measurements import Measurements
from probes.methods import MeasurementContext, ProbeSettings, probe_task
from probes.scheduler import (
    CORES_PER_TASK,
    AgentBody,
    AgentRequest,
    ProbeScheduler,
    ProbeTask,
    RequestBatches,
    TaskFailed,
)

PROGRAM = AgentProgram(
    (
        "plink.transport.addresses",
        "plink.transport.command_output",
        "probes.timestamps",
        "probes.datagrams",
        "probes.stamp",
        "probes.agent.summary",
        "probes.agent.echo",
        "probes.agent.tools",
        "plink.transport.hello_server",
        "plink.transport.flows",
        "probes.agent.inspection",
        "probes.agent.routes",
        "probes.agent.main",
    )
)
_READY_S = 30.0
_ANSWER_S = 15.0  # longer than a flow that failed keeps an agent busy


class ProbeSession:
    """Agents on all hosts, ready to measure; a context manager that ends them.

    :param measurements: earlier results; the hosts are its hosts.
    :param clock: monotonic seconds.
    """

    def __init__(
        self, measurements: Measurements, connector: Connector, settings: ProbeSettings, clock: Callable[[], float]
    ) -> None:
        hosts = measurements.hosts
        if len(hosts) < 2:
            raise PlinkError(f"one host ({hosts.names[0]}) has no network to measure; give at least two")
        self.measurements, self.clock = measurements, clock
        self._fleet = Fleet(connector, PROGRAM)
        self.context = MeasurementContext(settings, {}, measurements)
        self.scheduler = ProbeScheduler(self._fleet, hosts.names, clock)

    def __enter__(self) -> "ProbeSession":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._fleet.close()

    @property
    def agents(self) -> dict[int, AgentBody]:
        """The first report of every agent, by the index of its host; lost hosts are missing."""
        return self.context.agents

    def start(self, progress: Progress, limit_s: float = math.inf) -> None:
        """Start the agents. Hosts without one are lost, and so is every pair of theirs.

        :param progress: is told of hosts that are ``connecting``, whether they connect or are lost.
        :param limit_s: seconds after which hosts that are not connected are given up.
        :raises UnknownHost: when a host's name does not resolve.
        :raises PlinkError: when fewer than two hosts can be measured.
        """
        hosts, scheduler = self.measurements.hosts, self.scheduler
        index = {name: i for i, name in enumerate(hosts.names)}
        done = 0

        def on_start() -> None:
            nonlocal done
            done += 1
            progress("connecting", done, len(hosts))

        settings: dict[str, object] = {"key": secrets.token_hex(32)}
        settings |= {key: getattr(self.context.settings, key) for key in ("source_ports", "handshakes")}
        for name, error in self._fleet.start(hosts, settings, on_start, limit_s).items():
            if isinstance(error, UnknownHost):
                raise error
            scheduler.mark_lost(index[name], error.reason)
        peers = sample_peers([host.address for host in hosts])
        for host in hosts:
            self._fleet.send(host.name, method="begin", address=host.address, peers=peers[host.address])
        deadline = self.clock() + min(_READY_S, limit_s / 2)
        while len(self.agents) + len(scheduler.lost_hosts) < len(hosts):
            message = self._fleet.receive(deadline - self.clock())
            if message is None:
                break
            i = index[message.host]
            if message.body is None:
                scheduler.record_loss(message)
            elif message.body["type"] == "busy":
                scheduler.mark_lost(i, "another plink probe is running on it (or two names are the same machine)")
            elif not _is_valid(message.body):
                scheduler.mark_lost(i, "the first report of its agent is malformed")
            else:
                self.agents[i] = message.body
                scheduler.set_machine(i, str(message.body["boot_id"]), int(message.body["cores"]))
        for i in range(len(hosts)):
            if i not in self.agents:
                scheduler.mark_lost(i, "its agent does not answer")
            else:
                self.measurements.machines[i] = _host_identity(self.agents[i])
        if len(self.agents) < 2:
            names: dict[str, list[str]] = {}
            for i, reason in sorted(scheduler.lost_hosts.items()):
                names.setdefault(reason, []).append(hosts.names[i])
            reasons = "; ".join(f"{fold_hostlist(lost, ', ')}: {reason}" for reason, lost in names.items())
            raise PlinkError(f"fewer than two hosts can be measured: {reasons}")

    def measure(
        self, pairs: list[tuple[int, int]], method: str | Callable[[int, int], str], on_done: Callable[[], None]
    ) -> None:
        """Measure a round of disjoint pairs, each by the named method or by the one that ``method(i, j)`` returns."""
        names = {pair: method if isinstance(method, str) else method(*pair) for pair in pairs}
        # Kernel timestamps leave out the time that a process waits for a core: no core need be idle.
        stamped = set(names.values()) == {"stamp"} and all(report["stamps"] for report in self.agents.values())
        tasks = [probe_task(self.context, names[pair], *pair) for pair in pairs]
        # Flows wait for the network, not for cores.
        cores = 0 if set(names.values()) == {"flow"} else 1 if stamped else CORES_PER_TASK
        self.scheduler.run(tasks, on_done, cores_per_task=cores)

    def check_agents(self) -> None:
        """Ask every agent whether it is there, and add hosts without one to the measurements' details."""

        def ask(host: int) -> RequestBatches:
            try:
                yield [AgentRequest(host, {"method": "routes", "addresses": []}, _ANSWER_S)]
            except TaskFailed:
                if self.scheduler.clock() < self.scheduler.stop_at():
                    self.scheduler.mark_lost(host, "its agent is gone: it no longer answers")

        self.scheduler.run([ProbeTask((host,), ask(host)) for host in self.agents], cores_per_task=0)
        lost, names = sorted(self.scheduler.lost_hosts.items()), self.measurements.hosts.names
        self.measurements.add(lost_hosts={names[host]: reason for host, reason in lost})


def _is_valid(report: AgentBody) -> bool:
    """Return whether the first report of an agent has all that is used later."""
    texts = [report.get(key) for key in ("hostname", "boot_id", "address", "python")]
    numbers = [report.get(key) for key in ("cores", "port")]
    numbers += [report[key] for key in ("tcp_port", "ssh_port") if report.get(key) is not None]
    return (
        all(isinstance(text, str) for text in texts)
        and all(type(number) is int and 0 <= number < 1 << 31 for number in numbers)
        and {"tcp_port", "ssh_port", "stamps"} <= set(report)
        and isinstance(report.get("addresses"), list)
    )


def _host_identity(report: Mapping[str, Any]) -> MachineIdentity:
    """Return what identifies a host, so that a launch can check that it reaches the same machine again."""
    return MachineIdentity(**{key: report[key] for key in MachineIdentity.__struct_fields__})
