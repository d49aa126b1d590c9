"""The agent's end of the line to its controller: JSON lines on standard input and output, and a lease.

Runs on the hosts: standard library only. The agent must end when its controller does. A closed
standard input says so at once; when a network swallows the connection nothing does, so every message renews a lease
and a lease that runs out means the same as the end of input. The other way round, ``alive`` messages are answered: a
controller that hears nothing for a lease takes the host for gone. Whoever is busy for long calls ``renew`` meanwhile.
"""

from __future__ import annotations

import os
import select
import time
from typing import Any

from plink.remote.json_lines import LineBuffer, encode_line

HELLO = "plink-agent-1"
_READ = 1 << 16


class ControllerLost(Exception):
    """The controller closed the line, or its lease ran out."""


class AgentStdioChannel:
    """One end of the line; not thread-safe. ``lease_s``: seconds without any message after which it counts as cut."""

    def __init__(self, lease_s: float, read_fd: int = 0, write_fd: int = 1) -> None:
        self._lease_s = lease_s
        self._read_fd, self._write_fd = read_fd, write_fd
        self._renewed = time.monotonic()
        self._buffer = LineBuffer()
        self._messages: list[dict[str, Any]] = []
        self._asked = False  # for a sign of life

    def hello(self) -> None:
        """Say that the agent runs; whatever stood on standard output before (a login greeting) is not ours."""
        os.write(self._write_fd, (HELLO + "\n").encode())

    def fileno(self) -> int:
        """The descriptor that becomes readable when a message or the end of the line arrives."""
        return self._read_fd

    def send(self, **message: Any) -> None:
        """One message to the controller; waits while the line is full, for as long as the controller is there.

        :raises ControllerLost: when nobody is there to read it.
        """
        data = encode_line(message)
        try:
            while data:
                left_s = max(0.0, self._renewed + self._lease_s - time.monotonic())
                asked, room, _ = select.select([self._read_fd], [self._write_fd], [], left_s)
                if room:
                    # No more than is sure to fit: a longer write would block however long nobody reads.
                    data = data[os.write(self._write_fd, data[: select.PIPE_BUF]) :]
                elif asked:
                    # Busy elsewhere, and there: what it shows us on its screen is held up, the renewals are not.
                    self._read()
                else:
                    raise ControllerLost
        except OSError:
            raise ControllerLost from None
        self._asked = False  # this was one

    def receive(self, timeout_s: float) -> dict[str, Any] | None:
        """The next message, or None after ``timeout_s`` seconds without one; ``alive`` is answered and no message.

        :raises ControllerLost: at the end of input or of the lease.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            if self._messages:
                return self._messages.pop(0)
            until = min(deadline, self._renewed + self._lease_s)
            ready, _, _ = select.select([self._read_fd], [], [], max(0.0, until - time.monotonic()))
            if ready:
                # Also when the lease looks over: whoever was busy for long finds its renewals waiting here.
                self._read()
                self._answer()
            elif time.monotonic() - self._renewed > self._lease_s:
                raise ControllerLost
            elif time.monotonic() >= deadline:
                return None

    def renew(self) -> None:
        """Look, without waiting, whether the controller is there: what it said stays for :meth:`receive`.

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
        self._messages += [message for message in messages if message.get("do") != "alive"]
        self._asked |= any(message.get("do") == "alive" for message in messages)

    def _answer(self) -> None:
        # Where there is no room, the controller finds signs of life enough when it reads on.
        if self._asked and select.select([], [self._write_fd], [], 0)[1]:
            self.send(**{"is": "alive"})
        self._asked = False
