"""Distances of a partition to its replicas: no clock exceeds the bound, whatever becomes of pushes and their answers.

Whole jobs, in courses of faults: tests/runners/elastic/test_divergence.py.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.elastic import Table
from plink.errors import UsageError
from plink.model.divergence import DivergenceBound, check_divergence, parse_divergence
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.arrays.row_blocks import RowBlock
from plink.runtime.elastic.partition.divergence import MAX_CLOCKS_BEHIND, MAX_UNDO_COPIES, ReplicaDistances
from plink.runtime.elastic.partition.partition import Partition
from plink.runtime.elastic.server import Server
from plink.runtime.elastic.transport.messages import ReplicationDelta, Status, Update
from tests.runtime.elastic.stores import store, wait_for

ROWS, WIDTH = 20, 2
LAYOUT = Layout(
    (Table("a", ROWS, WIDTH, "float32"), Table("n", ROWS, 1, "int64"), Table("b", ROWS, 1, "float64"),
     Table("plink.objective", 4, 2, "float64")), 2,
)  # fmt: skip
COUNTED = (0, 2)
REPLICAS = "one:1", "two:1"
ORDERS = "clock", "clock", "clock", "push", "deliver", "answer", "lose", "roll back"


def partition(**replicas: int) -> Partition:
    """Partition 0, one worker."""
    result = Partition(LAYOUT, 0, history=True)
    result.admit({0: 0})
    result.replicas = dict(replicas)
    return result


def add(to: Partition, clock: int, random: np.random.Generator, scale: float = 1.0) -> None:
    """An update of some rows, positive and negative, and large ones of what does not count."""
    count = to.layout.rows_in(0, 0)
    rows = [np.flatnonzero(random.random(count) < 0.5).astype(np.uint32), range(count)]
    values = [
        RowBlock(0, rows[0], (scale * random.standard_normal((len(rows[0]), WIDTH))).astype(np.float32)),
        RowBlock(1, rows[1], np.full((count, 1), 1 << 40)),
        RowBlock(2, rows[1], scale * random.standard_normal((count, 1))),
        RowBlock(3, range(2), np.full((2, 2), 1e9)),
    ]
    to.update(0, clock, 0, True, values)


def square(first: Partition, second: Partition | None = None) -> float:
    """The squared distance of what counts; of one its squared norm."""
    other = [np.zeros_like(values) for values in first.values] if second is None else second.values
    return sum(float(((first.values[n].astype(float) - other[n]) ** 2).sum()) for n in COUNTED)


class Course:
    """A primary, two replicas, and the pushes on their way to them; ``delivered`` where only the answer is."""

    def __init__(self, bound: DivergenceBound, seed: int) -> None:
        self.bound, self.random = bound, np.random.default_rng(seed)
        self.primary = partition(**dict.fromkeys(REPLICAS, -1))
        self.primary.distances = ReplicaDistances(bound, LAYOUT, 0, ())
        self.replicas = {address: partition() for address in REPLICAS}
        self.pushes: dict[str, tuple[ReplicationDelta, bool]] = {}
        self.certain = True  # whether the primary knows what replicas have

    def happens(self, what: str, to: str) -> None:
        """One of the orders; then the distance is held against the bound, if a clock was added."""
        primary, before = self.primary, self.primary.clock
        there = {address: replica.clock for address, replica in self.replicas.items()}
        if what == "clock" and primary.members[0].finished < primary.clock + 2:
            add(primary, primary.members[0].finished + 1, self.random)
        elif what == "push" and to not in self.pushes:
            self.pushes[to] = primary.take_delta(to), False
        elif what == "deliver" and to in self.pushes:
            self.replicas[to].apply_delta(self.pushes[to][0])
            self.pushes[to] = self.pushes[to][0], True
        elif what == "answer" and to in self.pushes and self.pushes[to][1]:
            primary.arrived(to, self.pushes.pop(to)[0])
            primary.advance()
        elif what == "lose" and to in self.pushes:
            self.certain = self.pushes.pop(to)[0].after == primary.replicas[to] and self.certain
        elif what == "roll back":
            self.roll_back()
        if primary.clock > before:
            self.check(primary.clock - before == 1 and set(there.values()) == {before})

    def roll_back(self) -> None:
        every = (self.primary, *self.replicas.values())
        clock = max(set.intersection(*(set(each.can_roll_back()) for each in every)))
        for each in every:
            each.roll_back(clock)
        self.pushes.clear()
        self.certain = True

    def check(self, alone: bool) -> None:
        """``alone``: whether it was one clock, of which replicas had all before it."""
        largest = 0.0
        for replica in self.replicas.values():
            limit = self.bound.square(share=0.5, norm_square=square(replica))
            assert alone or square(self.primary, replica) <= limit * (1 + 1e-9)
            largest = max(largest, square(self.primary, replica))
        assert self.primary.distances is not None
        reported = self.primary.distances.report(self.primary.clock).square
        assert reported >= largest * (1 - 1e-9)
        if self.certain and not self.pushes:
            assert reported == pytest.approx(largest, rel=1e-9)


@given(
    st.lists(st.tuples(st.sampled_from(ORDERS), st.sampled_from(REPLICAS)), min_size=10, max_size=120),
    st.sampled_from([DivergenceBound(3.0), DivergenceBound(20.0), DivergenceBound(0.7, relative=True)]),
    st.integers(0, 1000),
)
def test_no_clock_exceeds_the_bound(orders: list[tuple[str, str]], bound: DivergenceBound, seed: int) -> None:
    """Where pushes and answers are lost or late, and all roll back; the distance that is reported is the true one."""
    course = Course(bound, seed)
    for what, to in orders:
        course.happens(what, to)


def pushed(primary: Partition) -> None:
    """All that it has, to its one replica."""
    primary.arrived("one:1", primary.take_delta("one:1"))
    primary.advance()


@pytest.mark.parametrize(("dense", "most"), [(True, MAX_UNDO_COPIES), (False, MAX_CLOCKS_BEHIND)])
def test_what_is_kept_to_go_back_is_bounded(dense: bool, most: int) -> None:
    """In bytes or clocks, however near the replica is; a round is due before."""
    primary = Partition(Layout((Table("w", 1000, 8),), 1), 0, history=True)
    primary.admit({0: 0})
    primary.replicas = {"one:1": -1}
    primary.distances = ReplicaDistances(DivergenceBound(1e9), primary.layout, 0, ())
    rows = range(1000 if dense else 1)
    dues = []
    for clock in range(most + 3):
        primary.update(0, clock, 0, True, [RowBlock(0, rows, np.full((len(rows), 8), 1e-6, np.float32))])
        dues.append(primary.distances.report(primary.clock).due)
    assert primary.clock == most - 1
    assert dues.index(True) <= most - 1
    pushed(primary)
    assert primary.clock == most + 2
    assert not primary.distances.report(primary.clock).due


@pytest.mark.parametrize("rolls_back", [False, True])
def test_push_without_an_answer_may_have_arrived(rolls_back: bool) -> None:
    """The way back to where a replica was leads away from where it may be; also after all have rolled back."""
    primary = Partition(Layout((Table("w", 1, 1, "float64"),), 1), 0, history=True)
    primary.admit({0: 0})
    primary.replicas = {"one:1": -1}
    primary.distances = ReplicaDistances(DivergenceBound(5.0), primary.layout, 0, ())
    moves = [4.0, -1.0, -4.0, -4.0] if rolls_back else [4.0, -4.0, -4.0]
    for clock, move in enumerate(moves):
        primary.update(0, primary.members[0].finished + 1, 0, True, [RowBlock(0, range(1), np.array([[move]]))])
        if clock == 0:
            primary.take_delta("one:1")
        if clock == 1 and rolls_back:
            primary.roll_back(0)
    assert primary.clock == 1
    pushed(primary)
    assert primary.clock == 2


def test_new_primary_knows_what_may_have_arrived() -> None:
    """The answer to a push is lost, then the partition moves: its way back leads away from what the replica has."""
    layout = Layout((Table("w", 1, 1, "float64"),), 1)
    with store(layout, servers=3, divergence=DivergenceBound(5.0)) as run:
        run.open(1, servers=1, history=True)
        primary, replica, target = run.servers
        primary.replicate_up_to(-1)
        primary.add_replica(0, replica.address)

        def work(at: Server, clock: int, by: float) -> int:
            blocks = (RowBlock(0, range(1), np.array([[by]])),)
            message = Update(0, worker=0, clock=clock, last=True, blocks=blocks)
            assert at.actor(0).ask(message).status is Status.OK
            return at.status()[0].clocks[-1]

        assert work(primary, 0, 4.0) == 0
        push = primary.actor(0).call(lambda: primary.actor(0).take_delta(replica.address, 0))
        replica.actor(0).ask(push)
        target.replicate_up_to(-1)
        primary.prepare(0, target.address, 1, replica=replica.address)
        primary.commit(0, 1)
        assert work(target, 1, -4.0) == 1
        assert work(target, 2, -4.0) == 1
        target.replicate_up_to(1)
        wait_for(lambda: target.status()[0].clocks[-1] == 2)


def test_replica_that_is_copied_holds_nothing_up() -> None:
    random, copying = np.random.default_rng(1), {"one:1"}
    primary = partition(**{"one:1": -1})
    primary.distances = ReplicaDistances(DivergenceBound(1.0), LAYOUT, 0, copying)
    for clock in range(3):
        add(primary, clock, random)
    assert primary.clock == 2
    copying.clear()
    add(primary, 3, random)
    assert primary.clock == 2


def test_round_begins_as_many_clocks_early_as_one_takes() -> None:
    """So that no clock waits, once it is known how long they take."""
    primary = Partition(Layout((Table("w", 10_000, 1, "float64"),), 1), 0, history=True)
    primary.admit({0: 0})
    primary.replicas = {"one:1": -1}
    primary.distances = ReplicaDistances(DivergenceBound(20.5 * 10), primary.layout, 0, ())  # 20 clocks
    due_since, waited, rounds = None, [], []
    for clock in range(400):
        primary.update(0, clock, 0, True, [RowBlock(0, range(100), np.ones((100, 1)))])
        waited.append(primary.clock < clock)
        if due_since is None and primary.distances.report(primary.clock).due:
            due_since = clock
        if due_since is not None and clock == due_since + 4:
            rounds.append(clock)
            while primary.replicas["one:1"] < clock:
                pushed(primary)
            due_since = None
    assert sum(waited[100:]) == 0
    assert 300 / 20 <= len([at for at in rounds if at >= 100]) <= 300 / 13


@pytest.mark.parametrize("text", ["-1", "nan", "-nan", "inf", "1e999", "-5%", "x", "%x", "5%%"])
def test_bounds_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--divergence"):
        parse_divergence(text)


def test_bounds_are_distances_or_shares() -> None:
    wanted: dict[str, Any] = {
        "0": None, "0%": None, "": None, "0.5": DivergenceBound(0.5), "1%": DivergenceBound(0.01, relative=True)
    }  # fmt: skip
    assert {text: parse_divergence(text) for text in wanted} == wanted


def test_integers_have_no_distance() -> None:
    with pytest.raises(UsageError, match="integers only"):
        check_divergence("1", 0)
    check_divergence("1", 1)
    check_divergence("0", 0)
