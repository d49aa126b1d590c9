"""Sums that the type of a table has no room for: they are said, and never become an infinity or another number."""

import contextlib
import re
from typing import Any

import numpy as np
import pytest

from plink.elastic import AppError, Objective, Params, StoppingCriterion, Table, train
from plink.errors import InputError, PlinkError
from plink.model.consistency import BSP, SSP, Rule
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.arrays.row_blocks import RowBlock
from plink.runtime.elastic.partition.partition import Partition
from plink.runtime.elastic.transport.messages import Read, RowRequest, Status, Update
from tests.runtime.elastic.small_app import Means
from tests.runtime.elastic.stores import hand_over, store, wait_for

ROWS, WIDTH, PARTITIONS = 7, 3, 2
ROW = 5  # the one whose sums are too large: number 2 of partition 1
RULES = (BSP(), SSP(2))


def layout(dtype: str) -> Layout:
    """Of one table."""
    return Layout((Table("t", ROWS, WIDTH, dtype),), PARTITIONS)


def most(dtype: str) -> Any:
    """What twice of has no room."""
    return np.iinfo(dtype).max // 2 + 2 if dtype.startswith("i") else np.finfo(dtype).max


def deltas(dtype: str, large: float = 0) -> np.ndarray:
    """1 everywhere, and one large number."""
    result = np.ones((ROWS, WIDTH), dtype)
    result[ROW, 1] = large or 1
    return result


def overflow_message(dtype: str, clock: int) -> str:
    """By a server."""
    return re.escape(f"table 't', row {ROW}: with what the workers add at clock {clock} there is more than {dtype} has")


@pytest.mark.parametrize(
    ("dtype", "rows", "sign"),
    [("int32", np.arange(ROWS), 1), ("int64", np.arange(ROWS)[::-1], -1), ("float32", np.arange(ROWS)[::-1], 1),
     ("float64", np.array([0, 1, 2, 3, 4, 6, 5, 5]), -1)],
)  # fmt: skip
def test_what_one_worker_adds_at_a_clock(dtype: str, rows: np.ndarray, sign: int) -> None:
    """It is refused with its row, worker and clock, and nothing of it is added; however its rows are ordered."""
    with store(layout(dtype)) as run:
        run.open(1)
        client = run.client(0)
        client.push()
        client.update("t", rows[:7], sign * deltas(dtype, most(dtype))[rows[:7]])
        where = f"^update of table 't': row {ROW}: with what worker 0 adds at clock 1 there is more than {dtype} has"
        with pytest.raises(InputError, match=where):
            client.update("t", rows, sign * deltas(dtype, most(dtype))[rows])
        client.push()
        assert np.array_equal(run.state(), sign * deltas(dtype, most(dtype)))


@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_what_one_worker_adds_to_a_row_twice_in_one_call(dtype: str) -> None:
    with store(layout(dtype)) as run:
        run.open(1)
        client, large = run.client(0), np.full((2, WIDTH), most(dtype))
        client.update("t", [3], np.ones((1, WIDTH), dtype))
        with pytest.raises(InputError, match=f"row {ROW}: with what worker 0 adds at clock 0 .* {dtype}"):
            client.update("t", [ROW, ROW], large)
        client.push()
        assert run.state().sum() == WIDTH


@pytest.mark.parametrize(("dtype", "rows"), [("int64", range(ROWS)), ("float32", [ROW, 2]), ("int32", [ROW, 3])])
def test_what_one_reads_with_ones_own_additions(dtype: str, rows: Any) -> None:
    with store(layout(dtype)) as run:
        run.open(1)
        client = run.client(0)
        client.update("t", range(ROWS), deltas(dtype, most(dtype)))
        client.push()
        client.update("t", [ROW, 2], deltas(dtype, most(dtype))[[ROW, 2]])
        with pytest.raises(InputError, match=f"^table 't': row {ROW}: with what worker 0 adds at clock 1 .* {dtype}"):
            client.read("t", rows)
        assert (client.read("t", rows, own=False) == deltas(dtype, most(dtype))[list(rows)]).all()


