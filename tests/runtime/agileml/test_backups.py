"""Backups beside each other, what they can go back to, and what is made of them when the owner is lost."""

from pathlib import Path

import numpy as np
import pytest

from plink.runtime.agileml.arrays.layout import Layout
from plink.runtime.agileml.partition.partition import Refused
from plink.runtime.agileml.replica import migration
from plink.runtime.agileml.server.server import Server
from plink.runtime.agileml.transport.records import Lost
from plink.runtime.agileml.transport.wire import Kind, Message, Status
from tests.runtime.agileml.stores import Store, store, wait_for
from tests.runtime.agileml.test_moves import fails, once, tapped
from tests.runtime.agileml.test_prepared import status, working
from tests.runtime.agileml.test_repeats import LAYOUT, update


def clocks(run: Store, first: int, end: int, era: int = 0) -> None:
    """Worker 0 adds 1 at each."""
    for clock in range(first, end):
        assert run.holding(0).owner(0).ask(update(0, clock, 1, era)).status is Status.OK


def value(server: Server) -> int:
    """That all have."""
    (result,) = np.unique(server.owner(0).partition.values[0])
    return int(result)


def test_a_backup_beside_another_can_go_back_as_far_as_the_owner() -> None:
    with working(servers=4) as (run, further):
        owner, item, two, three = run.servers
        for partition in range(4):
            owner.back_up(partition, item.address)
            owner.back_up(partition, item.address)  # said twice
        agreed = further() + 30
        owner.push_up_to(agreed)
        wait_for(lambda: all(each.clocks[-1] > agreed for each in owner.status()))
        for partition in range(4):
            owner.back_up(partition, two.address)
        wait_for(lambda: {each.pushed for each in owner.status()} == {agreed})
        assert {each.clocks[-1] for each in item.status()} == {agreed}
        assert all(set(range(-1, agreed + 2)) <= set(each.clocks) for each in two.status())
        assert {each.backups for each in owner.status()} == {(item.address, two.address)}
        for partition in range(4):
            owner.push_to(partition, two.address)
            owner.push_to(partition, two.address)
            owner.stop_pushing(partition, three.address)
        assert {each.backups for each in owner.status()} == {(two.address,)}
        owner.push_up_to(None)
        now = further()
        wait_for(lambda: all(each.clocks[-1] > now for each in two.status()))
        assert {each.clocks[-1] for each in item.status()} == {agreed}
        for server in (owner, two):
            server.roll_back(agreed, 1)


def test_no_clock_counts_as_pushed_that_a_backup_lacks() -> None:
    """Nor is what it lacks released; from when its copy begins, for that may take long."""
    with store(LAYOUT, servers=3) as run:
        run.open(1, servers=1, history=True)
        owner, item, two = run.servers
        owner.back_up(0, item.address)
        clocks(run, 0, 2)
        wait_for(lambda: status(owner).pushed == 1)
        seen: list[tuple[int, tuple[str, ...]]] = []

        def meanwhile() -> None:
            clocks(run, 2, 5)
            wait_for(lambda: status(item).clocks[-1] == 4)
            owner.release(4)
            seen.append((status(owner).pushed, status(owner).backups))

        tapped(owner, before=once(meanwhile, Kind.ACTIVATE))
        owner.back_up(0, two.address)
        assert seen == [(1, (item.address,))]
        wait_for(lambda: status(owner).pushed == 4)
        assert value(two) == 5
        two.close()
        clocks(run, 5, 8)
        wait_for(lambda: status(owner).trouble and status(item).clocks[-1] == 7)
        assert status(owner).pushed == 4
        owner.stop_pushing(0, two.address)
        assert (status(owner).pushed, status(owner).trouble) == (7, "")


@pytest.mark.parametrize("how", ["stopped", "lost", "moved"])
def test_a_copy_that_is_given_up_keeps_nothing_back(how: str) -> None:
    with store(LAYOUT, servers=3) as run:
        run.open(1, servers=1, history=True)
        owner, item, two = run.servers

        def move() -> None:
            owner.prepare(0, two.address, 1, backup="")
            owner.commit(0, 1)

        does = {"stopped": lambda: owner.stop_pushing(0, item.address), "lost": fails(Lost("gone")), "moved": move}[how]
        tapped(owner, before=once(does, Kind.ACTIVATE))
        with pytest.raises((Refused, Lost)):
            owner.back_up(0, item.address)
        clocks(run, 0, 3)
        holding = run.holding(0)
        assert (status(holding).pushed, status(holding).backups) == (2, ())
        holding.release(2)
        assert status(holding).clocks == (2,)


