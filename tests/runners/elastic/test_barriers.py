"""When the work changes hands: every step of a turn, and whatever may come between."""

import pytest

from plink.model.elastic.reports import WorkerFinished
from solvers.elastic import ending
from solvers.elastic.state import PendingClocks
from tests.runners.elastic.barrier_desk import Table


def two() -> Table:
    """Two hosts at work, one slot each, from clock 0 on."""
    return Table({0: 1, 1: 1}, {0: (0, 1), 1: (2, 3)}).first()


def test_first_barrier_pauses_nobody() -> None:
    table = Table({0: 1, 1: 2}, {0: (0,), 1: (1, 2, 3)}, serves=(1, 0))
    table.advance()
    assert [(word["to"], word["partitions"], word["workers"], word["first"]) for word in table.sent] == [
        (1, [0], [0, 1, 2], 0),
        (0, [1], [0, 1, 2], 0),
    ]
    table.part()
    assert not table.words("pause")
    assert [word["workers"] for word in table.words("assign_shards")] == [{0: [0]}, {1: [1, 3], 2: [2]}]
    assert table.words("assign_shards")[0]["everywhere"] == {0: [0, [0], 0], 1: [1, [1, 3], 0], 2: [1, [2], 0]}
    assert not table.turning
    assert table.rebalancing.assigned


@pytest.mark.parametrize("missing", ["a shard", "a server"])
def test_nothing_begins_before_all_is_there(missing: str) -> None:
    table = Table({0: 1}, {0: (0, 1)}, served=missing != "a server")
    if missing == "a shard":
        table.set(target={0: (0,)})
    table.advance()
    assert not table.sent


def test_barrier_is_at_a_clock_nobody_has_begun() -> None:
    table = two()
    table.set(begun=5)
    table.clock = 4
    table.want({0: (0, 1, 2), 1: (3,)})
    assert [(word["to"], word["clock"]) for word in table.words("pause")] == [(0, 7), (1, 7)]
    table.pause(begun=6)
    table.part()
    assert [word["first"] for word in table.words("set_participants")[1:]] == [7]
    assert [word["clock"] for word in table.words("assign_shards")[2:]] == [7, 7]
    assert table.rebalancing.workers[0].first == 0  # it goes on with what it has, and with more


def test_if_somebody_has_begun_it_is_later() -> None:
    table = two()
    table.want({0: (0, 1, 2), 1: (3,)})
    first, second = table.open("pause")
    table.answer(second, begun=9)
    assert not table.words("resume")  # not before all have said it
    table.answer(first, begun=1)
    assert len(table.words("resume")) == 2
    assert [word["clock"] for word in table.open("pause")] == [13, 13]
    table.pause(begun=13)
    assert [word["clock"] for word in table.open("pause")] == [21, 21]  # further ahead each time
    table.pause(begun=20)
    assert table.open("set_participants")[0]["first"] == 21


def test_a_hold_that_is_refused_holds_up_nobody() -> None:
    table = two()
    table.want({0: (0, 1, 2), 1: (3,)})
    for word in table.open("pause"):
        table.answer(word, error="nothing has begun here")
    assert table.open("set_participants")


def test_second_request_to_changed_primaries() -> None:
    table = two()
    table.serve(0, 1)
    table.want({0: (0, 1, 2), 1: (3,)})
    table.pause()
    for word in table.open("set_participants"):
        table.answer(word, elsewhere=[[number, "not here"] for number in word["partitions"]])
    table.serve(1, 1)
    table.wait()
    assert sorted(number for word in table.open("set_participants") for number in word["partitions"]) == [0, 1]
    assert {word["to"] for word in table.open("set_participants")} == {1}
    table.part()
    table.wait()
    assert not table.turning


