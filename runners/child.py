"""The line to an agent that a child process of this one runs, or leads to: pipes instead of an SSH channel."""

import contextlib
import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from plink.errors import HostError
from plink.model.hosts import Host

_READ = 1 << 16
_TOLD_BYTES = 1 << 12  # of standard error: its end, which says why
_END_S = 5.0
# How srun and kubectl end after what ran there has said why it ended.
_EXITED = re.compile(r".*([Ee]xited|terminated) with exit code \d+")


class ChildConnection:
    """The line to an agent by way of a child process.

    :param let_s: so long the child may take to end once its line is cut; then its session is ended. None: it is the
        agent itself, which ends by itself.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", let_s: float | None = None) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout
        self._let_s, self._cut, self._cutting = let_s, False, threading.Lock()
        self._told, self._hearing = b"", None
        # Read into always: a fresh buffer for each message would scatter the heap of a launcher that runs for weeks.
        self._buffer = bytearray(_READ)
        if process.stderr is not None:
            self._hearing = threading.Thread(target=self._hear, args=(process.stderr,), name="plink-err", daemon=True)
            self._hearing.start()

    def _hear(self, stderr: IO[bytes]) -> None:
        with stderr:
            while data := os.read(stderr.fileno(), _READ):
                self._told = (self._told + data)[-_TOLD_BYTES:]

    def read(self) -> bytes:
        """Next bytes from the agent; empty at the end."""
        size = os.readv(self._stdout.fileno(), [self._buffer]) if not self._stdout.closed else 0
        if not size:
            self._stdout.close()
        return bytes(memoryview(self._buffer)[:size])

    def write(self, data: bytes) -> None:
        """Bytes to the agent."""
        try:
            self._stdin.write(data)
            self._stdin.flush()
        except ValueError as error:  # closed on our side
            raise BrokenPipeError(str(error)) from None

    def exit_reason(self) -> str:
        """What it said last on standard error where that is heard, or its exit status, once it has ended."""
        try:
            code = self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            return "it does not end"
        if self._hearing is not None:
            self._hearing.join(_END_S)
        lines = [line for line in self._told.decode(errors="replace").splitlines() if line.strip()]
        if lines:
            return next((line for line in reversed(lines) if not _EXITED.fullmatch(line.strip())), lines[-1]).strip()
        return f"it ended with exit status {code}" if code else ""

    def close(self) -> None:
        """Close its standard input; where that ends nothing, end the child."""
        with self._cutting:
            if self._cut:
                return
            self._cut = True
        # Whoever writes may be waiting for a child that does not read, and closing waits for whoever writes.
        threading.Thread(target=self._close, name="plink-close", daemon=True).start()
        if self._let_s is not None:
            threading.Thread(target=self._end, args=(self._let_s,), name="plink-end").start()

    def _close(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stdin.close()

    def _end(self, let_s: float) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=let_s)
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def start(
    host: Host, words: Sequence[str], let_s: float | None = None, environment: Mapping[str, str] | None = None
) -> ChildConnection:
    """Run a command whose standard input and output are the line.

    :param let_s: as for :class:`ChildConnection`, for a command that leads to the agent; what it says on standard error is
        kept, for :meth:`ChildConnection.exit_reason`. :param environment: instead of this process's.
    :raises HostError: when it cannot be started.
    """
    try:
        # In a session of its own: Ctrl-C is for plink, which ends the ranks in order.
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
            stderr=None if let_s is None else subprocess.PIPE, env=environment,
        )  # fmt: skip
    except OSError as error:
        raise HostError(host.name, f"cannot start {words[0]}: {error.strerror}") from None
    return ChildConnection(process, let_s)