def test_who_pushes_to_nobody_is_its_own_backup() -> None:
    with store(LAYOUT) as run:
        run.open(1, history=True)
        (server,) = run.servers
        clocks(run, 0, 5)
        assert status(server).pushed == 4
        server.release(2)
        assert status(server).clocks == (2, 3, 4)
        server.roll_back(2, 1)
        assert value(server) == 3
        clocks(run, 3, 5, era=1)
        assert value(server) == 5


def test_a_backup_takes_over_where_everybody_went_back_to() -> None:
    with store(LAYOUT, servers=2) as run:
        run.open(2, servers=1, history=True)
        owner, backup = run.servers
        owner.back_up(0, backup.address)
        for clock in range(3):
            for worker in (0, 1):
                owner.owner(0).ask(update(worker, clock, 1))
        wait_for(lambda: status(backup).clocks[-1] == 2)
        owner.close()
        back = status(backup).clocks[-2]
        backup.roll_back(back, 1)
        with pytest.raises(Refused, match="a new owner needs a later one"):
            backup.take_over(0, [5], back + 1, epoch=0)
        for _ in range(2):
            backup.take_over(0, [5], back + 1, epoch=1)
        backup.take_over(0, [5, 6], back + 1, epoch=2)  # it serves: only the epoch changes
        assert (status(backup).epoch, status(backup).laggards) == (2, (5,))
        with pytest.raises(Refused, match="no backup"):
            backup.take_over(0, [5], back + 1, epoch=1)
        run.servers.pop(0)
        backup.workers_from(0, [5, 6], back + 1)
        for worker in (5, 6):
            assert backup.owner(0).ask(update(worker, back + 1, 1, era=1)).status is Status.OK
        assert value(backup) == 2 * (back + 1) + 2


def test_who_serves_in_an_earlier_epoch_is_the_backup_of_whom_it_restores_to() -> None:
    """It took over in vain: another one is to serve after all."""
    with store(LAYOUT, servers=2) as run:
        run.open(1, servers=1, history=True)
        owner, heir = run.servers
        clocks(run, 0, 3)
        owner.restore_to(0, heir.address, 5, [0], 3)
        assert (status(owner).role, status(heir).role) == ("backup", "serving")
        assert status(heir).backups == (owner.address,)
        assert heir.owner(0).ask(update(0, 3, 1)).status is Status.OK
        assert value(heir) == 4
        wait_for(lambda: status(owner).clocks[-1] == 3)


def test_a_backup_restores_its_partition_to_another_server() -> None:
    """And goes on as its backup; who had it before and lives is refused, and forgets it."""
    with store(LAYOUT, servers=3) as run:
        run.open(1, servers=1, history=True)
        owner, backup, heir = run.servers
        owner.back_up(0, backup.address)
        clocks(run, 0, 6)
        wait_for(lambda: status(backup).clocks[-1] == 5)
        backup.roll_back(-1, 3)
        owner.roll_back(-1, 3)
        with pytest.raises(Refused, match="no worker can begin at clock -1"):
            backup.restore_to(0, heir.address, 5, [0, 1], -1)
        for _ in range(2):
            backup.restore_to(0, heir.address, 5, [0, 1], 0)
        owner.owner(0).ask(update(0, 0, 100, era=3))
        wait_for(lambda: "epoch" in status(owner).trouble)
        owner.drop(0, 5)
        owner.drop(0, 5)
        heir.drop(0, 5)
        assert (status(owner).role, status(owner).backups) == ("absent", ())
        assert (status(heir).backups, status(heir).laggards, status(heir).era) == ((backup.address,), (0, 1), 3)
        for clock in range(2):
            for worker in (0, 1):
                heir.owner(0).ask(update(worker, clock, 1, era=3))
        wait_for(lambda: status(backup).clocks == (-1, 0, 1) or status(backup).clocks == (-1, 1))
        assert value(backup) == 4
        # And once more, to where it was first: the second heir is gone.
        backup.roll_back(-1, 6)
        heir.close()
        with pytest.raises(Refused, match="in epoch 5 here"):
            backup.restore_to(0, owner.address, 4, [0, 1], 0)
        owner.roll_back(-1, 6)
        backup.restore_to(0, owner.address, 7, [2], 0)
        owner.owner(0).ask(update(2, 0, 1, era=6))
        wait_for(lambda: status(backup).clocks == (-1, 0))
        assert value(backup) == 1


