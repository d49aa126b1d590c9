"""Reach a "host" that is a child process of this one: the same agents over pipes instead of SSH."""

import contextlib
import os
import subprocess
import sys

from plink.errors import HostError
from plink.hosts import Host
from plink.remote.program import BOOTSTRAP

_READ = 1 << 16


class LocalLine:
    """The line to an agent that is a child process."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout

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
        """Its exit status, once it has ended."""
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "it does not end"
        return f"it ended with exit status {code}" if code else ""

    def close(self) -> None:
        """Close its standard input: it ends by itself."""
        with contextlib.suppress(OSError, ValueError):
            self._stdin.close()


class LocalConnector:
    """Starts every agent as a child process of this one."""

    def open(self, host: Host) -> LocalLine:
        """Start the bootstrap with this interpreter."""
        try:
            # In a session of its own: Ctrl-C is for plink, which ends the ranks in order.
            process = subprocess.Popen(
                [sys.executable, "-c", BOOTSTRAP], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise HostError(host.name, f"cannot start {sys.executable}: {error.strerror}") from None
        return LocalLine(process)
