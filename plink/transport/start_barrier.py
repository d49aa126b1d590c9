"""Start barriers: processes wait until all have arrived, and only then become the user's program.

Runs on the hosts and in pods: standard library only. :class:`StartBarrier` is for the child processes of one host,
:class:`HelloServer` for clients on the network that identify themselves (ranks under external launchers, pods). The
rendezvous of AggEngine (plink/runtime/allreduce) is no barrier: it hands its connections over to the transport.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any, cast

from plink.transport.addresses import family_of

_GO = b"g"
_READ = 1 << 16
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


class HelloServer:
    """Listener whose clients identify themselves by one line each; all others are dropped and receive nothing.

    A client that sends anything after its line, or disconnects, is dropped too.

    :param identify: returns who sent this line (with its end), None for an unauthenticated client.
    :param hello_timeout_s: within which a client has to send its line.
    :param max_pending: clients that have not sent their line yet; when there are more, the oldest is dropped.
    :param max_line_bytes: of one line. :param max_pending_bytes: of all incomplete lines.
    :ivar clients: the identified clients, and what ``identify`` returned for each.
    """

    def __init__(
        self,
        listener: socket.socket,
        identify: Callable[[bytes], Any],
        max_line_bytes: int,
        hello_timeout_s: float = 5.0,
        max_pending: int = 256,
        max_pending_bytes: int = 1 << 26,
    ) -> None:
        self._listener, self._identify, self._max_line_bytes = listener, identify, max_line_bytes
        self._hello_timeout_s, self._max_pending, self._max_pending_bytes = (
            hello_timeout_s,
            max_pending,
            max_pending_bytes,
        )
        self.clients: dict[socket.socket, Any] = {}
        self._pending: dict[socket.socket, tuple[float, bytearray]] = {}  # until when, and what was received
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def poll(self, timeout_s: float) -> list[Any]:
        """Accept and read for at most so long; return the identities that were received."""
        now = time.monotonic()
        for client in [client for client, (until, _) in self._pending.items() if until <= now]:
            self._drop(client)
        timeout_s = min([timeout_s, *(until - now for until, _ in self._pending.values())])
        identities = []
        for key, _ in self._selector.select(max(0.0, timeout_s)):
            sock = cast("socket.socket", key.fileobj)
            if sock is self._listener:
                self._accept()
            elif sock in self._pending or sock in self.clients:  # not dropped meanwhile
                identities += self._read(sock)
        return identities

    def answer(self, data: bytes) -> None:
        """Stop listening, drop clients that are not identified, and send this to the others."""
        self._selector.unregister(self._listener)
        for client in list(self._pending):
            self._drop(client)
        for client in self.clients:
            client.setblocking(True)
            client.settimeout(self._hello_timeout_s)
            with contextlib.suppress(OSError):
                client.sendall(data)

    def close(self, linger_s: float = 0.0) -> None:
        """Drop all clients, but let them disconnect first for so long.

        Whoever disconnects first keeps the port for a while (TIME_WAIT, RFC 9293 3.6.1).
        """
        deadline = time.monotonic() + linger_s
        while self.clients and time.monotonic() < deadline:
            self.poll(deadline - time.monotonic())
        for client in [*self._pending, *self.clients]:
            self._drop(client)
        self._selector.close()

    def _accept(self) -> None:
        if len(self._pending) >= self._max_pending:
            self._drop(next(iter(self._pending)))
        try:
            client, _ = self._listener.accept()
        except OSError as error:  # the client has gone again, or no descriptors are left
            if error.errno in (errno.EMFILE, errno.ENFILE):
                if self._pending:
                    self._drop(next(iter(self._pending)))
                else:
                    time.sleep(_RETRY_S)
            return
        client.setblocking(False)
        self._pending[client] = time.monotonic() + self._hello_timeout_s, bytearray()
        self._selector.register(client, selectors.EVENT_READ)

    def _read(self, client: socket.socket) -> list[Any]:
        try:
            data = client.recv(_READ)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data or client in self.clients:
            self._drop(client)
            return []
        line = self._pending[client][1]
        line += data
        if not data.endswith(b"\n"):
            received = sum(len(pending) for _, pending in self._pending.values())
            if len(line) > self._max_line_bytes or received > self._max_pending_bytes:
                self._drop(client)
            return []
        identity = self._identify(bytes(line)) if len(line) <= self._max_line_bytes else None
        if identity is None:
            self._drop(client)
            return []
        del self._pending[client]
        self.clients[client] = identity
        return [identity]

    def _drop(self, client: socket.socket) -> None:
        self._selector.unregister(client)
        self._pending.pop(client, None)
        self.clients.pop(client, None)
        client.close()


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
