"""A server or a worker in a process of its own, which tells the test over a pipe how it goes."""

import time
from multiprocessing.connection import Connection

import numpy as np

from plink.elastic import Table
from plink.errors import PlinkError
from plink.model.consistency import BSP
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.server import Server
from plink.runtime.elastic.transport.connection import StoreConfig
from plink.runtime.elastic.transport.keys import RunKeys
from plink.runtime.elastic.worker.client import Client
from plink.runtime.elastic.worker.primaries import PrimaryAddress, Timeouts

LAYOUT = Layout((Table("n", 1000, 4, "int64"),), 4)


def serve(pipe: Connection, keys: bytes, workers: int, partitions: list[int]) -> None:
    """Tell the address, then serve until killed."""
    server = Server(StoreConfig(LAYOUT, RunKeys(keys), BSP()))
    for partition in partitions:
        server.open(partition, dict.fromkeys(range(workers), 0))
    pipe.send(server.address)
    while True:
        time.sleep(1)


def work(pipe: Connection, keys: bytes, worker: int, addresses: list[str], clocks: int, timeout_s: float) -> None:
    """Add the same at every clock and tell each, then the sum of all or the error."""
    primaries = {partition: PrimaryAddress(address) for partition, address in enumerate(addresses)}
    client = Client(StoreConfig(LAYOUT, RunKeys(keys), BSP()), worker, primaries, timeouts=Timeouts(timeout_s))
    rows = np.arange(worker, 1000, 3)
    try:
        for clock in range(clocks):
            client.read("n", rows[:9])
            client.update("n", rows, np.full((len(rows), 4), worker + 1))
            client.push()
            pipe.send(clock)
        pipe.send({"sum": int(client.read("n", range(1000)).sum())})
    except PlinkError as error:
        pipe.send({"error": str(error), "kind": type(error).__name__})
