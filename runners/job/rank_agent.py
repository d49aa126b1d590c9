"""The launching agent: starts the ranks of one host, holds them at a gate until the controller has seen all, ends them.

Runs on the hosts: standard library only. Each rank reports who and where it is from the very process that then becomes
the user's program (same process id). A rank dies with the agent, and the agent with its controller; whatever ranks
started ends with the job (:mod:`plink.remote.supervisor`).

===================  ======================================================================================
from the controller  ``begin`` · ``have`` · ``piece`` · ``unpack`` · ``prepare`` · ``listen`` · ``reach`` ·
                     ``hang up`` · ``start`` · ``go`` · ``line`` · ``stacks`` · ``end`` · ``alive``
to the controller    ``ready`` · ``has`` · ``unpacked`` · ``prepared`` · ``listening`` · ``reached`` · ``hung up`` ·
                     ``reported`` · ``output`` · ``line`` · ``exited`` · ``stacks`` · ``alive``
===================  ======================================================================================
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import selectors
import signal
import socket
import sys
import tarfile
import time
from typing import Any

from plink.remote.addresses import local_addresses, host_identity, reachable_address
from plink.remote.low_priority import VARIABLE as GENTLE
from plink.remote.low_priority import gentle
from plink.remote.stdio_channel import ControllerLost, AgentStdioChannel
from plink.remote.supervisor import GRACE_S, ProcessTree, exec_program, on_signal, redirect_output, supervise
from runners.job.workspace_cache import WorkspaceCache
from runners.job.rank_channel import VARIABLE as LINE
from runners.job.rank_channel import RankChannel
from runners.job.connectivity import listening, reached
from runners.job.stacks import stacks
from runners.job.execution_environment import workplace

_READ = 1 << 16
_DRAIN_READS = 1024
_TICK_S = 0.05
_LEAVING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Rank:
    """One rank: its process, the pipes it writes to, the gate it waits at."""

    def __init__(self, rank: int, pid: int, gate: int, report: int, outputs: dict[int, str]) -> None:
        self.rank, self.pid, self.gate, self.report, self.outputs = rank, pid, gate, report, outputs
        self.code: int | None = None
        self.told = False
        self.said = b""  # of its report, so far


class Agent:
    """State of one agent: its line, its ranks, and since when they are being ended."""

    def __init__(self, line: AgentStdioChannel, stands_back: bool = False) -> None:
        self._line, self._stands_back = line, stands_back
        self._ranks: list[Rank] = []
        self._tree = ProcessTree()
        self._selector = selectors.DefaultSelector()
        self._selector.register(line, selectors.EVENT_READ)
        self._kill_at: float | None = None
        self._copies = WorkspaceCache()
        self._copied = False  # or given up
        self._server: socket.socket | None = None
        self._rank_line: RankChannel | None = None  # to the rank that the controller wants to talk with

    def run(self) -> None:
        """Do what the controller says until it is gone; no rank, and nothing that one started, outlives this."""
        try:
            while True:
                for key, _ in self._selector.select(_TICK_S):
                    if key.data is not None:
                        self._forward(*key.data)
                while (message := self._line.receive(0.0)) is not None:
                    self._obey(message)
                self._watch()
        finally:
            for number in _LEAVING:  # it is under way
                on_signal(number, lambda number, frame: None)
            self._end_all()
            if self._rank_line is not None:
                self._rank_line.close()

    def _obey(self, message: dict[str, Any]) -> None:
        if message["do"] in ("have", "piece", "unpack"):
            self._copy(message)
        elif message["do"] == "listen":
            self._listen(message["address"], message["port"])
        elif message["do"] == "reach":
            self._line.send(**{"is": "reached", "why": reached(message["address"], message["port"])})
        elif message["do"] == "hang up" and self._server is not None:
            self._server.close()
            self._server = None
            self._line.send(**{"is": "hung up"})
        elif message["do"] == "stacks":
            self._tell_stacks()
        elif message["do"] == "prepare":
            self._line.send(**{"is": "prepared", **workplace(message)})
        elif message["do"] == "start":
            self._start(message)
        elif message["do"] == "line" and self._rank_line is not None:
            self._rank_line.send(message["text"])
        elif message["do"] == "go":
            for rank in self._ranks:
                with contextlib.suppress(OSError):  # one that has ended is told of like any other
                    os.write(rank.gate, b"g")
            if self._stands_back:
                gentle(False)
        elif message["do"] == "end" and self._kill_at is None:
            self._kill_at = time.monotonic() + GRACE_S
            self._tree.signal(signal.SIGTERM)

    def _copy(self, message: dict[str, Any]) -> None:
        """Look for a copy of the user's folder, take a piece of its archive, or make the copy."""
        try:
            if message["do"] == "have":
                self._line.send(**{"is": "has", "path": self._copies.find(message["digest"])})
            elif message["do"] == "piece" and not self._copied:
                self._line.send(**{"is": "took", "bytes": self._copies.add(message["data"])})
            elif message["do"] == "unpack" and not self._copied:
                self._copied = True
                path = self._copies.unpack(message["digest"], self._line.renew)
                self._line.send(**{"is": "unpacked", "path": path, "why": None})
        except (OSError, tarfile.TarError) as error:
            self._copied = True
            self._copies.forget()
            why = getattr(error, "strerror", None) or str(error)
            self._line.send(**{"is": "unpacked", "path": None, "why": why})

    def _listen(self, address: str, port: int) -> None:
        why = None
        try:
            self._server = listening(address, port)
        except OSError as error:
            why = error.strerror or str(error)
        self._line.send(**{"is": "listening", "why": why})

    def _tell_stacks(self) -> None:
        running = {rank.pid: rank.rank for rank in self._ranks if rank.code is None}
        for pid, text in stacks(list(running)).items():
            self._line.send(**{"is": "output", "rank": running[pid], "stream": "err", "text": text})
        self._line.send(**{"is": "stacks"})

    def _start(self, message: dict[str, Any]) -> None:
        # A rank takes four descriptors here, and eight for a moment.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        needed = 4 * len(message["ranks"]) + 64
        if soft != resource.RLIM_INFINITY and needed > soft:
            most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        for task in message["ranks"]:
            if task.get("line"):
                self._rank_line = RankChannel()
                on_signal(signal.SIGTERM, self._warned)
                task["env"][LINE] = self._rank_line.name
                self._selector.register(self._rank_line, selectors.EVENT_READ)
            self._start_rank(task, message["argv"], message["workdir"])

    def _warned(self, number: int, frame: object) -> None:
        """The host will be taken away: ranks that a controller talks with may have something to hand over before. At
        the second time it is being taken."""
        on_signal(number, _leave)
        for rank in self._ranks:
            if rank.code is None:
                with contextlib.suppress(OSError):
                    os.kill(rank.pid, number)

    def _start_rank(self, task: dict[str, Any], argv: list[str], workdir: str) -> None:
        out, err, report, gate = os.pipe(), os.pipe(), os.pipe(), os.pipe()
        ends = (out[1], err[1], report[1], gate[0])
        pid = self._tree.fork(lambda: _become(task["env"], argv, workdir, ends))
        for end in ends:
            os.close(end)
        rank = Rank(task["rank"], pid, gate[1], report[0], {out[0]: "out", err[0]: "err"})
        self._ranks.append(rank)
        for fd in (report[0], *rank.outputs):
            os.set_blocking(fd, False)
            self._selector.register(fd, selectors.EVENT_READ, (rank, fd))

    def _forward(self, rank: Rank, fd: int) -> bool:
        """Pass on what one pipe holds; True when there may be more."""
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(fd)
            os.close(fd)
            rank.outputs.pop(fd, None)
            return False
        if fd == rank.report:
            rank.said += data
            if data.endswith(b"\n"):
                self._line.send(**{"is": "reported", **json.loads(rank.said)})
        else:
            # Bytes that are no UTF-8 travel as lone surrogates and come out as they went in.
            text = data.decode("utf-8", "surrogateescape")
            self._line.send(**{"is": "output", "rank": rank.rank, "stream": rank.outputs[fd], "text": text})
        return True

    def _watch(self) -> None:
        """Notice ranks that ended; end those that did not when told to; hand on what one has to say."""
        if self._rank_line is not None:
            for text in self._rank_line.turn():
                self._line.send(**{"is": "line", "text": text})
        if self._kill_at is not None and time.monotonic() > self._kill_at:
            self._tree.signal(signal.SIGKILL)
            self._kill_at = float("inf")
        for rank in self._ranks:
            if rank.code is None:
                rank.code = self._code(rank)
            if rank.code is not None and not rank.told:
                self._tell_leftovers()
                for fd in list(rank.outputs):
                    # Bounded: a child that the rank left behind may go on writing.
                    for _ in range(_DRAIN_READS):
                        if not self._forward(rank, fd):
                            break
                rank.told = True
                self._line.send(**{"is": "exited", "rank": rank.rank, "code": rank.code})

    def _code(self, rank: Rank) -> int | None:
        """Exit code of a rank, once it has ended."""
        return self._tree.exit_code(rank.pid)

    def _tell_leftovers(self) -> None:
        """Before the last of ranks that all ended well is told: what they left running, which ends with the job."""
        ended_well = self._kill_at is None and all(rank.code == 0 for rank in self._ranks)
        if ended_well and (leftovers := self._tree.leftovers()):
            text = f"{socket.gethostname()}: left running by ranks that ended, ends with the job: {leftovers}\n"
            self._line.send(**{"is": "output", "rank": None, "stream": "err", "text": text})

    def _end_all(self) -> None:
        self._tree.end(GRACE_S)