def test_lost_worker_is_taken_over_by_the_holder_of_its_shards() -> None:
    table = Table({0: 1, 1: 1, 2: 1}, {0: (0,), 1: (1,), 2: (2,)}, clock=3).first()
    table.load({0: {0, 1}, 2: {0, 1, 2}})
    table.set(begun=4)
    table.die(2, target={0: (0, 2), 1: (1,)})
    table.pause(begun=4)
    table.part()
    assert table.rebalancing.pending == {2: PendingClocks((2,), 0, 6, 0)}
    word = table.words("take_over")[0]
    assert (word["to"], word["worker"], word["clock"], word["until"]) == (0, 2, 4, 6)
    table.ended(2)
    assert not table.rebalancing.pending


def test_dead_takeover_worker_is_replaced() -> None:
    table = Table({0: 1, 1: 1, 2: 1}, {0: (0,), 1: (1,), 2: (2,)}).first()
    table.die(2, target={0: (0, 2), 1: (1,)})
    table.pause()
    table.part()
    gone = table.rebalancing.pending[2].host
    left = 1 - gone
    table.die(gone, target={left: (0, 1, 2)})
    assert table.words("take_over")[-1]["to"] == left
    table.pause()
    table.part()
    assert set(table.rebalancing.pending) == {2, gone}
    assert {pending.host for pending in table.rebalancing.pending.values()} == {left}


def test_pending_clocks_end_with_the_last() -> None:
    """Who was told to stand in for longer says that it has done the less that it was told first."""
    table = two()
    table.die(1, target={0: (0, 1, 2, 3)})
    table.pause()
    table.part()
    until = table.rebalancing.pending[1].until
    table.ended(1, until - 1)
    assert set(table.rebalancing.pending) == {1}
    table.ended(1, until)
    assert not table.rebalancing.pending
    table.set(pending={1: PendingClocks((2, 3), 0, 9, 0)})
    table.ended(1)  # the job is over before that
    assert not table.rebalancing.pending


@pytest.mark.parametrize("step", ["pause", "set_participants"])
def test_roll_back_ends_a_barrier(step: str) -> None:
    table = two()
    table.want({0: (0, 1, 2), 1: (3,)})
    late = table.open("pause")
    if step == "set_participants":
        table.pause()
        late = table.open("set_participants")
    table.roll_back(4, 17)
    assert len(table.words("resume")) == 2
    assigned = len(table.words("assign_shards"))
    for word in late:
        table.answer(word, **({"begun": 9} if step == "pause" else {"elsewhere": []}))
    assert len(table.words("assign_shards")) == assigned
    table.advance()
    assert not table.open("pause")
    table.part()
    assert [(word["clock"], word["generation"]) for word in table.words("assign_shards")[assigned:]] == [
        (5, 17),
        (5, 17),
    ]


def test_nothing_changes_hands_at_the_end_of_the_job() -> None:
    table = two()
    table.set(frozen=True)
    table.want({0: (0, 1, 2), 1: (3,)})
    assert not table.open()


def test_a_worker_that_has_finished_and_is_released_says_where_the_job_ended() -> None:
    """The barrier is past the last clock: who takes part from there on has nothing to do, and says a later one."""
    table = two()
    table.want({0: (0, 1, 2, 3)})
    table.pause()
    table.act(lambda ctx: ending.worker_finished(ctx, WorkerFinished(1, 1, takeover=False, released=False)))
    table.part()
    assert table.words("set_participants")[-1]["first"] > 1
    assert set(table.rebalancing.workers) == {0}
    assert table.state.ending.finished == {1: 1}


def test_going_on_where_another_left_off() -> None:
    table = two()
    workers = dict(table.rebalancing.workers)
    other = Table({0: 1, 1: 1}, {0: (0, 1), 1: (2, 3)})
    other.set(workers=workers, generation=3, next_worker=9, begun=20, start_at=None)
    other.advance()
    assert not other.sent
    other.want({0: (0, 1, 2, 3), 1: ()})
    assert other.open("pause")[0]["clock"] == 22
