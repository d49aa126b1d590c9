"""Moves in two steps, while workers work: what was acknowledged counts once, whatever becomes of the other server."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from plink.model.consistency import SSP, Rule
from plink.runtime.elastic.partition.partition import RejectedRequest
from plink.runtime.elastic.replica import migration
from plink.runtime.elastic.replica.snapshot import PartitionStatus
from plink.runtime.elastic.server import Server
from plink.runtime.elastic.transport.messages import Activate, Message, PartitionPart, Read, RowRequest, Status
from plink.runtime.elastic.transport.records import ConnectionLost
from plink.runtime.elastic.worker.client import Client
from plink.runtime.elastic.worker.primaries import RolledBack
from tests.runtime.elastic.counting import COUNTS, count, counted
from tests.runtime.elastic.stores import HANGS_S, Store, store, together, wait_for
from tests.runtime.elastic.test_migration import fails, once, tapped
from tests.runtime.elastic.test_repeats import LAYOUT, update

WORKERS = 2


def status(server: Server, partition: int = 0) -> PartitionStatus:
    """Of one partition."""
    (result,) = (item for item in server.status() if item.partition == partition)
    return result


@contextmanager
def working(rule: Rule | None = None, servers: int = 3) -> Iterator[tuple[Store, Callable[[], int]]]:
    """Workers count on partitions that the first server has, for as long as this lasts; then they have counted right.

    Given are the store, and a function that waits until they have come some clocks further.
    """
    with store(COUNTS, rule, servers) as run:
        run.open(WORKERS, servers=1, history=True)
        clients, ends = [run.client(worker) for worker in range(WORKERS)], [10**9]

        def work(client: Client) -> None:
            while client.now < ends[0]:
                try:
                    count(client, client.now + 1)
                except RolledBack as back:
                    client.roll_back(back.clock, back.generation)

        def further() -> int:
            now = max(client.now for client in clients)
            wait_for(lambda: min(client.now for client in clients) > now + 3)
            return now

        failed: list[BaseException] = []

        def all_work() -> None:
            try:
                together(*(lambda client=client: work(client) for client in clients))  # type: ignore[misc]
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=all_work)
        thread.start()
        try:
            yield run, further
            further()
        finally:
            ends[0] = max(client.now for client in clients) + 3
            thread.join()
        assert not failed
        assert np.array_equal(run.state(), counted(WORKERS, ends[0]))


def test_the_old_primary_serves_on_until_the_commit() -> None:
    with working(SSP(2)) as (run, further):
        old, new, _ = run.servers
        for partition in range(4):
            old.prepare(partition, new.address, 7, replica="")
            old.prepare(partition, new.address, 7, replica="")  # said twice
        further()
        assert {item.role for item in old.status()} == {"serving"}
        assert {item.role for item in new.status()} == {"arriving"}
        for partition in range(4):
            old.commit(partition, 7)
            old.commit(partition, 7)
            assert not old.cancel(partition, 7)
            assert not new.cancel(partition, 7)
            old.prepare(partition, new.address, 7, replica="")
        assert {(item.role, item.address) for item in old.status()} == {("moved", new.address)}
        further()


def test_what_came_since_the_copy_has_been_sent_before_the_commit() -> None:
    """Nothing but the order to begin is left when nothing comes."""
    with store(LAYOUT, servers=2) as run:
        run.open(2, servers=1, history=True)
        old, new = run.servers
        old.prepare(0, new.address, 1, replica="")
        old.actor(0).ask(update(0, 0, 1))
        old.workers_from(0, [0, 1, 2], 1)
        old.actor(0).ask(update(1, 0, 10))
        target = new.actor(0).partition
        wait_for(lambda: target.clock == 0)
        assert (target.values[0] == 11).all()
        assert sorted(target.members) == [0, 1, 2]
        assert (status(old).role, status(new).role) == ("serving", "arriving")


@pytest.mark.parametrize("noticed", [True, False])
def test_target_that_dies_costs_nothing(noticed: bool) -> None:
    """Whether an update that was to follow it has failed before the commit, or only the commit does."""
    with working() as (run, further):
        old, new, other = run.servers
        for partition in range(4):
            old.prepare(partition, new.address, 1, replica="")
        new.close()
        if noticed:
            further()
        with pytest.raises((ConnectionLost, RejectedRequest)):
            old.commit(0, 1)
        assert all(old.cancel(partition, 1) for partition in range(4))
        further()
        for partition in range(4):
            old.prepare(partition, other.address, 2, replica="")
            old.commit(partition, 2)


def test_a_source_that_dies_after_it_prepared_leaves_nothing_that_serves() -> None:
    with store(LAYOUT, servers=3) as run:
        run.open(1, servers=1, history=True)
        run.servers[0].add_replica(0, run.servers[2].address)
        run.servers[0].prepare(0, run.servers[1].address, 1, replica=run.servers[2].address)
        run.servers[0].close()
        assert run.servers[1].cancel(0, 1)
        assert status(run.servers[1]).role == "absent"
        run.servers[2].roll_back(-1, 1)
        run.servers[2].restore_to(0, run.servers[1].address, 2, [0], 0)
        assert status(run.servers[1]).role == "serving"


def test_a_cancelled_term_never_comes() -> None:
    with store(LAYOUT, servers=2) as run:
        run.open(1, servers=1)
        old, new = run.servers
        old.prepare(0, new.address, 1, replica="")
        assert old.cancel(0, 1)
        assert old.cancel(0, 1)
        with pytest.raises(RejectedRequest, match="in term 1 is prepared"):
            old.commit(0, 1)
        with pytest.raises(RejectedRequest, match="was cancelled"):
            old.prepare(0, new.address, 1, replica="")
        assert new.cancel(0, 2)
        with pytest.raises(RejectedRequest, match="was cancelled"):
            old.prepare(0, new.address, 2, replica="")
        old.prepare(0, new.address, 3, replica="")
        old.commit(0, 3)
        old.actor(0)
        assert run.holding(0) is new


def test_a_cancel_ends_a_copy_that_is_under_way() -> None:
    with store(LAYOUT, servers=2) as run:
        run.open(1, servers=1)
        old, new = run.servers
        reached, go = threading.Event(), threading.Event()

        def stop(message: Message) -> None:
            if isinstance(message, PartitionPart):
                reached.set()
                assert go.wait(HANGS_S)

        tapped(old, before=stop)

        def prepare() -> None:
            with pytest.raises(RejectedRequest, match="in term 1 was cancelled"):
                old.prepare(0, new.address, 1, replica="")

        def cancel() -> None:
            assert reached.wait(HANGS_S)
            assert old.cancel(0, 1)
            go.set()

        together(prepare, cancel)
        assert old.actor(0).ask(update(0, 0, 5)).term == 0


def test_the_old_primary_becomes_the_replica() -> None:
    """And the new one can give it back: it lacks little."""
    with working(servers=2) as (run, further):
        reliable, transient = run.servers
        for partition in range(4):
            reliable.prepare(partition, transient.address, 1, replica=reliable.address)
        further()
        for partition in range(4):
            reliable.commit(partition, 1)
            reliable.commit(partition, 1)
        assert {(item.role, item.address) for item in reliable.status()} == {("replica", transient.address)}
        assert {item.replicas for item in transient.status()} == {(reliable.address,)}
        now = further()
        wait_for(lambda: all(item.clocks[-1] >= now for item in reliable.status()))
        assert {item.clocks[0] for item in reliable.status()} == {-1}
        for partition in range(4):
            transient.prepare(partition, reliable.address, 2, replica="")
        further()
        assert {item.role for item in transient.status()} == {"serving"}
        for partition in range(4):
            transient.commit(partition, 2)
        assert {(item.role, item.ended, item.replicas) for item in reliable.status()} == {("serving", True, ())}


def test_a_drain_can_be_cancelled_and_goes_beyond_the_agreed_clock() -> None:
    """Clock by clock, so that the new primary can go back to any of them."""
    with store(LAYOUT, servers=2) as run:
        run.open(1, servers=1, history=True)
        old, new = run.servers
        old.add_replica(0, new.address)
        old.replicate_up_to(1)
        for clock in range(6):
            old.actor(0).ask(update(0, clock, 1))
        wait_for(lambda: status(old).replicated == 1)
        old.prepare(0, new.address, 1, replica="")
        assert status(old).replicated >= 4
        assert old.cancel(0, 1)
        for clock in range(6, 9):
            old.actor(0).ask(update(0, clock, 1))
        old.prepare(0, new.address, 2, replica=old.address)
        old.actor(0).ask(update(0, 9, 1))
        old.commit(0, 2)
        assert (status(new).role, status(new).replicas, status(old).role) == ("serving", (old.address,), "replica")
        assert set(range(1, 10)) <= set(status(new).clocks)
        assert (run.state() == 10).all()
        new.actor(0).ask(update(0, 10, 1))
        wait_for(lambda: status(old).clocks[-1] == 10)


def test_a_drain_to_a_replica_that_is_dead_fails_and_changes_nothing() -> None:
    with store(LAYOUT, servers=2) as run:
        run.open(1, servers=1, history=True)
        old, new = run.servers
        old.add_replica(0, new.address)
        old.replicate_up_to(-1)
        for clock in range(3):
            old.actor(0).ask(update(0, clock, 1))
        new.close()
        with pytest.raises(ConnectionLost):
            old.prepare(0, new.address, 1, replica="")
        assert status(old).role == "serving"
        assert new.address.rpartition(":")[2] in status(old).trouble


def test_a_replica_that_is_none_at_the_commit_is_refused() -> None:
    with store(LAYOUT, servers=3) as run:
        run.open(1, servers=1, history=True)
        old, new, replica = run.servers
        old.prepare(0, new.address, 1, replica=replica.address)
        with pytest.raises(RejectedRequest, match="is no replica"):
            old.commit(0, 1)
        assert status(old).role == "serving"
        old.prepare(0, new.address, 2, replica=replica.address)
        old.add_replica(0, replica.address)
        old.commit(0, 2)
        new.actor(0).ask(update(0, 0, 5))
        wait_for(lambda: status(replica).clocks == (-1, 0))


@pytest.mark.parametrize("executed", [True, False])
def test_a_commit_that_is_not_answered_is_repeated(executed: bool) -> None:
    with store(LAYOUT, servers=2) as run:
        run.open(1, servers=1)
        old, new = run.servers
        lost = lambda message: isinstance(message, Activate) and fails(ConnectionLost("gone"))()  # noqa: E731
        tapped(old, **{"after" if executed else "before": lost})
        old.prepare(0, new.address, 1, replica=old.address)
        with pytest.raises(migration.InDoubt):
            old.commit(0, 1)
        with pytest.raises(migration.InDoubt):
            old.cancel(0, 1)
        tapped(old)
        old.commit(0, 1)
        assert (status(old).role, status(new).role) == ("replica", "serving")
        new.actor(0).ask(update(0, 0, 5))
        wait_for(lambda: status(old).clocks[-1] == 0)


@pytest.mark.parametrize("serves", ["itself", "another"])
def test_host_lost_at_the_start_is_dropped(serves: str) -> None:
    """The old primary, which was to be its replica, has the state and the way back, though it was never told that it is
    one: as after any loss all go back to the clock that is safe, and the partition begins from there."""
    with store(LAYOUT, servers=3) as run:
        run.open(1, servers=1, history=True)
        old, new, other = run.servers
        for clock in range(3):
            old.actor(0).ask(update(0, clock, 1))
        tapped(old, before=lambda message: isinstance(message, Activate) and fails(ConnectionLost("gone"))())
        old.prepare(0, new.address, 1, replica=old.address)
        with pytest.raises(migration.InDoubt):
            old.commit(0, 1)
        new.close()
        tapped(old)
        old.roll_back(1, 2)
        for _ in range(2):  # a controller that was started anew says it twice
            if serves == "itself":
                old.promote(0, [0], 2, 3)
            else:
                old.restore_to(0, other.address, 3, [0], 2)
        primary = old if serves == "itself" else other
        assert (status(primary).role, status(primary).clocks[-1]) == ("serving", 1)
        primary.actor(0).ask(update(0, 2, 10, generation=2))
        assert (primary.actor(0).partition.values[0] == 12).all()
        if serves == "another":
            wait_for(lambda: status(old).role == "replica" and status(old).clocks[-1] == 2)


def test_one_who_lacked_memory_to_begin_is_not_taken_for_one_that_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it answered may be lost, and it is told again."""
    messages: list[Message] = []
    with store(LAYOUT, servers=2) as run:
        run.open(1, servers=1, history=True)
        old, new = run.servers

        def lost(message: Message) -> None:
            if isinstance(message, Activate):
                messages.append(message)
                raise ConnectionLost("gone")

        tapped(old, before=lost)
        old.prepare(0, new.address, 1, replica=old.address)
        with pytest.raises(migration.InDoubt):
            old.commit(0, 1)
        with monkeypatch.context() as patched:
            patched.setattr(new.actor(0).partition, "advance", fails(MemoryError()))
            assert new.actor(0).ask(messages[0]).status is Status.REFUSED
        assert status(new).role == "arriving"
        assert new.actor(0).ask(messages[0]).status is Status.OK
        assert (status(new).role, status(new).term) == ("serving", 1)


