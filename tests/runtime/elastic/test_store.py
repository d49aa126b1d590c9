"""Servers and clients at work: sums, moves under load, roll-backs, losses."""

import threading
import time

import numpy as np
import pytest

from plink.elastic import Values
from plink.model.consistency import BSP, SSP
from plink.runtime.elastic.transport.connection import Connection
from plink.runtime.elastic.transport.messages import Message, Read
from plink.runtime.elastic.worker.client import Client
from plink.runtime.elastic.worker.primaries import PrimaryAddress, RolledBack, Timeouts, Unanswered
from tests.runtime.elastic.counting import CLOCKS, COUNTS, FLOATS, ROWS, WIDTH, count, counted, deltas
from tests.runtime.elastic.stores import PATIENCE_S, hand_over, store, together, wait_for


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """What clients have sent to servers."""
    result: list[Message] = []
    post = Connection.post

    def noted(self: Connection, message: Message) -> None:
        result.append(message)
        post(self, message)

    monkeypatch.setattr(Connection, "post", noted)
    return result


@pytest.mark.parametrize("workers", [1, 4])
def test_bsp_equals_one_after_the_other_to_the_bit(workers: int) -> None:
    """Every worker reads all, adds what depends on what it read, and sees exactly what a loop over workers gives."""

    def step(worker: int, clock: int, a: Values, b: Values) -> tuple[Values, Values]:
        generator = np.random.default_rng((worker, clock))
        return (
            (np.sin(a) + generator.standard_normal(a.shape)).astype(np.float32),
            np.cos(b) * generator.random(),
        )

    a, b = np.zeros((ROWS, WIDTH), np.float32), np.zeros((7, 1))
    history = [(a.copy(), b.copy())]
    for clock in range(10):
        steps = [step(worker, clock, a, b) for worker in range(workers)]
        a += sum((mine for mine, _ in steps[1:]), steps[0][0])  # by worker, summed before they are added
        b += sum((mine for _, mine in steps[1:]), steps[0][1])
        history.append((a.copy(), b.copy()))

    with store(FLOATS, BSP(), servers=2) as run:
        run.open(workers)

        def work(worker: int) -> None:
            client = run.client(worker)
            for clock in range(10):
                result = client.read("a", range(ROWS)), client.read("b", range(7))
                assert np.array_equal(result[0], history[clock][0])
                assert np.array_equal(result[1], history[clock][1])
                mine = step(worker, clock, *result)
                client.update("a", range(ROWS), mine[0])
                client.update("b", range(7), mine[1])
                client.push()

        together(*(lambda worker=worker: work(worker) for worker in range(workers)))
        assert np.array_equal(run.state(0), a)
        assert np.array_equal(run.state(1), b)


def test_own_additions_are_seen_before_they_are_sent_and_once() -> None:
    for rule in (BSP(), SSP(2)):
        with store(COUNTS, rule) as run:
            run.open(1)
            client = run.client(0)
            for clock in range(1, 5):
                assert (client.read("n", [3, 1, 3]) == (clock - 1) * np.array([[2], [1], [2]])).all()
                client.update("n", [3, 1, 3], np.ones((3, WIDTH), int))
                assert (client.read("n", [3, 1, 3]) == clock * np.array([[2], [1], [2]])).all()
                client.push()
            assert (run.client(0, clock=4).read("n", range(ROWS)).sum(axis=1) == WIDTH * run.state()[:, 0]).all()


@pytest.mark.parametrize("rule", [BSP(), SSP(1), SSP(3)])
def test_clock_that_reads_what_the_last_two_have_read_is_one_message(rule: BSP | SSP, requests: list[Message]) -> None:
    """Also where it reads two tables, which beside that cost a message each; what is read only now and then is not sent
    along. After a roll-back it asks as at the beginning."""
    with store(FLOATS, rule) as run:
        run.open(1, history=True)
        client, even = run.client(0), range(0, ROWS, 2)

        def clocks(number: int) -> list[int]:
            """Return how many READs each clock has sent."""
            result = []
            for _ in range(number):
                del requests[:]
                assert (client.read("a", even) == client.now).all()
                assert (client.read("b", range(7)) == client.now).all()
                if client.now == 6:
                    client.read("a", range(ROWS))
                client.update("a", even, np.ones((len(even), WIDTH)))
                client.update("b", range(7), np.ones((7, 1)))
                client.push()
                result.append(sum(isinstance(message, Read) for message in requests))
                rows = [len(part.rows) for message in requests for part in message.wanted if part.table == 0]
                assert sum(rows) <= (ROWS if client.now == 7 else 2 * len(even))
            return result

        each = 2 * FLOATS.partitions
        assert clocks(2)[0] == each
        assert clocks(7) == [0, 0, 0, 0, FLOATS.partitions, 0, 0]
        run.servers[0].roll_back(4, 1)
        client.roll_back(4, 1)
        assert clocks(3) == [each, FLOATS.partitions, 0]  # the second is clock 6 again


