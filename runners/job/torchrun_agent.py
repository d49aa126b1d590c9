"""The launching agent of a job under torchrun: one torchrun, whose workers come to the agent's gate as its ranks.

Runs on the hosts: standard library only. Workers are not the agent's children, and torchrun closes what it inherited:
they find the agent by a UNIX socket and get their output's pipes through it, and their ends come the same way
(:mod:`runners.job.torchrun_worker`). All else is as in :mod:`runners.job.rank_agent`.
"""

from __future__ import annotations

import array
import contextlib
import os
import secrets
import selectors
import shutil
import socket
import subprocess
import tempfile
import time
from typing import Any

from plink.remote.json_lines import LineBuffer, encode_line, is_own_user
from plink.remote.stdio_channel import AgentStdioChannel
from plink.remote.supervisor import die_with
from runners.job.rank_agent import Agent, Rank
from runners.job.rank_agent import main as serve
from runners.job.torchrun_worker import GATE

_READ = 1 << 16
_BACKLOG = 1024
_SEND_S = 10.0
_LAST_LINES = 5
_KILLED = 137
_LEAVE_S = 2.0
_TICK_S = 0.05


class _Worker(Rank):
    """A rank that torchrun started; ``rank`` and ``pid`` are -1 until it has reported them."""

    def __init__(self, line: socket.socket, outputs: dict[int, str]) -> None:
        super().__init__(-1, -1, line.fileno(), line.fileno(), outputs)
        self.line, self.buffer = line, LineBuffer()


class TorchrunAgent(Agent):
    """State of one agent: besides the ranks, the torchrun and the socket that its workers come to."""

    def __init__(self, line: AgentStdioChannel, stands_back: bool = False) -> None:
        super().__init__(line, stands_back)
        self._torchrun: subprocess.Popen[bytes] | None = None
        self._door: socket.socket | None = None
        self._task: dict[str, Any] = {}
        self._slots = 0
        self._said = b""
        self._folder: str | None = None
        self._told_failure = False

    def _start(self, message: dict[str, Any]) -> None:
        self._slots = message["slots"]
        name = f"plink-{secrets.token_hex(16)}"
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.bind("\0" + name)
        self._door.listen(_BACKLOG)
        self._selector.register(self._door, selectors.EVENT_READ, (self._door, -1))
        self._folder = tempfile.mkdtemp(prefix="plink-")  # torchrun would leave one behind
        agent = os.getpid()

        def dies_with_the_agent() -> None:
            if not die_with(agent):
                os._exit(_KILLED)

        python = next((path for path in map(shutil.which, message["pythons"]) if path), message["pythons"][0])
        words = [python, *message["torchrun"], f"--log-dir={self._folder}"]
        words += ["--no-python", python, "-I", "-S", *message["worker"]]
        try:
            # "python -m" imports from the folder it is started in: not from the user's.
            self._torchrun = subprocess.Popen(
                words, cwd="/", env={**os.environ, **message["env"], GATE: name},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                preexec_fn=dies_with_the_agent,
            )  # fmt: skip
        except OSError as error:
            self._fail(f"cannot start {python}: {error.strerror}")
            return
        self._tree.add(self._torchrun.pid)
        assert self._torchrun.stdout is not None
        self._task = {"argv": message["argv"], "workdir": message["workdir"], "parent": self._torchrun.pid}
        fd = self._torchrun.stdout.fileno()
        os.set_blocking(fd, False)
        self._selector.register(fd, selectors.EVENT_READ, (self._torchrun, fd))

    def _forward(self, source: Any, fd: int) -> bool:
        if source is self._door:
            self._welcome()
            return False
        if source is self._torchrun:
            return self._hear_torchrun(fd)
        if fd == source.report:
            self._hear_worker(source)
            return False
        return super()._forward(source, fd)

    def _welcome(self) -> None:
        """A worker at the door: give it its task and the pipes of its output."""
        assert self._door is not None
        line, _ = self._door.accept()
        if not is_own_user(line):
            line.close()
            return
        out, err = os.pipe(), os.pipe()
        worker = _Worker(line, {out[0]: "out", err[0]: "err"})
        data = encode_line(self._task)
        line.settimeout(_SEND_S)
        try:
            fds = array.array("i", [out[1], err[1]])
            line.sendall(data[line.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)]) :])
        except OSError:  # it is gone: torchrun will tell
            for end in (*out, *err):
                os.close(end)
            line.close()
            return
        os.close(out[1])
        os.close(err[1])
        line.setblocking(False)
        for fd in (worker.report, *worker.outputs):
            os.set_blocking(fd, False)
            self._selector.register(fd, selectors.EVENT_READ, (worker, fd))

    def _hear_worker(self, worker: _Worker) -> None:
        try:
            data = worker.line.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        for said in map(known_message, worker.buffer.messages(data)):
            if "code" in said:
                worker.code = said["code"]
            elif said:
                worker.rank, worker.pid = said["rank"], said["pid"]
                self._ranks.append(worker)
                self._line.send(**{"is": "reported", **said})
        if not data:
            self._selector.unregister(worker.report)
            if worker.code is None:  # its keeper was killed, and it with it
                worker.code = _KILLED

    def _hear_torchrun(self, fd: int) -> bool:
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return False
        if not data:
            with contextlib.suppress(KeyError):  # after its end it may be asked again
                self._selector.unregister(fd)
            return False
        *lines, rest = (self._said + data).split(b"\n")
        self._said = b"\n".join([*lines[-_LAST_LINES:], rest])
        # Once a worker has ended or is told to, it says what the controller says better, on every host.
        if self._kill_at is None and all(rank.code is None for rank in self._ranks):
            for line in lines:
                text = f"{socket.gethostname()}: torchrun: {line.decode('utf-8', 'surrogateescape')}\n"
                self._line.send(**{"is": "output", "rank": None, "stream": "err", "text": text})
        return True

    def _watch(self) -> None:
        super()._watch()
        if self._torchrun is None or len(self._ranks) == self._slots:
            return
        if (code := self._tree.exit_code(self._torchrun.pid)) is None:
            return
        while self._torchrun.stdout is not None and self._hear_torchrun(self._torchrun.stdout.fileno()):
            pass
        lines = [line for line in self._said.decode("utf-8", "replace").splitlines() if line.strip()]
        last = lines[-1].strip() if lines else "it said nothing"
        self._fail(f"torchrun ended with exit code {code} before its workers came: {last}")

    def _fail(self, why: str) -> None:
        if not self._told_failure:
            self._told_failure = True
            self._line.send(**{"is": "failed", "why": why})

    def _code(self, rank: Rank) -> int | None:
        """As its keeper told."""
        return rank.code

    def _end_all(self) -> None:
        try:
            if self._torchrun is not None and self._ranks and all(rank.code == 0 for rank in self._ranks):
                deadline = time.monotonic() + _LEAVE_S  # it waits for those of other hosts
                while self._tree.exit_code(self._torchrun.pid) is None and time.monotonic() < deadline:
                    time.sleep(_TICK_S)
            super()._end_all()
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)


def known_message(message: dict[str, Any]) -> dict[str, Any]:
    """A worker's message; empty where another process of the user's connected."""
    report = all(type(message.get(key)) is int for key in ("rank", "pid"))
    return message if report or type(message.get("code")) is int else {}


def main(lease_s: float) -> None:
    """Entry point on a host."""
    serve(lease_s, TorchrunAgent)
