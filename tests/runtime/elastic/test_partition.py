"""One partition: clocks, pushes, roll-backs, and who takes part; sums and parts are in test_steps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.runtime.elastic.partition.partition import Partition, RejectedRequest
from plink.runtime.elastic.partition.serialization import begun, parts_of, take, workers_part
from tests.runtime.elastic.partitions import LAYOUT, ROWS, WORKERS, Clock, blocks_of, equal, made, states

CLOCKS = 4
PLAN = {(worker, clock): Clock(1) for worker in range(WORKERS) for clock in range(CLOCKS)}
TO = "replica:1"


@st.composite
def arrivals(draw: st.DrawFn) -> list[tuple[int, int]]:
    """(worker, clock) in an order in which they can come: each worker's clocks rise."""
    turns = draw(st.permutations([worker for worker in range(WORKERS) for _ in range(CLOCKS)]))
    counts = dict.fromkeys(range(WORKERS), 0)
    order = []
    for worker in turns:
        order.append((worker, counts[worker]))
        counts[worker] += 1
    return order


@given(arrivals(), st.integers(0, 1000), st.data())
def test_pushes_and_roll_backs(order: list[tuple[int, int]], seed: int, data: st.DataObject) -> None:
    """A replica has exactly the state of a clock, however pushes are lost, come late or twice, and both
    can go back to what they had."""
    active, wanted = made(history=True), states(PLAN, seed)
    replica = begun(LAYOUT, parts_of(active, ahead=False)[0], sees_ahead=False)
    active.replicas[TO] = -1
    late, has = [], {-1}
    for worker, clock in order:
        active.update(worker, clock, 0, True, blocks_of(worker, clock, seed=seed))
        push = active.take_delta(TO, data.draw(st.integers(active.replicated, active.clock)))
        fate = data.draw(st.sampled_from(["arrives", "is lost", "is late", "arrives but is not acknowledged"]))
        if fate.startswith("arrives"):
            before = replica.clock
            assert replica.apply_delta(push) == (push.after >= before)
            assert not replica.apply_delta(push)
            if fate == "arrives":
                active.arrived(TO, push)
        elif fate == "is late":
            late.append(push)
        if late and data.draw(st.booleans()):
            replica.apply_delta(late.pop(0))
        has.add(replica.clock)
        assert equal(replica, wanted[replica.clock + 1])
    assert replica.can_roll_back() == sorted(has)
    to = data.draw(st.sampled_from(sorted(has)))
    for partition in (active, replica):
        partition.roll_back(to)
        assert equal(partition, wanted[to + 1])
    for clock in range(to + 1, CLOCKS):  # the work is done again
        for worker in range(WORKERS):
            assert active.update(worker, clock, 0, True, blocks_of(worker, clock, seed=seed))
    assert equal(active, wanted[-1])
    assert replica.apply_delta(active.take_delta(TO, last=True))
    assert equal(replica, wanted[-1])


def test_released_clocks_are_gone_but_not_before_they_were_pushed() -> None:
    partition = made(history=True)
    for clock in range(CLOCKS):
        for worker in range(WORKERS):
            partition.update(worker, clock, 0, True, blocks_of(worker, clock, seed=1))
        if clock == 1:
            partition.replicas[TO] = 0
            partition.arrived(TO, partition.take_delta(TO))
    partition.truncate(3)
    assert partition.can_roll_back() == [1, 2, 3]
    with pytest.raises(RejectedRequest, match="not 0"):
        partition.roll_back(0)
    assert equal(partition, states(PLAN, 1)[-1])


