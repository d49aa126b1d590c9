"""A connection to a server, for requests: made when it is needed, and anew after it was lost."""

import contextlib
import errno
import math
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plink.errors import PlinkError
from plink.model.consistency import Rule, check_optimisers
from plink.model.divergence import DivergenceBound
from plink.model.rules.ordered import Ordered
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.transport.keys import RunKeys, Unauthenticated
from plink.runtime.elastic.transport.messages import AnswerKind, Message, ServerAnswer, ServerRequest
from plink.runtime.elastic.transport.records import ConnectionLost, Forged, SealedChannel
from plink.runtime.elastic.transport.wire import answer_to, receive, send


@dataclass(frozen=True)
class StoreConfig:
    """Configuration that servers and clients share: the tables and their partitions, the keys that both ends of a
    connection prove, and the consistency rule. Clients follow it: a read says which state it needs. Servers know how
    old an update may be, and bound the ``divergence`` of partitions from their replicas; None: nobody does."""

    layout: Layout
    keys: RunKeys
    rule: Rule
    divergence: DivergenceBound | None = None

    def __post_init__(self) -> None:
        check_optimisers(self.rule, self.layout.optimisers)

    @property
    def sees_ahead(self) -> bool:
        """Return whether servers serve all updates that arrived."""
        return self.rule.sees_ahead

    @property
    def arbitrated(self) -> bool:
        """Return whether workers ask partition 0's arbiter before they send an update."""
        return isinstance(self.rule, Ordered) and not self.rule.direct

    @property
    def max_delay(self) -> float | None:
        """Return how many updates servers may apply between a worker's read and its own update, infinity where nothing
        bounds that; None under rules whose workers do not read with every step what has arrived."""
        if isinstance(self.rule, Ordered):
            return self.rule.max_delay
        return math.inf if self.rule.steps and self.rule.sees_ahead else None


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

    def ask(self, request: ServerRequest[AnswerKind]) -> AnswerKind:
        """Send a request and return its answer.

        :raises ConnectionLost: the server may or may not have done it. :raises Forged, Unauthenticated: it is none of
            this run.
        """
        self.post(request)
        return self.answer(request)

    def post(self, request: ServerRequest[AnswerKind]) -> None:
        """Send a request; :meth:`answer` must be called before the next."""
        self._ticket = (self._ticket + 1) % _MAX_TICKETS
        with self._closed_on_error():
            send(self._connected(), request, self._layout, self._ticket)

    def wait(self) -> None:
        """Wait until the answer to what was posted begins to arrive, or the connection is lost."""
        if self._channel is not None:
            _poll(self._channel.socket, select.POLLIN, self._timeout_s)

    def answer(self, request: ServerRequest[AnswerKind]) -> AnswerKind:
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


Connections = dict[str, Connection]  # that one connection's messages are sent on over, by address

_MAX_HANDSHAKES = 64  # strangers at a time
_BACKLOG = 512
_ACCEPT_RETRY_S = 0.05  # before the next connection is accepted, when one could not be
_USER_TIMEOUT_MS = 30_000  # a peer that takes nothing for so long is gone


class Listener:
    """Listening socket of a server, with a thread for each connection.

    :param host: the address to listen on, at any port that is free.
    :param answer: to a message, with the connections of its connection.
    :param timeout_s: for handshakes.
    :param refused: is called with the address and the reason of a refused connection; from any thread.
    :raises OSError: the address cannot be had.
    """

    def __init__(
        self,
        config: StoreConfig,
        host: str,
        timeout_s: float,
        answer: Callable[[Message, Connections], ServerAnswer],
        refused: Callable[[str], None],
    ) -> None:
        self._layout, self._keys, self._timeout_s, self._answer = config.layout, config.keys, timeout_s, answer
        self._channels: set[SealedChannel] = set()
        self._handshakes = threading.BoundedSemaphore(_MAX_HANDSHAKES)
        self._refused, self.closed = refused, False
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, 0), family=family, backlog=_BACKLOG)
        self.address = f"[{host}]" if ":" in host else host
        self.address += f":{self._listening.getsockname()[1]}"

    def start(self) -> None:
        """Accept connections."""
        threading.Thread(target=self._accept, name="plink-parameter-server", daemon=True).start()

    def stop_accepting(self) -> None:
        """Accept no more."""
        self.closed = True
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def close(self) -> None:
        """End all connections."""
        for channel in list(self._channels):
            channel.close()

    def _accept(self) -> None:
        while True:
            self._handshakes.acquire()
            sock: socket.socket | None = None
            try:
                sock, peer = self._listening.accept()
                threading.Thread(target=self._serve, args=(sock, f"{peer[0]}:{peer[1]}"), daemon=True).start()
            except (OSError, RuntimeError, MemoryError) as error:  # no files or threads are left, or the peer has gone
                self._handshakes.release()
                if sock is not None:
                    sock.close()
                if self.closed:
                    return
                self._refuse("listening", error)
                time.sleep(_ACCEPT_RETRY_S)

    def _serve(self, sock: socket.socket, peer: str) -> None:
        """Serve one connection, to its end."""
        try:
            try:
                sock.settimeout(self._timeout_s)
                channel = self._keys.accept(sock)
            finally:
                self._handshakes.release()
            channel.socket.settimeout(None)
            channel.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            channel.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
        except (PlinkError, OSError) as error:
            self._refuse(peer, error)
            return
        self._channels.add(channel)
        connections: Connections = {}
        try:
            while not self.closed:
                message, ticket = receive(channel, self._layout)
                send(channel, self._answer(message, connections), self._layout, ticket)
        except ConnectionLost:
            pass  # clients come and go
        except PlinkError as error:
            self._refuse(peer, error)
        finally:
            self._channels.discard(channel)
            channel.close()
            for connection in connections.values():
                connection.close()

    def _refuse(self, peer: str, error: Exception) -> None:
        self._refused(f"{peer}: {error}")
