"""Protocols of a way to reach hosts (SSH, a child process): start an agent, and get a connection to it."""

from collections.abc import Callable
from typing import Protocol

from plink.model.hosts import Host

# What is under way ("connecting", "measuring", "fitting"), how much of it is done, and of how much.
Progress = Callable[[str, int, int], None]


class AgentConnection(Protocol):
    """The controller's end of the connection to one agent; one thread may read while another writes."""

    def read(self) -> bytes:
        """Return the next bytes from the agent; empty at the end."""

    def write(self, data: bytes) -> None:
        """Send bytes to the agent.

        :raises OSError: when the connection is closed.
        """

    def exit_reason(self) -> str:
        """Return the last line that the remote end wrote to standard error, or its exit status; after the end only."""

    def close(self) -> None:
        """Close the connection; the agent then ends. May be called twice, and from another thread."""


class Connector(Protocol):
    """A way to reach hosts."""

    def open(self, host: Host) -> AgentConnection:
        """Run :data:`plink.transport.program.REMOTE_COMMAND` on the host.

        :raises HostError: when the host cannot be reached; says why in one line.
        """
