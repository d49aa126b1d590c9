"""Ranks of one pod: started together, their output marked, ended together.

Runs in pods: standard library only. The pod's first process stays their parent: Kubernetes sends it SIGTERM, which a
first process without a handler would not receive.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
from types import FrameType, SimpleNamespace
from typing import Any, NoReturn

from plink.transport.addresses import local_addresses
from plink.transport.start_barrier import StartBarrier
from plink.transport.supervisor import exec_program
from runners.job.execution_environment import interface_environment, rank_environment
from runners.kubernetes.inside.rendezvous import Bootstrap, RendezvousServer, name_some, send_report

MARK = "plink-rank "
NODE, POD = "PLINK_NODE", "PLINK_POD"


REFUSED = 125  # as of `env` and `timeout`: not the program failed, but what should have started it
_REFUSAL_TIMEOUT_S = 10.0  # for other pods to be told that they need not wait
_GRACE_S = 10.0
_NOT_STARTED = 127


class RankLayout:
    """Nodes and their ranks, with the attributes that :func:`rank_environment` reads."""

    def __init__(self, slots: list[int]) -> None:
        self.members = [SimpleNamespace(slots=count) for count in slots]
        self._first = [sum(slots[:group]) for group in range(len(slots))]

    def __iter__(self) -> Any:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def ranks(self, group: int) -> list[int]:
        """Return the ranks of one node."""
        return [self._first[group] + local for local in range(self.members[group].slots)]

    def environment(self, group: int, rank: int, master: dict[str, Any], interface: str) -> dict[str, str]:
        """Return what that rank's environment gets."""
        assignment: Any = SimpleNamespace(rank=rank, local_rank=rank - self._first[group], hub=None)
        nodes: Any = self
        at = master["address"], master["port"]
        env = {**rank_environment(assignment, group, nodes, at), **interface_environment(interface)}
        # The operator may number pods in its own way; torchrun, when that is the program, would follow it.
        operator_env = {
            "PET_NODE_RANK": env["GROUP_RANK"],
            "PET_MASTER_ADDR": env["MASTER_ADDR"],
            "PET_MASTER_PORT": env["MASTER_PORT"],
            "PET_NNODES": env["GROUP_WORLD_SIZE"],
        }
        return {**env, **{name: value for name, value in operator_env.items() if name in os.environ}}


def find_group(nodes: list[str], bootstrap: Bootstrap) -> dict[str, Any]:
    """Return who this pod is: the names of its node and of itself, and the ``group``, the index of its node in the
    order. A pod on any other node reports that, and ends."""
    node = os.environ.get(NODE, "")
    identity = {"node": node, "pod": os.environ.get(POD, socket.gethostname())}
    if node not in nodes:
        subject = f"is on the node {node}, which" if node else f"does not know its node ({NODE} is not set), which"
        problem = f"this pod {subject} is not one of the job's nodes ({name_some(nodes)})"
        send_report(bootstrap, {**identity, "group": None, "problems": [problem]}, _REFUSAL_TIMEOUT_S)
        refuse(problem)
    return {**identity, "group": nodes.index(node)}


def enlist(
    bootstrap: Bootstrap, identity: dict[str, Any], execution: dict[str, Any], server: RendezvousServer | None = None
) -> dict[str, Any]:
    """Report this pod and return the answer of the listening pod, once every pod has reported; end where this pod or
    another cannot run its ranks.

    :param execution: of :func:`resolve_execution`. :param server: of this pod, if it is the one that listens.
    """
    problems = execution["problems"]
    report = {**identity, **{key: execution[key] for key in ("address", "port", "versions", "problems")}}
    answer = send_report(bootstrap, report, _REFUSAL_TIMEOUT_S if problems else bootstrap.wait_s)
    if server is not None:
        server.finish()
    if problems:
        refuse(f"{identity['node']}: {'; '.join(problems)}")
    if "refused" in answer:
        refuse(answer["refused"])
    return answer


