"""Eager protocol for short messages, over sockets of plink's own: each is one TCP segment or a few.

Gloo agrees on every message (a rendezvous protocol): the sender announces it, the receiver grants it, and then it is
sent, each time through a thread of Gloo's. That is right for long messages, which should not fill queues, but it is
most of the cost of short ones. Here a message is sent at once and waits in the receiver's kernel, as MPI's eager
messages do. The calling thread does everything: it reads and writes what it can while it waits.
"""

import contextlib
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import Store  # type: ignore[attr-defined]

from plink.runtime.allreduce.mesh import CannotConnect, FullMesh, connect_mesh, decline
from plink.runtime.allreduce.transport import CLOSED
from plink.runtime.allreduce.watchdog import PeerLost

# Eager protocol threshold: larger vectors could fill the kernels' queues.
MAX_BYTES = 1 << 20
_MESSAGE = struct.Struct("<II")  # tag, bytes
_CLOSE_CHECK_INTERVAL_S = 1.0


def connect_eager(
    store: Store, mesh: FullMesh, timeout: timedelta, addresses: Sequence[str], all_can: Callable[[bool], bool]
) -> "EagerTransport | None":
    """Connect all ranks, or return None on all of them where some rank cannot; that one prints why.

    :param addresses: as of :func:`connect_mesh`; none where this host's is not known.
    :param all_can: returns whether every rank passed True.
    """
    sockets, reason = None, "this host's address is unknown"
    try:
        if not addresses:
            decline(store, mesh.rank)
        else:
            sockets = connect_mesh(store, mesh, addresses, timeout.total_seconds())
    except Exception as error:  # whatever it is: the other ranks wait for this one's answer
        reason = str(error) if isinstance(error, CannotConnect) else f"{type(error).__name__}: {error}"
    if all_can(sockets is not None) and sockets is not None:
        return EagerTransport(sockets, mesh, timeout)
    if sockets is None:
        print(f"plink: short messages use gloo: {reason}", file=sys.stderr, flush=True)
    for sock in (sockets or {}).values():
        sock.close()
    return None


@dataclass(eq=False)
class _Message:
    """Message in transit; ``remaining`` are the bytes still to send or receive, its header first."""

    tag: int
    body: memoryview
    header: memoryview
    remaining: memoryview
    done: bool = False

    def wait(self) -> None:
        """Do nothing: :meth:`EagerTransport.wait` waits."""


@dataclass(eq=False)
class _Connection:
    """Connection to one rank for one channel, used by one thread."""

    peer: int
    socket: socket.socket
    receiving: deque[_Message] = field(default_factory=deque)
    sending: deque[_Message] = field(default_factory=deque)
    mismatched: bool = False  # an unexpected message arrived: nothing more is read


