"""Servers and workers as processes of their own."""

import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plink.model.consistency import BSP
from plink.runtime.elastic.transport.connection import StoreConfig
from plink.runtime.elastic.worker.client import Client
from plink.runtime.elastic.worker.primaries import PrimaryAddress, Timeouts
from tests.runtime.elastic.program import LAYOUT, serve, work
from tests.runtime.elastic.stores import KEYS, PATIENCE_S, store, together, wait_for
from tests.runtime.ranks import RankProcess, Ranks

# Each starts several processes; one path of each kind is quick.
pytestmark = pytest.mark.extended

CONFIG = StoreConfig(LAYOUT, KEYS, BSP())
Started = tuple[RankProcess, Connection]


@pytest.fixture
def processes() -> Iterator[Ranks]:
    """Killed at the end."""
    with Ranks() as started:
        yield started


def start(processes: Ranks, function: Callable[..., None], *arguments: Any) -> Started:
    """Start one that sends what it has to tell."""
    mine, its = Pipe()
    with its:
        return processes.start(function, its, KEYS.pem, *arguments), mine


def next_of(started: Started) -> Any:
    """Receive the next that it tells."""
    assert started[1].poll(PATIENCE_S), "it sends nothing"
    return started[1].recv()


def servers(processes: Ranks) -> tuple[list[Started], list[str]]:
    """Two, with two partitions each, and the primary of each partition."""
    pair = [start(processes, serve, 3, each) for each in ([0, 2], [1, 3])]
    addresses = [next_of(server) for server in pair]
    return pair, [addresses[partition % 2] for partition in range(4)]


@pytest.mark.quick
def test_three_workers_and_two_servers_count_right(processes: Ranks) -> None:
    _, primaries = servers(processes)
    workers = [start(processes, work, worker, primaries, 20, 30) for worker in range(3)]
    total = sum(20 * 4 * (worker + 1) * len(range(worker, 1000, 3)) for worker in range(3))
    for worker in workers:
        assert [next_of(worker) for _ in range(21)] == [*range(20), {"sum": total}]


def test_a_server_killed_in_mid_run_is_a_clear_error(processes: Ranks) -> None:
    pair, primaries = servers(processes)
    workers = [start(processes, work, worker, primaries, 100_000, 5) for worker in range(3)]
    assert [next_of(worker) for worker in workers] == [0, 0, 0]
    pair[1][0].kill()
    for worker in workers:
        while isinstance(messages := next_of(worker), int):
            pass
        assert messages["kind"] == "Unanswered"
        assert f"at {primaries[1]}" in messages["error"]


def is_stopped(pid: int) -> bool:
    """Whether no thread of a process runs any more (proc(5))."""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


@pytest.mark.parametrize("met", [True, False])
def test_a_frozen_server_is_left_as_soon_as_another_is_named(met: bool, processes: Ranks) -> None:
    """It neither answers nor ends its connections; ``met``: it freezes in an exchange, or before the handshake."""
    frozen, other = (start(processes, serve, 1, [0, 1, 2, 3]) for _ in range(2))
    addresses = [next_of(server) for server in (frozen, other)]
    primaries = {partition: PrimaryAddress(addresses[0]) for partition in range(4)}
    with contextlib.closing(Client(CONFIG, 0, primaries, timeouts=Timeouts(PATIENCE_S / 4))) as client:
        if met:
            client.read("n", range(8))
        frozen[0].send_signal(signal.SIGSTOP)
        wait_for(lambda: is_stopped(frozen[0].pid))  # or it may answer the next read yet

        def name_another() -> None:
            wait_for(lambda: any(line._pending or line._ticket > 1 for line in client._connections.values()))
            for partition in range(4):
                client.set_primary(partition, PrimaryAddress(addresses[1], 1))

        result, _ = together(lambda: client.read("n", range(100)), name_another)
        assert isinstance(result, np.ndarray)
        assert result.shape == (100, 4)
        assert {address for address, _ in client._connections} == {addresses[1]}


@pytest.mark.quick
def test_handshake_with_a_dying_server_is_retried() -> None:
    """Or another that is there by then, at its address."""
    with store(LAYOUT) as run, socket.create_server(("127.0.0.1", 0)) as listening:
        run.open(1)
        primaries = {partition: PrimaryAddress(f"127.0.0.1:{listening.getsockname()[1]}") for partition in range(4)}
        with contextlib.closing(Client(CONFIG, 0, primaries, timeouts=Timeouts(PATIENCE_S))) as client:

            def die() -> None:
                sock = listening.accept()[0]
                sock.recv(10_000)
                sock.shutdown(socket.SHUT_WR)
                for partition in range(4):
                    client.set_primary(partition, PrimaryAddress(run.servers[0].address, 1))
                sock.close()

            result, _ = together(lambda: client.read("n", [0]), die)
            assert isinstance(result, np.ndarray)
            assert not result.any()
