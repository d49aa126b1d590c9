"""A node's line to the controller of its job: JSON lines over the local socket of the agent beside it.

No worker waits for it: messages are queued, and those of only passing interest are dropped while the other end takes
nothing.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

from plink.errors import PlinkError
from plink.transport.stdio_channel import LineBuffer, encode_line

VARIABLE = "PLINK_LINE"  # an abstract address (unix(7)), without the zero byte at its beginning
_CONNECT_TIMEOUT_S = 10.0
_READ_BYTES = 1 << 16
_MAX_QUEUED_MESSAGES = 1000  # of what is only of passing interest
_CLOSE_TIMEOUT_S = 2.0


class ControlChannel:
    """A node's end of the control channel; sending is for any thread, iterating for one."""

    def __init__(self, name: str | None = None) -> None:
        """:raises PlinkError: there is no line, or nobody at its other end."""
        name = os.environ.get(VARIABLE, "") if name is None else name
        if not name:
            raise PlinkError("this is started by `plink elastic run`, which gives it a line")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_CONNECT_TIMEOUT_S)
        try:
            self._socket.connect(f"\0{name}")
        except OSError as error:
            self._socket.close()
            raise PlinkError(f"the agent that started this does not answer: {error.strerror}") from None
        self._socket.setblocking(True)
        self._waiting: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._sender = threading.Thread(target=self._send_all, name="plink-control-line", daemon=True)
        self._sender.start()

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message for sending."""
        self._waiting.put(message)

    def mention(self, message: dict[str, Any]) -> None:
        """Queue a message that may be dropped, because later ones repeat it."""
        if self._waiting.qsize() < _MAX_QUEUED_MESSAGES:
            self._waiting.put(message)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the messages to this node, until the other end is gone. Lines that are no message are skipped."""
        buffer = LineBuffer()
        while True:
            try:
                data = self._socket.recv(_READ_BYTES)
            except OSError:
                return
            if not data:
                return
            yield from buffer.messages(data)

    def close(self) -> None:
        """Send what waits, for as long as somebody takes it, and hang up."""
        self._waiting.put(None)
        self._sender.join(_CLOSE_TIMEOUT_S)
        self._socket.close()

    def _send_all(self) -> None:
        with contextlib.suppress(OSError):
            while (message := self._waiting.get()) is not None:
                self._socket.sendall(encode_line(message))
