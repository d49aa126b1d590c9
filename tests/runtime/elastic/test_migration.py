"""Moves that are disturbed: nothing is lost, doubled or served twice."""

from collections.abc import Callable

import numpy as np
import pytest
from msgspec import structs

from plink.model.consistency import BSP, SSP, Rule
from plink.runtime.elastic.partition.partition import RejectedRequest
from plink.runtime.elastic.replica import migration
from plink.runtime.elastic.replica.snapshot import Role
from plink.runtime.elastic.transport.connection import Connection
from plink.runtime.elastic.transport.messages import (
    Activate,
    Message,
    PartitionPart,
    PartKind,
    Read,
    RowRequest,
    Status,
)
from plink.runtime.elastic.transport.records import ConnectionLost, Forged
from tests.runtime.elastic.stores import hand_over, store, together, wait_for
from tests.runtime.elastic.test_repeats import LAYOUT, update


class Tapped(Connection):
    """Does something before a message is sent, and may lose the answer."""

    before: Callable[[Message], None] = staticmethod(lambda message: None)
    after: Callable[[Message], None] = staticmethod(lambda message: None)

    def ask(self, message: Message) -> Message:
        self.before(message)
        answer = super().ask(message)
        self.after(message)
        return answer


def once(what: Callable[[], object], kind: type[Message], part: PartKind | None = None) -> Callable[[Message], None]:
    """At the first message of a kind."""
    left = [what]

    def at(message: Message) -> None:
        if left and isinstance(message, kind) and part in (None, getattr(message, "kind", None)):
            left.pop()()

    return at


def tapped(server: object, **taps: Callable[[Message], None]) -> None:
    """All lines that a server opens from now on."""
    real = type(server).connection  # type: ignore[attr-defined]

    def line(address: str) -> Connection:
        made = real(server, address)
        made.__class__ = Tapped
        for name, tap in taps.items():
            setattr(made, name, tap)
        return made  # type: ignore[no-any-return]

    server.connection = line  # type: ignore[attr-defined]


def fails(error: Exception) -> Callable[[], None]:
    """Raise it."""

    def fail() -> None:
        raise error

    return fail


def test_late_delivery_of_a_cancelled_move_is_refused() -> None:
    """It comes over a connection that the mover has left, when the next attempt has brought all there is."""
    with store(LAYOUT, SSP(9), servers=2) as run:
        run.open(2, servers=1, history=True)
        source, target = run.servers[0].actor(0), run.servers[1].actor(0)
        source.ask(update(0, 0, 1))
        sent: list[Message] = []
        tapped(
            run.servers[0],
            before=sent.append,
            after=once(fails(ConnectionLost("frozen")), PartitionPart, PartKind.SUMS),
        )
        with pytest.raises(ConnectionLost):
            hand_over(run.servers[0], 0, run.servers[1].address, 1)
        late, output = list(sent), []

        def thaw() -> None:
            output.extend(target.ask(message).status for message in late)

        tapped(run.servers[0], before=once(thaw, Activate))
        hand_over(run.servers[0], 0, run.servers[1].address, 2)
        assert output == [Status.REFUSED] * len(late)
        assert target.partition.read(0, range(4)).tolist() == [[1]] * 4
        target.ask(update(1, 0, 10))
        assert (target.partition.values[0] == 11).all()


def test_a_late_command_does_not_make_a_replica_serve_that_was_rolled_back() -> None:
    with store(LAYOUT, servers=2) as run:
        run.open(1, servers=1)
        run.servers[0].add_replica(0, run.servers[1].address)
        replica, late = run.servers[1].actor(0), []
        lost = fails(ConnectionLost("gone"))
        tapped(run.servers[0], before=lambda message: isinstance(message, Activate) and (late.append(message), lost()))
        with pytest.raises(migration.InDoubt):
            hand_over(run.servers[0], 0, run.servers[1].address, 1)
        run.servers[1].roll_back(-1, 2)
        for generation in (0, 2):
            assert replica.ask(structs.replace(late[0], generation=generation)).status is Status.REFUSED
        assert replica.role is Role.REPLICA


