"""JSON lines: messages taken from bytes as they arrive, one object a line.

Runs on the hosts too: standard library only.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import Any


def encode_line(message: dict[str, Any]) -> bytes:
    """A message as it travels."""
    return json.dumps(message).encode() + b"\n"


def decode_line(line: bytes) -> dict[str, Any] | None:
    """The message on a line; None for what is none."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


class LineBuffer:
    """Bytes of a line that has not ended yet."""

    def __init__(self, data: bytes = b"") -> None:
        self._rest = bytearray(data)

    def __len__(self) -> int:
        """Bytes that wait for the end of their line; the owner of a channel decides how many are too many."""
        return len(self._rest)

    def lines(self, data: bytes) -> list[bytes]:
        """The lines that these bytes complete, without their ends."""
        self._rest += data
        if b"\n" not in data:
            return []
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        return lines

    def messages(self, data: bytes) -> list[dict[str, Any]]:
        """The messages that these bytes complete; lines that hold none are skipped."""
        return [message for message in map(decode_line, self.lines(data)) if message is not None]

    def clear(self) -> None:
        """Forget a line that will not be completed."""
        self._rest.clear()


def is_own_user(peer: socket.socket) -> bool:
    """Whether the process at the other end of a local socket is of this process's user, or root (unix(7))."""
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return uid in (0, os.getuid())
