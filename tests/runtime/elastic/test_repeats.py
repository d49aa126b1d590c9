"""What is asked again, comes too late or half, counts once."""

import numpy as np
import pytest

from plink.elastic import Table
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.arrays.row_blocks import RowBlock
from plink.runtime.elastic.partition import partition as partition_module
from plink.runtime.elastic.partition.partition import Partition, RejectedRequest
from plink.runtime.elastic.partition.serialization import parts_of
from plink.runtime.elastic.replica.snapshot import Role
from plink.runtime.elastic.transport.messages import Activate, Message, Status, Update
from tests.runtime.elastic.stores import hand_over, store

LAYOUT = Layout((Table("n", 4, 1, "int64"),), 1)


def of(number: int) -> tuple[RowBlock, ...]:
    """An addition of the same number everywhere."""
    return (RowBlock(0, range(4), np.full((4, 1), number)),)


def update(worker: int, clock: int, number: int, generation: int = 0) -> Message:
    """As a client sends it."""
    return Update(0, worker=worker, clock=clock, generation=generation, last=True, blocks=of(number))


def test_a_roll_back_asked_for_twice_leaves_the_work_of_its_generation() -> None:
    with store(LAYOUT) as run:
        run.open(1, history=True)
        (server,) = run.servers
        for clock in range(3):
            server.actor(0).ask(update(0, clock, 1))
        server.roll_back(0, 1)
        assert server.actor(0).ask(update(0, 1, 10, generation=1)).status is Status.OK
        server.roll_back(0, 1)
        assert (server.actor(0).partition.values[0] == 11).all()
        for clock, generation in ((-1, 1), (0, 0)):
            with pytest.raises(RejectedRequest, match="in generation 1 since clock 0"):
                server.roll_back(clock, generation)
        assert (server.actor(0).partition.values[0] == 11).all()


@pytest.mark.parametrize("before", [True, False])
def test_what_arrives_from_before_a_roll_back_does_not_begin(before: bool) -> None:
    """Whether it began to arrive before or after this server was rolled back."""
    with store(LAYOUT, servers=2) as run:
        run.open(1, servers=1, history=True)
        run.servers[0].actor(0).ask(update(0, 0, 1))
        state, *_ = parts_of(run.servers[0].actor(0).partition)
        target = run.servers[1]
        if before:
            target.actor(0).ask(state)
            assert target.actor(0).role is Role.ARRIVING
        target.roll_back(-1, 1)
        if not before:
            assert "rolled back" in target.actor(0).ask(state).text
        answer = target.actor(0).ask(Activate(0, term=1, text="serving "))
        assert (answer.status, target.actor(0).role is Role.SERVING) == (Status.REFUSED, False)
        with pytest.raises(RejectedRequest, match="rolled back in 1"):
            hand_over(run.servers[0], 0, target.address, 2)
        run.servers[0].roll_back(-1, 1)
        hand_over(run.servers[0], 0, target.address, 2)
        assert not target.actor(0).partition.values[0].any()


def test_no_clock_passes_before_all_have_joined() -> None:
    with store(LAYOUT, servers=2) as run:
        run.servers[0].open(0, {0: 5, 1: 0}, history=True)
        primary = run.servers[0].actor(0)
        assert (primary.partition.clock, primary.partition.stragglers()) == (-1, [1])
        run.servers[0].add_replica(0, run.servers[1].address)
        with pytest.raises(RejectedRequest, match="no worker can begin at clock -1"):
            run.servers[1].promote(0, [0, 1], -1, term=1)
        run.servers[1].promote(0, [0, 1], 0, term=1)
        assert sorted(run.servers[1].actor(0).partition.members) == [0, 1]


def test_a_clock_that_lacks_memory_is_not_passed_without_its_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = Partition(LAYOUT, 0, history=True)
    partition.admit({0: 0, 1: 0})
    partition.update(0, 0, 0, True, of(1))

    def none_left(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(partition_module, "copied", none_left)
        with pytest.raises(MemoryError):
            partition.update(1, 0, 0, True, of(10))
    assert partition.clock == -1
    assert not partition.update(1, 0, 0, True, of(10))
    assert (partition.clock, partition.values[0].tolist()) == (0, [[11]] * 4)
    partition.roll_back(-1)
    assert not partition.values[0].any()
