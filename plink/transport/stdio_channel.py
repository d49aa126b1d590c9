"""Channel of an agent to its controller: JSON lines on standard input and output, with a heartbeat lease.

Runs on the hosts: standard library only. The agent must end when its controller does. A closed standard input shows
that at once. When a network drops the connection nothing shows it; so every message renews a lease, and a lease that
runs out means the same as the end of input. In the other direction the agent answers ``alive`` messages: a controller
that receives nothing for a lease marks the host as lost. Code that is busy for long calls ``renew`` meanwhile.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import time
from typing import Any

HELLO = "plink-agent-1"
_READ = 1 << 16


def encode_line(message: dict[str, Any]) -> bytes:
    """Return a message as one line."""
    return json.dumps(message).encode() + b"\n"


def decode_line(line: bytes) -> dict[str, Any] | None:
    """Return the message on a line, None if it is no JSON object."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


class LineBuffer:
    """Buffer of a line that is not complete yet."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def __len__(self) -> int:
        """Return how many bytes wait for the end of their line; callers limit them."""
        return len(self._rest)

    def lines(self, data: bytes) -> list[bytes]:
        """Return the lines that these bytes complete, without their ends."""
        self._rest += data
        if b"\n" not in data:
            return []
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        return lines

    def messages(self, data: bytes) -> list[dict[str, Any]]:
        """Return the messages that these bytes complete; skips lines that are none."""
        return [message for message in map(decode_line, self.lines(data)) if message is not None]

    def clear(self) -> None:
        """Drop an incomplete line."""
        self._rest.clear()


def is_own_user(peer: socket.socket) -> bool:
    """Return whether the peer of a local socket runs as this process's user or as root (unix(7), SO_PEERCRED)."""
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return uid in (0, os.getuid())


class ControllerLost(Exception):
    """The controller closed the channel, or the lease ran out."""


class AgentStdioChannel:
    """The agent's end of the channel; not thread-safe.

    :param lease_s: seconds without any message after which the controller counts as lost.
    """

    def __init__(self, lease_s: float, read_fd: int = 0, write_fd: int = 1) -> None:
        self._lease_s = lease_s
        self._read_fd, self._write_fd = read_fd, write_fd
        self._renewed = time.monotonic()
        self._buffer = LineBuffer()
        self._messages: list[dict[str, Any]] = []
        self._heartbeat_due = False  # the controller has sent ``alive``

    def hello(self) -> None:
        """Send the line that says that the agent runs; the controller skips what a login shell printed before it."""
        os.write(self._write_fd, (HELLO + "\n").encode())

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a message or the end of the input arrives."""
        return self._read_fd

    def send(self, **message: Any) -> None:
        """Send one message; waits while the channel is full, for as long as the lease holds.

        :raises ControllerLost: when nobody can read it any more.
        """
        data = encode_line(message)
        try:
            while data:
                remaining_s = max(0.0, self._renewed + self._lease_s - time.monotonic())
                readable, writable, _ = select.select([self._read_fd], [self._write_fd], [], remaining_s)
                if writable:
                    # No more than is sure to fit: a longer write would block however long nobody reads.
                    data = data[os.write(self._write_fd, data[: select.PIPE_BUF]) :]
                elif readable:
                    # The controller's output may be held up, but its renewals still arrive.
                    self._read()
                else:
                    raise ControllerLost
        except OSError:
            raise ControllerLost from None
        self._heartbeat_due = False  # any message is an answer to ``alive``

    def receive(self, timeout_s: float) -> dict[str, Any] | None:
        """Return the next message, or None after ``timeout_s`` seconds; answers ``alive`` and does not return it.

        :raises ControllerLost: at the end of input or of the lease.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            if self._messages:
                return self._messages.pop(0)
            until = min(deadline, self._renewed + self._lease_s)
            ready, _, _ = select.select([self._read_fd], [], [], max(0.0, until - time.monotonic()))
            if ready:
                # Also when the lease seems to be over: an agent that was busy for long finds its renewals waiting here.
                self._read()
                self._answer()
            elif time.monotonic() - self._renewed > self._lease_s:
                raise ControllerLost
            elif time.monotonic() >= deadline:
                return None

    def renew(self) -> None:
        """Read without waiting, to renew the lease; messages stay for :meth:`receive`.

        :raises ControllerLost: at the end of input or of the lease.
        """
        if select.select([self._read_fd], [], [], 0)[0]:
            self._read()
            self._answer()
        elif time.monotonic() - self._renewed > self._lease_s:
            raise ControllerLost

    def _read(self) -> None:
        data = os.read(self._read_fd, _READ)
        if not data:
            raise ControllerLost
        self._renewed = time.monotonic()
        messages = self._buffer.messages(data)
        self._messages += [message for message in messages if message.get("method") != "alive"]
        self._heartbeat_due |= any(message.get("method") == "alive" for message in messages)

    def _answer(self) -> None:
        # Where there is no room, the controller has messages enough to read.
        if self._heartbeat_due and select.select([], [self._write_fd], [], 0)[1]:
            self.send(type="alive")
        self._heartbeat_due = False
