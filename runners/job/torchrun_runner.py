"""Runner for torchrun: agents of plink start one torchrun on each host, whose workers wait at the start barrier."""

from collections.abc import Iterator
from typing import Any

from plink.errors import PlinkError
from plink.model.hosts import Hosts
from plink.transport.connector import Connector
from plink.transport.fleet import Fleet
from plink.transport.program import AgentProgram
from runners.job.agent_pool import AgentPool
from runners.job.fleet_monitor import run_to_end
from runners.job.fleet_runner import PROGRAM as RANK_PROGRAM
from runners.job.job import Job
from runners.job.network_check import check_network
from runners.job.placement import RankAssignment, assign_ranks
from runners.job.rank_environment import interface_environment, rank_environment
from runners.job.result import RunResult
from runners.job.runner import DryRun, LaunchCommand, RunContext
from runners.job.setup import HostSetups, set_up_hosts, verify_hosts

PROGRAM = AgentProgram(
    (*RANK_PROGRAM.modules, "runners.job.torchrun_worker", "runners.job.torchrun_agent"), RANK_PROGRAM.messages
)
WORKER = AgentProgram(("plink.transport.addresses", "plink.transport.supervisor", "runners.job.torchrun_worker"))
_TORCHRUN = ("-m", "torch.distributed.run")
_REPORT_TIMEOUT_S = 300.0  # every host imports PyTorch first, maybe from a shared file system
_MAX_NAMED_HOSTS = 4


class TorchrunRunner:
    """See :class:`runners.job.runner.Runner`.

    :param connector: how the agents get onto the hosts.
    """

    name = "torchrun"

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    def dry_run(self, job: Job, hosts: Hosts, context: RunContext) -> DryRun:
        """Return the torchrun command of each host; in a run each worker reports before it becomes the program."""
        with Fleet(self._connector, PROGRAM) as fleet:
            pool = AgentPool(fleet, hosts, job, context.observer.on_line, context.clock)
            setups = _set_up(pool, context)
            assignments = assign_ranks(hosts, context.host_identities)
            verify_hosts(assignments, setups)
            commands = tuple(
                LaunchCommand(
                    (_python(job, setup), *arguments, "--no-python", *setup["argv"]), env, name,
                    tuple(assignment.rank for assignment in assignments if assignment.host == name), setup["workdir"],
                )
                for name, arguments, env in torchrun_commands(pool, setups, context.run_id)
                for setup in (setups[name],)
            )  # fmt: skip
            return DryRun(self.name, commands)

    def run(self, job: Job, hosts: Hosts, context: RunContext) -> RunResult:
        """See :class:`runners.job.runner.Runner`."""
        with Fleet(self._connector, PROGRAM) as fleet:
            pool = AgentPool(fleet, hosts, job, context.observer.on_line, context.clock)
            setups = _set_up(pool, context)
            check_network(pool, setups, context)
            assignments = assign_ranks(hosts, context.host_identities)
            for name, arguments, env in torchrun_commands(pool, setups, context.run_id):
                setup = setups[name]
                fleet.send(
                    name, method="start", torchrun=arguments, env=env, argv=setup["argv"], workdir=setup["workdir"],
                    pythons=[_python(job, setup), *job.pythons], worker=WORKER.command_arguments({}),
                    slots=hosts.by_name()[name].slots,
                )  # fmt: skip
            return run_to_end(pool, assignments, pool.rank_reports(_REPORT_TIMEOUT_S), context)


def _set_up(pool: AgentPool, context: RunContext) -> HostSetups:
    setups = set_up_hosts(pool, context.observer.progress)
    # The interpreter of a command (`python3 train.py`) need not be torchrun's.
    checked = setups if pool.job.program.endswith(".py") else {}
    without = [name for name, setup in checked.items() if setup["versions"] and setup["versions"]["torch"] is None]
    if without:
        python, named = _python(pool.job, setups[without[0]]), ", ".join(without[:_MAX_NAMED_HOSTS])
        raise PlinkError(f"{named}: torchrun needs PyTorch, which {python} lacks; nothing was run")
    return setups


def _python(job: Job, setup: dict[str, Any]) -> str:
    """Return the interpreter of torchrun: the program's own."""
    return str(setup["argv"][0]) if job.program.endswith(".py") else job.pythons[0]


def torchrun_commands(
    pool: AgentPool, setups: HostSetups, run_id: str
) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """Yield (host, arguments of ``python``, variables that its environment gets), in rank order."""
    first = setups[pool.hosts.names[0]]
    addresses = ",".join(setups[host.name]["address"] for host in pool.hosts for _ in range(host.slots))
    for node_rank, host in enumerate(pool.hosts):
        arguments = [
            *_TORCHRUN, "--rdzv-backend=static", f"--rdzv-id={run_id}", f"--nnodes={len(pool.hosts)}",
            f"--node-rank={node_rank}", f"--nproc-per-node={host.slots}", f"--master-addr={first['address']}",
            f"--master-port={first['port']}", "--max-restarts=0",  # a restarted worker would not be verified
        ]  # fmt: skip
        env = rank_environment(RankAssignment(0, 0, host.name, None, None), node_rank, pool.hosts, first)
        env = {name: env[name] for name in env if name.startswith(("PYTHON", "OMP_"))}  # torchrun sets the others
        env |= {"PLINK_ADDRESSES": addresses} | interface_environment(setups[host.name]["interface"]) | pool.job.env
        yield host.name, arguments, env
