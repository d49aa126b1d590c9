"""Replicas beside each other, what they can go back to, and what is made of them when the primary is lost."""

from pathlib import Path

import numpy as np
import pytest

from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.partition.partition import RejectedRequest
from plink.runtime.elastic.replica import migration
from plink.runtime.elastic.server import SavedState, Server
from plink.runtime.elastic.transport.messages import Activate, Message, PartitionPart, Status
from plink.runtime.elastic.transport.records import ConnectionLost
from tests.runtime.elastic.stores import NO_LIMIT, Store, store, wait_for
from tests.runtime.elastic.test_migration import fails, once, tapped
from tests.runtime.elastic.test_prepared import status, working
from tests.runtime.elastic.test_repeats import LAYOUT, update


def clocks(run: Store, first: int, end: int, generation: int = 0) -> None:
    """Worker 0 adds 1 at each."""
    for clock in range(first, end):
        assert run.holding(0).actor(0).ask(update(0, clock, 1, generation)).status is Status.OK


def value(server: Server) -> int:
    """That all have."""
    (result,) = np.unique(server.actor(0).partition.values[0])
    return int(result)


def test_a_replica_beside_another_can_go_back_as_far_as_the_primary() -> None:
    with working(servers=4) as (run, further):
        primary, item, two, three = run.servers
        for partition in range(4):
            primary.add_replica(partition, item.address)
            primary.add_replica(partition, item.address)  # said twice
        agreed = further() + 30
        primary.replicate_up_to(agreed)
        wait_for(lambda: all(each.clocks[-1] > agreed for each in primary.status()))
        for partition in range(4):
            primary.add_replica(partition, two.address)
        wait_for(lambda: {each.replicated for each in primary.status()} == {agreed})
        assert {each.clocks[-1] for each in item.status()} == {agreed}
        assert all(set(range(-1, agreed + 2)) <= set(each.clocks) for each in two.status())
        assert {each.replicas for each in primary.status()} == {(item.address, two.address)}
        for partition in range(4):
            primary.set_replica(partition, two.address)
            primary.set_replica(partition, two.address)
            primary.stop_replicating(partition, three.address)
        assert {each.replicas for each in primary.status()} == {(two.address,)}
        primary.replicate_up_to(NO_LIMIT)
        now = further()
        wait_for(lambda: all(each.clocks[-1] > now for each in two.status()))
        assert {each.clocks[-1] for each in item.status()} == {agreed}
        for server in (primary, two):
            server.roll_back(agreed, 1)


def test_no_clock_counts_as_pushed_that_a_replica_lacks() -> None:
    """Nor is what it lacks released; from when its copy begins, for that may take long."""
    with store(LAYOUT, servers=3) as run:
        run.open(1, servers=1, history=True)
        primary, item, two = run.servers
        primary.add_replica(0, item.address)
        clocks(run, 0, 2)
        wait_for(lambda: status(primary).replicated == 1)
        seen: list[tuple[int, tuple[str, ...]]] = []

        def run_inline() -> None:
            clocks(run, 2, 5)
            wait_for(lambda: status(item).clocks[-1] == 4)
            primary.truncate(4)
            seen.append((status(primary).replicated, status(primary).replicas))

        tapped(primary, before=once(run_inline, Activate))
        primary.add_replica(0, two.address)
        assert seen == [(1, (item.address,))]
        wait_for(lambda: status(primary).replicated == 4)
        assert value(two) == 5
        two.close()
        clocks(run, 5, 8)
        wait_for(lambda: status(primary).trouble and status(item).clocks[-1] == 7)
        assert status(primary).replicated == 4
        primary.stop_replicating(0, two.address)
        assert (status(primary).replicated, status(primary).trouble) == (7, "")


@pytest.mark.parametrize("how", ["stopped", "lost", "moved"])
def test_cancelled_copy_delays_nothing(how: str) -> None:
    with store(LAYOUT, servers=3) as run:
        run.open(1, servers=1, history=True)
        primary, item, two = run.servers

        def move() -> None:
            primary.prepare(0, two.address, 1, replica="")
            primary.commit(0, 1)

        does = {
            "stopped": lambda: primary.stop_replicating(0, item.address),
            "lost": fails(ConnectionLost("gone")),
            "moved": move,
        }[how]
        tapped(primary, before=once(does, Activate))
        with pytest.raises((RejectedRequest, ConnectionLost)):
            primary.add_replica(0, item.address)
        clocks(run, 0, 3)
        holding = run.holding(0)
        assert (status(holding).replicated, status(holding).replicas) == (2, ())
        holding.truncate(2)
        assert status(holding).clocks == (2,)


