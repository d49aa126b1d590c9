"""Whatever a controller says in whatever order while workers work: what they add counts once, and replicas agree."""

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.elastic import Table
from plink.model.consistency import BSP, SSP, Rule
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.partition.partition import RejectedRequest
from plink.runtime.elastic.replica.snapshot import PartitionStatus
from plink.runtime.elastic.server import Server
from plink.runtime.elastic.worker.client import Client
from plink.runtime.elastic.worker.primaries import PrimaryAddress, RolledBack
from tests.runtime.elastic.stores import PATIENT, Store, store, wait_for

ROWS, SERVERS = 6, 4
COUNTS = Layout((Table("n", ROWS, 1, "int64"),), 1)
ORDERS = (
    "prepare", "prepare", "commit", "cancel", "add_replica", "set_replica", "stop_replicating", "workers", "roll_back",
    "replicate", "replicate", "truncate",
)  # fmt: skip


def seen(server: Server) -> PartitionStatus:
    """Of the one partition."""
    server.actor(0)  # so that there is one
    (result,) = server.status()
    return result


def twice(order: Callable[[], object]) -> None:
    """As a controller says it that was started anew."""
    order()
    order()


class Course:
    """A controller that says things, and the workers: who works at which clocks, and how far they may go.

    As a real one it replicates in rounds: ``watermark`` is the clock of the last, ``consistent`` that of the last which
    all replicas have, to which everybody can go back.
    """

    def __init__(self, run: Store) -> None:
        self.run, self.primary, self.term = run, run.servers[0], 0
        self.prepared: tuple[Server, int] | None = None
        self.back = (-1, 0)  # to which clock, in which generation
        self.watermark = self.consistent = -1
        self.limit = 3
        self.spans: dict[int, tuple[int, int | None]] = {0: (0, None), 1: (0, None)}
        self.ended, self.failed = threading.Event(), list[BaseException]()
        self.clients: dict[int, Client] = {}
        self.threads: list[threading.Thread] = []
        self.replicate_up_to(-1)
        for worker in self.spans:
            self.join(worker)

    def join(self, worker: int) -> None:
        """In a thread of its own."""
        status = seen(self.primary)
        primary = {0: PrimaryAddress(self.primary.address, status.term)}
        self.clients[worker] = client = Client(
            self.run.config, worker, primary, clock=self.spans[worker][0], generation=self.back[1], timeouts=PATIENT
        )
        self.run.clients.append(client)
        self.threads.append(threading.Thread(target=self.work, args=(worker, client)))
        self.threads[-1].start()

    def work(self, worker: int, client: Client) -> None:
        """Add its number and 1 to everything at each of its clocks."""
        try:
            while not self.ended.is_set():
                clock, generation = self.back
                if client.generation < generation:
                    client.roll_back(clock, generation)
                until = self.spans[worker][1]
                if client.now > (self.limit if until is None else min(self.limit, until)):
                    time.sleep(0.001)
                    continue
                try:
                    client.read("n", [client.now % ROWS])
                    client.update("n", range(ROWS), np.full((ROWS, 1), worker + 1))
                    client.push()
                except RolledBack as back:
                    client.roll_back(back.clock, back.generation)
        except BaseException as error:
            if not self.ended.is_set():
                self.failed.append(error)

    def replicas(self) -> list[Server]:
        """Of the primary."""
        status = seen(self.primary)
        return [server for server in self.run.servers if server.address in status.replicas]

    def say(self, what: str, to: int) -> None:
        """One order, while workers work."""
        target, replicas = self.run.servers[to], self.replicas()
        if what != "roll_back":
            self.limit += 3
        if what == "prepare" and target is not self.primary:
            self.term += 1
            others = [server.address for server in replicas if server is not target]
            replica = [*others, self.primary.address, ""][to % (len(others) + 2)]
            twice(lambda: self.primary.prepare(0, target.address, self.term, replica=replica))
            self.prepared = (target, self.term)
        elif what == "commit" and self.prepared:
            self.commit(*self.prepared)
        elif what == "cancel" and self.prepared:
            (target, term), self.prepared = self.prepared, None
            assert [server.cancel(0, term) for server in (self.primary, target) * 2] == [True] * 4
        elif (
            what == "add_replica"
            and target is not self.primary
            and (not self.prepared or self.prepared[0] is not target)
        ):
            twice(lambda: self.primary.add_replica(0, target.address))
        elif what == "set_replica" and target in replicas:
            twice(lambda: self.primary.set_replica(0, target.address))
        elif what == "stop_replicating":
            twice(lambda: self.primary.stop_replicating(0, target.address))
        elif what == "workers":
            self.change_workers()
        elif what == "roll_back":
            self.roll_back(to)
        elif what == "replicate":
            self.count()
            if self.consistent == self.watermark:
                self.replicate_up_to(seen(self.primary).clocks[-1])
        elif what == "truncate":
            self.count()
            for server in self.run.servers:
                server.truncate(self.consistent)

    def replicate_up_to(self, clock: int) -> None:
        """Begin a round."""
        self.watermark = clock
        for server in self.run.servers:
            server.replicate_up_to(clock)

    def count(self) -> None:
        """End the round, if all replicas have all of it."""
        if seen(self.primary).replicated >= self.watermark:
            self.consistent = self.watermark

    def commit(self, target: Server, term: int) -> None:
        source, self.prepared = self.primary, None
        try:
            source.commit(0, term)
        except RejectedRequest:  # who was to be its replica, or is to be drained to, is none any more
            assert source.cancel(0, term)
            assert target.cancel(0, term)
            return
        source.commit(0, term)
        assert not source.cancel(0, term)
        assert not target.cancel(0, term)
        self.primary = target
        for client in self.clients.values():
            client.set_primary(0, PrimaryAddress(target.address, term))

    def change_workers(self) -> None:
        """The oldest ends, and a new one begins."""
        first, new = self.limit + 1, max(self.spans) + 1
        old, *others = self.present()
        twice(lambda: self.primary.workers_from(0, [*others, new], first))
        self.spans[old], self.spans[new] = (self.spans[old][0], first - 1), (first, None)
        self.limit += 3
        self.join(new)

    def present(self) -> list[int]:
        """Who works on without an end."""
        return [worker for worker, (_, until) in self.spans.items() if until is None]

    def roll_back(self, which: int) -> None:
        """Roll back the primary and its replicas to one of the clocks that they have in common."""
        self.limit = -1
        for server in self.run.servers:
            status = seen(server)
            if status.role == "replica" and server not in self.replicas():
                self.term += 1
                twice(lambda server=server: server.drop(0, self.term))  # type: ignore[misc]
        has = [set(seen(server).clocks) for server in (self.primary, *self.replicas())]
        common = sorted(set.intersection(*has))
        assert self.consistent in common
        clock, generation, self.prepared = common[which * len(common) // SERVERS], self.back[1] + 1, None
        for server in self.run.servers * 2:
            server.roll_back(clock, generation)
        self.consistent = clock
        self.replicate_up_to(clock)
        twice(lambda: self.primary.workers_from(0, self.present(), clock + 1))
        for worker, (first, until) in self.spans.items():
            self.spans[worker] = (min(first, clock + 1), None) if until is None else (first, min(until, clock))
        self.back, self.limit = (clock, generation), clock + 3

    def end(self) -> int:
        """Let all come to a clock. :returns: what each row must be."""
        last = self.limit
        wait_for(lambda: self.failed or seen(self.primary).clocks[-1] == last)
        self.close()
        self.replicate_up_to(last)
        assert not self.failed
        spans = ((worker, first, last if until is None else until) for worker, (first, until) in self.spans.items())
        return sum((worker + 1) * max(0, until - first + 1) for worker, first, until in spans)

    def close(self) -> None:
        """The threads."""
        self.ended.set()
        for thread in self.threads:
            thread.join()


def play(rule: Rule, orders: list[tuple[str, int]]) -> None:
    """A course from beginning to end."""
    with store(COUNTS, rule, servers=SERVERS) as run:
        run.servers[0].open(0, {0: 0, 1: 0}, history=True)
        course = Course(run)
        try:
            for what, to in orders:
                course.say(what, to)
            wanted, last = course.end(), course.limit
        finally:
            course.close()
        assert (course.primary.actor(0).partition.values[0] == wanted).all()
        for server in course.replicas():
            wait_for(lambda server=server: server.status()[0].clocks[-1] == last)  # type: ignore[misc]
            assert (server.actor(0).partition.values[0] == wanted).all()
        assert [server for server in run.servers if seen(server).role == "serving"] == [course.primary]


orders = st.lists(st.tuples(st.sampled_from(ORDERS), st.integers(0, SERVERS - 1)), min_size=4, max_size=14)


@settings(max_examples=40, deadline=None)
@given(orders)
def test_bsp(drawn: list[tuple[str, int]]) -> None:
    play(BSP(), drawn)


@pytest.mark.extended
@settings(max_examples=25, deadline=None)
@given(orders)
def test_ssp(drawn: list[tuple[str, int]]) -> None:
    play(SSP(2), drawn)
