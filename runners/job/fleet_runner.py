"""Runners whose ranks are started by agents of plink, and wait at a start barrier until their placement is verified."""

from collections.abc import Iterator

from plink.errors import PlinkError
from plink.model.dry_run import DryRun, LaunchCommand
from plink.model.hosts import Hosts
from plink.transport.fleet import Connector, Fleet
from plink.transport.program import AgentProgram
from runners.job.agent_pool import AgentPool, run_to_end
from runners.job.execution_environment import interface_environment, rank_environment
from runners.job.messages import AnyMessage, HostSetup
from runners.job.placement import RankAssignment, RunResult, assign_ranks
from runners.job.runner import Job, RunContext
from runners.job.setup import HostSetups, check_network, set_up_hosts, verify_hosts

PROGRAM = AgentProgram(
    (
        "plink.transport.addresses",
        "plink.transport.command_output",
        "plink.transport.hello_server",
        "plink.transport.flows",
        "plink.transport.start_barrier",
        "plink.transport.supervisor",
        "runners.job.execution_environment",
        "runners.job.connectivity",
        "runners.job.rank_channel",
        "runners.job.workspace_cache",
        "runners.job.rank_agent",
    ),
    AnyMessage,
)
TORCHRUN_PROGRAM = AgentProgram(
    (*PROGRAM.modules, "runners.job.torchrun_worker", "runners.job.torchrun_agent"), AnyMessage
)
WORKER = AgentProgram(("plink.transport.addresses", "plink.transport.supervisor", "runners.job.torchrun_worker"))
_TORCHRUN = ("-m", "torch.distributed.run")
_REPORT_TIMEOUT_S = 30.0
_TORCHRUN_REPORT_TIMEOUT_S = 300.0  # every host imports PyTorch first, maybe from a shared file system
_MAX_NAMED_HOSTS = 4


class FleetRunner:
    """Runner over a fleet of agents; see :class:`runners.job.runner.Runner`.

    :param connector: how the agents get onto the hosts (SSH, or as child processes).
    """

    program, report_timeout_s = PROGRAM, _REPORT_TIMEOUT_S

    def __init__(self, name: str, connector: Connector) -> None:
        self.name, self._connector = name, connector

    def dry_run(self, job: Job, hosts: Hosts, context: RunContext) -> DryRun:
        """Connect to every host, which reports what it would run."""
        with Fleet(self._connector, self.program) as fleet:
            pool = AgentPool(fleet, hosts, job, context.observer.on_line, context.clock)
            setups = set_up_hosts(pool, context.observer.progress)
            self.check(pool, setups)
            assignments = assign_ranks(hosts, context.host_identities, job.hubs)
            verify_hosts(assignments, pool)
            return DryRun(self.name, tuple(self.commands(pool, assignments, setups, context.run_id)))

    def run(self, job: Job, hosts: Hosts, context: RunContext) -> RunResult:
        """Have the agents start the ranks, and let these start the program once all are placed."""
        with Fleet(self._connector, self.program) as fleet:
            pool = AgentPool(fleet, hosts, job, context.observer.on_line, context.clock, context.on_rank_line)
            setups = set_up_hosts(pool, context.observer.progress)
            self.check(pool, setups)
            check_network(pool, context)
            assignments = assign_ranks(hosts, context.host_identities, job.hubs)
            self.start(pool, assignments, setups, context.run_id)
            return run_to_end(pool, assignments, pool.rank_reports(self.report_timeout_s), context)

    def check(self, pool: AgentPool, setups: HostSetups) -> None:
        """Refuse hosts that lack what this runner needs. :raises PlinkError: naming them."""

    def commands(
        self, pool: AgentPool, assignments: list[RankAssignment], setups: HostSetups, run_id: str
    ) -> Iterator[LaunchCommand]:
        """Yield what hosts would run: a command a rank."""
        for assignment, env in rank_environments(pool, assignments, setups):
            setup, ranks = setups[assignment.host], (assignment.rank,) if assignment.hub is None else ()
            yield LaunchCommand(tuple(setup.argv), env, assignment.host, ranks, setup.workdir)

    def start(self, pool: AgentPool, assignments: list[RankAssignment], setups: HostSetups, run_id: str) -> None:
        """Start all ranks, which then wait at the start barrier and report."""
        ranks: dict[str, list[dict[str, object]]] = {name: [] for name in pool.hosts.names}
        for assignment, env in rank_environments(pool, assignments, setups):
            channel = assignment.rank == 0 and pool.on_rank_line is not None
            ranks[assignment.host].append({"rank": assignment.rank, "env": env, "channel": channel})
        for name, tasks in ranks.items():
            setup = setups[name]
            pool.fleet.send(name, method="start", ranks=tasks, argv=setup.argv, workdir=setup.workdir)