def refuse(problem: str, consequence: str = "nothing was run") -> NoReturn:
    """End this process with an error."""
    say(f"{problem}; {consequence}")
    sys.exit(REFUSED)


def report_rank(rank: int, host: str, identity: dict[str, Any], pid: int) -> None:
    """Write one rank's location to standard output, one line in one write, for placement verification."""
    report = {
        "rank": rank,
        "host": host,
        "node": identity["node"],
        "pod": identity["pod"],
        "hostname": socket.gethostname(),
        "addresses": local_addresses(),
        "pid": pid,
    }
    os.write(1, (MARK + json.dumps(report) + "\n").encode())


def say(text: str) -> None:
    """Write a line to standard error."""
    os.write(2, f"plink: {text}\n".encode())


def say_placed(ranks: int, program: str) -> None:
    """Write that every rank of the job is on its node."""
    say(f"{ranks}/{ranks} ranks placed; starting {program}")


class PodRanks:
    """Child processes that wait at a start barrier until :meth:`run` opens it.

    :param commands: of each rank: number, arguments, folder, environment.
    :param label: whether lines are marked with their rank; where a pod has one only, its output stays as it is.
    """

    def __init__(self, commands: list[tuple[int, list[str], str, dict[str, str]]], label: bool) -> None:
        self._ranks: dict[int, int] = {}  # by process id
        self._readers: list[threading.Thread] = []
        self._write_lock = threading.Lock()
        self._was_signalled = False
        self._barrier = StartBarrier()
        pipes: list[tuple[int, int, int]] = []
        for rank, argv, folder, environment in commands:
            ends = [os.pipe(), os.pipe()] if label else []
            pid = os.fork()
            if pid == 0:
                _run_program(self._barrier, [write for _, write in ends], argv, folder, environment)
            self._ranks[pid] = rank
            for stream, (read, write) in enumerate(ends, 1):
                os.close(write)
                pipes.append((rank, read, stream))
        self._barrier.all_forked()
        for rank, read, stream in pipes:
            thread = threading.Thread(target=self._forward, args=(rank, read, stream), daemon=True)
            thread.start()
            self._readers.append(thread)

    def pids(self) -> dict[int, int]:
        """Return process ids, by rank."""
        return {rank: pid for pid, rank in self._ranks.items()}

    def run(self) -> int:
        """Open the barrier and wait; the first rank that fails ends the others. Return its exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        self._barrier.open(len(self._ranks))
        failed = 0
        while self._ranks:
            pid, status = os.wait()  # as the first process of a pod also for orphans
            rank = self._ranks.pop(pid, None)
            if rank is None:
                continue
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            if code and not failed:
                failed = code if code > 0 else 128 - code
                if not self._was_signalled:
                    os.write(2, f"plink: rank {rank} ended with exit code {failed}\n".encode())
                self._end(signal.SIGTERM, None)
        for thread in self._readers:
            thread.join(_GRACE_S)
        return failed

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._was_signalled = True
        self._signal(signal.SIGTERM)
        alarm = threading.Timer(_GRACE_S, self._signal, (signal.SIGKILL,))
        alarm.daemon = True
        alarm.start()

    def _signal(self, number: int) -> None:
        for pid in list(self._ranks):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _forward(self, rank: int, read: int, stream: int) -> None:
        mark = b"[%d] " % rank
        with os.fdopen(read, "rb") as file:
            for line in file:
                data = mark + line if line.endswith(b"\n") else mark + line + b"\n"
                with self._write_lock:
                    while data:
                        data = data[os.write(stream, data) :]


def _run_program(
    barrier: StartBarrier, outputs: list[int], argv: list[str], folder: str, environment: dict[str, str]
) -> None:
    """Wait in the child, then become the program."""
    try:
        if not barrier.wait():  # refused, or the parent has ended
            os._exit(REFUSED)
        for stream, output in enumerate(outputs, 1):
            os.dup2(output, stream)
        exec_program(argv, folder, environment)
    finally:
        os._exit(_NOT_STARTED)
