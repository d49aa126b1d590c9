"""Jobs whose ranks our own agents start: held at a gate until each has shown that it is where it was asked to be."""

from collections.abc import Iterator, Mapping
from typing import Any

from plink.model.hosts import Hosts
from plink.remote.connector import Connector
from plink.remote.fleet import Fleet
from plink.remote.program import AgentProgram
from runners.job.agent_pool import AgentPool
from runners.job.rank_environment import environment, interface_environment
from runners.job.job import Job
from runners.job.setup import HostSetups, placed, prepare
from runners.job.placement import RankLocation, RankAssignment, seats, verify
from runners.job.result import RunResult, kept
from runners.job.runner import Command, DryRun, Watch
from runners.job.agent_messages import AGENT_MESSAGES
from runners.job.monitor import JobMonitor

PROGRAM = AgentProgram(
    (
        "plink.remote.addresses",
        "plink.remote.low_priority",
        "plink.remote.supervisor",
        "runners.job.execution_environment",
        "runners.job.connectivity",
        "runners.job.rank_channel",
        "runners.job.workspace_cache",
        "runners.job.stacks",
        "runners.job.rank_agent",
    ),
    AGENT_MESSAGES,
)


class FleetRunner:
    """Agents on the hosts start the ranks (over SSH, or as children of this process: ``connector``)."""

    def __init__(self, name: str, connector: Connector) -> None:
        self.name, self._connector = name, connector

    def dry_run(self, job: Job, hosts: Hosts, watch: Watch) -> DryRun:
        """See :class:`runners.job.runner.Runner`: every host is connected to, and says what it would run."""
        with Fleet(self._connector, PROGRAM) as fleet:
            crew = AgentPool(fleet, hosts, job, watch.sink, watch.clock)
            prepared = prepare(crew, watch.connected, watch.copied)
            placed(seats(hosts, watch.machines), prepared)
            commands = tuple(
                Command(tuple(here["argv"]), env, seat.host, (seat.rank,), here["workdir"])
                for seat, env in environments(crew, seats(hosts, watch.machines), prepared)
                for here in (prepared[seat.host],)
            )
            return DryRun(self.name, commands)

    def run(self, job: Job, hosts: Hosts, watch: Watch) -> RunResult:
        """See :class:`runners.job.runner.Runner`."""
        with Fleet(self._connector, PROGRAM) as fleet:
            crew = AgentPool(fleet, hosts, job, watch.sink, watch.clock, watch.talk)
            prepared = prepare(crew, watch.connected, watch.copied)
            asked = seats(hosts, watch.machines)
            proof = _at_the_gate(crew, asked, prepared)
            watch.on_placement(proof)
            began = watch.clock()
            end = JobMonitor(crew, asked).watch()
        seconds = watch.clock() - began
        code = end.failure.code if end.failure else 0
        return RunResult(watch.run_id, code, tuple(proof), seconds, end.failure, end.timed_out, end.exits)


def environments(crew: AgentPool, asked: list[RankAssignment], prepared: HostSetups) -> Iterator[tuple[RankAssignment, dict[str, str]]]:
    """What each rank is started with."""
    master, groups = prepared[asked[0].host], {name: group for group, name in enumerate(crew.hosts.names)}
    addresses = ",".join(prepared[seat.host]["address"] for seat in asked)
    for seat in asked:
        env = environment(seat, groups[seat.host], crew.hosts, master) | {"PLINK_ADDRESSES": addresses}
        yield seat, env | interface_environment(prepared[seat.host]["interface"]) | crew.job.env


def _at_the_gate(crew: AgentPool, asked: list[RankAssignment], prepared: HostSetups) -> list[RankLocation]:
    """All ranks at the gate, and the proof that each is where it was asked to be.

    :raises PlacementError: when one is not.
    """
    tasks: dict[str, list[dict[str, Any]]] = {name: [] for name in crew.hosts.names}
    for seat, env in environments(crew, asked, prepared):
        task = {"rank": seat.rank, "env": env, "line": seat.rank == 0 and crew.talk is not None}
        tasks[seat.host].append(task)
    for name, ranks in tasks.items():
        here = prepared[name]
        crew.fleet.send(name, do="start", ranks=ranks, argv=here["argv"], workdir=here["workdir"])
    return proven(asked, crew.ranks())


def proven(asked: list[RankAssignment], reports: Mapping[int, tuple[str, dict[str, Any]]]) -> list[RankLocation]:
    """What ranks reported, compared with what was asked for.

    :raises PlacementError: when one is elsewhere.
    """
    return kept(verify(asked, reports))
