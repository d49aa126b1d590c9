"""Runner whose ranks are started by agents of plink, and wait at a start barrier until their placement is verified."""

from collections.abc import Iterator
from typing import Any

from plink.model.hosts import Hosts
from plink.transport.connector import Connector
from plink.transport.fleet import Fleet
from plink.transport.message_schema import (
    MessageSchema,
    integer,
    list_of,
    non_empty_list_of,
    number,
    one_of,
    optional,
    record,
    text,
)
from plink.transport.program import AgentProgram
from runners.job.agent_pool import AgentPool
from runners.job.fleet_monitor import run_to_end
from runners.job.job import Job
from runners.job.network_check import check_network
from runners.job.placement import RankAssignment, assign_ranks
from runners.job.rank_environment import interface_environment, rank_environment
from runners.job.result import RunResult
from runners.job.runner import DryRun, LaunchCommand, RunContext
from runners.job.setup import HostSetups, set_up_hosts, verify_hosts

# What launching agents send (:mod:`runners.job.rank_agent`, :mod:`runners.job.torchrun_agent`).
_IDENTITY = {"hostname": text, "boot_id": text, "cores": integer, "addresses": list_of(text)}

AGENT_MESSAGES = MessageSchema(
    {
        "ready": {"address": text, **_IDENTITY},
        "digest": {"path": optional(text)},
        "part_stored": {"bytes": integer},
        "extracted": {"path": optional(text), "error": optional(text)},
        "set_up": {
            "argv": non_empty_list_of(text),
            "workdir": text,
            "interface": text,
            "address": text,
            "port": integer,
            "versions": optional(record(python=optional(text), torch=optional(text), plink=optional(text))),
            "problems": list_of(text),
        },
        "listener_opened": {"error": optional(text)},
        "connected": {"error": optional(text)},
        "flow_port": {"port": optional(integer)},
        "flow_rate": {"gbps": optional(number), "error": optional(text)},
        "rank_report": {"rank": integer, "pid": integer, "hostname": text, "addresses": list_of(text)},
        "output": {"rank": optional(integer), "stream": one_of("out", "err"), "text": text},
        "line": {"text": text},
        "exited": {"rank": integer, "code": integer},
        "failed": {"error": text},
    }
)

PROGRAM = AgentProgram(
    (
        "plink.transport.addresses",
        "plink.transport.command_output",
        "plink.transport.flows",
        "plink.transport.low_priority",
        "plink.transport.start_barrier",
        "plink.transport.supervisor",
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
    """Runner over a fleet of agents.

    :param connector: how the agents get onto the hosts (SSH, or as child processes).
    """

    def __init__(self, name: str, connector: Connector) -> None:
        self.name, self._connector = name, connector

    def dry_run(self, job: Job, hosts: Hosts, context: RunContext) -> DryRun:
        """See :class:`runners.job.runner.Runner`; connects to every host, which reports what it would run."""
        with Fleet(self._connector, PROGRAM) as fleet:
            pool = AgentPool(fleet, hosts, job, context.observer.on_line, context.clock)
            setups = set_up_hosts(pool, context.observer.progress)
            assignments = assign_ranks(hosts, context.host_identities, job.hubs)
            verify_hosts(assignments, setups)
            commands = tuple(
                LaunchCommand(tuple(setup["argv"]), env, assignment.host, ranks, setup["workdir"])
                for assignment, env in rank_environments(pool, assignments, setups)
                for setup in (setups[assignment.host],)
                for ranks in ((assignment.rank,) if assignment.hub is None else (),)
            )
            return DryRun(self.name, commands)

    def run(self, job: Job, hosts: Hosts, context: RunContext) -> RunResult:
        """See :class:`runners.job.runner.Runner`."""
        with Fleet(self._connector, PROGRAM) as fleet:
            pool = AgentPool(fleet, hosts, job, context.observer.on_line, context.clock, context.on_rank_line)
            setups = set_up_hosts(pool, context.observer.progress)
            check_network(pool, setups, context)
            assignments = assign_ranks(hosts, context.host_identities, job.hubs)
            _start_ranks(pool, assignments, setups)
            return run_to_end(pool, assignments, pool.rank_reports(), context)


def rank_environments(
    pool: AgentPool, assignments: list[RankAssignment], setups: HostSetups
) -> Iterator[tuple[RankAssignment, dict[str, str]]]:
    """Yield each rank with the variables that its environment gets."""
    master, groups = setups[assignments[0].host], {name: group for group, name in enumerate(pool.hosts.names)}
    addresses = {"PLINK_ADDRESSES": ",".join(setups[each.host]["address"] for each in assignments if each.hub is None)}
    for assignment in assignments:
        env = rank_environment(assignment, groups[assignment.host], pool.hosts, master) | addresses
        yield assignment, env | interface_environment(setups[assignment.host]["interface"]) | pool.job.env


def _start_ranks(pool: AgentPool, assignments: list[RankAssignment], setups: HostSetups) -> None:
    """Start all ranks, which then wait at the start barrier and report."""
    ranks: dict[str, list[dict[str, Any]]] = {name: [] for name in pool.hosts.names}
    for assignment, env in rank_environments(pool, assignments, setups):
        channel = assignment.rank == 0 and pool.on_rank_line is not None
        ranks[assignment.host].append({"rank": assignment.rank, "env": env, "channel": channel})
    for name, tasks in ranks.items():
        setup = setups[name]
        pool.fleet.send(name, method="start", ranks=tasks, argv=setup["argv"], workdir=setup["workdir"])
