"""Connection to an agent by way of a child process: pipes instead of an SSH channel."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from plink.errors import HostError, UsageError
from plink.model.hosts import Host
from plink.transport.program import BOOTSTRAP

_READ = 1 << 16
_STDERR_TAIL_BYTES = 1 << 12
_END_TIMEOUT_S = 5.0
# The last line of srun and kubectl; the line before it says why the remote program ended.
_EXITED = re.compile(r".*([Ee]xited|terminated) with exit code \d+")


class ChildConnection:
    """Connection to an agent by way of a child process.

    :param end_timeout_s: how long the child may take to end after the connection is closed; then its session is ended.
        None: it is the agent, which ends by itself.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", end_timeout_s: float | None = None) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout
        self._end_timeout_s, self._closed, self._close_lock = end_timeout_s, False, threading.Lock()
        self._stderr_tail, self._stderr_reader = b"", None
        # One buffer: a fresh one for each message would scatter the heap of a launcher that runs for weeks.
        self._buffer = bytearray(_READ)
        if process.stderr is not None:
            self._stderr_reader = threading.Thread(
                target=self._read_stderr, args=(process.stderr,), name="plink-err", daemon=True
            )
            self._stderr_reader.start()

    def _read_stderr(self, stderr: IO[bytes]) -> None:
        with stderr:
            while data := os.read(stderr.fileno(), _READ):
                self._stderr_tail = (self._stderr_tail + data)[-_STDERR_TAIL_BYTES:]

    def read(self) -> bytes:
        """Return the next bytes from the agent; empty at the end."""
        size = os.readv(self._stdout.fileno(), [self._buffer]) if not self._stdout.closed else 0
        if not size:
            self._stdout.close()
        return bytes(memoryview(self._buffer)[:size])

    def write(self, data: bytes) -> None:
        """Send bytes to the agent."""
        try:
            self._stdin.write(data)
            self._stdin.flush()
        except ValueError as error:  # closed on our side
            raise BrokenPipeError(str(error)) from None

    def exit_reason(self) -> str:
        """Return the last line on standard error, where that is read, or the exit status; after the end only."""
        try:
            code = self._process.wait(timeout=_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "it does not end"
        if self._stderr_reader is not None:
            self._stderr_reader.join(_END_TIMEOUT_S)
        lines = [line for line in self._stderr_tail.decode(errors="replace").splitlines() if line.strip()]
        if lines:
            return next((line for line in reversed(lines) if not _EXITED.fullmatch(line.strip())), lines[-1]).strip()
        return f"it ended with exit status {code}" if code else ""

    def close(self) -> None:
        """Close its standard input, and end the child if that does not."""
        with self._close_lock:
            if self._closed:
                return
            self._closed = True
        # A writer may wait for a child that does not read, and closing waits for that writer.
        threading.Thread(target=self._close, name="plink-close", daemon=True).start()
        if self._end_timeout_s is not None:
            threading.Thread(target=self._end, args=(self._end_timeout_s,), name="plink-end").start()

    def _close(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stdin.close()

    def _end(self, end_timeout_s: float) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=end_timeout_s)
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def start(
    host: Host, argv: Sequence[str], end_timeout_s: float | None = None, environment: Mapping[str, str] | None = None
) -> ChildConnection:
    """Run a command whose standard input and output are the connection.

    :param end_timeout_s: as for :class:`ChildConnection`, for a command that leads to the agent; its standard error is
        read, for :meth:`ChildConnection.exit_reason`. :param environment: instead of this process's.
    :raises HostError: when it cannot be started.
    """
    try:
        # In a session of its own: Ctrl-C is for plink, which ends the ranks in order.
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            stderr=None if end_timeout_s is None else subprocess.PIPE,
            env=environment,
        )
    except OSError as error:
        raise HostError(host.name, f"cannot start {argv[0]}: {error.strerror}") from None
    return ChildConnection(process, end_timeout_s)


class LocalConnector:
    """Connector that starts every agent as a child process of this one."""

    def open(self, host: Host) -> ChildConnection:
        """Start the bootstrap with this interpreter."""
        return start(host, [sys.executable, "-c", BOOTSTRAP])


class ExecConnector:
    """Connector by ``kubectl exec``, whose standard input and output are the connection.

    :raises UsageError: where kubectl is not installed.
    """

    def __init__(self) -> None:
        if shutil.which("kubectl") is None:
            raise UsageError("--runner kubernetes: kubectl is not installed here")

    def open(self, host: Host) -> ChildConnection:
        """Start an agent in the pod of the host's name."""
        argv = ("kubectl", "exec", "--stdin", "--quiet", host.name, "--", "python3", "-c", BOOTSTRAP)
        return start(host, argv, _END_TIMEOUT_S)
