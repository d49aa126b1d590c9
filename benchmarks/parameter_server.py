"""The parameter server on loopback: 16 MB pushed and pulled, small reads, and what the bytes cost on plain sockets,
under TLS, and in the sealed records that it uses. Server and client are processes of their own."""

import multiprocessing
import os
import platform
import socket
import ssl
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.record import Bar, record
from plink.elastic import Table
from plink.model.consistency import BSP
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.server import Server
from plink.runtime.elastic.transport.connection import StoreConfig
from plink.runtime.elastic.transport.keys import RunKeys
from plink.runtime.elastic.transport.records import Channel, ConnectionLost
from plink.runtime.elastic.worker.client import Client
from plink.runtime.elastic.worker.primaries import MAX_CONNECTIONS, PrimaryAddress

_BYTES = 16 << 20
_ROWS, _WIDTH = 4096, 1024  # of float32: 16 MB
_REPEATS, _WARM = 20, 5
_READS = 1000
_PARTITIONS = 1, 4
_CIPHERS = {"tls 1.3, aes-256-gcm": None, "tls 1.2, aes-128-gcm": "ECDHE-ECDSA-AES128-GCM-SHA256"}


class _Stream:
    """A socket, plain or under TLS, as a channel."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def send(self, buffers: Sequence[memoryview]) -> None:
        for buffer in buffers:
            self._sock.sendall(buffer)

    def receive_into(self, view: memoryview) -> None:
        done = 0
        while done < view.nbytes:
            got = self._sock.recv_into(view[done:])
            if not got:
                raise ConnectionLost("closed")
            done += got

    def close(self) -> None:
        self._sock.close()


def _handshake(way: str, keys: RunKeys, sock: socket.socket, accepted: bool) -> Channel:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if way == "sealed records":
        return keys.accept(sock) if accepted else keys.connect(sock)
    if way == "plain":
        return _Stream(sock)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if accepted else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_REQUIRED
    if _CIPHERS[way]:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(str(_CIPHERS[way]))
    with tempfile.NamedTemporaryFile() as file:
        file.write(keys.pem)
        file.flush()
        context.load_cert_chain(file.name)
        context.load_verify_locations(file.name)
    return _Stream(context.wrap_socket(sock, server_side=accepted))


def _echo(pipe: Connection, way: str, pem: bytes) -> None:
    """Say back what comes: its length first, 8 bytes."""
    keys = RunKeys(pem)
    listening = socket.create_server(("127.0.0.1", 0))
    pipe.send(listening.getsockname()[1])
    content, length = memoryview(bytearray(_BYTES)), memoryview(bytearray(8))

    def serve(sock: socket.socket) -> None:
        channel = _handshake(way, keys, sock, True)
        while True:
            channel.receive_into(length)
            part = content[: int.from_bytes(length, "big")]
            channel.receive_into(part)
            channel.send([part])

    while True:
        threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()


def _store(pipe: Connection, partitions: int, pem: bytes) -> None:
    """A server of one worker's parameters, until the process ends."""
    server = Server(StoreConfig(_layout(partitions), RunKeys(pem), BSP()))
    for partition in range(partitions):
        server.open(partition, {0: 0})
    pipe.send(server.address)
    time.sleep(3600)


def _layout(partitions: int) -> Layout:
    return Layout((Table("parameters", _ROWS, _WIDTH),), partitions)


@contextmanager
def _child(target: Callable[..., None], *arguments: Any) -> Iterator[Any]:
    """Yield what a process says first; it is killed at the end."""
    spawning = multiprocessing.get_context("spawn")
    here, there = spawning.Pipe()
    process = spawning.Process(target=target, args=(there, *arguments), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        process.kill()
        process.join()


def _timed(work: Callable[[], object], repeats: int, warm: int) -> list[float]:
    samples = []
    for _ in range(warm + repeats):
        begun = time.perf_counter()
        work()
        samples.append(time.perf_counter() - begun)
    return samples[warm:]


def _figures(both: Sequence[float], small: Sequence[float]) -> dict[str, Any]:
    return {
        "push_and_pull_GBps": 2 * _BYTES / statistics.median(both) / 1e9,
        "push_and_pull_best_GBps": 2 * _BYTES / min(both) / 1e9,
        "small_us": statistics.median(small) * 1e6,
        "push_and_pull_s": list(both),
    }


def _transport(way: str, keys: RunKeys) -> dict[str, Any]:
    """16 MB there and then back, and 64 bytes, without a parameter server."""
    content = memoryview(bytearray(_BYTES))
    with _child(_echo, way, keys.pem) as port:
        channel = _handshake(way, keys, socket.create_connection(("127.0.0.1", port)), False)

        def talk(part: memoryview) -> None:
            channel.send([memoryview(part.nbytes.to_bytes(8, "big")), part])
            channel.receive_into(part)

        both = _timed(lambda: talk(content), _REPEATS, _WARM)
        small = _timed(lambda: talk(content[:64]), _READS, _WARM)
        channel.close()
    return _figures(both, small)


def _parameters(partitions: int, keys: RunKeys) -> dict[str, Any]:
    """Return an update of all rows, the clock, and a read of all rows; and reads of one row."""
    rows, ones = np.arange(_ROWS), np.ones((_ROWS, _WIDTH), dtype=np.float32)
    with _child(_store, partitions, keys.pem) as address:
        primaries = {partition: PrimaryAddress(address) for partition in range(partitions)}
        client = Client(StoreConfig(_layout(partitions), keys, BSP()), 0, primaries)

        def push_and_pull() -> None:
            client.update("parameters", rows, ones)
            client.push()
            values = client.read("parameters", rows)
            assert values[0, 0] == values[-1, -1] == client.now

        both = _timed(push_and_pull, _REPEATS, _WARM)
        client.push()  # so that nothing of the rows is kept
        next_row = iter(range(_ROWS))
        small = _timed(lambda: client.read("parameters", [next(next_row)]), _READS, _WARM)
        client.close()
    return _figures(both, small)


def main() -> int:
    """Measure and record."""
    keys = RunKeys.make()
    transports = {way: _transport(way, keys) for way in ("plain", *_CIPHERS, "sealed records")}
    stores = {str(partitions): _parameters(partitions, keys) for partitions in _PARTITIONS}
    best = max(stores.values(), key=lambda row: float(row["push_and_pull_GBps"]))
    bars = [
        Bar("one server, 16 MB push and pull, GB/s of what moves", best["push_and_pull_GBps"], at_least=1.0),
        Bar("small read at the median, us", max(row["small_us"] for row in stores.values()), at_most=300.0),
    ]
    configuration = {
        "bytes": _BYTES, "rows": _ROWS, "width": _WIDTH, "connections": MAX_CONNECTIONS,
        "repeats": _REPEATS, "reads": _READS,
        "openssl of ssl": ssl.OPENSSL_VERSION, "processor": platform.processor() or platform.machine(),
        "load at the end": os.getloadavg(),
    }  # fmt: skip
    return record("parameter-server", configuration, {"transports": transports, "partitions": stores}, bars)


if __name__ == "__main__":
    raise SystemExit(main())
