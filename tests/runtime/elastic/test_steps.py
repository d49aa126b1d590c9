"""Clocks of several steps: each step counts once, whoever sends it, in whatever order workers' steps arrive."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.elastic import Table
from plink.model.consistency import BSP
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.arrays.row_blocks import RowBlock
from plink.runtime.elastic.partition.partition import Partition, RejectedRequest
from plink.runtime.elastic.partition.serialization import begun, parts_of, take, update_part, workers_part
from plink.runtime.elastic.transport.messages import Update
from plink.runtime.elastic.worker.client import OtherSteps
from tests.runtime.elastic.partitions import LAYOUT, ROWS, WORKERS, Clock, Plan, blocks_of, equal, made, states
from tests.runtime.elastic.stores import Store, hand_over, store, together

CLOCKS, MOST_STEPS = 3, 4
clocks = st.one_of(
    st.builds(Clock, st.integers(1, MOST_STEPS)),
    st.builds(Clock, st.integers(0, MOST_STEPS), st.integers(1, MOST_STEPS)),
)
plans = st.fixed_dictionaries({(worker, clock): clocks for worker in range(WORKERS) for clock in range(CLOCKS)})
Sent = tuple[int, int, int, bool]


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[Plan, list[Sent]]:
    """Steps as they may come: those of a worker in order, some of them once more at once."""
    plan: Plan = draw(plans)
    left = {
        worker: [(worker, clock, *sent) for clock in range(CLOCKS) for sent in plan[worker, clock].sent()]
        for worker in range(WORKERS)
    }
    turns = draw(st.permutations([worker for worker, steps in left.items() for _ in steps]))
    order: list[Sent] = []
    for worker in turns:
        sent = left[worker].pop(0)
        order += [sent] * draw(st.integers(1, 2))
    return plan, order


def send(partition: Partition, sent: Sent) -> bool:
    worker, clock, step, last = sent
    return partition.update(worker, clock, step, last, blocks_of(worker, clock, step))


def in_newest(partition: Partition, arrived: dict[tuple[int, int], int]) -> bool:
    """Whether all steps that arrived can be read, of worker and clock so many each."""
    total = np.zeros((ROWS, 1), np.int64)
    for (worker, clock), steps in arrived.items():
        for step in range(steps):
            for block in blocks_of(worker, clock, step)[1:]:
                total += block.values
    return np.array_equal(partition.read(1, range(ROWS)), total)


@pytest.mark.extended
@given(arrivals(), st.booleans())
def test_state_is_the_same_to_the_bit_in_any_order(drawn: tuple[Plan, list[Sent]], sees_ahead: bool) -> None:
    """With repeats, and successors with fewer or more steps; all that arrived is seen at once."""
    plan, order = drawn
    partition, wanted = made(sees_ahead=sees_ahead), states(plan)
    finished, arrived = dict.fromkeys(range(WORKERS), -1), dict[tuple[int, int], int]()
    for worker, clock, step, last in order:
        steps = arrived.get((worker, clock), 0)
        counts = clock > finished[worker] and step == steps
        assert send(partition, (worker, clock, step, last)) == counts
        arrived[worker, clock] = max(steps, step + 1)
        finished[worker] = max(finished[worker], clock if last and counts else -1)
        assert partition.steps_of(worker, clock) == (arrived[worker, clock], finished[worker] == clock)
        assert partition.clock == min(finished.values())
        assert equal(partition, wanted[partition.clock + 1])
        if sees_ahead:
            assert in_newest(partition, arrived)
    assert partition.clock == CLOCKS - 1


@given(arrivals(), st.data(), st.booleans())
def test_a_partition_moves_between_any_two_steps(
    drawn: tuple[Plan, list[Sent]], data: st.DataObject, sees_ahead: bool
) -> None:
    """Some steps come while its parts are on their way, and some of those before are sent again afterwards."""
    plan, order = drawn
    when = data.draw(st.integers(0, len(order)))
    then = data.draw(st.integers(when, len(order)))
    again = data.draw(st.integers(0, when))
    partition, wanted = made(history=True, sees_ahead=sees_ahead), states(plan)
    for sent in order[:when]:
        send(partition, sent)
    parts = parts_of(partition)
    for values in partition.values:  # the parts are copies
        values += 7
    for worker, clock, step, last in order[when:then]:
        update = Update(0, worker=worker, clock=clock, step=step, last=last, blocks=blocks_of(worker, clock, step))
        part = update_part(update)
        if send(partition, (worker, clock, step, last)):
            parts.append(part)
    other = begun(LAYOUT, parts[0], sees_ahead=sees_ahead)
    for part in parts[1:]:
        take(other, part)
    assert other.members == partition.members
    for sent in order[again:when]:  # nobody knows whether it has them
        assert not send(other, sent)
    for sent in order[then:]:
        assert send(other, sent) == send(partition, sent)
    assert equal(other, wanted[-1])
    assert other.can_roll_back() == partition.can_roll_back() == list(range(-1, CLOCKS))
    other.roll_back(-1)
    assert equal(other, wanted[0])


@given(arrivals(), st.data())
def test_a_roll_back_between_any_two_steps(drawn: tuple[Plan, list[Sent]], data: st.DataObject) -> None:
    """Steps of clocks that are to be done again count no more; all is as if they had never been."""
    plan, order = drawn
    partition, wanted = made(history=True, sees_ahead=True), states(plan)
    for sent in order[: data.draw(st.integers(0, len(order)))]:
        send(partition, sent)
    to = data.draw(st.sampled_from(partition.can_roll_back()))
    partition.roll_back(to)
    assert equal(partition, wanted[to + 1])
    assert np.array_equal(partition.read(1, range(ROWS)), wanted[to + 1][1])
    assert all(member.steps == 0 for member in partition.members.values())
    for clock in range(to + 1, CLOCKS):
        for worker in range(WORKERS):
            for step in range(counted := plan[worker, clock].counted):
                assert send(partition, (worker, clock, step, step == counted - 1))
    assert equal(partition, wanted[-1])


def test_steps_that_cannot_be_are_refused() -> None:
    partition = made()
    for sent, reason in (
        ((0, 0, 1, False), "step 1 of clock 0 after 0"),
        ((0, 0, 2, True), "step 2 of clock 0 after 0"),
    ):
        with pytest.raises(RejectedRequest, match=reason):
            send(partition, sent)
    assert send(partition, (0, 0, 0, False))
    with pytest.raises(RejectedRequest, match="sent clock 1 after -1"):
        send(partition, (0, 1, 0, False))


def test_workers_change_in_the_midst_of_a_clock() -> None:
    """Who is given up leaves its steps of earlier clocks, which a successor ends; those of the clock at which others go
    on count nowhere. Nobody changes at a clock of which a step of one who stays is there."""
    partition = made(sees_ahead=True)
    for worker in range(WORKERS):
        send(partition, (worker, 0, 0, True))
    send(partition, (0, 1, 0, False))
    send(partition, (1, 1, 0, False))
    with pytest.raises(RejectedRequest, match="has begun"):
        partition.workers_from([1, 2, 3], 1)
    send(partition, (1, 1, 1, True))
    send(partition, (1, 2, 0, False))
    twin = begun(LAYOUT, parts_of(partition)[0], sees_ahead=True)
    for part in parts_of(partition)[1:]:
        take(twin, part)
    assert partition.workers_from([0, 2, 3], 2)  # 1 is gone
    take(twin, workers_part(0, [0, 2, 3], 2))
    for item in (partition, twin):
        assert [(member.finished, member.steps) for member in item.members.values()] == [(0, 1), (1, 0), (0, 0), (1, 0)]
        assert in_newest(item, {(0, 0): 1, (1, 0): 1, (2, 0): 1, (0, 1): 1, (1, 1): 2})
        with pytest.raises(RejectedRequest):
            send(item, (1, 2, 1, True))
        assert not send(item, (0, 1, 0, True))  # of its successor, which has to do more
        assert send(item, (0, 1, 1, True))
        assert send(item, (2, 1, 0, True))
        assert item.clock == 1


def test_sum_of_a_workers_steps_that_is_too_large_stops_the_partition() -> None:
    """And the one that it moves to, though what the others add would take it back."""
    layout = Layout((Table("n", 2, 1, "int32"),), 1)
    partition = Partition(layout, 0)
    partition.admit({0: 0, 1: 0})
    most = np.iinfo(np.int32).max
    for step, number in enumerate((most, 1)):
        partition.update(1, 0, step, False, (RowBlock(0, range(2), np.full((2, 1), number, np.int32)),))
    other = begun(layout, parts_of(partition)[0], sees_ahead=False)
    for part in parts_of(partition)[1:]:
        take(other, part)
    for item in (partition, other):
        with pytest.raises(RejectedRequest, match="table 'n', row 0: with what the workers add at clock 0"):
            item.check()
        item.roll_back(-1) if item.history else item.forget_ahead()
        item.check()


@dataclass(frozen=True)
class Stepping(BSP):
    """Clocks of several steps: a read waits for the clock before, and sees all that arrived."""

    steps = True
    sees_ahead = True


COUNTS = Layout((Table("n", ROWS, 1, "int64"),), 2)


def add(run: Store, worker: int, plans: Sequence[Sequence[int]]) -> None:
    """Clocks of so many steps each, of which each adds 1 to all; all clocks before are there."""
    client = run.client(worker)
    for clock, steps in enumerate(plans[worker]):
        for step in range(steps):
            result = client.read("n", [worker, ROWS - 1], own=False)
            assert (result >= sum(sum(plan[:clock]) for plan in plans) + step).all()
            client.update("n", range(ROWS), np.ones((ROWS, 1), np.int64))
            client.push(last=step == steps - 1)


def test_clients_push_several_steps_a_clock() -> None:
    """Partitions move meanwhile."""
    plans = [3, 1, 4] * 6, [1, 2, 1] * 6

    with store(COUNTS, Stepping(), servers=2) as run:
        run.open(2)

        def move() -> None:
            for term in range(1, 13):
                source = run.holding(term % 2)
                target = next(server for server in run.servers if server is not source)
                hand_over(source, term % 2, target.address, term)

        together(lambda: add(run, 0, plans), lambda: add(run, 1, plans), move)
        assert (run.state() == sum(map(sum, plans))).all()


def test_step_is_seen_by_the_next_one_and_by_others_in_the_same_clock() -> None:
    with store(COUNTS, Stepping()) as run:
        run.open(2)
        item, other = run.client(0), run.client(1)
        assert item.read("n", [3]).tolist() == [[0]]
        item.update("n", [3], [[1]])
        item.push(last=False)
        assert (item.now, item.step) == (0, 1)
        assert [client.read("n", [3]).tolist() for client in (item, other)] == [[[1]], [[1]]]
        other.update("n", [3], [[10]])
        other.push()
        item.update("n", [3], [[1]])
        assert item.read("n", [3]).tolist() == [[2]]  # given before the other one's
        item.push()
        assert item.read("n", [3]).tolist() == other.read("n", [3]).tolist() == [[12]]
        assert ((item.now, item.step), (run.state() == 12).sum()) == ((1, 0), 1)


def test_successor_does_all_steps_of_its_predecessor() -> None:
    """And one more, though it wants to end the clock sooner; from the next clock on it goes its own way."""
    with store(COUNTS, Stepping()) as run:
        run.open(1)
        lost = run.client(0)
        for _ in range(3):
            lost.update("n", range(ROWS), np.ones((ROWS, 1), np.int64))
            lost.push(last=False)
        item = run.client(0)
        assert item.is_last(True)
        with pytest.raises(OtherSteps):
            item.push()
        item.discard()
        while item.now == 0:
            assert not item.is_last(False)
            item.update("n", range(ROWS), np.ones((ROWS, 1), np.int64))
            item.push(last=item.is_last(True))
        assert (item.read("n", range(ROWS)) == 3 + 1).all()
        item.update("n", range(ROWS), np.ones((ROWS, 1), np.int64))
        item.push(last=item.is_last(True))
        assert (item.now, (run.state() == 3 + 2).all()) == (2, True)
