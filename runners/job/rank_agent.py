"""The launching agent: starts the ranks of one host, holds them at a gate until the controller has seen all, ends them.

Runs on the hosts: standard library only. Each rank reports who and where it is from the very process that then becomes
the user's program (same process id). A rank dies with the agent, and the agent with its controller.

===================  ======================================================================================
from the controller  ``begin`` · ``prepare`` · ``start`` · ``go`` · ``end`` · ``alive``
to the controller    ``ready`` · ``prepared`` · ``reported`` · ``output`` · ``exited`` · ``alive``
===================  ======================================================================================
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import shutil
import signal
import socket
import time
from typing import Any

from plink.remote.addresses import (
    family_of,
    interface_of,
    local_addresses,
    machine_identity,
    reached_at,
    source_towards,
)
from plink.remote.lifeline import ControllerGone, Lifeline

_PR_SET_PDEATHSIG = 1
_READ = 1 << 16
_DRAIN_READS = 1024
_TICK_S = 0.05
_GRACE_S = 2.0
_NOT_STARTED = 127


class _Rank:
    """One rank: its process, the pipes it writes to, the gate it waits at."""

    def __init__(self, rank: int, pid: int, gate: int, report: int, outputs: dict[int, str]) -> None:
        self.rank, self.pid, self.gate, self.report, self.outputs = rank, pid, gate, report, outputs
        self.code: int | None = None
        self.told = False


class Agent:
    """State of one agent: its line, its ranks, and since when they are being ended."""

    def __init__(self, line: Lifeline) -> None:
        self._line = line
        self._ranks: list[_Rank] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(line, selectors.EVENT_READ)
        self._kill_at: float | None = None

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

    def _obey(self, message: dict[str, Any]) -> None:
        if message["do"] == "prepare":
            self._line.send(**{"is": "prepared", **_prepare(message)})
        elif message["do"] == "start":
            for task in message["ranks"]:
                self._start(task, message["argv"], message["workdir"])
        elif message["do"] == "go":
            for rank in self._ranks:
                os.write(rank.gate, b"g")
        elif message["do"] == "end" and self._kill_at is None:
            self._kill_at = time.monotonic() + _GRACE_S
            self._signal(signal.SIGTERM)

    def _start(self, task: dict[str, Any], argv: list[str], workdir: str) -> None:
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
        rank = _Rank(task["rank"], pid, gate[1], report[0], {out[0]: "out", err[0]: "err"})
        self._ranks.append(rank)
        for fd in (report[0], *rank.outputs):
            os.set_blocking(fd, False)
            self._selector.register(fd, selectors.EVENT_READ, (rank, fd))

    def _forward(self, rank: _Rank, fd: int) -> bool:
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
            self._line.send(**{"is": "reported", **json.loads(data)})
        else:
            # Bytes that are no UTF-8 travel as lone surrogates and come out as they went in.
            text = data.decode("utf-8", "surrogateescape")
            self._line.send(**{"is": "output", "rank": rank.rank, "stream": rank.outputs[fd], "text": text})
        return True

    def _watch(self) -> None:
        """Notice ranks that ended; end those that did not when told to."""
        if self._kill_at is not None and time.monotonic() > self._kill_at:
            self._signal(signal.SIGKILL)
            self._kill_at = float("inf")
        for rank in self._ranks:
            if rank.code is None:
                rank.code = _ended(rank.pid)
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
            # The whole group, also after the rank itself has ended: it may have left children behind.
            with contextlib.suppress(OSError):
                os.killpg(rank.pid, number)

    def _end_all(self) -> None:
        if all(rank.code is not None for rank in self._ranks):
            self._signal(signal.SIGKILL)
            return
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_S
        while time.monotonic() < deadline and any(rank.code is None for rank in self._ranks):
            for rank in self._ranks:
                if rank.code is None:
                    rank.code = _ended(rank.pid)
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
    os.write(report, json.dumps(who).encode())
    if os.read(gate, 1) != b"g":
        return
    try:
        os.chdir(workdir)
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        os.write(2, f"plink: cannot start {argv[0]}: {error.strerror}\n".encode())


def _prepare(message: dict[str, Any]) -> dict[str, Any]:
    """What this host would run and over which interface, or the problems that keep it from running."""
    problems = []
    # "~" is the home of the user there, whoever started this here.
    folders = [os.path.expanduser(path) for path in message["workdirs"]]
    workdir = next((path for path in folders if os.path.isdir(path)), None)
    if workdir is None:
        problems.append(f"there is no folder {message['workdirs'][0]}")
        workdir = "/"
    program, argv = message["program"], []
    if program.endswith(".py"):
        python = next((path for path in (shutil.which(name) for name in message["pythons"]) if path), None)
        if python is None:
            problems.append(f"there is no {message['pythons'][0]}")
        elif not os.path.isfile(os.path.join(workdir, program)):
            problems.append(f"there is no {os.path.join(workdir, program)}")
        else:
            argv = [python, program]
    else:
        found = shutil.which(program if "/" not in program else os.path.join(workdir, program))
        if found is None:
            problems.append(f"there is no program {program}")
        else:
            argv = [found]
    interface, address = "lo", "127.0.0.1"
    try:
        if message["peers"]:
            address = source_towards(message["peers"][0])
            interface = interface_of(address) or ""
            if not interface:
                problems.append(f"no interface is known that holds {address}")
    except OSError as error:
        problems.append(f"no way to {message['peers'][0]}: {error.strerror}")
    with socket.socket(family_of(address)) as sock:  # the first rank's host serves the rendezvous here
        sock.bind((address, 0))
        port = sock.getsockname()[1]
    return {"argv": [*argv, *message["args"]], "workdir": workdir, "interface": interface, "address": address,
            "port": port, "problems": problems}  # fmt: skip


def main(lease_s: float) -> None:
    """Entry point on a host. The first message says which address the controller asked for."""
    line = Lifeline(lease_s)
    line.hello()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _leave)
    try:
        while (first := line.receive(lease_s)) is None:  # other hosts are still being connected to
            pass
        line.send(**{"is": "ready", "address": reached_at(first["asked"]), **machine_identity()})
        Agent(line).run()
    except ControllerGone:
        return


def _leave(number: int, frame: object) -> None:
    raise ControllerGone
