"""Short messages over sockets of our own: each is one segment or a few, and nothing else travels.

Gloo agrees on every message: the sender says that it has one, the receiver that there is room, and then it travels,
each time through a thread of Gloo's. That is right for long ones, which nobody should hold in queues, and most of what
short ones cost. Here a message leaves when it is there and waits in the receiver's kernel, as MPI's eager messages do,
and the calling thread does it all: it reads and writes what can be while it waits.
"""

import contextlib
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import Store  # type: ignore[attr-defined]

from plink.runtime.aggengine.failures import PeerLost
from plink.runtime.aggengine.meeting import CannotConnect, FullMesh, meet, stay_away
from plink.runtime.aggengine.transport import CLOSED

# Vectors of up to so many bytes travel so: with what of them may wait in kernels at a time, no queue gets long.
MOST_BYTES = 1 << 20
_MESSAGE = struct.Struct("<II")  # signature, bytes
_LONGEST_S = 1.0  # between looks at whether all was closed meanwhile


def connected(
    store: Store, mesh: FullMesh, timeout: timedelta, address: str | None, all_can: Callable[[bool], bool]
) -> "EagerTransport | None":
    """Connections to all, where all ranks can have them; None on all of them otherwise; whoever could not says why.

    :param all_can: whether every rank says True here.
    """
    found, why = None, "this host's address is not known"
    try:
        if address is None:
            stay_away(store, mesh.rank)
        else:
            found = meet(store, mesh, address, timeout.total_seconds())
    except Exception as error:  # whatever it is: the others wait to hear whether all can
        why = str(error) if isinstance(error, CannotConnect) else f"{type(error).__name__}: {error}"
    if all_can(found is not None) and found is not None:
        return EagerTransport(found, mesh, timeout)
    if found is None:
        print(f"plink: short messages go by gloo: {why}", file=sys.stderr, flush=True)
    for one in (found or {}).values():
        one.close()
    return None


@dataclass(eq=False)
class _Message:
    """One under way; ``left`` are its bytes that are not through, its head the first of them."""

    signature: int
    body: memoryview
    head: memoryview
    left: memoryview
    done: bool = False

    def wait(self) -> None:
        """:meth:`EagerTransport.wait` is what waits."""


@dataclass(eq=False)
class _Line:
    """The connection to one rank for one lane, which one thread uses."""

    peer: int
    socket: socket.socket
    coming: deque[_Message] = field(default_factory=deque)
    leaving: deque[_Message] = field(default_factory=deque)
    confused: bool = False  # what came is none of what was expected: nothing more is read