def test_who_pushes_to_nobody_is_its_own_replica() -> None:
    with store(LAYOUT) as run:
        run.open(1, history=True)
        (server,) = run.servers
        clocks(run, 0, 5)
        assert status(server).replicated == 4
        server.truncate(2)
        assert status(server).clocks == (2, 3, 4)
        server.roll_back(2, 1)
        assert value(server) == 3
        clocks(run, 3, 5, generation=1)
        assert value(server) == 5


def test_a_replica_takes_over_where_everybody_went_back_to() -> None:
    with store(LAYOUT, servers=2) as run:
        run.open(2, servers=1, history=True)
        primary, replica = run.servers
        primary.add_replica(0, replica.address)
        for clock in range(3):
            for worker in (0, 1):
                primary.actor(0).ask(update(worker, clock, 1))
        wait_for(lambda: status(replica).clocks[-1] == 2)
        primary.close()
        back = status(replica).clocks[-2]
        replica.roll_back(back, 1)
        with pytest.raises(RejectedRequest, match="a new primary needs a later one"):
            replica.promote(0, [5], back + 1, term=0)
        for _ in range(2):
            replica.promote(0, [5], back + 1, term=1)
        replica.promote(0, [5, 6], back + 1, term=2)  # it serves: only the term changes
        assert (status(replica).term, status(replica).stragglers) == (2, (5,))
        with pytest.raises(RejectedRequest, match="no replica"):
            replica.promote(0, [5], back + 1, term=1)
        run.servers.pop(0)
        replica.workers_from(0, [5, 6], back + 1)
        for worker in (5, 6):
            assert replica.actor(0).ask(update(worker, back + 1, 1, generation=1)).status is Status.OK
        assert value(replica) == 2 * (back + 1) + 2


def test_who_serves_in_an_earlier_term_is_the_replica_of_whom_it_restores_to() -> None:
    """It took over in vain: another one is to serve after all."""
    with store(LAYOUT, servers=2) as run:
        run.open(1, servers=1, history=True)
        primary, target = run.servers
        clocks(run, 0, 3)
        primary.restore_to(0, target.address, 5, [0], 3)
        assert (status(primary).role, status(target).role) == ("replica", "serving")
        assert status(target).replicas == (primary.address,)
        assert target.actor(0).ask(update(0, 3, 1)).status is Status.OK
        assert value(target) == 4
        wait_for(lambda: status(primary).clocks[-1] == 3)


def test_a_replica_restores_its_partition_to_another_server() -> None:
    """And goes on as its replica; who had it before and lives is refused, and forgets it."""
    with store(LAYOUT, servers=3) as run:
        run.open(1, servers=1, history=True)
        primary, replica, target = run.servers
        primary.add_replica(0, replica.address)
        clocks(run, 0, 6)
        wait_for(lambda: status(replica).clocks[-1] == 5)
        replica.roll_back(-1, 3)
        primary.roll_back(-1, 3)
        with pytest.raises(RejectedRequest, match="no worker can begin at clock -1"):
            replica.restore_to(0, target.address, 5, [0, 1], -1)
        for _ in range(2):
            replica.restore_to(0, target.address, 5, [0, 1], 0)
        primary.actor(0).ask(update(0, 0, 100, generation=3))
        wait_for(lambda: "term" in status(primary).trouble)
        primary.drop(0, 5)
        primary.drop(0, 5)
        target.drop(0, 5)
        assert (status(primary).role, status(primary).replicas) == ("absent", ())
        assert (status(target).replicas, status(target).stragglers, status(target).generation) == (
            (replica.address,),
            (0, 1),
            3,
        )
        for clock in range(2):
            for worker in (0, 1):
                target.actor(0).ask(update(worker, clock, 1, generation=3))
        wait_for(lambda: status(replica).clocks == (-1, 0, 1) or status(replica).clocks == (-1, 1))
        assert value(replica) == 4
        # And once more, to where it was first: the second target is gone.
        replica.roll_back(-1, 6)
        target.close()
        with pytest.raises(RejectedRequest, match="in term 5 here"):
            replica.restore_to(0, primary.address, 4, [0, 1], 0)
        primary.roll_back(-1, 6)
        replica.restore_to(0, primary.address, 7, [2], 0)
        primary.actor(0).ask(update(2, 0, 1, generation=6))
        wait_for(lambda: status(replica).clocks == (-1, 0))
        assert value(replica) == 1


