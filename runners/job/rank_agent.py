"""The launching agent: starts the ranks of one host, holds them at a gate until the controller has seen all, ends them.

Runs on the hosts: standard library only. Each rank reports who and where it is from the very process that then becomes
the user's program (same process id). A rank dies with the agent, and the agent with its controller.

===================  ======================================================================================
from the controller  ``begin`` · ``have`` · ``piece`` · ``unpack`` · ``prepare`` · ``listen`` · ``reach`` ·
                     ``hang up`` · ``start`` · ``go`` · ``line`` · ``stacks`` · ``end`` · ``alive``
to the controller    ``ready`` · ``has`` · ``unpacked`` · ``prepared`` · ``listening`` · ``reached`` · ``hung up`` ·
                     ``reported`` · ``output`` · ``line`` · ``exited`` · ``stacks`` · ``alive``
===================  ======================================================================================
"""

from __future__ import annotations

import contextlib
import ctypes
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

from plink.remote.addresses import local_addresses, machine_identity, reached_at
from plink.remote.gentle import VARIABLE as GENTLE
from plink.remote.gentle import gentle
from plink.remote.lifeline import ControllerGone, Lifeline
from runners.job.copies import Copies
from runners.job.rank_line import VARIABLE as LINE
from runners.job.rank_line import RankLine
from runners.job.reach import listening, reached
from runners.job.stacks import stacks
from runners.job.workplace import workplace

_PR_SET_PDEATHSIG = 1
_READ = 1 << 16
_DRAIN_READS = 1024
_TICK_S = 0.05
_GRACE_S = 2.0
_NOT_STARTED = 127


class Rank:
    """One rank: its process, the pipes it writes to, the gate it waits at."""

    def __init__(self, rank: int, pid: int, gate: int, report: int, outputs: dict[int, str]) -> None:
        self.rank, self.pid, self.gate, self.report, self.outputs = rank, pid, gate, report, outputs
        self.code: int | None = None
        self.told = False
        self.said = b""  # of its report, so far

    def ended(self) -> int | None:
        """Its exit code, once it has ended."""
        return _ended(self.pid)

    def signal(self, number: int) -> None:
        """To the whole group, also after the rank itself has ended: it may have left children behind."""
        with contextlib.suppress(OSError):
            os.killpg(self.pid, number)


class Agent:
    """State of one agent: its line, its ranks, and since when they are being ended."""

    def __init__(self, line: Lifeline, stands_back: bool = False) -> None:
        self._line, self._stands_back = line, stands_back
        self._ranks: list[Rank] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(line, selectors.EVENT_READ)
        self._kill_at: float | None = None
        self._copies = Copies()
        self._copied = False  # or given up
        self._server: socket.socket | None = None
        self._rank_line: RankLine | None = None  # to the rank that the controller wants to talk with

    def run(self) -> None:
        """Do what the controller says until it is gone; no rank outlives this."""
        try:
            while True:
                for key, _ in self._selector.select(_TICK_S):
                    if key.data is not None:
                        self._forward(*key.data)
                while (message := self._line.receive(0.0)) is not None:
                    self._obey(message)
                self._watch()
        finally:
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
            self._kill_at = time.monotonic() + _GRACE_S
            self._signal(signal.SIGTERM)

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
                self._rank_line = RankLine()
                signal.signal(signal.SIGTERM, self._warned)
                task["env"][LINE] = self._rank_line.name
                self._selector.register(self._rank_line, selectors.EVENT_READ)
            self._start_rank(task, message["argv"], message["workdir"])

    def _warned(self, number: int, frame: object) -> None:
        """The host will be taken away: ranks that a controller talks with may have something to hand over before. At
        the second time it is being taken."""
        signal.signal(number, _leave)
        for rank in self._ranks:
            if rank.code is None:
                with contextlib.suppress(OSError):
                    os.kill(rank.pid, number)

    def _start_rank(self, task: dict[str, Any], argv: list[str], workdir: str) -> None:
        out, err, report, gate = os.pipe(), os.pipe(), os.pipe(), os.pipe()
        agent = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                _become(task["env"], argv, workdir, agent, out[1], err[1], report[1], gate[0])
            finally:
                os._exit(_NOT_STARTED)
        for end in (out[1], err[1], report[1], gate[0]):
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
            self._signal(signal.SIGKILL)
            self._kill_at = float("inf")
        for rank in self._ranks:
            if rank.code is None:
                rank.code = rank.ended()
            if rank.code is not None and not rank.told:
                for fd in list(rank.outputs):
                    # Bounded: a child that the rank left behind may go on writing.
                    for _ in range(_DRAIN_READS):
                        if not self._forward(rank, fd):
                            break
                rank.told = True
                self._line.send(**{"is": "exited", "rank": rank.rank, "code": rank.code})

    def _signal(self, number: int) -> None:
        for rank in self._ranks:
            rank.signal(number)

    def _end_all(self) -> None:
        if all(rank.code is not None for rank in self._ranks):
            self._signal(signal.SIGKILL)
            return
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_S
        while time.monotonic() < deadline and any(rank.code is None for rank in self._ranks):
            for rank in self._ranks:
                if rank.code is None:
                    rank.code = rank.ended()
            time.sleep(_TICK_S)
        self._signal(signal.SIGKILL)


def _ended(pid: int) -> int | None:
    """Exit code of a child that has ended, as a shell says it: 128 + the signal's number if a signal ended it.

    The child is not reaped: so its process group's number stays its own, and what it left behind can be ended later.
    """
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else 128 + found.si_status


def _become(
    env: dict[str, str], argv: list[str], workdir: str, agent: int, out: int, err: int, report: int, gate: int
) -> None:
    """In the child: report, wait at the gate, become the user's program."""
    os.setsid()
    if GENTLE in env:
        gentle(True)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and exec would hand on
        signal.signal(number, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != agent:  # it died before the line above
        return
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    environment = dict(os.environ, **env)
    who = {"rank": int(environment["RANK"]), "pid": os.getpid(), "hostname": socket.gethostname(),
           "addresses": local_addresses()}  # fmt: skip
    os.write(report, json.dumps(who).encode() + b"\n")
    if os.read(gate, 1) != b"g":
        return
    try:
        os.chdir(workdir)
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        os.write(2, f"plink: cannot start {argv[0]}: {error.strerror}\n".encode())


def main(lease_s: float, kind: type[Agent] = Agent, stands_back: bool = False) -> None:
    """Entry point on a host. The first message says which address the controller asked for. ``stands_back``: until the
    ranks are let go this agent leaves the cores to others."""
    if stands_back:
        gentle(True)
    line = Lifeline(lease_s)
    line.hello()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _leave)
    try:
        while (first := line.receive(lease_s)) is None:  # other hosts are still being connected to
            pass
        line.send(**{"is": "ready", "address": _address(first), **machine_identity()})
        kind(line, stands_back).run()
    except ControllerGone:
        return
    except OSError as error:  # no descriptors, no processes, no memory
        with contextlib.suppress(ControllerGone):
            line.send(**{"is": "failed", "why": f"the ranks could not be started or watched: {error.strerror}"})


def _address(first: dict[str, Any]) -> str:
    try:
        return reached_at(first["asked"], first.get("peers", ()))
    except OSError as error:
        sys.exit(error.strerror)  # the last words of this agent


def _leave(number: int, frame: object) -> None:
    raise ControllerGone
