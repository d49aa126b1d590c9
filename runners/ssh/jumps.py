"""Connections to jump hosts (ProxyJump): one to each, shared by all hosts behind it.

An sshd turns some of many connections away that log in at the same time (sshd_config(5), MaxStartups: from the tenth
on). Tunnels through one connection are not counted, neither there nor by MaxSessions.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field

import paramiko

from runners.ssh.settings import SshSettings

_TUNNEL_TIMEOUT_S = 10.0
_NOT_REACHED = 2  # SSH_OPEN_CONNECT_FAILED (RFC 4254, 5.1)

# Log in to one hop, through a tunnel to it where there is one; what must end it is added to the stack.
LogIn = Callable[[SshSettings, paramiko.Channel | None, ExitStack], paramiko.SSHClient]


class JumpError(Exception):
    """A jump host failed, not the target behind it."""

    def __init__(self, jump: str, cause: Exception) -> None:
        super().__init__(jump, cause)
        self.jump, self.cause = jump, cause


@dataclass(eq=False)
class _Jump:
    """The connection to the last of some jump hosts (there at once, or later), what ends it, and how many use it."""

    client: "Future[paramiko.SSHClient]" = field(default_factory=Future)
    ends: ExitStack = field(default_factory=ExitStack)
    users: int = 0

    @property
    def broken(self) -> bool:
        """Return whether it has failed or is closed."""
        if not self.client.done():
            return False
        transport = None if self.client.exception() else self.client.result().get_transport()
        return transport is None or not transport.is_active()


class Jumps:
    """The jump hosts of one connector.

    :param log_in: how a hop is logged in to.
    """

    def __init__(self, log_in: LogIn) -> None:
        self._log_in, self._guard = log_in, threading.Lock()
        self._jumps: dict[tuple[SshSettings, ...], _Jump] = {}

    def tunnel(self, route: tuple[SshSettings, ...], target: SshSettings, ends: ExitStack) -> paramiko.Channel | None:
        """A tunnel to the target through jump hosts, None where there are none; ``ends`` gives them back.

        :raises JumpError: when one of them cannot be logged in to, or leads no further.
        """
        if not route:
            return None
        with self._guard:
            jump = self._jumps.get(route)
            if first := jump is None or jump.broken:
                jump = self._jumps[route] = _Jump()
            jump.users += 1
        ends.callback(self._release, route, jump)
        if first:
            self._connect(jump, route)
        try:
            return _tunnel(jump.client.result(), target)
        except (OSError, EOFError, paramiko.SSHException, ValueError) as error:
            raise JumpError(route[-1].hostname, error) from None

    def _connect(self, jump: _Jump, route: tuple[SshSettings, ...]) -> None:
        """Connect for all that wait for it; they get the same error."""
        *before, last = route
        try:
            through = self.tunnel(tuple(before), last, jump.ends)
            jump.client.set_result(self._log_in(last, through, jump.ends))
        except BaseException as error:
            jump.client.set_exception(error)

    def _release(self, route: tuple[SshSettings, ...], jump: _Jump) -> None:
        """Release it; the last user closes it."""
        with self._guard:
            jump.users -= 1
            if jump.users:
                return
            if self._jumps.get(route) is jump:
                del self._jumps[route]
        jump.ends.close()


def _tunnel(client: paramiko.SSHClient, target: SshSettings) -> paramiko.Channel:
    transport = client.get_transport()
    if transport is None:
        raise paramiko.SSHException("its connection was cut")
    try:
        return transport.open_channel(
            "direct-tcpip", (target.hostname, target.port), ("127.0.0.1", 0), timeout=_TUNNEL_TIMEOUT_S
        )
    except paramiko.ChannelException as error:
        if error.code != _NOT_REACHED:
            raise
        raise paramiko.SSHException(f"it does not reach {target.hostname} port {target.port}") from None
    except paramiko.SSHException:
        if not transport.is_active():
            raise
        raise paramiko.SSHException(
            f"it does not reach {target.hostname} port {target.port} within {_TUNNEL_TIMEOUT_S:.0f} s"
        ) from None