@pytest.mark.parametrize("rule", [BSP(), SSP(2)])
def test_a_successor_sees_what_the_lost_worker_saw(rule: Rule) -> None:
    """The update of the lost one is in the state already."""
    with store(LAYOUT, rule) as run:
        run.open(2)
        primary = run.servers[0].actor(0)
        for worker in (0, 1):
            primary.ask(update(worker, 0, 10**worker))
        successor = run.client(1)
        if not rule.sees_ahead:
            assert not successor.read("n", range(4)).any()
        else:
            successor.read("n", range(4))
        successor.update("n", range(4), np.full((4, 1), 10))
        if not rule.sees_ahead:
            assert (successor.read("n", range(4)) == 10).all()
        successor.push()
        assert (successor.read("n", range(4)) == 11).all()
        assert (run.state() == 11).all()


def test_a_successor_sees_it_after_a_move_and_after_old_steps_were_released() -> None:
    with store(LAYOUT, servers=2) as run:
        run.open(2, servers=1, history=True)
        for worker in (0, 1):
            run.servers[0].actor(0).ask(update(worker, 0, 10**worker))
        run.servers[0].truncate(0)
        successor = run.client(1)
        assert not successor.read("n", [0]).any()
        hand_over(run.servers[0], 0, run.servers[1].address, 1)
        assert not successor.read("n", [1]).any()


@pytest.mark.parametrize("error", [ConnectionLost("gone"), Forged("not decodable")])
def test_a_lost_answer_to_the_last_word_does_no_harm(error: Exception) -> None:
    with store(LAYOUT, servers=2) as run:
        run.open(1, servers=1)
        run.servers[0].actor(0).ask(update(0, 0, 5))
        tapped(run.servers[0], after=once(fails(error), Activate))
        hand_over(run.servers[0], 0, run.servers[1].address, 1)
        assert run.holding(0) is run.servers[1]
        assert (run.state() == 5).all()


@pytest.mark.parametrize("arrives", [True, False])
def test_the_state_is_kept_until_it_is_known_who_serves(arrives: bool) -> None:
    with store(LAYOUT, servers=2) as run:
        run.open(1, servers=1)
        run.servers[0].actor(0).ask(update(0, 0, 5))

        def lost(message: Message) -> None:
            if isinstance(message, Activate):
                raise ConnectionLost("gone")

        tapped(run.servers[0], **{"after" if arrives else "before": lost})
        with pytest.raises(migration.InDoubt):
            hand_over(run.servers[0], 0, run.servers[1].address, 1)
        with pytest.raises(migration.InDoubt):
            run.servers[0].resolve(0)
        assert run.servers[0].status()[0].role == "in_doubt"
        if arrives:
            tapped(run.servers[0])
            run.servers[0].resolve(0)
            assert run.servers[0].status()[0].role == "moved"
            with pytest.raises(RejectedRequest, match="has no replica here"):
                run.servers[0].promote(0, [0], 1, term=2)
        else:
            run.servers[1].close()
            with pytest.raises(RejectedRequest, match="has no replica here"):
                run.servers[0].promote(0, [0], 1, term=1)
            run.servers[0].promote(0, [0], 1, term=2)
        assert (run.state() == 5).all()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_replica_that_missed_a_roll_back_is_not_pushed_to(when: str) -> None:
    with store(LAYOUT, servers=2) as run:
        run.open(1, servers=1, history=True)
        run.servers[0].actor(0).ask(update(0, 0, 5))
        tap = once(lambda: run.servers[0].roll_back(-1, 1), Activate if when == "after" else PartitionPart)
        tapped(run.servers[0], **{when: tap})
        with pytest.raises(RejectedRequest, match="given up"):
            run.servers[0].add_replica(0, run.servers[1].address)
        assert not run.servers[0].status()[0].replicas
        run.servers[0].add_replica(0, run.servers[1].address)
        assert not run.servers[1].actor(0).partition.values[0].any()
        assert run.servers[1].status()[0].generation == 1


def test_a_read_that_fails_harms_no_other() -> None:
    """Nor the thread of the partition, when it had been waiting."""
    with store(LAYOUT) as run:
        run.open(1)
        primary = run.servers[0].actor(0)
        read = Read(0, worker=0, clock=1, state=0)
        reads = [structs.replace(read, wanted=(RowRequest(table, range(4)),)) for table in (7, 0)]

        def add() -> None:
            wait_for(lambda: len(primary._waiting) == 2)
            primary.ask(update(0, 0, 5))

        bad, good, _ = together(*(lambda read=read: primary.ask(read) for read in reads), add)  # type: ignore[misc]
        assert isinstance(bad, Message)
        assert (bad.status, bad.text.split(":")[0]) == (Status.REFUSED, "IndexError")
        assert isinstance(good, Message)
        assert (good.blocks[0].values == 5).all()