def test_client_says_how_long_it_waited_for_others() -> None:
    with store(COUNTS) as run:
        run.open(2)
        first, second = (run.client(worker) for worker in range(2))
        first.push()
        before = first.waited_s

        def late() -> None:
            time.sleep(0.3)
            second.push()

        together(late, lambda: first.read("n", [0]))
        assert 0.25 < first.waited_s - before < PATIENCE_S


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_ssp_never_reads_what_is_older_than_its_staleness(staleness: int) -> None:
    """Each worker counts its clocks in a row of its own: what is read of the others lies within the staleness, and
    one's own is always complete."""
    workers = 3
    with store(COUNTS, SSP(staleness), servers=2) as run:
        run.open(workers)
        furthest = [0] * workers

        def work(worker: int) -> None:
            client, wobble = run.client(worker), np.random.default_rng(worker)
            for clock in range(CLOCKS):
                seen = client.read("n", range(workers))[:, 0]
                assert seen[worker] == clock
                assert (seen >= clock - staleness).all()
                furthest[worker] = max(furthest[worker], int(clock - seen.min()))
                if wobble.random() < 0.2:
                    time.sleep(0.01)
                client.update("n", [worker], np.ones((1, WIDTH), int))
                client.push()

        together(*(lambda worker=worker: work(worker) for worker in range(workers)))
        assert max(furthest) <= staleness
        assert (run.state()[:workers] == CLOCKS).all()


def test_ssp_stops_one_who_is_too_far_ahead() -> None:
    with store(COUNTS, SSP(1)) as run:
        run.open(2)
        client = run.client(0, timeouts=Timeouts(PATIENCE_S, 0.5))
        for _ in range(2):
            client.read("n", [0])
            client.push()
        with pytest.raises(Unanswered, match=r"waits for the updates of workers 1 after clock -1"):
            client.read("n", [0])


@pytest.mark.extended
@pytest.mark.parametrize("rule", [BSP(), SSP(2)])
def test_partitions_move_under_load_and_nothing_is_lost_or_doubled(rule: BSP | SSP) -> None:
    """Every partition moves again and again while three workers add counts; with replicas, which follow."""
    workers, clocks = 3, 60
    with store(COUNTS, rule, servers=4) as run:
        run.open(workers, servers=2, history=True)
        for partition in range(4):
            run.holding(partition).add_replica(partition, run.servers[3].address)
        clients = [run.client(worker) for worker in range(workers)]
        stop = threading.Event()

        def move() -> int:
            term = 0
            while not stop.is_set():
                term += 1
                for partition in range(4):
                    now = run.servers[:3].index(run.holding(partition))
                    hand_over(run.servers[now], partition, run.servers[(now + 1) % 3].address, term)
            return term

        def work(client: Client) -> None:
            try:
                count(client, clocks)
            finally:
                if client.worker == 0:
                    stop.set()

        term, *_ = together(move, *(lambda client=client: work(client) for client in clients))
        assert int(str(term)) >= 2
        assert np.array_equal(run.state(), counted(workers, clocks))
        replica = run.servers[3]
        wait_for(lambda: all(status.clocks[-1] == clocks - 1 for status in replica.status()))
        for partition in range(4):
            values = replica.actor(partition).partition.values[0]
            assert np.array_equal(values, counted(workers, clocks)[partition::4])
        assert not run.refused


def test_a_lost_server_costs_the_clocks_since_the_last_common_push() -> None:
    """An active server dies; replicas take over at the clock that all have, the other one goes back, work is redone."""
    with store(COUNTS, BSP(), servers=3) as run:
        run.open(2, servers=2, history=True)
        for partition in range(4):
            run.servers[partition % 2].add_replica(partition, run.servers[2].address)
        clients = [run.client(worker) for worker in range(2)]
        redone: list[int] = []

        def work(client: Client) -> None:
            while client.now < 60:
                try:
                    count(client, 60)
                except RolledBack as back:
                    redone.append(client.now - back.clock - 1)
                    client.roll_back(back.clock, back.generation)

        def lose() -> None:
            wait_for(lambda: clients[0].now > 10)
            run.servers[0].close()
            replicas = run.servers[2].status()
            common = set.intersection(*(set(status.clocks) for status in replicas))
            survivor = run.servers[1]
            common &= set.intersection(*(set(status.clocks) for status in survivor.status()))
            clock = max(common)
            survivor.roll_back(clock, generation=1)
            run.servers[2].roll_back(clock, generation=1)
            for partition in (0, 2):
                run.servers[2].promote(partition, [0, 1], clock + 1, term=1)
                for client in clients:
                    client.set_primary(partition, PrimaryAddress(run.servers[2].address, 1))

        together(lose, *(lambda client=client: work(client) for client in clients))
        assert redone
        assert np.array_equal(run.state(), counted(2, 60))
        wait_for(lambda: all(status.clocks[-1] == 59 for status in run.servers[2].status()))


def test_a_successor_finishes_the_clock_of_a_lost_worker() -> None:
    """Its update reached some partitions and not others: in its name the work is done again, and counts once."""
    with store(COUNTS, BSP()) as run:
        run.open(2)
        whole, lost = run.client(0), run.client(1)
        rows, added = deltas(1, 0)
        lost.update("n", rows, added)
        messages = lost._updates(last=True)
        lost._ask_all({partition: messages[partition] for partition in (0, 2)})
        lost.close()
        successor = run.client(1)
        together(lambda: count(whole, 3), lambda: count(successor, 3))
        assert np.array_equal(run.state(), counted(2, 3))
