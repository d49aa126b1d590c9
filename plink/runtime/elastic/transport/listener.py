"""Connections to a server: a thread for each, which reads and writes and opens seals."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable

from plink.errors import PlinkError
from plink.runtime.elastic.transport.connection import Connection
from plink.runtime.elastic.transport.messages import Answer, Message
from plink.runtime.elastic.transport.records import ConnectionLost, SealedChannel
from plink.runtime.elastic.transport.store_config import StoreConfig
from plink.runtime.elastic.transport.wire import receive, send

Connections = dict[str, Connection]  # that one connection's messages are sent on over, by address

_MAX_HANDSHAKES = 64  # strangers at a time
_BACKLOG = 512
_ACCEPT_RETRY_S = 0.05  # before the next connection is accepted, when one could not be
_USER_TIMEOUT_MS = 30_000  # a peer that takes nothing for so long is gone


class Listener:
    """Listening socket of a server, with a thread for each connection.

    :param host: the address to listen on, at any port that is free.
    :param answer: to a message, with the connections of its connection.
    :param timeout_s: for handshakes.
    :param refused: is called with the address and the reason of a refused connection; from any thread.
    :raises OSError: the address cannot be had.
    """

    def __init__(
        self, config: StoreConfig, host: str, timeout_s: float, answer: Callable[[Message, Connections], Answer],
        refused: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._layout, self._keys, self._timeout_s, self._answer = config.layout, config.keys, timeout_s, answer
        self._channels: set[SealedChannel] = set()
        self._handshakes = threading.BoundedSemaphore(_MAX_HANDSHAKES)
        self._refused, self.closed = refused, False
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, 0), family=family, backlog=_BACKLOG)
        self.address = f"[{host}]" if ":" in host else host
        self.address += f":{self._listening.getsockname()[1]}"

    def start(self) -> None:
        """Accept connections."""
        threading.Thread(target=self._accept, name="plink-parameter-server", daemon=True).start()

    def stop_accepting(self) -> None:
        """Accept no more."""
        self.closed = True
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def close(self) -> None:
        """End all connections."""
        for channel in list(self._channels):
            channel.close()

    def _accept(self) -> None:
        while True:
            self._handshakes.acquire()
            sock: socket.socket | None = None
            try:
                sock, peer = self._listening.accept()
                threading.Thread(target=self._serve, args=(sock, f"{peer[0]}:{peer[1]}"), daemon=True).start()
            except (OSError, RuntimeError, MemoryError) as error:  # no files or threads are left, or the peer has gone
                self._handshakes.release()
                if sock is not None:
                    sock.close()
                if self.closed:
                    return
                self._refuse("listening", error)
                time.sleep(_ACCEPT_RETRY_S)

    def _serve(self, sock: socket.socket, peer: str) -> None:
        """Serve one connection, to its end."""
        try:
            try:
                sock.settimeout(self._timeout_s)
                channel = self._keys.accept(sock)
            finally:
                self._handshakes.release()
            channel.socket.settimeout(None)
            channel.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            channel.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
        except (PlinkError, OSError) as error:
            self._refuse(peer, error)
            return
        self._channels.add(channel)
        connections: Connections = {}
        try:
            while not self.closed:
                message, ticket = receive(channel, self._layout)
                send(channel, self._answer(message, connections), self._layout, ticket)
        except ConnectionLost:
            pass  # clients come and go
        except PlinkError as error:
            self._refuse(peer, error)
        finally:
            self._channels.discard(channel)
            channel.close()
            for connection in connections.values():
                connection.close()

    def _refuse(self, peer: str, error: Exception) -> None:
        self._refused(f"{peer}: {error}")
