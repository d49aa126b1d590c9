"""Connectivity check before a job: can every host reach rank 0's, where the rendezvous will be served?

Runs on the hosts: standard library only. Rank 0's host listens for a moment, the others connect and disconnect.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from typing import cast

from plink.transport.addresses import family_of

_CONNECT_TIMEOUT_S = 5.0
_BACKLOG = 4096  # kernels cut it to net.core.somaxconn: 128 before Linux 5.4
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close without waiting, and without TIME_WAIT


class _Listener(socket.socket):
    """Listener with a thread that accepts all clients until it is closed; it sends nothing and disconnects last."""

    def open(self) -> None:
        """Listen, and accept clients."""
        self.listen(_BACKLOG)
        self.setblocking(False)
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, daemon=True, name="plink-listener")
        self._thread.start()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            ready: list[socket.socket] = []
            while self._woken not in ready:
                for sock in ready:
                    if sock is self:
                        self._accept_client(selector)
                    elif _has_disconnected(sock):
                        selector.unregister(sock)
                        sock.close()
                ready = [cast("socket.socket", key.fileobj) for key, _ in selector.select()]
            for key in list(selector.get_map().values()):
                if key.fileobj not in (self, self._woken):
                    cast("socket.socket", key.fileobj).close()

    def _accept_client(self, selector: selectors.BaseSelector) -> None:
        with contextlib.suppress(OSError):  # it has disconnected again
            client, _ = self.accept()
            client.setblocking(False)
            # Whoever disconnects first keeps the port for a while: never this side, even if the client stays.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            selector.register(client, selectors.EVENT_READ)

    def close(self) -> None:
        """Stop listening."""
        if hasattr(self, "_thread"):
            self._wake.close()
            self._thread.join()
            self._woken.close()
        super().close()


def _has_disconnected(client: socket.socket) -> bool:
    try:
        return not client.recv(1 << 12)
    except BlockingIOError:
        return False
    except OSError:
        return True


def open_listener(address: str, port: int) -> socket.socket:
    """Return a socket that accepts all clients until it is closed; the port is free then.

    :raises OSError: when the port cannot be used.
    """
    server = _Listener(family_of(address), socket.SOCK_STREAM)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, port))
        server.open()
    except OSError:
        server.close()
        raise
    return server


def connection_error(address: str, port: int) -> str | None:
    """Return why a port cannot be reached, None if it can."""
    try:
        # Whoever disconnects first keeps the port for a while (TIME_WAIT, RFC 9293 3.6.1): this side.
        socket.create_connection((address, port), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None
