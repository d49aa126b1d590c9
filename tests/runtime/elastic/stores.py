"""Servers and workers of one run on loopback: real sockets, real threads."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from plink.elastic import Values
from plink.model.consistency import BSP, Rule
from plink.model.divergence import DivergenceBound
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.server import Server
from plink.runtime.elastic.transport.connection import StoreConfig
from plink.runtime.elastic.transport.keys import RunKeys
from plink.runtime.elastic.worker.client import Client
from plink.runtime.elastic.worker.primaries import PrimaryAddress, Timeouts

KEYS = RunKeys.make()
PATIENCE_S = 20.0  # of servers and clients with each other
HANGS_S = 300.0  # whatever the machine does meanwhile: what takes longer hangs
NO_LIMIT = 10**9  # a clock that no test comes to
PATIENT = Timeouts(PATIENCE_S, PATIENCE_S)


class Store:
    """Servers, and the clients made for them; ``primaries`` says who has which partition at the start."""

    def __init__(self, layout: Layout, rule: Rule, servers: int, divergence: DivergenceBound | None = None) -> None:
        self.layout, self.config = layout, StoreConfig(layout, KEYS, rule, divergence)
        self.refused: list[str] = []
        self.servers = [
            Server(self.config, read_wait_s=0.2, timeout_s=PATIENCE_S, refused=self.refused.append)
            for _ in range(servers)
        ]
        for server in self.servers:
            server.replicate_up_to(NO_LIMIT)
        self.primaries: dict[int, PrimaryAddress] = {}
        self.clients: list[Client] = []

    def open(self, workers: int, *, servers: int | None = None, history: bool = False) -> None:
        """Partitions in turns over the servers, or the first so many of them."""
        for partition in range(self.layout.partitions):
            server = self.servers[partition % (servers or len(self.servers))]
            server.open(partition, dict.fromkeys(range(workers), 0), history=history)
            self.primaries[partition] = PrimaryAddress(server.address)

    def client(self, worker: int, clock: int = 0, generation: int = 0, timeouts: Timeouts = PATIENT) -> Client:
        """For one worker, in time patient unless told otherwise."""
        client = Client(self.config, worker, self.primaries, clock=clock, generation=generation, timeouts=timeouts)
        self.clients.append(client)
        return client

    def holding(self, partition: int) -> Server:
        """The server that serves a partition now."""
        (result,) = (
            server
            for server in self.servers
            if not server.closed
            for status in server.status()
            if status.partition == partition and status.role == "serving"
        )
        return result

    def state(self, table: int = 0) -> Values:
        """The consistent state of a table, put together from the servers, shape (rows, width)."""
        shape = self.layout.tables[table]
        result = np.zeros((shape.rows, shape.width), dtype=shape.dtype)
        for partition in range(self.layout.partitions):
            result[partition :: self.layout.partitions] = (
                self.holding(partition).actor(partition).partition.values[table]
            )
        return result

    def close(self) -> None:
        """Clients first."""
        for client in self.clients:
            client.close()
        for server in self.servers:
            server.close()


def hand_over(server: Server, partition: int, address: str, term: int) -> None:
    """Both steps of a move; the new primary goes on with the replica."""
    (status,) = (status for status in server.status() if status.partition == partition)
    replica = next((item for item in status.replicas if item != address), "")
    server.prepare(partition, address, term, replica=replica)
    server.commit(partition, term)


@contextmanager
def store(
    layout: Layout, rule: Rule | None = None, servers: int = 1, divergence: DivergenceBound | None = None
) -> Iterator[Store]:
    """Closed at the end, whatever happened."""
    made = Store(layout, rule or BSP(), servers, divergence)
    try:
        yield made
    finally:
        made.close()


def together(*work: Callable[[], object]) -> list[object]:
    """Results of functions run at the same time, a thread each; the exception raised first is raised again."""
    results: list[object] = [None] * len(work)
    errors: list[BaseException] = []

    def run(place: int) -> None:
        try:
            results[place] = work[place]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANGS_S)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]
    return results


def wait_for(true: Callable[[], object]) -> None:
    """Until it is."""
    end = time.monotonic() + HANGS_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)
