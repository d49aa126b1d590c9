"""Messages between workers of two hosts, over the connections of real servers."""

import socket
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from plink.elastic import App, Params, Rebalance, StoppingCriterion, Table
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.arrays.row_blocks import RowBlock
from plink.runtime.elastic.helping import messages as m
from plink.runtime.elastic.helping.help_network import HelpNetwork
from plink.runtime.elastic.helping.host_rebalancing import HostRebalancing
from plink.runtime.elastic.transport.messages import Help, HelpResult, Status
from plink.runtime.elastic.worker.clock_work import ClockWork, LoadedShards
from tests.runtime.elastic.stores import PATIENCE_S, Store, store, wait_for

LAYOUT = Layout((Table("a", 6, 2),), 2)


class Noted:
    """A worker that notes what it gets."""

    def __init__(self) -> None:
        self.messages: list[m.HelpMessage] = []
        self.parts: list[tuple[int, int, tuple[int, int], int, float]] = []
        self.unreachable: list[int] = []

    def received(self, message: m.HelpMessage) -> None:
        self.messages.append(message)

    def result_part(self, part: HelpResult) -> None:
        self.parts.append(
            (part.helper, part.id, (part.clock, part.generation), part.partition, float(part.blocks[0].values.sum()))
        )

    def lost(self, worker: int) -> None:
        self.unreachable.append(worker)


@pytest.fixture
def made() -> Iterator[Store]:
    with store(LAYOUT, servers=3) as made:
        yield made


@pytest.fixture
def ends(made: Store) -> Iterator[tuple[HelpNetwork, HelpNetwork, Noted, Noted]]:
    """Worker 0 at the first server, worker 1 at the second; nobody helps at the third, worker 2's."""
    networks, workers = [HelpNetwork(made.config) for _ in range(2)], [Noted(), Noted()]
    for number, network in enumerate(networks):
        made.servers[number].help = network.answer
        network.join(number, workers[number])
        network.set_addresses({each: server.address for each, server in enumerate(made.servers)})
    yield networks[0], networks[1], workers[0], workers[1]
    for network in networks:
        network.close()


def test_messages_are_in_order_and_results_precede_completion(
    ends: tuple[HelpNetwork, HelpNetwork, Noted, Noted],
) -> None:
    first, _, _, receiver = ends
    first.send(1, m.HelpBegun(0, 7))
    blocks = {
        partition: (RowBlock(0, range(3), np.full((3, 2), partition + 1.0, dtype=np.float32)),) for partition in (0, 1)
    }
    completed = m.HelpCompleted(0, 7, 2, 9, ((2, 0),), ((0.5, 1.0),))
    first.send(1, completed, blocks)
    wait_for(lambda: len(receiver.messages) == 2)
    assert receiver.messages == [m.HelpBegun(0, 7), completed]
    assert receiver.parts == [(0, 7, (9, 2), 0, 6.0), (0, 7, (9, 2), 1, 12.0)]


def test_unreachable_workers_are_lost_and_others_are_not(
    made: Store, ends: tuple[HelpNetwork, HelpNetwork, Noted, Noted]
) -> None:
    """A server without helping, a worker that is elsewhere, an address that nobody has, and a port that is closed."""
    first, _, sender, receiver = ends
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    addresses = {each: server.address for each, server in enumerate(made.servers)}
    first.set_addresses({**addresses, 3: f"127.0.0.1:{port}", 4: addresses[1]})
    for worker in (2, 3, 4, 5):
        first.send(worker, m.HelpBegun(0, 1))
    wait_for(lambda: set(sender.unreachable) == {2, 3, 4, 5})
    first.send(1, m.HelpBegun(0, 1))
    wait_for(lambda: receiver.messages)
    assert set(sender.unreachable) == {2, 3, 4, 5}


def test_invalid_message_is_refused(made: Store, ends: tuple[HelpNetwork, HelpNetwork, Noted, Noted]) -> None:
    connection = made.servers[0].connection(made.servers[1].address)
    for text in ("", "{}", '{"type": "begun", "sender": 0}'):
        assert connection.ask(Help(0, worker=1, text=text)).status is Status.REFUSED
    assert ends[3].messages == []
    connection.close()


def test_a_worker_that_has_left_receives_nothing(ends: tuple[HelpNetwork, HelpNetwork, Noted, Noted]) -> None:
    first, second, sender, receiver = ends
    second.leave(1, receiver)
    first.send(1, m.HelpBegun(0, 1))
    wait_for(lambda: sender.unreachable == [1])
    assert receiver.messages == []


class Blocked(App[int]):
    """Its work begins, and then waits."""

    tables, shards, batches, stop = (Table("a", 6, 2),), 2, 1, StoppingCriterion(clocks=3)

    def __init__(self) -> None:
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def load(self, shard: int) -> Sequence[int]:
        return [shard]

    def process(self, items: int, params: Params) -> None:
        self.begun.set()
        self.goes_on.wait(PATIENCE_S)


def test_helper_drops_the_request_of_a_worker_that_changed_hosts(made: Store) -> None:
    """Worker 0 starts again on the third host, while worker 1 on the second does a part of its clock."""
    app, receiver = Blocked(), Noted()
    made.open(2)
    loaded = LoadedShards[int](app)
    addresses = {number: server.address for number, server in enumerate(made.servers)}
    rebalancing = HostRebalancing(loaded, made.servers[1], Rebalance(), [].append)
    third = HelpNetwork(made.config)
    made.servers[2].help = third.answer
    third.join(0, receiver)
    try:
        rebalancing.assign({0: (0, (0,), 0), 1: (1, (1,), 0)}, addresses)
        work_off, client = rebalancing.start(1, made.primaries), made.client(1)
        work_off(ClockWork(loaded, client, {}), client)  # worker 1 has no work, and helps
        loaded.ahead([0])
        connection = made.servers[0].connection(made.servers[1].address)
        request = m.encode(m.HelpRequest(0, 7, 0, 0, -1, ((0, 0),)))
        assert connection.ask(Help(0, worker=1, text=request)).status is Status.OK
        connection.close()
        assert app.begun.wait(PATIENCE_S)
        rebalancing.assign({0: (2, (0,), 0), 1: (1, (1,), 0)}, addresses)
        wait_for(lambda: m.HelpRefused(1, 7) in receiver.messages)
    finally:
        app.goes_on.set()
        rebalancing.close()
        third.close()
    assert receiver.parts == []
