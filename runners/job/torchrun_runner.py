"""Jobs under torchrun: our agents start one on each host, in its place, and hold its workers at the gate."""

from collections.abc import Iterator
from typing import Any

from plink.errors import PlinkError
from plink.model.hosts import Hosts
from plink.remote.connector import Connector
from plink.remote.fleet import Fleet
from plink.remote.program import AgentProgram
from runners.job.agent_pool import AgentPool
from runners.job.rank_environment import environment, interface_environment
from runners.job.job import Job
from runners.job.fleet_runner import PROGRAM as RANKS
from runners.job.fleet_runner import proven
from runners.job.setup import HostSetups, placed, prepare
from runners.job.placement import RankAssignment, seats
from runners.job.result import RunResult
from runners.job.runner import Command, DryRun, Watch
from runners.job.monitor import JobMonitor

PROGRAM = AgentProgram((*RANKS.modules, "runners.job.torchrun_worker", "runners.job.torchrun_agent"), RANKS.says)
WORKER = AgentProgram(("plink.remote.addresses", "plink.remote.supervisor", "runners.job.torchrun_worker"))
_TORCHRUN = ("-m", "torch.distributed.run")
# Where every host imports PyTorch first, and from a shared file system at that.
_REPORT_S = 300.0


class TorchrunRunner:
    """See :class:`runners.job.runner.Runner`; ``connector``: how the agents get onto the hosts."""

    name = "torchrun"

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    def dry_run(self, job: Job, hosts: Hosts, watch: Watch) -> DryRun:
        """The torchrun of each host; in the job itself each worker reports before it becomes the program."""
        with Fleet(self._connector, PROGRAM) as fleet:
            crew = AgentPool(fleet, hosts, job, watch.sink, watch.clock)
            prepared = _prepared(crew, watch)
            asked = seats(hosts, watch.machines)
            placed(asked, prepared)
            commands = tuple(
                Command(
                    (_python(job, here), *words, "--no-python", *here["argv"]), env, name,
                    tuple(seat.rank for seat in asked if seat.host == name), here["workdir"],
                )
                for name, words, env in torchruns(crew, prepared, watch.run_id)
                for here in (prepared[name],)
            )  # fmt: skip
            return DryRun(self.name, commands)

    def run(self, job: Job, hosts: Hosts, watch: Watch) -> RunResult:
        """See :class:`runners.job.runner.Runner`."""
        with Fleet(self._connector, PROGRAM) as fleet:
            crew = AgentPool(fleet, hosts, job, watch.sink, watch.clock)
            prepared = _prepared(crew, watch)
            asked = seats(hosts, watch.machines)
            for name, words, env in torchruns(crew, prepared, watch.run_id):
                here = prepared[name]
                fleet.send(
                    name, do="start", torchrun=words, env=env, argv=here["argv"], workdir=here["workdir"],
                    pythons=[_python(job, here), *job.pythons], worker=WORKER.words({}),
                    slots=hosts.by_name()[name].slots,
                )  # fmt: skip
            proof = proven(asked, crew.ranks(_REPORT_S))
            watch.on_placement(proof)
            began = watch.clock()
            end = JobMonitor(crew, asked).watch()
        seconds = watch.clock() - began
        code = end.failure.code if end.failure else 0
        return RunResult(watch.run_id, code, tuple(proof), seconds, end.failure, end.timed_out, end.exits)


def _prepared(crew: AgentPool, watch: Watch) -> HostSetups:
    prepared = prepare(crew, watch.connected, watch.copied)
    # What is known of the interpreter of a command (`python3 train.py`) says nothing of torchrun's.
    known = prepared if crew.job.program.endswith(".py") else {}
    without = [name for name, here in known.items() if here["versions"] and here["versions"]["torch"] is None]
    if without:
        python = _python(crew.job, prepared[without[0]])
        raise PlinkError(f"{', '.join(without[:4])}: torchrun needs PyTorch, which {python} lacks; nothing was run")
    return prepared


def _python(job: Job, here: dict[str, Any]) -> str:
    """The interpreter of torchrun: the program's own."""
    return str(here["argv"][0]) if job.program.endswith(".py") else job.pythons[0]


def torchruns(crew: AgentPool, prepared: HostSetups, run_id: str) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """(host, words after ``python``, what is added to the environment), in order: a host's place is its node rank."""
    first = prepared[crew.hosts.names[0]]
    addresses = {"PLINK_ADDRESSES": _addresses(crew.hosts, prepared)}
    for place, host in enumerate(crew.hosts):
        words = [
            *_TORCHRUN, "--rdzv-backend=static", f"--rdzv-id={run_id}", f"--nnodes={len(crew.hosts)}",
            f"--node-rank={place}", f"--nproc-per-node={host.slots}", f"--master-addr={first['address']}",
            f"--master-port={first['port']}", "--max-restarts=0",  # a worker that came anew would not be proven
        ]  # fmt: skip
        env = environment(RankAssignment(0, 0, host.name, None, None), place, crew.hosts, first)
        ours = {name: env[name] for name in env if name.startswith(("PYTHON", "OMP_"))}  # the rest is torchrun's to say
        ours |= addresses
        yield host.name, words, ours | interface_environment(prepared[host.name]["interface"]) | crew.job.env


def _addresses(hosts: Hosts, prepared: HostSetups) -> str:
    """The address of every rank, in order."""
    return ",".join(prepared[host.name]["address"] for host in hosts for _ in range(host.slots))
