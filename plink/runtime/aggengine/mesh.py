"""Full mesh of connections between ranks: each listens for higher ranks, and connects to lower ones.

A client proves by a secret of the listening rank that it can read the group's store, where the secret is.
"""

import contextlib
import hmac
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from torch.distributed import Store  # type: ignore[attr-defined]

_SECRET_BYTES = 16
_GREETING = struct.Struct("<16sII")  # secret of the listening rank, rank of the client, channel
_CONNECT_TIMEOUT_S = 10.0  # for all ranks: they have just connected to each other over Gloo
_GREETING_TIMEOUT_S = 2.0
_MAX_CLIENTS = 64  # that have not sent their greeting


@dataclass(frozen=True)
class FullMesh:
    """Shape of a group's full mesh as rank ``rank`` sees it: ``channels`` connections for each pair of ranks.

    :ivar names: the job's number of every rank of the group, for errors.
    """

    rank: int
    names: Sequence[int]
    channels: int


class CannotConnect(Exception):
    """A rank could not be reached."""


@dataclass(eq=False)
class _Client:
    """Client whose greeting is incomplete."""

    socket: socket.socket
    deadline: float
    data: bytes = b""


def connect_mesh(store: Store, mesh: FullMesh, address: str, timeout_s: float) -> dict[tuple[int, int], socket.socket]:
    """Connect to all other ranks, by rank and channel; every rank calls this at once.

    :param address: of this host, as the other ranks reach it.
    :raises CannotConnect: naming the rank that could not be reached, or has not connected.
    """
    rank, names, connections = mesh.rank, mesh.names, dict[tuple[int, int], socket.socket]()
    timeout_s = min(timeout_s, _CONNECT_TIMEOUT_S)
    secret = os.urandom(_SECRET_BYTES)
    try:
        listener = socket.create_server(
            (address, 0),
            family=socket.AF_INET6 if ":" in address else socket.AF_INET,
            backlog=len(names) * mesh.channels,
        )
    except OSError as error:
        decline(store, rank)
        raise CannotConnect(f"cannot listen at {address}: {error}") from error
    expected = {(peer, channel) for peer in range(rank + 1, len(names)) for channel in range(mesh.channels)}
    acceptor = _Acceptor(listener, secret, expected, connections, timeout_s)
    store.set(f"at{rank}", secret + f"{address} {listener.getsockname()[1]}".encode())  # type: ignore[arg-type]
    thread = threading.Thread(target=acceptor.run, name="plink-mesh", daemon=True)
    thread.start()
    try:
        for peer in range(rank):
            entry = store.get(f"at{peer}")
            for channel in range(mesh.channels):
                try:
                    connections[peer, channel] = _connect(entry, rank, channel, address, timeout_s)
                except OSError as error:
                    raise CannotConnect(f"cannot connect to rank {names[peer]}: {error}") from error
        thread.join(timeout_s)
        if expected:
            raise CannotConnect(f"rank {names[min(expected)[0]]} has not connected to rank {names[rank]}")
    except BaseException:
        acceptor.close()
        thread.join()  # it adds no more connections
        for sock in connections.values():
            sock.close()
        raise
    acceptor.close()
    thread.join()
    return connections


def decline(store: Store, rank: int) -> None:
    """Tell all ranks that this one cannot be connected to."""
    store.set(f"at{rank}", b"")  # type: ignore[arg-type]


def _connect(entry: bytes, rank: int, channel: int, address: str, timeout_s: float) -> socket.socket:
    host, _, port = entry[_SECRET_BYTES:].decode().rpartition(" ")
    if not port:
        raise OSError("it declined")
    sock = socket.create_connection((host, int(port)), timeout=timeout_s, source_address=(address, 0))
    try:
        sock.sendall(_GREETING.pack(entry[:_SECRET_BYTES], rank, channel))
    except OSError:
        sock.close()
        raise
    return sock


class _Acceptor:
    """Accepts clients concurrently until all expected ranks are connected or time is over. Others are closed."""

    def __init__(
        self, listener: socket.socket, secret: bytes, expected: set[tuple[int, int]],
        connections: dict[tuple[int, int], socket.socket], timeout_s: float,
    ) -> None:  # fmt: skip
        self._listener, self._secret, self._expected, self._connections = listener, secret, expected, connections
        self._deadline = time.monotonic() + timeout_s
        self._closing, self._close = socket.socketpair()

    def close(self) -> None:
        """Accept no more clients."""
        with contextlib.suppress(OSError):  # it is closed already
            self._close.close()

    def run(self) -> None:
        """Accept clients until done."""
        clients: dict[int, _Client] = {}
        with self._listener, self._closing:
            while self._expected and (now := time.monotonic()) < self._deadline:
                for fd in [fd for fd, client in clients.items() if client.deadline <= now]:
                    clients.pop(fd).socket.close()
                soonest = min([self._deadline, *(client.deadline for client in clients.values())])
                ready = _readable([self._closing, *self._listening_sockets(clients), *_sockets(clients)], soonest - now)
                if self._closing.fileno() in ready:
                    break
                if self._listener.fileno() in ready:
                    self._accept(clients)
                for fd in ready & clients.keys():
                    self._read(clients, fd)
            for client in clients.values():
                client.socket.close()

    def _listening_sockets(self, clients: dict[int, _Client]) -> list[socket.socket]:
        return [self._listener] if len(clients) < _MAX_CLIENTS else []

    def _accept(self, clients: dict[int, _Client]) -> None:
        with contextlib.suppress(OSError):  # it has closed already, or no descriptors are free
            sock, _ = self._listener.accept()
            sock.setblocking(False)
            clients[sock.fileno()] = _Client(sock, time.monotonic() + _GREETING_TIMEOUT_S)

    def _read(self, clients: dict[int, _Client], fd: int) -> None:
        client = clients[fd]
        try:
            more = client.socket.recv(_GREETING.size - len(client.data))
        except OSError:
            more = b""
        client.data += more
        if more and len(client.data) < _GREETING.size:
            return
        del clients[fd]
        secret, *sender = _GREETING.unpack(client.data) if len(client.data) == _GREETING.size else (b"", -1, -1)
        if hmac.compare_digest(secret, self._secret) and tuple(sender) in self._expected:
            self._connections[sender[0], sender[1]] = client.socket
            self._expected.discard((sender[0], sender[1]))
        else:
            client.socket.close()


def _sockets(clients: dict[int, _Client]) -> list[socket.socket]:
    return [client.socket for client in clients.values()]


def _readable(sockets: Sequence[socket.socket], timeout_s: float) -> set[int]:
    """Return the descriptors that are readable, or closed by the peer."""
    poll = select.poll()
    for sock in sockets:
        poll.register(sock, select.POLLIN)
    return {fd for fd, _ in poll.poll(max(timeout_s, 0.0) * 1e3)}
