"""What a way to reach hosts must offer (SSH, a child process): start an agent and give the two ends of its line."""

from typing import Protocol

from plink.model.hosts import Host


class Line(Protocol):
    """The controller's end of the line to one agent; one thread may read while another writes."""

    def read(self) -> bytes:
        """Next bytes from the agent; empty at the end of the line."""

    def write(self, data: bytes) -> None:
        """Bytes to the agent.

        :raises OSError: when the line is cut.
        """

    def exit_reason(self) -> str:
        """After the end of the line: what the remote end said on standard error or as its exit status, one line."""

    def close(self) -> None:
        """Cut the line; the agent ends by itself. Safe to call twice and from another thread."""


class Connector(Protocol):
    """A way to reach hosts."""

    def open(self, host: Host) -> Line:
        """Run :data:`plink.remote.program.REMOTE_COMMAND` on the host.

        :raises HostError: when the host cannot be reached; says why in one line.
        """