class EagerTransport:
    """Messages between the ranks of a group over a connection a pair and lane."""

    def __init__(self, found: dict[tuple[int, int], socket.socket], mesh: FullMesh, timeout: timedelta) -> None:
        """:param found: connections to all other ranks, by rank and lane: the transport's from now on."""
        self._names, self._timeout_s = mesh.names, timeout.total_seconds()
        self._closed = False
        self._lines: list[dict[int, _Line]] = [{} for _ in range(mesh.lanes)]
        self._busy: list[dict[int, _Line]] = [{} for _ in range(mesh.lanes)]  # those with messages under way
        for (peer, lane), made in found.items():
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.setblocking(False)
            self._lines[lane][peer] = _Line(peer, made)

    def send(self, tensor: torch.Tensor, peer: int, lane: int, signature: int) -> _Message:
        """As :class:`~plink.runtime.aggengine.transport.Transport` says."""
        line = self._begun(peer, lane)
        message = _message(tensor, signature)
        line.leaving.append(message)
        if line.leaving[0] is message:
            self._write(line)
        return message

    def receive(self, tensor: torch.Tensor, peer: int, lane: int, signature: int) -> _Message:
        """As :class:`~plink.runtime.aggengine.transport.Transport` says."""
        line = self._begun(peer, lane)
        message = _message(tensor, signature)
        line.coming.append(message)
        return message

    def _begun(self, peer: int, lane: int) -> _Line:
        if self._closed:
            raise PeerLost(self._names[peer], CLOSED)
        line = self._busy[lane][peer] = self._lines[lane][peer]
        return line

    def wait(self, pending: Any, peer: int, lane: int) -> None:
        """As :class:`~plink.runtime.aggengine.transport.Transport` says."""
        line, until = self._lines[lane][peer], time.monotonic() + self._timeout_s
        if not pending.done and line.coming and line.coming[0] is pending:
            self._read(line)
        while not pending.done:
            if self._closed:
                raise PeerLost(self._names[peer], CLOSED)
            if time.monotonic() > until:
                raise PeerLost(self._names[peer], f"nothing within {self._timeout_s:g} s")
            self._move(self._busy[lane])

    def _move(self, busy: dict[int, _Line]) -> None:
        """Wait until something can be read or written, and do so."""
        poll = select.poll()
        by_fd = {}
        for line in list(busy.values()):
            if not line.coming and not line.leaving:
                del busy[line.peer]
                continue
            wanted = (select.POLLIN if line.coming and not line.confused else 0) | (
                select.POLLOUT if line.leaving else 0
            )
            if wanted:
                by_fd[line.socket.fileno()] = line
                poll.register(line.socket, wanted)
        for fd, happened in poll.poll(_LONGEST_S * 1e3):
            line = by_fd[fd]
            if happened & ~select.POLLOUT and line.coming:
                self._read(line)
            if happened & ~select.POLLIN and line.leaving:
                self._write(line)

    def _read(self, line: _Line) -> None:
        """What is there of the messages that are expected."""
        while line.coming and not line.confused:
            message = line.coming[0]
            in_head = message.left.obj is message.head.obj
            try:
                got = line.socket.recvmsg_into([message.left, message.body] if in_head else [message.left])[0]
            except BlockingIOError:
                return
            except OSError as error:
                raise PeerLost(self._names[line.peer], self._why(error)) from None
            if not got:
                raise PeerLost(self._names[line.peer], self._why("it closed the connection"))
            if in_head and got >= len(message.left):
                if message.head != _MESSAGE.pack(message.signature, message.body.nbytes):
                    # It means something else, and so finds out who looks on: this one never ends.
                    line.confused = True
                    return
                message.left = message.body[got - len(message.left) :]
            else:
                message.left = message.left[got:]
            if len(message.left):
                continue
            message.done = True
            line.coming.popleft()

    def _write(self, line: _Line) -> None:
        """As much of the messages that leave as the kernel takes."""
        while line.leaving:
            message = line.leaving[0]
            try:
                if message.left.obj is message.head.obj:
                    gone = line.socket.sendmsg([message.left, message.body])
                    if gone < len(message.left):
                        message.left = message.left[gone:]
                        return
                    message.left = message.body[gone - len(message.left) :]
                else:
                    message.left = message.left[line.socket.send(message.left) :]
            except BlockingIOError:
                return
            except OSError as error:
                raise PeerLost(self._names[line.peer], self._why(error)) from None
            if len(message.left):
                return
            message.done = True
            line.leaving.popleft()

    def _why(self, error: object) -> str:
        return CLOSED if self._closed else str(error)

    def close(self) -> None:
        """As :class:`~plink.runtime.aggengine.transport.Transport` says."""
        self._closed = True
        for lines in self._lines:
            for line in lines.values():
                with contextlib.suppress(OSError):  # it was not connected any more
                    line.socket.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Nobody uses it any more."""
        self._closed = True
        for lines in self._lines:
            for line in lines.values():
                line.socket.close()


def _message(tensor: torch.Tensor, signature: int) -> _Message:
    numbers: Any = tensor.view(torch.uint8).numpy()
    body = memoryview(numbers)
    head = memoryview(bytearray(_MESSAGE.pack(signature, body.nbytes)))
    return _Message(signature, body, head, head)