def test_workers_come_and_go() -> None:
    """A clock needs those who take part in it; one who leaves owes what it promised."""
    partition = Partition(LAYOUT, 0)
    partition.admit({0: 0, 1: 0})
    partition.update(0, 0, 0, True, blocks_of(0, 0, seed=0))
    with pytest.raises(RejectedRequest, match="has begun"):
        partition.workers_from([0], 0)
    assert partition.workers_from([0], 1)
    partition.update(0, 1, 0, True, ())
    with pytest.raises(RejectedRequest, match="has begun"):
        partition.workers_from([0, 2], 1)
    assert not partition.workers_from([0], 1)
    assert partition.workers_from([2], 3)
    assert partition.workers_from([0, 2], 3)
    assert partition.workers_from([2], 3)
    assert (partition.clock, partition.stragglers()) == (-1, [1])
    partition.update(1, 0, 0, True, ())
    assert (partition.clock, partition.stragglers()) == (1, [0])
    with pytest.raises(RejectedRequest, match="after 0"):
        partition.update(1, 1, 0, True, ())
    with pytest.raises(RejectedRequest, match="has ended at clock 0, and cannot come back at 5"):
        partition.workers_from([1], 5)
    partition.update(0, 2, 0, True, ())
    assert (partition.clock, partition.stragglers()) == (2, [2])
    partition.update(2, 3, 0, True, ())
    partition.workers_from([], 4)
    assert partition.clock == 3
    partition.workers_from([7], 6)
    assert (partition.clock, partition.stragglers()) == (5, [7])  # nobody works at 4 and 5
    partition.truncate(5)
    assert list(partition.members) == [7]
    assert not partition.update(2, 3, 0, True, ())  # said again after all


@given(st.integers(0, 1000), st.integers(0, 2), st.booleans(), st.booleans())
def test_lost_workers_updates_count_up_to_the_takeover(
    seed: int, gone: int, sees_ahead: bool, all_before: bool
) -> None:
    """It did not know that it was, and has begun the clock at which its work changes hands; the same wherever the
    partition is on its way to by then."""
    active, wanted = made(history=True, sees_ahead=sees_ahead), states(PLAN, seed)
    others = [worker for worker in range(WORKERS) if worker != gone]
    lacking = [] if all_before else [(others[0], 1)]
    for worker, clock in [(worker, clock) for clock in (0, 1) for worker in range(WORKERS)] + [(gone, 2)]:
        if (worker, clock) not in lacking:
            active.update(worker, clock, 0, True, blocks_of(worker, clock, seed=seed))
    first, *parts = parts_of(active)
    target = begun(LAYOUT, first, sees_ahead=sees_ahead)
    for part in parts:
        take(target, part)
    with pytest.raises(RejectedRequest, match="has begun"):
        active.workers_from(range(WORKERS + 1), 2)
    assert active.workers_from([*others, WORKERS], 2)
    take(target, workers_part(0, [*others, WORKERS], 2))
    assert not active.workers_from([*others, WORKERS], 2)
    for partition in (active, target):
        for clock in (2, 3):  # what it says again, and what it goes on with
            with pytest.raises(RejectedRequest):
                partition.update(gone, clock, 0, True, blocks_of(gone, clock, seed=seed))
        for worker, clock in [*lacking, *((worker, clock) for clock in (2, 3) for worker in (*others, WORKERS))]:
            same = gone if worker == WORKERS else worker
            assert partition.update(worker, clock, 0, True, blocks_of(same, clock, seed=seed))
        assert partition.clock == CLOCKS - 1
        assert np.array_equal(partition.values[1], wanted[-1][1])
        np.testing.assert_allclose(partition.values[0], wanted[-1][0], rtol=1e-4, atol=1e-5)
        for table, values in enumerate(wanted[-1]):
            np.testing.assert_allclose(partition.read(table, range(ROWS)), values, rtol=1e-4, atol=1e-5)


def test_a_clock_that_all_have_done_is_nobody_elses() -> None:
    """The only worker was given up, and did more than the clock at which another was to go on."""
    partition = Partition(LAYOUT, 0)
    partition.admit({0: 0})
    partition.update(0, 0, 0, True, ())
    with pytest.raises(RejectedRequest, match="has begun"):
        partition.workers_from([1], 0)
    assert partition.workers_from([1], 1)


def test_what_cannot_be_is_refused_and_changes_nothing() -> None:
    partition = made()
    for does in (
        lambda: partition.update(9, 0, 0, True, ()),
        lambda: partition.update(0, 1, 0, True, ()),
        lambda: partition.take_delta(TO),
        lambda: partition.roll_back(3),
        lambda: partition.admit({0: 5}),
        lambda: take(partition, parts_of(partition)[0]),
    ):
        with pytest.raises(RejectedRequest):
            does()
    assert equal(partition, states(PLAN, 0)[0])
    assert partition.stragglers() == [0, 1, 2]