@pytest.mark.parametrize(
    ("dtype", "rule", "some"),
    [("int32", BSP(), False), ("int64", SSP(2), True), ("float32", BSP(), True), ("float64", SSP(2), False)],
)
def test_what_several_workers_add_at_a_clock(dtype: str, rule: Rule, some: bool) -> None:
    """And all that a clock adds to the state: it is refused, says so to all from then on, and changes nothing.

    ``some``: they add to different rows, so that their sums are added to the state one after the other."""
    with store(layout(dtype), rule) as run:
        run.open(2, history=True)
        clients = [run.client(worker) for worker in range(2)]
        for client in clients:
            client.update("t", range(ROWS), deltas(dtype))
            client.push()
        before = run.state()
        clients[0].update("t", range(ROWS), deltas(dtype, most(dtype)))
        clients[0].push()
        clients[1].update(
            "t", [ROW, 6] if some else range(ROWS), deltas(dtype, most(dtype))[[ROW, 6] if some else slice(None)]
        )
        address = run.servers[0].address
        with pytest.raises(PlinkError, match=f"^partition 1 at {address}: {overflow_message(dtype, 1)}"):
            clients[1].push()
        assert np.array_equal(run.state()[1::2], before[1::2])
        assert run.servers[0].status()[1].clocks == (-1, 0)
        primary = run.servers[0].actor(1)
        for message in (
            Read(1, worker=0, clock=2, state=1, wanted=(RowRequest(0, range(3)),)),
            Update(1, worker=0, clock=2, last=True),
            Update(1, worker=1, clock=1, last=True),
        ):
            answer = primary.ask(message)
            assert answer.status is Status.REFUSED
            assert re.match(overflow_message(dtype, 1), answer.text)


@pytest.mark.parametrize(
    ("dtype", "rule", "rows"),
    [("int32", SSP(2), range(ROWS)), ("int64", BSP(), [ROW, 6]), ("float32", SSP(2), [ROW, 6]),
     ("float64", BSP(), range(ROWS))],
)  # fmt: skip
def test_what_is_added_clock_after_clock(dtype: str, rule: Rule, rows: Any) -> None:
    """The active server and its replica have the state of the clock before, and can still go back; then work goes
    on."""
    with store(layout(dtype), rule, servers=2) as run:
        run.open(1, servers=1)
        active, replica = run.servers
        for partition in range(PARTITIONS):
            active.add_replica(partition, replica.address)
        client = run.client(0)
        for clock in range(3):
            client.update("t", rows, deltas(dtype, most(dtype) if clock == 1 else 0)[list(rows)])
            client.push()
        before = run.state()
        client.update("t", rows, deltas(dtype, most(dtype))[list(rows)])
        with pytest.raises(PlinkError, match=overflow_message(dtype, 3)):
            client.push()
        assert np.array_equal(run.state()[1::2], before[1::2])
        wait_for(lambda: replica.status()[1].clocks[-1] == active.status()[1].clocks[-1] == 2)
        assert np.array_equal(replica.actor(1).partition.values[0], before[1::2])
        for server in (active, replica):
            server.roll_back(-1, 1)
        client.roll_back(-1, 1)
        client.update("t", rows, deltas(dtype, most(dtype))[list(rows)])
        client.push()
        assert client.read("t", [ROW], own=False)[0, 1] == most(dtype)
        wait_for(lambda: replica.status()[1].clocks[-1] == 0)
        assert np.array_equal(replica.actor(1).partition.values[0], run.state()[1::2])


def block(dtype: str, large: float = 0) -> tuple[RowBlock, ...]:
    """What one adds to partition 1."""
    return (RowBlock(0, range(3), deltas(dtype, large)[1::2].copy()),)


@pytest.mark.parametrize(
    ("dtype", "rule", "drains"),
    [("int32", BSP(), True), ("int64", SSP(2), False), ("float32", SSP(2), True), ("float64", BSP(), False)],
)
def test_a_partition_that_moves_takes_it_along(dtype: str, rule: Rule, drains: bool) -> None:
    """It is said wherever anybody asks."""
    with store(layout(dtype), rule, servers=2) as run:
        run.open(2, servers=1, history=True)
        old, new = run.servers
        if drains:
            old.add_replica(1, new.address)
        for worker in range(2):
            update = Update(1, worker=worker, clock=0, last=True, blocks=block(dtype, most(dtype)))
            assert (old.actor(1).ask(update).status is Status.OK) == (worker == 0)
        hand_over(old, 1, new.address, 1)
        read = Read(1, worker=0, clock=1, state=0, wanted=(RowRequest(0, range(3)),))
        for server in (new, old):  # which asks the other one
            with contextlib.closing(server.connection(server.address)) as line:
                answer = line.ask(read)
            assert answer.status is Status.REFUSED
            assert re.match(overflow_message(dtype, 0), answer.text)
        assert new.actor(1).partition.clock == -1


