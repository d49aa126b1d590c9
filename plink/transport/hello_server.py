"""Listener for clients on the network that identify themselves: ranks under external launchers, pods, flows, meshes.

Runs on the hosts and in pods: standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any, cast

_READ = 1 << 16
_RETRY_S = 0.1
_MAX_PENDING_BYTES = 1 << 26  # of all incomplete greetings


class HelloServer:
    """Listener whose clients identify themselves by one greeting each; all others are dropped and receive nothing.

    A greeting is a line, or has a fixed length. A client that sends anything after its line, or disconnects, is dropped
    too. What follows a greeting of fixed length is not read here: it is for whoever takes the client.

    :param identify: returns who sent this greeting (a line with its end), None for an unauthenticated client.
    :param hello_bytes: of a line at most, or of each greeting if they are no lines.
    :param hello_timeout_s: within which a client has to send its greeting.
    :param max_pending: clients that have not sent their greeting yet; when there are more, the oldest is dropped.
    :ivar clients: the identified clients, and what ``identify`` returned for each.
    """

    def __init__(
        self,
        listener: socket.socket,
        identify: Callable[[bytes], Any],
        hello_bytes: int,
        hello_timeout_s: float,
        are_lines: bool = True,
        max_pending: int = 256,
    ) -> None:
        self._listener, self._identify, self._hello_bytes = listener, identify, hello_bytes
        self._hello_timeout_s, self._are_lines, self._max_pending = hello_timeout_s, are_lines, max_pending
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

    def take(self) -> tuple[socket.socket, Any]:
        """Hand over the client that was identified first, without blocking, and who it is; after a greeting of fixed
        length."""
        client = next(iter(self.clients))
        return client, self.clients.pop(client)

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
        hello = self._pending[client][1] if client in self._pending else bytearray()
        try:
            data = client.recv(_READ if self._are_lines else self._hello_bytes - len(hello))
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data or client in self.clients:
            self._drop(client)
            return []
        hello += data
        if not (data.endswith(b"\n") if self._are_lines else len(hello) == self._hello_bytes):
            received = sum(len(pending) for _, pending in self._pending.values())
            if len(hello) > self._hello_bytes or received > _MAX_PENDING_BYTES:
                self._drop(client)
            return []
        identity = self._identify(bytes(hello)) if len(hello) <= self._hello_bytes else None
        if identity is None:
            self._drop(client)
            return []
        del self._pending[client]
        self.clients[client] = identity
        if not self._are_lines:
            self._selector.unregister(client)
        return [identity]

    def _drop(self, client: socket.socket) -> None:
        with contextlib.suppress(KeyError):  # after a greeting of fixed length it is not read any more
            self._selector.unregister(client)
        self._pending.pop(client, None)
        self.clients.pop(client, None)
        client.close()