def rank_environments(
    pool: AgentPool, assignments: list[RankAssignment], setups: HostSetups
) -> Iterator[tuple[RankAssignment, dict[str, str]]]:
    """Yield each rank with the variables that its environment gets."""
    master, groups = setups[assignments[0].host], {name: group for group, name in enumerate(pool.hosts.names)}
    addresses = {"PLINK_ADDRESSES": ",".join(setups[each.host].address for each in assignments if each.hub is None)}
    for assignment in assignments:
        env = rank_environment(assignment, groups[assignment.host], pool.hosts, (master.address, master.port))
        yield assignment, env | addresses | interface_environment(setups[assignment.host].interface) | pool.job.env


class TorchrunRunner(FleetRunner):
    """Runner whose agents start one torchrun on each host, whose workers wait at the start barrier.

    Workers report by themselves: torchrun's rendezvous knows hosts and no ranks, and marks no line with a rank.
    """

    program, report_timeout_s = TORCHRUN_PROGRAM, _TORCHRUN_REPORT_TIMEOUT_S

    def check(self, pool: AgentPool, setups: HostSetups) -> None:
        """Refuse hosts without PyTorch, and hubs. The interpreter of a command (`python3 train.py`) need not be
        torchrun's."""
        pool.job.check_no_hubs(self.name)
        checked = setups if pool.job.program.endswith(".py") else {}
        without = [name for name, setup in checked.items() if setup.versions and setup.versions.torch is None]
        if without:
            python, named = _python(pool.job, setups[without[0]]), ", ".join(without[:_MAX_NAMED_HOSTS])
            raise PlinkError(f"{named}: torchrun needs PyTorch, which {python} lacks; nothing was run")

    def commands(
        self, pool: AgentPool, assignments: list[RankAssignment], setups: HostSetups, run_id: str
    ) -> Iterator[LaunchCommand]:
        """Yield the torchrun command of each host; in a run each worker reports before it becomes the program."""
        for name, arguments, env in torchrun_commands(pool, setups, run_id):
            setup = setups[name]
            argv = (_python(pool.job, setup), *arguments, "--no-python", *setup.argv)
            ranks = tuple(assignment.rank for assignment in assignments if assignment.host == name)
            yield LaunchCommand(argv, env, name, ranks, setup.workdir)

    def start(self, pool: AgentPool, assignments: list[RankAssignment], setups: HostSetups, run_id: str) -> None:
        """Start a torchrun on each host."""
        slots = {host.name: host.slots for host in pool.hosts}
        for name, arguments, env in torchrun_commands(pool, setups, run_id):
            setup = setups[name]
            pythons, worker = [_python(pool.job, setup), *pool.job.pythons], WORKER.command_arguments({})
            program = {"argv": setup.argv, "workdir": setup.workdir, "env": env, "slots": slots[name]}
            pool.fleet.send(name, method="start", torchrun=arguments, pythons=pythons, worker=worker, **program)


def _python(job: Job, setup: HostSetup) -> str:
    """Return the interpreter of torchrun: the program's own."""
    return setup.argv[0] if job.program.endswith(".py") else job.pythons[0]


def torchrun_commands(
    pool: AgentPool, setups: HostSetups, run_id: str
) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """Yield (host, arguments of ``python``, variables that its environment gets), in rank order."""
    first = setups[pool.hosts.names[0]]
    addresses = ",".join(setups[host.name].address for host in pool.hosts for _ in range(host.slots))
    for node_rank, host in enumerate(pool.hosts):
        arguments = [
            *(*_TORCHRUN, "--rdzv-backend=static", f"--rdzv-id={run_id}", f"--nnodes={len(pool.hosts)}"),
            *(f"--node-rank={node_rank}", f"--nproc-per-node={host.slots}", f"--master-addr={first.address}"),
            *(f"--master-port={first.port}", "--max-restarts=0"),  # a restarted worker would not be verified
        ]
        rank = RankAssignment(0, 0, host.name, None, None)
        env = rank_environment(rank, node_rank, pool.hosts, (first.address, first.port))
        env = {name: env[name] for name in env if name.startswith(("PYTHON", "OMP_"))}  # torchrun sets the others
        env |= {"PLINK_ADDRESSES": addresses} | interface_environment(setups[host.name].interface) | pool.job.env
        yield host.name, arguments, env
