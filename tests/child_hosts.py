"""Hosts that are child processes of the test: the real agents over pipes, and nothing of them left afterwards."""

import contextlib
import os
import select
import subprocess
import sys
import threading
from types import TracebackType

from plink.model.hosts import Host
from plink.transport.program import BOOTSTRAP
from runners.child import ChildConnection

WAIT_S = 60.0


class ChildHosts:
    """A connector whose every host is a child process that runs ``command``; a context manager that ends them all.

    It differs from ``LocalConnector`` in the command it may be given and in that it knows its children.
    """

    def __init__(self, *command: str) -> None:
        self.command = [*command] or [sys.executable, "-c", BOOTSTRAP]
        self.environment = dict(os.environ)
        self.started: list[subprocess.Popen[bytes]] = []
        self._others = set(threading.enumerate())

    def open(self, host: Host) -> ChildConnection:
        """Start the command."""
        process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=self.environment
        )
        self.started.append(process)
        return ChildConnection(process)

    def all_end(self) -> bool:
        """Whether every child ends by itself in time."""
        return all(process.wait(WAIT_S) is not None for process in self.started)

    def __enter__(self) -> "ChildHosts":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.started:
            process.kill()
            process.wait()
        for thread in set(threading.enumerate()) - self._others:
            if thread.name.startswith("plink-"):
                thread.join(WAIT_S)
                assert not thread.is_alive(), thread.name
        for process in self.started:
            for end in (process.stdin, process.stdout):
                if end is not None:
                    with contextlib.suppress(BrokenPipeError):  # what was never read is thrown away
                        end.close()


def ends(pid: int, within_s: float = WAIT_S) -> bool:
    """Whether a process, anybody's child, ends in time."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], within_s)[0])
    finally:
        os.close(process)
