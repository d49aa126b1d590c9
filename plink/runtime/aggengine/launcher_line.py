"""Rank 0's line to whoever launched the job: JSON lines over a local socket that the agent beside it listens on.

Whatever goes wrong with it, the job goes on without; and nobody waits for it.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from queue import Empty, Full, Queue
from typing import Any

from plink.remote.json_lines import LineBuffer, encode_line

VARIABLE = "PLINK_LINE"  # an abstract address (unix(7)), without the zero byte at its beginning
MOST_BYTES = 12 << 20  # of a line: less than what an agent and its controller take
_CONNECT_S = 2.0
_AHEAD = 2  # messages that wait to be sent; a launcher that takes none for longer misses some
_LOOK_S = 0.2


class LauncherLine:
    """One end of the line; ``connected`` is False for good once it is lost."""

    def __init__(self, name: str | None = None) -> None:
        self.connected = False
        self._buffer = LineBuffer()
        self._waiting: Queue[Callable[[], dict[str, Any]]] = Queue(_AHEAD)
        self._thread: threading.Thread | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        name = os.environ.get(VARIABLE) if name is None else name
        try:
            if not name:
                raise OSError("no line")
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
        """One message, made and sent by another thread; left away where there is no line, or too much waits."""
        if self.connected:
            with contextlib.suppress(Full):
                self._waiting.put_nowait(message)

    def received(self) -> list[dict[str, Any]]:
        """What has come since; does not wait. What is no message is passed over."""
        found: list[dict[str, Any]] = []
        while self.connected:
            try:
                data = self._socket.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            found += self._buffer.messages(data)
            if not data or len(self._buffer) > 2 * MOST_BYTES:
                self.close()
        return found

    def close(self) -> None:
        """Hang up."""
        self.connected = False
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # whoever is sending gets an error
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(2 * _LOOK_S)
        self._socket.close()

    def _send_all(self) -> None:
        while self.connected:
            try:
                message = self._waiting.get(timeout=_LOOK_S)
                line = encode_line(message())
                if len(line) <= MOST_BYTES:
                    self._socket.sendall(line)
            except Empty:
                continue
            except OSError:
                self.connected = False  # whoever reads closes it
