"""Channel between the agent and its rank, on which the rank and the launcher exchange lines while the job runs.

Runs on the hosts: standard library only. A local socket with an abstract, random name: the name in the environment
is enough, also through a shell or a wrapper that closes descriptors.
"""

from __future__ import annotations

import contextlib
import secrets
import select
import socket

from plink.transport.stdio_channel import LineBuffer, is_own_user

VARIABLE = "PLINK_LINE"
_READ = 1 << 16
_MAX_LINE_BYTES = 12 << 20  # less than an agent and its controller accept
_BACKLOG = 8


class RankChannel:
    """Listener for one rank; not thread-safe. Disconnects clients of other users but root."""

    def __init__(self) -> None:
        self.name = f"plink-line-{secrets.token_hex(16)}"
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(f"\0{self.name}")
        self._server.listen(_BACKLOG)
        self._server.setblocking(False)
        self._ready = select.epoll()
        self._ready.register(self._server, select.EPOLLIN)
        self._peer: socket.socket | None = None
        self._buffer, self._outgoing = LineBuffer(), bytearray()

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when there is something for :meth:`poll` to do."""
        return self._ready.fileno()

    def poll(self) -> list[str]:
        """Accept, write and read without waiting; return the lines that came."""
        self._accept()
        if self._peer is None:
            return []
        self._flush()
        return self._read()

    def send(self, text: str) -> None:
        """Queue one line until the rank connects and reads it; lines that it never reads are lost."""
        if len(self._outgoing) + len(text) < _MAX_LINE_BYTES:
            self._outgoing += text.encode() + b"\n"

    def close(self) -> None:
        """Disconnect and stop listening."""
        for sock in (self._peer, self._server):
            if sock is not None:
                sock.close()
        self._ready.close()
        self._peer = None

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            peer, _ = self._server.accept()
            if not is_own_user(peer):
                peer.close()
                return
            peer.setblocking(False)
            if self._peer is not None:  # a script that restarted itself; a child of it may hold the old connection
                self._disconnect()
            self._peer = peer
            self._ready.register(peer, select.EPOLLIN)
            self._buffer.clear()

    def _flush(self) -> None:
        while self._outgoing and self._peer is not None:
            try:
                del self._outgoing[: self._peer.send(self._outgoing[:_READ])]
            except BlockingIOError:
                return
            except OSError:
                self._disconnect()

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
            if not data or len(self._buffer) > _MAX_LINE_BYTES:
                self._disconnect()
        return [line.decode("utf-8", "replace") for line in lines]

    def _disconnect(self) -> None:
        assert self._peer is not None
        self._peer.close()
        self._peer = None
        self._outgoing.clear()
