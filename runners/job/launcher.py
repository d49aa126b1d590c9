"""Jobs whose ranks our own agents start: held at a gate until each has shown that it is where it was asked to be."""

from collections.abc import Iterator, Mapping
from typing import Any

from plink.model.hosts import Hosts
from plink.remote.connector import Connector
from plink.remote.fleet import Fleet
from plink.remote.program import AgentProgram
from runners.job.crew import Crew
from runners.job.environment import environment, interface_environment
from runners.job.job import Job
from runners.job.preparing import Prepared, placed, prepare
from runners.job.proof import RankLocation, Seat, seats, verify
from runners.job.result import RunResult, kept
from runners.job.runner import Command, DryRun, Watch
from runners.job.said import SAID
from runners.job.watching import Watching

PROGRAM = AgentProgram(
    (
        "plink.remote.addresses",
        "plink.remote.gentle",
        "plink.remote.supervisor",
        "runners.job.workplace",
        "runners.job.reach",
        "runners.job.rank_line",
        "runners.job.copies",
        "runners.job.stacks",
        "runners.job.rank_agent",
    ),
    SAID,
)


class FleetRunner:
    """Agents on the hosts start the ranks (over SSH, or as children of this process: ``connector``)."""

    def __init__(self, name: str, connector: Connector) -> None:
        self.name, self._connector = name, connector

    def dry_run(self, job: Job, hosts: Hosts, watch: Watch) -> DryRun:
        """See :class:`runners.job.runner.Runner`: every host is connected to, and says what it would run."""
        with Fleet(self._connector, PROGRAM) as fleet:
            crew = Crew(fleet, hosts, job, watch.sink, watch.clock)
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
            crew = Crew(fleet, hosts, job, watch.sink, watch.clock, watch.talk)
            prepared = prepare(crew, watch.connected, watch.copied)
            asked = seats(hosts, watch.machines)
            proof = _at_the_gate(crew, asked, prepared)
            watch.on_proof(proof)
            began = watch.clock()
            end = Watching(crew, asked).watch()
        seconds = watch.clock() - began
        code = end.failure.code if end.failure else 0
        return RunResult(watch.run_id, code, tuple(proof), seconds, end.failure, end.timed_out, end.exits)


def environments(crew: Crew, asked: list[Seat], prepared: Prepared) -> Iterator[tuple[Seat, dict[str, str]]]:
    """What each rank is started with."""
    master, groups = prepared[asked[0].host], {name: group for group, name in enumerate(crew.hosts.names)}
    addresses = ",".join(prepared[seat.host]["address"] for seat in asked)
    for seat in asked:
        env = environment(seat, groups[seat.host], crew.hosts, master) | {"PLINK_ADDRESSES": addresses}
        yield seat, env | interface_environment(prepared[seat.host]["interface"]) | crew.job.env


def _at_the_gate(crew: Crew, asked: list[Seat], prepared: Prepared) -> list[RankLocation]:
    """All ranks at the gate, and the proof that each is where it was asked to be.

    :raises OrderNotKept: when one is not.
    """
    tasks: dict[str, list[dict[str, Any]]] = {name: [] for name in crew.hosts.names}
    for seat, env in environments(crew, asked, prepared):
        task = {"rank": seat.rank, "env": env, "line": seat.rank == 0 and crew.talk is not None}
        tasks[seat.host].append(task)
    for name, ranks in tasks.items():
        here = prepared[name]
        crew.fleet.send(name, do="start", ranks=ranks, argv=here["argv"], workdir=here["workdir"])
    return proven(asked, crew.ranks())


def proven(asked: list[Seat], reports: Mapping[int, tuple[str, dict[str, Any]]]) -> list[RankLocation]:
    """What ranks reported, compared with what was asked for.

    :raises OrderNotKept: when one is elsewhere.
    """
    return kept(verify(asked, reports))
