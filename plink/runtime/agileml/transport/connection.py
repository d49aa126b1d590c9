"""A connection to a server, as those who ask see it: made when it is needed, and anew after it was lost."""

import contextlib
import errno
import os
import select
import socket
from typing import Any

from plink.runtime.agileml.arrays.layout import Layout
from plink.runtime.agileml.transport.keys import RunKeys, Stranger
from plink.runtime.agileml.transport.records import Forged, Lost, SealedChannel
from plink.runtime.agileml.transport.wire import Kind, Message, receive, send

_TICKETS = 1 << 32


class _ClosedOnError:
    """Whatever it was: what is half sent or not read yet must not meet the next question."""

    def __init__(self, line: "Line") -> None:
        self._line = line

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._line.close()
            if isinstance(error, Lost | Forged | Stranger):
                raise type(error)(f"{self._line.address}: {error}") from error


class Line:
    """Questions and answers, one at a time; for one thread.

    :param address: ``host:port``.
    :param timeout_s: for connecting, and for every wait in which nothing at all arrives.
    """

    def __init__(self, address: str, keys: RunKeys, layout: Layout, timeout_s: float) -> None:
        self.address = address
        self._keys, self._layout, self._timeout_s = keys, layout, timeout_s
        self._channel: SealedChannel | None = None
        self._meeting: socket.socket | None = None  # another handle of the socket, while the channel is not made
        self._woken = False  # since it began to connect
        self._asked, self._ticket = Message(Kind.READ, 0), 0

    def ask(self, message: Message) -> Message:
        """:raises Lost: the server may or may not have done it. :raises Forged, Stranger: it is none of this run."""
        self.post(message)
        return self.answer()

    def post(self, message: Message) -> None:
        """Send and go on; :meth:`answer` must be called before the next."""
        self._asked, self._ticket = message, (self._ticket + 1) % _TICKETS
        with self._closed_on_error():
            send(self._connected(), message, self._layout, self._ticket)

    def answer(self) -> Message:
        """What the server says to what was posted."""
        with self._closed_on_error():
            answer = receive(self._connected(), self._layout)
            if answer.kind is not Kind.ANSWER or (answer.partition, answer.ticket) != (
                self._asked.partition, self._ticket
            ):  # fmt: skip
                raise Forged(
                    f"{answer.kind.name} of partition {answer.partition}, which is no answer to what was asked"
                )
            return answer

    def _closed_on_error(self) -> _ClosedOnError:
        return _ClosedOnError(self)

    def wake(self) -> None:
        """From any thread: whoever waits for this server hears that the connection is lost."""
        self._woken = True
        channel, meeting = self._channel, self._meeting
        for sock in (channel.socket if channel else None, meeting):
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
                self._forget_meeting()
            if self._woken:  # while the one handle took the place of the other
                raise Lost("nobody waits for it any more")
        return self._channel

    def _reached(self) -> socket.socket:
        """A connected socket, of which there is another handle: who has vanished answers no SYN, for minutes maybe."""
        host, _, port = self.address.rpartition(":")
        trouble: OSError = OSError("no address")
        try:
            for family, kind, protocol, _, where in socket.getaddrinfo(
                host.strip("[]"), int(port), type=socket.SOCK_STREAM
            ):
                try:
                    return self._reached_at(where, family, kind, protocol)
                except OSError as error:  # of a family that this kernel lacks, too
                    trouble = error
        except OSError as error:  # of the name
            trouble = error
        raise Lost(f"cannot connect: {trouble}") from trouble

    def _reached_at(self, where: tuple[Any, ...], family: int, kind: int, protocol: int) -> socket.socket:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            self._meeting = sock.dup()
            begun = sock.connect_ex(where)
            # Only what has begun can be shut down: who woke us before is seen here, who does so later ends the wait.
            if self._woken:
                raise ConnectionResetError("nobody waits for it any more")
            if begun == errno.EINPROGRESS:
                begun = _outcome(sock, self._timeout_s)
            if begun != 0:
                raise OSError(begun, os.strerror(begun))
            sock.settimeout(self._timeout_s)
        except BaseException:
            self._forget_meeting()
            sock.close()
            raise
        return sock

    def _forget_meeting(self) -> None:
        meeting, self._meeting = self._meeting, None
        if meeting is not None:
            meeting.close()

    def close(self) -> None:
        """The next question connects again."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def _outcome(sock: socket.socket, timeout_s: float) -> int:
    """What became of a connection that has begun, 0 or an error's number. :raises TimeoutError: nothing yet."""
    waiting = select.poll()
    waiting.register(sock, select.POLLOUT)
    if not waiting.poll(timeout_s * 1000):
        raise TimeoutError("timed out")
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
