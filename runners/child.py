"""The line to an agent that a child process of this one runs, or leads to: pipes instead of an SSH channel."""

import contextlib
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from plink.errors import HostError
from plink.hosts import Host

_READ = 1 << 16
_TOLD_BYTES = 1 << 12  # of standard error: its end, which says why
_END_S = 5.0


class ChildLine:
    """The line to an agent by way of a child process."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout
        self._told, self._hearing = b"", None
        if process.stderr is not None:
            self._hearing = threading.Thread(target=self._hear, args=(process.stderr,), name="plink-err", daemon=True)
            self._hearing.start()

    def _hear(self, stderr: IO[bytes]) -> None:
        with stderr:
            while data := os.read(stderr.fileno(), _READ):
                self._told = (self._told + data)[-_TOLD_BYTES:]

    def read(self) -> bytes:
        """Next bytes from the agent; empty at the end."""
        data = os.read(self._stdout.fileno(), _READ) if not self._stdout.closed else b""
        if not data:
            self._stdout.close()
        return data

    def write(self, data: bytes) -> None:
        """Bytes to the agent."""
        try:
            self._stdin.write(data)
            self._stdin.flush()
        except ValueError as error:  # closed on our side
            raise BrokenPipeError(str(error)) from None

    def last_words(self) -> str:
        """What it said last on standard error where that is heard, or its exit status, once it has ended."""
        try:
            code = self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            return "it does not end"
        if self._hearing is not None:
            self._hearing.join(_END_S)
        lines = [line for line in self._told.decode(errors="replace").splitlines() if line.strip()]
        if lines:
            return lines[-1].strip()
        return f"it ended with exit status {code}" if code else ""

    def close(self) -> None:
        """Close its standard input: it ends by itself."""
        with contextlib.suppress(OSError, ValueError):
            self._stdin.close()


def start(host: Host, words: Sequence[str], hear: bool = False, more: Mapping[str, str] | None = None) -> ChildLine:
    """Run a command whose standard input and output are the line.

    :param hear: keep what it says on standard error, for :meth:`ChildLine.last_words`. :param more: variables besides.
    :raises HostError: when it cannot be started.
    """
    try:
        # In a session of its own: Ctrl-C is for plink, which ends the ranks in order.
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE if hear else None,
            start_new_session=True, env=None if more is None else {**os.environ, **more},
        )  # fmt: skip
    except OSError as error:
        raise HostError(host.name, f"cannot start {words[0]}: {error.strerror}") from None
    return ChildLine(process)
