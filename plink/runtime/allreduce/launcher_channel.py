"""Channel from rank 0 to the launcher: JSON lines over a local socket on which the agent of this host listens.

The job goes on without it if it fails, and never waits for it.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from queue import Empty, Full, Queue
from typing import Any

from plink.transport.stdio_channel import LineBuffer, encode_line

VARIABLE = "PLINK_LINE"  # an abstract address (unix(7)), without the zero byte at its beginning
MAX_BYTES = 12 << 20  # of a line: less than the limit of an agent and its controller
_CONNECT_S = 2.0
_MAX_QUEUED = 2  # messages; a launcher that reads too slowly misses some
_POLL_S = 0.2


class LauncherChannel:
    """Rank 0's end of the channel; ``connected`` is False for good once the connection is lost."""

    def __init__(self, name: str | None = None) -> None:
        self.connected = False
        self._buffer = LineBuffer()
        self._queue: Queue[Callable[[], dict[str, Any]]] = Queue(_MAX_QUEUED)
        self._thread: threading.Thread | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        name = os.environ.get(VARIABLE) if name is None else name
        try:
            if not name:
                raise OSError("no address")
            self._socket.settimeout(_CONNECT_S)
            self._socket.connect(f"\0{name}")
            self._socket.setblocking(True)
        except OSError:
            self._socket.close()
            return
        self.connected = True
        self._thread = threading.Thread(target=self._send_all, name="plink-line", daemon=True)
        self._thread.start()

    def send(self, message: Callable[[], dict[str, Any]]) -> None:
        """Queue a message, which another thread makes and sends; dropped without a connection or with a full queue."""
        if self.connected:
            with contextlib.suppress(Full):
                self._queue.put_nowait(message)

    def received(self) -> list[dict[str, Any]]:
        """Return the messages received since the last call, without waiting. Malformed ones are skipped."""
        messages: list[dict[str, Any]] = []
        while self.connected:
            try:
                data = self._socket.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            messages += self._buffer.messages(data)
            if not data or len(self._buffer) > 2 * MAX_BYTES:
                self.close()
        return messages

    def close(self) -> None:
        """Close the connection."""
        self.connected = False
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # the sending thread gets an error
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(2 * _POLL_S)
        self._socket.close()

    def _send_all(self) -> None:
        while self.connected:
            try:
                message = self._queue.get(timeout=_POLL_S)
                line = encode_line(message())
                if len(line) <= MAX_BYTES:
                    self._socket.sendall(line)
            except Empty:
                continue
            except OSError:
                self.connected = False  # the reader closes it
