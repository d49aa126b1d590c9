"""Launching agent under torchrun: it starts one torchrun, whose workers connect to it and wait at the start barrier.

Runs on the hosts: standard library only. Workers are not the agent's children, and torchrun closes inherited
descriptors: workers find the agent by a UNIX socket, through which they get the pipes for their output and report their
exit (:mod:`runners.job.torchrun_worker`). All else is as in :mod:`runners.job.rank_agent`.
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
from collections import deque
from typing import Any

from plink.transport.stdio_channel import AgentStdioChannel, LineBuffer, encode_line, is_own_user
from plink.transport.supervisor import die_with
from runners.job.rank_agent import HostedRank, RankAgent
from runners.job.rank_agent import main as serve
from runners.job.torchrun_worker import BARRIER_SOCKET, GO

_READ = 1 << 16
_BACKLOG = 1024
_SEND_TIMEOUT_S = 10.0
_LAST_LINES = 5
_KILLED_EXIT_CODE = 137
_EXIT_TIMEOUT_S = 2.0
_TICK_S = 0.05


class _Worker(HostedRank):
    """A rank that torchrun started; ``rank`` and ``pid`` are -1 until it has reported them."""

    def __init__(self, connection: socket.socket, outputs: dict[int, str]) -> None:
        super().__init__(-1, -1, connection.fileno(), outputs)
        self.connection, self.buffer = connection, LineBuffer()

    def let_start(self) -> None:
        """Send what it waits for."""
        self.connection.send(GO)


class TorchrunAgent(RankAgent):
    """Agent of one host with its torchrun, and the socket that workers connect to."""

    def __init__(self, channel: AgentStdioChannel, low_priority: bool = False) -> None:
        super().__init__(channel, low_priority)
        self._torchrun: subprocess.Popen[bytes] | None = None
        self._listener: socket.socket | None = None
        self._task: dict[str, Any] = {}
        self._slots = 0
        self._unread, self._last_lines = b"", deque[bytes](maxlen=_LAST_LINES)  # of torchrun's output
        self._folder: str | None = None
        self._failure_sent = False

    def _start(self, message: dict[str, Any]) -> None:
        self._slots = message["slots"]
        name = f"plink-{secrets.token_hex(16)}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind("\0" + name)
        self._listener.listen(_BACKLOG)
        self._selector.register(self._listener, selectors.EVENT_READ, (self._listener, -1))
        self._folder = tempfile.mkdtemp(prefix="plink-")  # torchrun would leave one behind
        agent = os.getpid()

        def die_with_agent() -> None:
            if not die_with(agent):
                os._exit(_KILLED_EXIT_CODE)

        python = next((path for path in map(shutil.which, message["pythons"]) if path), message["pythons"][0])
        argv = [python, *message["torchrun"], f"--log-dir={self._folder}"]
        argv += ["--no-python", python, "-I", "-S", *message["worker"]]
        try:
            # "python -m" imports from the folder it is started in, which must not be the user's.
            self._torchrun = subprocess.Popen(
                argv,
                cwd="/",
                env={**os.environ, **message["env"], BARRIER_SOCKET: name},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_agent,
            )
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
        if source is self._listener:
            self._accept_worker()
            return False
        if source is self._torchrun:
            return self._read_torchrun(fd)
        if fd == source.report:
            self._read_worker(source)
            return False
        return super()._forward(source, fd)

    def _accept_worker(self) -> None:
        """Accept a worker, and send it its task and the pipes for its output."""
        assert self._listener is not None
        connection, _ = self._listener.accept()
        if not is_own_user(connection):
            connection.close()
            return
        out, err = os.pipe(), os.pipe()
        worker = _Worker(connection, {out[0]: "out", err[0]: "err"})
        data = encode_line(self._task)
        connection.settimeout(_SEND_TIMEOUT_S)
        try:
            fds = array.array("i", [out[1], err[1]])
            connection.sendall(data[connection.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)]) :])
        except OSError:  # it has ended, which torchrun reports
            for end in (*out, *err):
                os.close(end)
            connection.close()
            return
        os.close(out[1])
        os.close(err[1])
        connection.setblocking(False)
        for fd in (worker.report, *worker.outputs):
            os.set_blocking(fd, False)
            self._selector.register(fd, selectors.EVENT_READ, (worker, fd))

    def _read_worker(self, worker: _Worker) -> None:
        try:
            data = worker.connection.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        for message in map(valid_message, worker.buffer.messages(data)):
            if "code" in message:
                worker.code = message["code"]
            elif message:
                worker.rank, worker.pid = message["rank"], message["pid"]
                self._ranks.append(worker)
                self._channel.send(type="rank_report", **message)
        if not data:
            self._selector.unregister(worker.report)
            if worker.code is None:  # its supervisor was killed, and it with it
                worker.code = _KILLED_EXIT_CODE

    def _read_torchrun(self, fd: int) -> bool:
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return False
        if not data:
            with contextlib.suppress(KeyError):  # it may be read again after its end
                self._selector.unregister(fd)
            return False
        *lines, rest = (self._unread + data).split(b"\n")
        self._unread = rest[-_READ:]
        self._last_lines.extend(lines)
        # Once a worker ends, torchrun prints on every host what the controller reports better.
        if self._kill_at is None and all(rank.code is None for rank in self._ranks):
            for line in lines:
                text = f"{socket.gethostname()}: torchrun: {line.decode('utf-8', 'surrogateescape')}\n"
                self._channel.send(type="output", rank=None, stream="err", text=text)
        return True

    def _poll_ranks(self) -> None:
        super()._poll_ranks()
        if self._torchrun is None or len(self._ranks) == self._slots:
            return
        if (code := self._tree.exit_code(self._torchrun.pid)) is None:
            return
        while self._torchrun.stdout is not None and self._read_torchrun(self._torchrun.stdout.fileno()):
            pass
        text = b"\n".join([*self._last_lines, self._unread]).decode("utf-8", "replace")
        lines = [line for line in text.splitlines() if line.strip()]
        last = lines[-1].strip() if lines else "it printed nothing"
        self._fail(f"torchrun ended with exit code {code} before its workers connected: {last}")

    def _fail(self, error: str) -> None:
        if not self._failure_sent:
            self._failure_sent = True
            self._channel.send(type="failed", error=error)

    def _exit_code(self, rank: HostedRank) -> int | None:
        """Return the exit code that its supervisor sent."""
        return rank.code

    def _end_all(self) -> None:
        try:
            if self._torchrun is not None and self._ranks and all(rank.code == 0 for rank in self._ranks):
                deadline = time.monotonic() + _EXIT_TIMEOUT_S  # it waits for the torchruns of other hosts
                while self._tree.exit_code(self._torchrun.pid) is None and time.monotonic() < deadline:
                    time.sleep(_TICK_S)
            super()._end_all()
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)


def valid_message(message: dict[str, Any]) -> dict[str, Any]:
    """Return a worker's message; an empty one from other processes of the user."""
    report = all(type(message.get(key)) is int for key in ("rank", "pid"))
    return message if report or type(message.get("code")) is int else {}


def main(lease_s: float) -> None:
    """Run on a host."""
    serve(lease_s, TorchrunAgent)
