"""JSON lines: one message (an object) a line, decoded from bytes as they arrive.

Runs on the hosts too: standard library only.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import Any


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

    def __init__(self, data: bytes = b"") -> None:
        self._rest = bytearray(data)

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
