"""The agent's end of a line to its rank, on which the rank and the launcher exchange lines of text while the job runs.

Runs on the hosts: standard library only. A local socket with an abstract, random name: whatever a script puts between
itself and the rank (a shell, a wrapper in Python that closes descriptors), the name in the environment is enough.
"""

from __future__ import annotations

import contextlib
import secrets
import select
import socket

from plink.remote.json_lines import LineBuffer, is_own_user

VARIABLE = "PLINK_LINE"
_READ = 1 << 16
_MOST_BYTES = 12 << 20  # of a line: less than what an agent and its controller take
_CALLS = 8


class RankChannel:
    """Listens for one rank; not thread-safe. Others than the agent's own user, or root, are hung up on."""

    def __init__(self) -> None:
        self.name = f"plink-line-{secrets.token_hex(16)}"
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(f"\0{self.name}")
        self._server.listen(_CALLS)
        self._server.setblocking(False)
        self._ready = select.epoll()
        self._ready.register(self._server, select.EPOLLIN)
        self._peer: socket.socket | None = None
        self._buffer, self._waiting = LineBuffer(), bytearray()

    def fileno(self) -> int:
        """The descriptor that becomes readable when there is something for :meth:`turn` to do."""
        return self._ready.fileno()

    def turn(self) -> list[str]:
        """Do what can be done without waiting: answer a call, write what waits, read; the lines that came."""
        self._answer()
        if self._peer is None:
            return []
        self._flush()
        return self._read()

    def send(self, text: str) -> None:
        """One line, kept until the rank calls and reads; those that it never reads are lost with it."""
        if len(self._waiting) + len(text) < _MOST_BYTES:
            self._waiting += text.encode() + b"\n"

    def close(self) -> None:
        """Hang up."""
        for sock in (self._peer, self._server):
            if sock is not None:
                sock.close()
        self._ready.close()
        self._peer = None

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            peer, _ = self._server.accept()
            if not is_own_user(peer):
                peer.close()
                return
            peer.setblocking(False)
            if self._peer is not None:  # a script that started itself anew; a child of its may hold the old line
                self._hang_up()
            self._peer = peer
            self._ready.register(peer, select.EPOLLIN)
            self._buffer.clear()

    def _flush(self) -> None:
        while self._waiting and self._peer is not None:
            try:
                del self._waiting[: self._peer.send(self._waiting[:_READ])]
            except BlockingIOError:
                return
            except OSError:
                self._hang_up()

    def _read(self) -> list[str]:
        lines: list[bytes] = []
        while self._peer is not None:
            try:
                data = self._peer.recv(_READ)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            lines += self._buffer.lines(data)
            if not data or len(self._buffer) > _MOST_BYTES:
                self._hang_up()
        return [line.decode("utf-8", "replace") for line in lines]

    def _hang_up(self) -> None:
        assert self._peer is not None
        self._peer.close()
        self._peer = None
        self._waiting.clear()
