"""Launching agent: starts the ranks of one host, holds them at a start barrier until all are verified, and ends them.

Runs on the hosts: standard library only. Each rank reports who and where it is from the very process that then becomes
the user's program (same process id). A rank dies with the agent, and the agent with its controller; whatever ranks
started ends with the job (:mod:`plink.transport.supervisor`).

===================  ======================================================================================
from the controller  ``begin`` · ``has_digest`` · ``upload_part`` · ``extract`` · ``set_up`` · ``open_listener`` ·
                     ``connect`` · ``close_listener`` · ``flow_listen`` · ``flow_exchange`` · ``start`` ·
                     ``go`` · ``line`` · ``stacks`` · ``end`` · ``alive``
to the controller    ``ready`` · ``digest`` · ``part_stored`` · ``extracted`` · ``set_up`` · ``listener_opened`` ·
                     ``connected`` · ``listener_closed`` · ``flow_port`` · ``flow_rate`` · ``rank_report`` ·
                     ``output`` · ``line`` · ``exited`` · ``stacks`` · ``stopped`` · ``failed`` · ``alive``
===================  ======================================================================================
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from typing import Any

from plink.transport import flows
from plink.transport.addresses import host_identity, local_addresses, reachable_address
from plink.transport.command_output import run_to_end
from plink.transport.start_barrier import StartBarrier
from plink.transport.stdio_channel import AgentStdioChannel, ControllerLost
from plink.transport.supervisor import (
    GRACE_S,
    LOW_PRIORITY,
    STOPPED_LIMIT_S,
    ProcessTree,
    exec_program,
    is_stopped,
    on_signal,
    redirect_output,
    set_low_priority,
    supervise,
)
from runners.job.connectivity import connection_error, open_listener
from runners.job.execution_environment import resolve_execution
from runners.job.rank_channel import VARIABLE as RANK_CHANNEL
from runners.job.rank_channel import RankChannel
from runners.job.workspace_cache import WorkspaceCache

_SPY_TIMEOUT_S = 10.0
_READ = 1 << 16
_MAX_DRAIN_READS = 1024
_TICK_S = 0.05
_END_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def stacks(pids: list[int]) -> dict[int, str]:
    """Return py-spy's dumps of these processes, by process id; Python programs without a dump are sent SIGABRT.

    py-spy reads them without touching the program (https://github.com/benfred/py-spy). Where it is missing or not
    permitted, SIGABRT makes a Python program started with PYTHONFAULTHANDLER=1 print the stack of every thread, and end
    ("faulthandler", Python's documentation). Other programs are left alone.
    """
    pythons = {pid: exe for pid in pids if "python" in os.path.basename(exe := _exe(pid))}
    dumps: dict[int, str] = {}

    def dump(pid: int, exe: str) -> None:
        spy = shutil.which("py-spy", path=os.pathsep.join([os.path.dirname(exe), os.environ.get("PATH", os.defpath)]))
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = run_to_end([spy, "dump", "--pid", str(pid)], _SPY_TIMEOUT_S) if spy is not None else None
            if done is not None and done.returncode == 0 and done.stdout:
                dumps[pid] = done.stdout

    spies = [threading.Thread(target=dump, args=each) for each in pythons.items()]  # at once: a host may have many
    for spy in spies:
        spy.start()
    for spy in spies:
        spy.join()
    for pid in pythons:
        if pid not in dumps:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGABRT)
    return dumps


def _exe(pid: int) -> str:
    """Return the path by which a process was started: the venv's python, not the link's target."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            program = os.fsdecode(file.read().split(b"\0")[0])
        if "/" in program:
            return program
        return os.readlink(f"/proc/{pid}/exe")
    return ""


class HostedRank:
    """One rank of this host: its process, the pipes it writes to, and its start barrier."""

    def __init__(self, rank: int, pid: int, report: int, outputs: dict[int, str]) -> None:
        self.rank, self.pid, self.report, self.outputs = rank, pid, report, outputs
        self.code: int | None = None
        self.exit_sent = False
        self.report_data = b""  # received so far

    def let_start(self) -> None:
        """Let the rank become the program. :raises OSError: it has ended."""
        raise NotImplementedError


class ForkedRank(HostedRank):
    """A rank that is a child of the agent."""

    def __init__(self, rank: int, pid: int, report: int, outputs: dict[int, str], barrier: StartBarrier) -> None:
        super().__init__(rank, pid, report, outputs)
        self._barrier = barrier

    def let_start(self) -> None:
        """Open its start barrier."""
        self._barrier.open()


class RankAgent:
    """Agent of one host: its channel to the controller, its ranks, and since when they are being ended."""

    def __init__(self, channel: AgentStdioChannel, low_priority: bool = False) -> None:
        self._channel, self._low_priority = channel, low_priority
        self._ranks: list[HostedRank] = []
        self._tree = ProcessTree()
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ)
        self._kill_at: float | None = None
        self._cache = WorkspaceCache()
        self._copy_finished = False  # or has failed
        self._listener: socket.socket | None = None
        self._flow_listener: socket.socket | None = None
        self._rank_channel: RankChannel | None = None  # to rank 0, where the controller asked for it

    def run(self) -> None:
        """Execute the controller's requests until it is lost; no rank, and nothing that one started, outlives this."""
        try:
            while True:
                for key, _ in self._selector.select(_TICK_S):
                    if key.data is not None:
                        self._forward(*key.data)
                while (message := self._channel.receive(0.0)) is not None:
                    self._execute(message)
                self._poll_ranks()
        finally:
            for number in _END_SIGNALS:  # it is ending already
                on_signal(number, lambda number, frame: None)
            self._end_all()
            if self._rank_channel is not None:
                self._rank_channel.close()

    def _execute(self, message: dict[str, Any]) -> None:
        if message["method"] in ("has_digest", "upload_part", "extract"):
            self._copy(message)
        elif message["method"] == "open_listener":
            self._listen(message["address"], message["port"])
        elif message["method"] == "connect":
            self._channel.send(type="connected", error=connection_error(message["address"], message["port"]))
        elif message["method"] == "close_listener" and self._listener is not None:
            self._listener.close()
            self._listener = None
            self._channel.send(type="listener_closed")
        elif message["method"] in ("flow_listen", "flow_exchange"):
            self._run_flow(message)
        elif message["method"] == "stacks":
            self._send_stacks()
        elif message["method"] == "set_up":
            self._channel.send(type="set_up", **resolve_execution(message))
        elif message["method"] == "start":
            self._start(message)
        elif message["method"] == "line" and self._rank_channel is not None:
            self._rank_channel.send(message["text"])
        elif message["method"] == "go":
            for rank in self._ranks:
                with contextlib.suppress(OSError):  # it has ended, which is reported as for any other
                    rank.let_start()
            if self._low_priority:
                set_low_priority(False)
        elif message["method"] == "end" and self._kill_at is None:
            self._kill_at = time.monotonic() + GRACE_S
            self._send_stopped()
            self._tree.signal(signal.SIGTERM)

    def _copy(self, message: dict[str, Any]) -> None:
        """Look for a copy of the user's folder, store a part of its archive, or extract it."""
        try:
            if message["method"] == "has_digest":
                self._channel.send(type="digest", path=self._cache.find(message["digest"]))
            elif message["method"] == "upload_part" and not self._copy_finished:
                self._channel.send(type="part_stored", bytes=self._cache.append(message["data"]))
            elif message["method"] == "extract" and not self._copy_finished:
                self._copy_finished = True
                path = self._cache.extract(message["digest"], self._channel.renew)
                self._channel.send(type="extracted", path=path, error=None)
        except (OSError, tarfile.TarError) as error:
            self._copy_finished = True
            self._cache.discard()
            text = getattr(error, "strerror", None) or str(error)
            self._channel.send(type="extracted", path=None, error=text)

    def _listen(self, address: str, port: int) -> None:
        text = None
        try:
            self._listener = open_listener(address, port)
        except OSError as error:
            text = error.strerror or str(error)
        self._channel.send(type="listener_opened", error=text)

    def _run_flow(self, message: dict[str, Any]) -> None:
        """Open the port of a flow, or send and receive flows, for which this agent is blocked for a bounded time."""
        if message["method"] == "flow_exchange":
            self._channel.send(type="flow_rate", **{"gbps": None, "error": None, **self._exchange_flows(message)})
            return
        port = None
        with contextlib.suppress(OSError):
            self._flow_listener = flows.listen(message["address"])
            port = self._flow_listener.getsockname()[1]
        self._channel.send(type="flow_port", port=port)

    def _exchange_flows(self, message: dict[str, Any]) -> dict[str, Any]:
        listener, self._flow_listener = self._flow_listener, None
        with listener or contextlib.nullcontext():
            return flows.exchange(listener, message)

    def _send_stacks(self) -> None:
        self._send_stopped()  # before a dump stops them
        running = {rank.pid: rank.rank for rank in self._ranks if rank.code is None}
        for pid, text in stacks(list(running)).items():
            self._channel.send(type="output", rank=running[pid], stream="err", text=text)
        self._channel.send(type="stacks")

    def _send_stopped(self) -> None:
        if ranks := [rank.rank for rank in self._ranks if rank.code is None and is_stopped(rank.pid)]:
            self._channel.send(type="stopped", ranks=ranks)

    def _start(self, message: dict[str, Any]) -> None:
        # A rank takes four descriptors here, and eight for a moment.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        needed = 4 * len(message["ranks"]) + 64
        if soft != resource.RLIM_INFINITY and needed > soft:
            raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        for task in message["ranks"]:
            if task.get("channel"):
                self._rank_channel = RankChannel()
                on_signal(signal.SIGTERM, self._on_preemption_notice)
                task["env"][RANK_CHANNEL] = self._rank_channel.name
                self._selector.register(self._rank_channel, selectors.EVENT_READ)
            self._start_rank(task, message["argv"], message["workdir"])

    def _on_preemption_notice(self, number: int, frame: object) -> None:
        """Pass a preemption notice on to ranks with a channel, which may hand work over; at the second signal, stop."""
        on_signal(number, _stop)
        for rank in self._ranks:
            if rank.code is None:
                with contextlib.suppress(OSError):
                    os.kill(rank.pid, number)

    def _start_rank(self, task: dict[str, Any], argv: list[str], workdir: str) -> None:
        out, err, report, barrier = os.pipe(), os.pipe(), os.pipe(), StartBarrier()
        ends = (out[1], err[1], report[1])
        pid = self._tree.fork(lambda: _run_rank(task["env"], argv, workdir, ends, barrier))
        for end in ends:
            os.close(end)
        barrier.all_forked()
        rank = ForkedRank(task["rank"], pid, report[0], {out[0]: "out", err[0]: "err"}, barrier)
        self._ranks.append(rank)
        for fd in (report[0], *rank.outputs):
            os.set_blocking(fd, False)
            self._selector.register(fd, selectors.EVENT_READ, (rank, fd))

    def _forward(self, rank: HostedRank, fd: int) -> bool:
        """Forward what one pipe holds; return whether there may be more."""
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
            rank.report_data += data
            if data.endswith(b"\n"):
                self._channel.send(type="rank_report", **json.loads(rank.report_data))
        else:
            # Bytes that are no UTF-8 travel as lone surrogates and come out as they went in.
            text = data.decode("utf-8", "surrogateescape")
            self._channel.send(type="output", rank=rank.rank, stream=rank.outputs[fd], text=text)
        return True

    def _poll_ranks(self) -> None:
        """Report ranks that ended, kill those that did not after the grace, and forward lines of rank 0."""
        if self._rank_channel is not None:
            for text in self._rank_channel.poll():
                self._channel.send(type="line", text=text)
        if self._kill_at is not None and time.monotonic() > self._kill_at:
            self._tree.signal(signal.SIGKILL)
            self._kill_at = float("inf")
        for rank in self._ranks:
            if rank.code is None:
                rank.code = self._exit_code(rank)
            if rank.code is not None and not rank.exit_sent:
                self._send_leftovers()
                for fd in list(rank.outputs):
                    # Bounded: a child that the rank left behind may go on writing.
                    for _ in range(_MAX_DRAIN_READS):
                        if not self._forward(rank, fd):
                            break
                rank.exit_sent = True
                self._channel.send(type="exited", rank=rank.rank, code=rank.code)

    def _exit_code(self, rank: HostedRank) -> int | None:
        """Return the exit code of a rank once it has ended."""
        return self._tree.exit_code(rank.pid)

    def _send_leftovers(self) -> None:
        """Report, before the last of ranks that all succeeded, what they left running; it ends with the job."""
        ended_well = self._kill_at is None and all(rank.code == 0 for rank in self._ranks)
        if ended_well and (leftovers := self._tree.leftovers()):
            text = f"{socket.gethostname()}: left running by ranks that ended, ends with the job: {leftovers}\n"
            self._channel.send(type="output", rank=None, stream="err", text=text)

    def _end_all(self) -> None:
        self._tree.end(GRACE_S)


def _run_rank(
    env: dict[str, str], argv: list[str], workdir: str, ends: tuple[int, int, int], barrier: StartBarrier
) -> None:
    """Report in the child, wait at the start barrier, and become the user's program.

    :param ends: of pipes: standard output and error, its report.
    """
    out, err, report = ends
    if LOW_PRIORITY in env:
        set_low_priority(True)
    redirect_output(out, err)
    environment = dict(os.environ, **env)
    location = {
        "rank": int(environment["RANK"]),
        "pid": os.getpid(),
        "hostname": socket.gethostname(),
        "addresses": local_addresses(),
    }
    os.write(report, json.dumps(location).encode() + b"\n")
    if barrier.wait():
        exec_program(argv, workdir, environment)


def main(lease_s: float, kind: type[RankAgent] = RankAgent, low_priority: bool = False) -> None:
    """Run on a host. The first message has the address that the controller used.

    :param low_priority: the agent runs at low priority until its ranks start.
    """
    supervise(_END_SIGNALS, stopped_limit_s=STOPPED_LIMIT_S)
    for number in _END_SIGNALS:
        on_signal(number, _stop)
    try:
        _serve(lease_s, kind, low_priority)
    except ControllerLost:
        return


def _serve(lease_s: float, kind: type[RankAgent], low_priority: bool) -> None:
    if low_priority:
        set_low_priority(True)
    channel = AgentStdioChannel(lease_s)
    channel.hello()
    while (first := channel.receive(lease_s)) is None:  # other hosts are still being connected to
        pass
    if "address" not in first:  # the job ends before it has begun
        return
    channel.send(type="ready", address=_own_address(first), **host_identity())
    try:
        kind(channel, low_priority).run()
    except OSError as error:  # no descriptors, no processes, no memory
        channel.send(type="failed", error=f"the ranks could not be started or watched: {error.strerror}")


def _own_address(first: dict[str, Any]) -> str:
    try:
        return reachable_address(first["address"], first.get("peers", ()))
    except OSError as error:
        sys.exit(error.strerror)  # the controller shows an agent's last line


def _stop(number: int, frame: object) -> None:
    raise ControllerLost
