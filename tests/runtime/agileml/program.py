"""A server or a worker in a process of its own: ``python -m tests.runtime.agileml.program``, told by JSON on stdin.

A server says its address and serves until it is killed; a worker adds counts, says every clock, and at the end the sum.
"""

import json
import sys
import time
from typing import Any

import numpy as np

from plink.errors import PlinkError
from plink.runtime.agileml.client import Client, Ownership
from plink.runtime.agileml.keys import RunKeys
from plink.runtime.agileml.layout import Layout, Table
from plink.runtime.agileml.rules import BSP
from plink.runtime.agileml.server import Server

LAYOUT = Layout((Table("n", 1000, 4, "int64"),), 4)


def say(**what: Any) -> None:
    """One line of JSON."""
    print(json.dumps(what), flush=True)


def serve(asked: dict[str, Any], keys: RunKeys) -> None:
    """Until killed."""
    server = Server(LAYOUT, keys, BSP())
    for partition in asked["partitions"]:
        server.open(partition, dict.fromkeys(range(asked["workers"]), 0))
    say(address=server.address)
    while True:
        time.sleep(1)


def work(asked: dict[str, Any], keys: RunKeys) -> None:
    """The same addition at every clock."""
    owners = {partition: Ownership(address) for partition, address in enumerate(asked["owners"])}
    client = Client(LAYOUT, keys, BSP(), asked["worker"], owners, timeout_s=asked["timeout_s"])
    rows = np.arange(asked["worker"], 1000, 3)
    try:
        for clock in range(asked["clocks"]):
            client.read("n", rows[:9])
            client.update("n", rows, np.full((len(rows), 4), asked["worker"] + 1))
            client.clock()
            say(clock=clock)
        say(sum=int(client.read("n", range(1000)).sum()))
    except PlinkError as error:
        say(error=str(error), kind=type(error).__name__)


if __name__ == "__main__":
    told = json.load(sys.stdin)
    (serve if told["what"] == "server" else work)(told, RunKeys(told["keys"].encode()))