@pytest.mark.parametrize("executed", [True, False])
def test_a_restore_that_is_not_answered_is_repeated(executed: bool) -> None:
    with store(LAYOUT, servers=3) as run:
        run.open(1, servers=1, history=True)
        primary, replica, target = run.servers
        primary.add_replica(0, replica.address)
        clocks(run, 0, 2)
        wait_for(lambda: status(replica).clocks[-1] == 1)
        primary.close()
        run.servers.remove(primary)

        def lost(message: Message) -> None:
            if isinstance(message, Activate):
                raise ConnectionLost("gone")

        tapped(replica, **{"after" if executed else "before": lost})
        with pytest.raises(migration.InDoubt):
            replica.restore_to(0, target.address, 1, [0], 2)
        parts: list[int] = []
        tapped(replica, before=lambda message: parts.append(isinstance(message, PartitionPart)))
        replica.restore_to(0, target.address, 1, [0], 2)
        assert not any(parts)
        clocks(run, 2, 3)
        wait_for(lambda: status(replica).clocks[-1] == 2)
        assert value(target) == value(replica) == 3


def test_late_reset_keeps_messages_of_the_new_generation() -> None:
    """Nobody would send it again; and what is of the generation before goes."""
    with store(Layout(LAYOUT.tables, 2), servers=2) as run:
        first, second = run.servers
        second.open(1, {0: 0}, generation=3, term=4)
        first.reset(5)
        first.open(0, {0: 0}, generation=5, term=6)
        first.add_replica(0, second.address)
        second.reset(5)
        assert [(item.partition, item.role) for item in second.status()] == [(0, "replica"), (1, "absent")]


def test_a_drop_ends_what_moves_from_there() -> None:
    with store(LAYOUT, servers=2) as run:
        run.open(1, servers=1, history=True)
        old, new = run.servers
        old.prepare(0, new.address, 2, replica="")
        new.drop(0, 2)
        assert status(new).role == "arriving"
        old.drop(0, 3)
        with pytest.raises(RejectedRequest, match="in term 2 is prepared"):
            old.commit(0, 2)
        new.drop(0, 3)
        assert [status(server).role for server in run.servers] == ["absent", "absent"]


def test_a_checkpoint_has_the_state_of_a_clock_and_no_more(tmp_path: Path) -> None:
    """That of a replica, too; its size is that of the state, however far the server is ahead."""
    with store(LAYOUT, servers=3) as run:
        run.open(1, servers=1, history=True)
        primary, replica, new = run.servers
        primary.add_replica(0, replica.address)
        for clock in range(4):
            clocks(run, clock, clock + 1)
            wait_for(lambda clock=clock: status(replica).clocks[-1] == clock)
        for server in (primary, replica):
            server.truncate(1)
            with pytest.raises(RejectedRequest, match=r"clocks \[1, 2, 3\], not 0"):
                server.checkpoint(0, tmp_path / "p", 0)
            for clock in (1, 2, 3):
                server.checkpoint(0, tmp_path / f"p{clock}", clock)
            assert len({(tmp_path / f"p{clock}").stat().st_size for clock in (1, 2, 3)}) == 1
            with pytest.raises(RejectedRequest, match=r"can go back to clocks \[2\], not 1"):
                new.restore(0, SavedState(tmp_path / "p2", 1), [0], generation=1, term=1)
            for _ in range(2):
                assert new.restore(0, SavedState(tmp_path / "p2", 2), [0, 1], generation=1, term=1) == 2
            assert (status(new).clocks, status(new).stragglers, value(new)) == ((2,), (0, 1), 3)
            new = Server(new.config)
            run.servers.append(new)


def test_a_closed_server_keeps_no_one_waiting() -> None:
    with store(LAYOUT, servers=2) as run:
        run.open(1, servers=1)
        old, new = run.servers
        tapped(old, before=once(old.close, PartitionPart))
        with pytest.raises((RejectedRequest, ConnectionLost)):
            old.prepare(0, new.address, 1, replica="")


def test_clients_of_a_replica_are_sent_on_to_its_primary() -> None:
    with working(servers=2) as (run, further):
        replica, target = run.servers
        for partition in range(4):
            replica.prepare(partition, target.address, 1, replica=replica.address)
            replica.commit(partition, 1)
        late = run.client(0, clock=0)
        assert late.primaries()[0].address == replica.address
        further()
        late.read("n", [0])
        assert late.primaries()[0].address == target.address
