"""A connection to a server, as those who ask see it: made when it is needed, and anew after it was lost."""

import contextlib
import errno
import os
import select
import socket
from typing import Any

from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.transport.keys import RunKeys, Unauthenticated
from plink.runtime.elastic.transport.messages import AnswerKind, Request
from plink.runtime.elastic.transport.records import ConnectionLost, Forged, SealedChannel
from plink.runtime.elastic.transport.wire import answer_to, receive, send

_MAX_TICKETS = 1 << 32


class _ClosedOnError:
    """Context that closes the connection after any error: what is half sent or unread must not meet the next
    request."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._connection.close()
            if isinstance(error, ConnectionLost | Forged | Unauthenticated):
                raise type(error)(f"{self._connection.address}: {error}") from error


class Connection:
    """Client connection to a server: requests and answers, one at a time; for one thread.

    :param address: ``host:port``.
    :param timeout_s: for connecting, and for every wait in which nothing at all arrives.
    """

    def __init__(self, address: str, keys: RunKeys, layout: Layout, timeout_s: float) -> None:
        self.address = address
        self._keys, self._layout, self._timeout_s = keys, layout, timeout_s
        self._channel: SealedChannel | None = None
        self._pending: socket.socket | None = None  # another handle of the socket, while the channel is not made
        self._woken = False  # since it began to connect
        self._ticket = 0  # of the last request

    def ask(self, request: Request[AnswerKind]) -> AnswerKind:
        """Send a request and return its answer.

        :raises ConnectionLost: the server may or may not have done it. :raises Forged, Unauthenticated: it is none of
            this run.
        """
        self.post(request)
        return self.answer(request)

    def post(self, request: Request[AnswerKind]) -> None:
        """Send a request; :meth:`answer` must be called before the next."""
        self._ticket = (self._ticket + 1) % _MAX_TICKETS
        with self._closed_on_error():
            send(self._connected(), request, self._layout, self._ticket)

    def wait(self) -> None:
        """Wait until the answer to what was posted begins to arrive, or the connection is lost."""
        if self._channel is not None:
            _poll(self._channel.socket, select.POLLIN, self._timeout_s)

    def answer(self, request: Request[AnswerKind]) -> AnswerKind:
        """Return the server's answer to the request that was posted."""
        with self._closed_on_error():
            kind = answer_to(request)
            answer, ticket = receive(self._connected(), self._layout, kind)
            if not isinstance(answer, kind) or (answer.partition, ticket) != (request.partition, self._ticket):
                name = type(answer).__name__
                raise Forged(f"{name} of partition {answer.partition}, which does not answer the request")
            return answer

    def _closed_on_error(self) -> _ClosedOnError:
        return _ClosedOnError(self)

    def wake(self) -> None:
        """Wake whoever waits for this server, from any thread: the connection counts as lost."""
        self._woken = True
        channel, pending = self._channel, self._pending
        for sock in (channel.socket if channel else None, pending):
            if sock is not None:
                with contextlib.suppress(OSError):  # it was not connected any more
                    sock.shutdown(socket.SHUT_RDWR)

    def _connected(self) -> SealedChannel:
        if self._channel is None:
            self._woken = False
            sock = self._reached()
            try:
                self._channel = self._keys.connect(sock)
            finally:
                self._close_pending()
            if self._woken:  # while the one handle took the place of the other
                raise ConnectionLost("nobody waits for it any more")
        return self._channel

    def _reached(self) -> socket.socket:
        """Return a connected socket, of which there is another handle: a vanished host answers no SYN, for minutes
        maybe."""
        host, _, port = self.address.rpartition(":")
        trouble: OSError = OSError("no address")
        try:
            for family, kind, protocol, _, address in socket.getaddrinfo(
                host.strip("[]"), int(port), type=socket.SOCK_STREAM
            ):
                try:
                    return self._reached_at(address, family, kind, protocol)
                except OSError as error:  # of a family that this kernel lacks, too
                    trouble = error
        except OSError as error:  # of the name
            trouble = error
        raise ConnectionLost(f"cannot connect: {trouble}") from trouble

    def _reached_at(self, address: tuple[Any, ...], family: int, kind: int, protocol: int) -> socket.socket:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            self._pending = sock.dup()
            begun = sock.connect_ex(address)
            # Only what has begun can be shut down: who woke us before is seen here, who does so later ends the wait.
            if self._woken:
                raise ConnectionResetError("nobody waits for it any more")
            if begun == errno.EINPROGRESS:
                begun = _outcome(sock, self._timeout_s)
            if begun != 0:
                raise OSError(begun, os.strerror(begun))
            sock.settimeout(self._timeout_s)
        except BaseException:
            self._close_pending()
            sock.close()
            raise
        return sock

    def _close_pending(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.close()

    def close(self) -> None:
        """Close; the next request connects again."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def _outcome(sock: socket.socket, timeout_s: float) -> int:
    """Return the result of a connection attempt, 0 or an error's number.

    :raises TimeoutError: nothing yet.
    """
    if not _poll(sock, select.POLLOUT, timeout_s):
        raise TimeoutError("timed out")
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def _poll(sock: socket.socket, event: int, timeout_s: float) -> bool:
    """Wait for an event of a socket, and return whether there was any."""
    waiting = select.poll()
    waiting.register(sock, event)
    return bool(waiting.poll(timeout_s * 1000))
