"""Start barriers: processes wait until all have arrived, and only then become the user's program.

Runs on the hosts and in pods: standard library only. :class:`StartBarrier` is for the child processes of one host,
:func:`serve_barrier` for ranks under external launchers.
"""

from __future__ import annotations

import os
import resource
import socket
import time

from plink.transport.addresses import family_of
from plink.transport.hello_server import HelloServer

_GO = b"g"
_RETRY_S = 0.1


# Ranks do not start at the same time. A host that refuses a connection may be about to listen; one that does not
# answer is unreachable.
_REFUSED_TIMEOUT_S = 60.0
_UNREACHABLE_TIMEOUT_S = 15.0
_BARRIER_TIMEOUT_S = 75.0
_CONNECT_TIMEOUT_S = 5.0
_DISCONNECT_TIMEOUT_S = 5.0
_BACKLOG = 4096
_HELLO_TIMEOUT_S = 5.0
_MAX_NAMED_RANKS = 4


class StartBarrier:
    """Pipe at which child processes wait for their parent; if it closes the pipe unopened, or ends, they do not start.

    Made before the children are forked.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def wait(self) -> bool:
        """Wait, in a child, until the parent opens the barrier; return False where it does not."""
        os.close(self._write)
        return os.read(self._read, 1) == _GO

    def all_forked(self) -> None:
        """Close, in the parent, the end that the children wait at."""
        os.close(self._read)

    def open(self, children: int = 1) -> None:
        """Let so many children start. :raises OSError: all of them have ended."""
        os.write(self._write, _GO * children)


class BarrierClosed(Exception):
    """The barrier was closed because of other ranks, which report why."""


def serve_barrier(address: str, port: int, token: str, client_count: int) -> str | None:
    """Serve the barrier in rank 0 until all other ranks have connected; return an error, None if it opened.

    It is at the very port of the job's rendezvous: so no program starts before all ranks can reach that port, and all
    are on their hosts, for a rank that is not does not connect.

    :param token: of this job; clients that do not send it are dropped.
    """
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))  # one connection a rank
        with socket.socket(family_of(address), socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, port))
            listener.listen(_BACKLOG)
            return _serve(listener, token, set(range(1, client_count + 1)))
    except OSError as error:
        return f"port {port} of {address} cannot be used: {error.strerror}"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def _serve(listener: socket.socket, token: str, ranks: set[int]) -> str | None:
    ranks_by_hello = {f"{token} {rank}\n".encode(): rank for rank in ranks}
    longest = max(map(len, ranks_by_hello), default=0)
    server = HelloServer(listener, ranks_by_hello.get, longest, _HELLO_TIMEOUT_S)
    deadline = time.monotonic() + _BARRIER_TIMEOUT_S
    try:
        while missing := ranks - set(server.clients.values()):
            if (remaining_s := deadline - time.monotonic()) <= 0:
                named = ", ".join(map(str, sorted(missing)[:_MAX_NAMED_RANKS]))
                more = " ..." if len(missing) > _MAX_NAMED_RANKS else ""
                address, port = listener.getsockname()[:2]
                return (
                    f"not all ranks connected to port {port} of {address} within {_BARRIER_TIMEOUT_S:.0f} s "
                    f"(missing: {named}{more})"
                )
            server.poll(remaining_s)
        server.answer(_GO)
        server.close(_DISCONNECT_TIMEOUT_S)
        return None
    finally:
        server.close()


def wait_at_barrier(address: str, port: int, token: str, rank: int) -> str | None:
    """Wait in another rank until the barrier opens; return why rank 0 cannot be reached, None if it opened.

    :raises BarrierClosed: it was reached and will not open.
    """
    began = time.monotonic()
    while True:
        try:
            with socket.create_connection((address, port), timeout=_CONNECT_TIMEOUT_S) as connection:
                connection.settimeout(_BARRIER_TIMEOUT_S + _DISCONNECT_TIMEOUT_S)
                connection.sendall(f"{token} {rank}\n".encode())
                if _receive(connection) != _GO:
                    raise BarrierClosed
                return None
        except OSError as error:
            refused = isinstance(error, ConnectionRefusedError)
            if time.monotonic() - began >= (_REFUSED_TIMEOUT_S if refused else _UNREACHABLE_TIMEOUT_S):
                return error.strerror or str(error)
        time.sleep(_RETRY_S)


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1)
    except OSError:
        return b""