def _become(env: dict[str, str], argv: list[str], workdir: str, ends: tuple[int, int, int, int]) -> None:
    """In the child: report, wait at the gate, become the user's program.

    :param ends: of pipes: standard output and error, its report, the gate.
    """
    out, err, report, gate = ends
    if GENTLE in env:
        gentle(True)
    redirect_output(out, err)
    environment = dict(os.environ, **env)
    who = {"rank": int(environment["RANK"]), "pid": os.getpid(), "hostname": socket.gethostname(),
           "addresses": local_addresses()}  # fmt: skip
    os.write(report, json.dumps(who).encode() + b"\n")
    if os.read(gate, 1) == b"g":
        exec_program(argv, workdir, environment)


def main(lease_s: float, kind: type[Agent] = Agent, stands_back: bool = False) -> None:
    """Entry point on a host. The first message says which address the controller asked for. ``stands_back``: until the
    ranks are let go this agent leaves the cores to others."""
    supervise(_LEAVING)
    for number in _LEAVING:
        on_signal(number, _leave)
    try:
        _serve(lease_s, kind, stands_back)
    except ControllerLost:
        return


def _serve(lease_s: float, kind: type[Agent], stands_back: bool) -> None:
    if stands_back:
        gentle(True)
    line = AgentStdioChannel(lease_s)
    line.hello()
    while (first := line.receive(lease_s)) is None:  # other hosts are still being connected to
        pass
    line.send(**{"is": "ready", "address": _address(first), **host_identity()})
    try:
        kind(line, stands_back).run()
    except OSError as error:  # no descriptors, no processes, no memory
        line.send(**{"is": "failed", "why": f"the ranks could not be started or watched: {error.strerror}"})


def _address(first: dict[str, Any]) -> str:
    try:
        return reachable_address(first["asked"], first.get("peers", ()))
    except OSError as error:
        sys.exit(error.strerror)  # the last words of this agent


def _leave(number: int, frame: object) -> None:
    raise ControllerLost