def test_a_client_that_was_sent_on_is_not_kept_at_those_who_serve_no_more() -> None:
    """Else a server whose partitions come and go for weeks has a connection to every host there ever was."""
    with store(LAYOUT, servers=3) as run:
        run.open(1, servers=1, history=True)
        first, second, third = run.servers
        client = run.client(0)
        client.read("n", [0])

        def goes(start: Server, end: Server, term: int) -> None:
            start.prepare(0, end.address, term, replica="")
            start.commit(0, term)

        def asks() -> int:
            """Over the same connection, as one who has heard of no move."""
            message = Read(0, worker=0, clock=0, state=-1, wanted=(RowRequest(0, range(4)),))
            answer = client._connections[first.address, 0].ask(message)
            assert answer.text in ("", second.address, third.address)
            return len(second.listener._channels)

        goes(first, second, 1)
        assert asks() == 1
        goes(second, first, 2)
        assert asks() == 1
        goes(first, third, 3)
        asks()
        wait_for(lambda: not second.listener._channels)


def test_status_does_not_wait_for_a_partition_that_is_busy() -> None:
    with store(LAYOUT, servers=2) as run:
        run.open(1, servers=1)
        old, new = run.servers
        seen: list[str] = []
        tapped(old, before=once(lambda: seen.append(status(old).role), Activate))  # in the partition's thread
        old.prepare(0, new.address, 1, replica="")
        old.commit(0, 1)
        assert seen == ["serving"]