def test_lost_worker_takes_its_oversized_reads_along() -> None:
    """What counts no more is in no sum."""
    for rule in RULES:
        partition = Partition(layout("int32"), 1, history=True, sees_ahead=rule.sees_ahead)
        partition.admit({0: 0, 1: 0})
        partition.update(0, 0, 0, True, block("int32"))
        partition.update(0, 1, 0, True, block("int32", most("int32")))
        partition.update(0, 2, 0, True, block("int32", most("int32")))
        assert bool(partition.overflow) is rule.sees_ahead
        partition.workers_from([1, 2], 1)
        partition.check()
        partition.update(1, 0, 0, True, block("int32"))
        assert partition.clock == 0
        assert (partition.read(0, range(3)) == 2).all()


@pytest.mark.parametrize(("dtype", "taken_away"), [("int32", True), ("int64", False), ("float64", False)])
def test_oversized_rereads_under_staleness_are_requested(dtype: str, taken_away: bool) -> None:
    """Where another worker took something away meanwhile there is nothing wrong."""
    with store(layout(dtype), SSP(5)) as run:
        run.open(2)
        first, second = run.client(0), run.client(1)
        first.update("t", [ROW], [[most(dtype)] * WIDTH])
        first.push()
        first.read("t", [ROW])
        if taken_away:
            second.update("t", [ROW], [[-most(dtype)] * WIDTH])
            second.push()
        first.update("t", [ROW], [[most(dtype)] * WIDTH])
        with contextlib.nullcontext() if taken_away else pytest.raises(PlinkError, match=overflow_message(dtype, 1)):
            first.push()
            assert (first.read("t", [ROW]) == most(dtype)).all()


class Large(Means):
    """Adds numbers of which so many have no room: shards at a clock, or clocks."""

    def __init__(self, dtype: str, room_for: float, clocks: int = 4) -> None:
        super().__init__(shards=4, batches=1, stop=StoppingCriterion(clocks=clocks))
        self.tables = (Table("t", ROWS, WIDTH, dtype),)
        limit = float(np.iinfo(dtype).max if dtype.startswith("i") else np.finfo(dtype).max)
        self.large = np.array([[limit / room_for] * WIDTH]).astype(dtype)

    def process(self, items: Any, params: Params) -> None:  # type: ignore[override]
        params.update("t", [ROW], self.large)


@pytest.mark.parametrize("dtype", ["int32", "float64"])
def test_a_job_ends_with_it(dtype: str) -> None:
    """With the block, where it is what one worker adds."""
    where = r"^app Large: process\(\) of shard 1 at clock 1 raised InputError: update of table 't': "
    what = f"row {ROW}: with what worker 0 adds at clock 1 there is more than {dtype} has room for"
    with pytest.raises(AppError, match=where + what):
        train(Large(dtype, room_for=1.5))
    for workers, room_for, clock in ((2, 2.5, 1), (4, 3.5, 1), (1, 8.5, 3), (4, 8.5, 3)):
        with pytest.raises(PlinkError, match=f"row {ROW}: with what the workers add at clock {clock} there is more"):
            train(Large(dtype, room_for), workers=workers)
    app = Large(dtype, room_for=8.5, clocks=2)
    np.testing.assert_allclose(train(app, workers=2).tables["t"][ROW], 8.0 * app.large[0].astype(float), rtol=1e-6)


class Poor(Means):
    """Whose objective is nearly without end."""

    tables = (Table("m", 1, 1),)

    def process(self, items: Any, params: Params) -> Objective:
        return Objective(1e308, 1)


def test_the_objectives_of_a_worker_or_of_all() -> None:
    with pytest.raises(AppError, match=r"^app Poor: the objectives of worker 0 at clock 1: update of table 'plink.obj"):
        train(Poor(shards=2, batches=1))
    with pytest.raises(PlinkError, match=r"table 'plink.objective', row 0: with what the workers add at clock 1 "):
        train(Poor(shards=2, batches=1), workers=2)
