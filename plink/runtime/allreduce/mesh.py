"""Full mesh of connections between ranks: each listens for higher ranks, and connects to lower ones.

A client proves by a secret of the listening rank that it can read the group's store, where the secret is.
"""

import contextlib
import hmac
import os
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from torch.distributed import Store  # type: ignore[attr-defined]

from plink.runtime.allreduce.watchdog import Member, member_name
from plink.transport.hello_server import HelloServer

_SECRET_BYTES = 16
_GREETING = struct.Struct("<16sII")  # secret of the listening rank, rank of the client, channel
_CONNECT_TIMEOUT_S = 10.0  # for all ranks: they have just connected to each other over Gloo
_GREETING_TIMEOUT_S = 2.0
_MAX_CLIENTS = 64  # that have not sent their greeting, beside those that are expected


@dataclass(frozen=True)
class FullMesh:
    """Shape of a group's full mesh as rank ``rank`` sees it: ``channels`` connections for each pair of ranks.

    :ivar names: the job's number of every rank of the group, and names of its hubs, for errors.
    """

    rank: int
    names: Sequence[Member]
    channels: int


class CannotConnect(Exception):
    """A rank could not be reached."""


def connect_mesh(
    store: Store, mesh: FullMesh, addresses: Sequence[str], timeout_s: float
) -> dict[tuple[int, int], socket.socket]:
    """Connect to all other ranks, by rank and channel; every rank calls this at once.

    :param addresses: of this host, as the other ranks reach it. With several, on rails, channel k uses number k modulo
        how many there are, here and on the other ranks: the kernel's route to an address is by its rail.
    :raises CannotConnect: naming the rank that could not be reached, or has not connected.
    """
    rank, names, connections = mesh.rank, mesh.names, dict[tuple[int, int], socket.socket]()
    timeout_s = min(timeout_s, _CONNECT_TIMEOUT_S)
    secret = os.urandom(_SECRET_BYTES)
    listeners: list[socket.socket] = []
    acceptors: list[_Acceptor] = []
    threads: list[threading.Thread] = []
    expected_of: list[set[tuple[int, int]]] = []

    def stop() -> None:
        for acceptor in acceptors:
            acceptor.close()
        for thread in threads:
            thread.join()  # it adds no more connections
        for listener in listeners:
            listener.close()

    try:
        ports = []
        for number, address in enumerate(addresses):
            channels = range(number, mesh.channels, len(addresses))
            expected = {(peer, channel) for peer in range(rank + 1, len(names)) for channel in channels}
            listener = _listener(address, len(names) * len(channels))
            listeners.append(listener)
            ports.append(f"{address} {listener.getsockname()[1]}")
            acceptor = _Acceptor(listener, secret, expected, connections, timeout_s)
            acceptors.append(acceptor)
            expected_of.append(expected)
            threads.append(threading.Thread(target=acceptor.run, name="plink-mesh", daemon=True))
            threads[-1].start()
    except BaseException:
        decline(store, rank)
        stop()
        raise
    store.set(f"at{rank}", secret + ",".join(ports).encode())  # type: ignore[arg-type]
    try:
        for peer in range(rank):
            entry = store.get(f"at{peer}")
            for channel in range(mesh.channels):
                try:
                    own = addresses[channel % len(addresses)]
                    connections[peer, channel] = _connect(entry, rank, channel, own, timeout_s)
                except OSError as error:
                    raise CannotConnect(f"cannot connect to {member_name(names[peer])}: {error}") from error
        for thread in threads:
            thread.join(timeout_s)
        if missing := set[tuple[int, int]]().union(*expected_of):
            late, own = member_name(names[min(missing)[0]]), member_name(names[rank])
            raise CannotConnect(f"{late} has not connected to {own}")
    except BaseException:
        stop()
        for sock in connections.values():
            sock.close()
        raise
    stop()
    return connections


def _listener(address: str, backlog: int) -> socket.socket:
    """:raises CannotConnect: where no socket can listen there."""
    try:
        return socket.create_server(
            (address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET, backlog=backlog
        )
    except OSError as error:
        raise CannotConnect(f"cannot listen at {address}: {error}") from error


def decline(store: Store, rank: int) -> None:
    """Tell all ranks that this one cannot be connected to."""
    store.set(f"at{rank}", b"")  # type: ignore[arg-type]


def _connect(entry: bytes, rank: int, channel: int, address: str, timeout_s: float) -> socket.socket:
    places = entry[_SECRET_BYTES:].decode().split(",")
    host, _, port = places[channel % len(places)].rpartition(" ")
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
        self,
        listener: socket.socket,
        secret: bytes,
        expected: set[tuple[int, int]],
        connections: dict[tuple[int, int], socket.socket],
        timeout_s: float,
    ) -> None:
        self._listener, self._secret, self._expected, self._connections = listener, secret, expected, connections
        self._deadline, self._is_closed = time.monotonic() + timeout_s, False

    def close(self) -> None:
        """Accept no more clients."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes :meth:`run`

    def run(self) -> None:
        """Accept clients until done."""
        most = len(self._expected) + _MAX_CLIENTS
        server = HelloServer(
            self._listener, self._identify, _GREETING.size, _GREETING_TIMEOUT_S, are_lines=False, max_pending=most
        )
        try:
            while self._expected and not self._is_closed and (left_s := self._deadline - time.monotonic()) > 0:
                for _ in server.poll(left_s):
                    client, sender = server.take()
                    self._connections[sender] = client
        finally:
            server.close()

    def _identify(self, greeting: bytes) -> tuple[int, int] | None:
        secret, rank, channel = _GREETING.unpack(greeting)
        if not hmac.compare_digest(secret, self._secret) or (rank, channel) not in self._expected:
            return None
        self._expected.discard((rank, channel))
        return rank, channel