@pytest.mark.parametrize("heard", [True, False])
def test_a_restore_that_is_not_answered_is_repeated(heard: bool) -> None:
    with store(LAYOUT, servers=3) as run:
        run.open(1, servers=1, history=True)
        owner, backup, heir = run.servers
        owner.back_up(0, backup.address)
        clocks(run, 0, 2)
        wait_for(lambda: status(backup).clocks[-1] == 1)
        owner.close()
        run.servers.remove(owner)

        def lost(message: Message) -> None:
            if message.kind is Kind.ACTIVATE:
                raise Lost("gone")

        tapped(backup, **{"after" if heard else "before": lost})
        with pytest.raises(migration.Unsure):
            backup.restore_to(0, heir.address, 1, [0], 2)
        parts: list[int] = []
        tapped(backup, before=lambda message: parts.append(message.kind is Kind.PART))
        backup.restore_to(0, heir.address, 1, [0], 2)
        assert not any(parts)
        clocks(run, 2, 3)
        wait_for(lambda: status(backup).clocks[-1] == 2)
        assert value(heir) == value(backup) == 3


def test_who_hears_late_that_all_begin_anew_keeps_what_has_come_of_the_new_era() -> None:
    """Nobody would send it again; and what is of the era before goes."""
    with store(Layout(LAYOUT.tables, 2), servers=2) as run:
        first, second = run.servers
        second.open(1, {0: 0}, era=3, epoch=4)
        first.begin_anew(5)
        first.open(0, {0: 0}, era=5, epoch=6)
        first.back_up(0, second.address)
        second.begin_anew(5)
        assert [(item.partition, item.role) for item in second.status()] == [(0, "backup"), (1, "absent")]


def test_a_drop_ends_what_moves_from_there() -> None:
    with store(LAYOUT, servers=2) as run:
        run.open(1, servers=1, history=True)
        old, new = run.servers
        old.prepare(0, new.address, 2, backup="")
        new.drop(0, 2)
        assert status(new).role == "arriving"
        old.drop(0, 3)
        with pytest.raises(Refused, match="in epoch 2 is prepared"):
            old.commit(0, 2)
        new.drop(0, 3)
        assert [status(server).role for server in run.servers] == ["absent", "absent"]


def test_a_checkpoint_has_the_way_back(tmp_path: Path) -> None:
    """That of a backup, too."""
    with store(LAYOUT, servers=3) as run:
        run.open(1, servers=1, history=True)
        owner, backup, new = run.servers
        owner.back_up(0, backup.address)
        for clock in range(4):
            clocks(run, clock, clock + 1)
            wait_for(lambda clock=clock: status(backup).clocks[-1] == clock)
        for server in (owner, backup):
            server.release(1)
            server.checkpoint(0, tmp_path / "p")
            with pytest.raises(Refused, match=r"can go back to clocks \[1, 2, 3\], not 0"):
                new.restore(0, tmp_path / "p", [0], era=1, epoch=1, clock=0)
            for _ in range(2):
                assert new.restore(0, tmp_path / "p", [0, 1], era=1, epoch=1, clock=2) == 2
            assert (status(new).clocks, status(new).laggards, value(new)) == ((1, 2), (0, 1), 3)
            new.roll_back(1, 2)
            assert value(new) == 2
            new = Server(new.config)
            run.servers.append(new)


def test_a_closed_server_keeps_no_one_waiting() -> None:
    with store(LAYOUT, servers=2) as run:
        run.open(1, servers=1)
        old, new = run.servers
        tapped(old, before=once(old.close, Kind.PART))
        with pytest.raises((Refused, Lost)):
            old.prepare(0, new.address, 1, backup="")


def test_clients_of_a_backup_are_sent_on_to_its_owner() -> None:
    with working(servers=2) as (run, further):
        backup, heir = run.servers
        for partition in range(4):
            backup.prepare(partition, heir.address, 1, backup=backup.address)
            backup.commit(partition, 1)
        late = run.client(0, clock=0)
        assert late.owners()[0].address == backup.address
        further()
        late.read("n", [0])
        assert late.owners()[0].address == heir.address
