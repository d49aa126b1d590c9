"""Measure the network between hosts: agents on all of them, then rounds of disjoint pairs."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from plink.errors import PlinkError, UnknownHost
from plink.model.hosts import Hosts
from plink.remote.connector import Connector
from plink.remote.fleet import Fleet
from plink.remote.peers import few_peers
from plink.remote.program import AgentProgram
from probes.conductor import CORES_EACH, Conductor
from probes.measurements import Measurements
from probes.methods import Settings, Work, errand

PROGRAM = AgentProgram(
    (
        "plink.remote.addresses",
        "probes.timestamps",
        "probes.datagrams",
        "probes.stamp",
        "probes.agent.summary",
        "probes.agent.echo",
        "probes.agent.tools",
        "probes.agent.flows",
        "probes.agent.inspection",
        "probes.agent.main",
    )
)
_READY_S = 30.0


def _nothing(done: int, total: int) -> None:
    pass


@dataclass(frozen=True)
class Watcher:
    """Called with (done, total) while a survey runs: hosts connected to (or given up), pairs done (or given up)."""

    connected: Callable[[int, int], None] = _nothing
    measured: Callable[[int, int], None] = _nothing


class Survey:
    """Agents on all hosts, ready to measure; a context manager that ends them.

    :param found: what is known already; the hosts are its hosts.
    :param clock: monotonic seconds.
    """

    def __init__(
        self, found: Measurements, connector: Connector, settings: Settings, clock: Callable[[], float]
    ) -> None:
        hosts = found.hosts
        if len(hosts) < 2:
            raise PlinkError(f"there is nothing to measure with one host ({hosts.names[0]}); give at least two")
        self.found, self.clock = found, clock
        self._fleet = Fleet(connector, PROGRAM)
        self._settings = settings
        self._work = Work(settings, {}, found)
        self.conductor = Conductor(self._fleet, hosts.names, clock)

    def __enter__(self) -> "Survey":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._fleet.close()

    @property
    def ready(self) -> dict[int, dict[str, Any]]:
        """What every agent said of its host, by the host's index; hosts that could not be had are missing."""
        return self._work.ready

    @property
    def work(self) -> Work:
        """What the methods share."""
        return self._work

    def start(self, watcher: Watcher) -> None:
        """Start the agents. Hosts that cannot be had are noted, and every pair of theirs will be.

        :raises UnknownHost: when a host's name does not resolve.
        :raises PlinkError: when fewer than two hosts can be measured.
        """
        hosts, conductor = self.found.hosts, self.conductor
        index = {name: i for i, name in enumerate(hosts.names)}
        done = 0

        def on_start() -> None:
            nonlocal done
            done += 1
            watcher.connected(done, len(hosts))

        settings: dict[str, object] = {"key": secrets.token_hex(32), "source_ports": self._settings.source_ports}
        settings["handshakes"] = self._settings.handshakes
        for name, error in self._fleet.start(hosts, settings, on_start).items():
            if isinstance(error, UnknownHost):
                raise error
            conductor.lose(index[name], error.reason)
        peers = few_peers([host.address for host in hosts])
        for host in hosts:
            self._fleet.send(host.name, do="begin", asked=host.address, peers=peers[host.address])
        deadline = self.clock() + _READY_S
        while len(self.ready) + len(conductor.gone) < len(hosts):
            message = self._fleet.receive(deadline - self.clock())
            if message is None:
                break
            i = index[message.host]
            if message.body is None:
                conductor.note_gone(message)
            elif message.body["is"] == "busy":
                conductor.lose(i, "another plink probe is at work on it (or another name here is the same machine)")
            elif not _is_ready(message.body):
                conductor.lose(i, "its agent says of itself nothing that plink can read")
            else:
                self.ready[i] = message.body
                conductor.settle(i, str(message.body["boot_id"]), int(message.body["cores"]))
        for i in range(len(hosts)):
            if i not in self.ready:
                conductor.lose(i, "its agent does not answer")
            else:
                self.found.machines[i] = _machine(self.ready[i])
        if len(self.ready) < 2:
            reasons = "; ".join(f"{hosts.names[i]}: {why}" for i, why in sorted(conductor.gone.items()))
            raise PlinkError(f"fewer than two hosts can be measured: {reasons}")

    def measure(
        self, pairs: list[tuple[int, int]], method: str | Callable[[int, int], str], on_done: Callable[[], None]
    ) -> None:
        """One round: these pairs (disjoint), each by the method named (or by the one that ``method(i, j)`` names)."""
        names = {pair: method if isinstance(method, str) else method(*pair) for pair in pairs}
        # Where the kernel stamps packets, waiting for a core does not count: no core need be left idle.
        stamped = set(names.values()) == {"stamp"} and all(ready["stamps"] for ready in self.ready.values())
        errands = [errand(self._work, names[pair], *pair) for pair in pairs]
        self.conductor.run(errands, on_done, cores_each=1 if stamped else CORES_EACH)


def _is_ready(said: dict[str, Any]) -> bool:
    """Whether an agent told what is relied on from then on."""
    texts = [said.get(key) for key in ("hostname", "boot_id", "address", "python")]
    numbers = [said.get(key) for key in ("cores", "port")]
    numbers += [said[key] for key in ("tcp_port", "ssh_port") if said.get(key) is not None]
    return (
        all(isinstance(text, str) for text in texts)
        and all(type(number) is int and 0 <= number < 1 << 31 for number in numbers)
        and {"tcp_port", "ssh_port", "stamps"} <= set(said)
        and isinstance(said.get("addresses"), list)
    )


def _machine(ready: dict[str, Any]) -> dict[str, Any]:
    """What tells a host from others, kept so that a launch can check that it meets the same machine again."""
    return {key: ready[key] for key in ("hostname", "boot_id", "address", "addresses", "cores", "python")}


def measure_all(
    hosts: Hosts, connector: Connector, settings: Settings, watcher: Watcher, clock: Callable[[], float]
) -> Measurements:
    """Every pair by STAMP, in one go: what a demo needs."""
    from probes.rounds import rounds

    with Survey(Measurements(hosts), connector, settings, clock) as survey:
        survey.start(watcher)
        plan = rounds(len(hosts), settings.seed)
        total, done = sum(map(len, plan)), 0

        def on_done() -> None:
            nonlocal done
            done += 1
            watcher.measured(done, total)

        for pairs in plan:
            survey.measure(pairs, "stamp", on_done)
        return survey.found