class EagerTransport:
    """Transport between the ranks of a group, with one connection for each pair and channel."""

    def __init__(self, sockets: dict[tuple[int, int], socket.socket], mesh: FullMesh, timeout: timedelta) -> None:
        """:param sockets: connected to all other ranks, by rank and channel; the transport owns them from now on."""
        self._names, self._timeout_s = mesh.names, timeout.total_seconds()
        self._closed = False
        self._connections: list[dict[int, _Connection]] = [{} for _ in range(mesh.channels)]
        self._active: list[dict[int, _Connection]] = [{} for _ in range(mesh.channels)]  # in transit
        for (peer, channel), sock in sockets.items():
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)
            self._connections[channel][peer] = _Connection(peer, sock)

    def send(self, tensor: torch.Tensor, peer: int, channel: int, tag: int) -> _Message:
        """See :class:`~plink.runtime.allreduce.transport.Transport`."""
        connection = self._activate(peer, channel)
        message = _message(tensor, tag)
        connection.sending.append(message)
        if connection.sending[0] is message:
            self._write(connection)
        return message

    def receive(self, tensor: torch.Tensor, peer: int, channel: int, tag: int) -> _Message:
        """See :class:`~plink.runtime.allreduce.transport.Transport`."""
        connection = self._activate(peer, channel)
        message = _message(tensor, tag)
        connection.receiving.append(message)
        return message

    def _activate(self, peer: int, channel: int) -> _Connection:
        if self._closed:
            raise PeerLost(self._names[peer], CLOSED)
        connection = self._active[channel][peer] = self._connections[channel][peer]
        return connection

    def wait(self, pending: Any, peer: int, channel: int) -> None:
        """See :class:`~plink.runtime.allreduce.transport.Transport`."""
        connection, deadline = self._connections[channel][peer], time.monotonic() + self._timeout_s
        if not pending.done and connection.receiving and connection.receiving[0] is pending:
            self._read(connection)
        while not pending.done:
            if self._closed:
                raise PeerLost(self._names[peer], CLOSED)
            if time.monotonic() > deadline:
                raise PeerLost(self._names[peer], f"nothing within {self._timeout_s:g} s")
            self._progress(self._active[channel])

    def _progress(self, active: dict[int, _Connection]) -> None:
        """Wait until some connection is readable or writable, and read and write."""
        poll = select.poll()
        by_fd = {}
        for connection in list(active.values()):
            if not connection.receiving and not connection.sending:
                del active[connection.peer]
                continue
            events = (select.POLLIN if connection.receiving and not connection.mismatched else 0) | (
                select.POLLOUT if connection.sending else 0
            )
            if events:
                by_fd[connection.socket.fileno()] = connection
                poll.register(connection.socket, events)
        for fd, ready_events in poll.poll(_CLOSE_CHECK_INTERVAL_S * 1e3):
            connection = by_fd[fd]
            if ready_events & ~select.POLLOUT and connection.receiving:
                self._read(connection)
            if ready_events & ~select.POLLIN and connection.sending:
                self._write(connection)

    def _read(self, connection: _Connection) -> None:
        """Read what has arrived of the expected messages."""
        while connection.receiving and not connection.mismatched:
            message = connection.receiving[0]
            in_header = message.remaining.obj is message.header.obj
            try:
                size = connection.socket.recvmsg_into(
                    [message.remaining, message.body] if in_header else [message.remaining]
                )[0]
            except BlockingIOError:
                return
            except OSError as error:
                raise PeerLost(self._names[connection.peer], self._reason(error)) from None
            if not size:
                raise PeerLost(self._names[connection.peer], self._reason("it closed the connection"))
            if in_header and size >= len(message.remaining):
                if message.header != _MESSAGE.pack(message.tag, message.body.nbytes):
                    # The ranks' signatures differ. This message never completes, and the watchdog reports it.
                    connection.mismatched = True
                    return
                message.remaining = message.body[size - len(message.remaining) :]
            else:
                message.remaining = message.remaining[size:]
            if len(message.remaining):
                continue
            message.done = True
            connection.receiving.popleft()

    def _write(self, connection: _Connection) -> None:
        """Write as much of the queued messages as the kernel takes."""
        while connection.sending:
            message = connection.sending[0]
            try:
                if message.remaining.obj is message.header.obj:
                    size = connection.socket.sendmsg([message.remaining, message.body])
                    if size < len(message.remaining):
                        message.remaining = message.remaining[size:]
                        return
                    message.remaining = message.body[size - len(message.remaining) :]
                else:
                    message.remaining = message.remaining[connection.socket.send(message.remaining) :]
            except BlockingIOError:
                return
            except OSError as error:
                raise PeerLost(self._names[connection.peer], self._reason(error)) from None
            if len(message.remaining):
                return
            message.done = True
            connection.sending.popleft()

    def _reason(self, error: object) -> str:
        return CLOSED if self._closed else str(error)

    def close(self) -> None:
        """See :class:`~plink.runtime.allreduce.transport.Transport`."""
        self._closed = True
        for connections in self._connections:
            for connection in connections.values():
                with contextlib.suppress(OSError):  # it is disconnected already
                    connection.socket.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Close all sockets: nothing uses them any more."""
        self._closed = True
        for connections in self._connections:
            for connection in connections.values():
                connection.socket.close()


def _message(tensor: torch.Tensor, tag: int) -> _Message:
    content: Any = tensor.view(torch.uint8).numpy()
    body = memoryview(content)
    header = memoryview(bytearray(_MESSAGE.pack(tag, body.nbytes)))
    return _Message(tag, body, header, header)
