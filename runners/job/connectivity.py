"""Can every host reach the first rank's, where the rendezvous will be served?

Runs on the hosts: standard library only. The first rank's host listens for a moment, the others connect and hang up.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from typing import cast

from plink.remote.addresses import family_of

_CONNECT_S = 5.0
_MOST_AT_ONCE = 4096  # kernels cut it to net.core.somaxconn: 128 before Linux 5.4
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close without waiting, and without TIME_WAIT


class _Door(socket.socket):
    """Takes all who come, in a thread of its own, until it is closed; says nothing and hangs up after the other."""

    def open(self) -> None:
        """Listen, and take those who come."""
        self.listen(_MOST_AT_ONCE)
        self.setblocking(False)
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, daemon=True, name="plink-door")
        self._thread.start()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            ready: list[socket.socket] = []
            while self._woken not in ready:
                for sock in ready:
                    if sock is self:
                        self._take(selector)
                    elif _gone(sock):
                        selector.unregister(sock)
                        sock.close()
                ready = [cast("socket.socket", key.fileobj) for key, _ in selector.select()]
            for key in list(selector.get_map().values()):
                if key.fileobj not in (self, self._woken):
                    cast("socket.socket", key.fileobj).close()

    def _take(self, selector: selectors.BaseSelector) -> None:
        with contextlib.suppress(OSError):  # who has gone again before
            guest, _ = self.accept()
            guest.setblocking(False)
            # Who hangs up first keeps the port for a while: never this side, even where the other has not yet.
            guest.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            selector.register(guest, selectors.EVENT_READ)

    def close(self) -> None:
        """Take nobody any more."""
        if hasattr(self, "_thread"):
            self._wake.close()
            self._thread.join()
            self._woken.close()
        super().close()


def _gone(guest: socket.socket) -> bool:
    try:
        return not guest.recv(1 << 12)
    except BlockingIOError:
        return False
    except OSError:
        return True


def listening(address: str, port: int) -> socket.socket:
    """A socket that takes everyone who connects, until it is closed, which leaves the port free.

    :raises OSError: when the port cannot be had.
    """
    server = _Door(family_of(address), socket.SOCK_STREAM)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, port))
        server.open()
    except OSError:
        server.close()
        raise
    return server


def reached(address: str, port: int) -> str | None:
    """None when the port answers, else why not."""
    try:
        # Who hangs up first keeps the port for a while (TIME_WAIT, RFC 9293 3.6.1): this side.
        socket.create_connection((address, port), timeout=_CONNECT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None
