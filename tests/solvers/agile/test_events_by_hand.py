"""What follows from single events, and what does not: numbers out of range, stale ones, and who is told what."""

import pytest

from solvers.agile import actions as act
from solvers.agile.cluster import apply
from solvers.agile.events import Failed, Joined, Left, Moved, PushedTo, Ready, Unserved, Warned
from solvers.agile.hosts import Host, Tier
from solvers.agile.stages import Stage
from tests.solvers.agile.jobs import owners, push_all, running
from tests.solvers.agile.world import hosts, of, warn

# State that is lost on its way


def test_a_partition_that_was_lost_on_its_way_is_restored_from_its_backup_and_no_other_is() -> None:
    world = running(1, 4, partitions=4)
    assert owners(world) == [1, 2, 1, 2]
    push_all(world, 3)
    era = world.state.era
    actions = world.tell(Unserved(1, world.state.partitions[1].epoch, backed=True))
    assert [(one.partition, one.source, one.to, one.clock) for one in of(act.Restore, actions)] == [(1, 0, 2, 3)]
    assert of(act.RollBack, actions)[0].clock == 3
    assert "partition 1 was lost on its way to h2" in of(act.RollBack, actions)[0].reason
    assert world.state.era > era
    assert [one.waiting for one in world.state.partitions] == [False, True, False, False]
    world.settle()


def test_where_it_cannot_go_back_to_the_owner_it_goes_to_another_and_workers_follow() -> None:
    """Host 1 was warned; of its partitions the first was lost on its way to it. Both are sent to host 3 again."""
    world = running(1, 4, partitions=4)
    warn(world, 1)
    _, actions = apply(world.state, Unserved(0, world.state.partitions[0].epoch, backed=True))
    assert [(one.partition, one.to) for one in of(act.Restore, actions)] == [(0, 3), (2, 3)]
    assert of(act.PointWorkers, actions)[0].owners == (3, 2, 3, 2)


def test_a_partition_that_was_lost_on_its_way_and_has_no_backup_is_lost() -> None:
    world = running(1, 4, partitions=4)
    (halt,) = world.tell(Unserved(2, world.state.partitions[2].epoch, backed=False))
    assert isinstance(halt, act.Halt)
    assert halt.lost == (2,)
    assert world.state.halted


def test_the_last_word_of_an_earlier_owner_or_of_no_partition_changes_nothing() -> None:
    world = running(1, 4, partitions=4)
    epoch = world.state.partitions[3].epoch
    for partition, of_epoch in ((3, epoch - 1), (3, epoch + 1), (-1, epoch), (4, epoch)):
        assert apply(world.state, Unserved(partition, of_epoch, backed=True)) == (world.state, ())


# Clocks


def test_what_all_backups_have_is_told_when_the_last_one_has_it() -> None:
    world = running(1, 4, partitions=4)
    for index in range(3):
        assert not world.tell(PushedTo(index, 6 + index, world.state.era))
    (told,) = world.tell(PushedTo(3, 4, world.state.era))
    assert isinstance(told, act.Consistent)
    assert (told.clock, world.state.consistent) == (4, 4)
    assert [one.clock for one in world.state.partitions] == [6, 7, 8, 4]
    world.consistent = 4
    assert not world.tell(PushedTo(2, 9, world.state.era)), "the least stays where it is"


@pytest.mark.parametrize(("partition", "clock", "era"), [(-1, 9, 0), (4, 9, 0), (0, 5, 0), (0, 4, 0), (0, 9, 1)])
def test_a_clock_that_is_no_news_changes_nothing(partition: int, clock: int, era: int) -> None:
    world = running(1, 4, partitions=4)
    push_all(world, 5)
    assert apply(world.state, PushedTo(partition, clock, era)) == (world.state, ())


@pytest.mark.parametrize("partition", [-1, 4])
def test_a_move_of_no_partition_changes_nothing(partition: int) -> None:
    """Though the last one has a move of that number under way."""
    world = running(1, 4, partitions=4)
    warn(world, 2)
    heir = world.state.partitions[3].heir
    assert heir
    assert apply(world.state, Moved(partition, heir.epoch)) == (world.state, ())


# Coming


def test_members_are_taken_in_by_their_numbers_and_a_bulk_goes_by_its_lowest() -> None:
    world = running(1, 2)
    new = [Host(9, "x", Tier.TRANSIENT), Host(7, "y", Tier.TRANSIENT), Host(8, "z", Tier.RELIABLE)]
    actions = world.tell(Joined(tuple(new), bulk=True))
    assert [welcome.host.number for welcome in of(act.Welcome, actions)] == [7, 8, 9]
    assert world.state.joining == {7: 7, 9: 7}, "a reliable host serves at once"
    assert (world.state.newest, [host.number for host in world.state.hosts]) == (9, [0, 1, 2, 7, 8, 9])
    assert not world.tell(Joined((Host(9, "w", Tier.TRANSIENT), Host(5, "v", Tier.TRANSIENT))))


def test_hosts_that_join_one_by_one_are_groups_of_their_own() -> None:
    world = running(1, 2)
    world.join(0, 2)
    assert world.state.joining == {3: 3, 4: 4}


def test_a_newcomer_loads_as_many_spares_as_it_has_to_do() -> None:
    """Of 24 pieces a fifth host is due five at most of one slot; it loads as many again ahead of need."""
    world = running(1, 3, pieces=24)
    actions = world.join(0, 1)
    first, spare = of(act.Load, actions)
    assert (first.host, first.ahead, spare.host, spare.ahead) == (4, False, 4, True)
    assert len(first.pieces) == len(spare.pieces) == 24 // 5
    assert not set(first.pieces) & set(spare.pieces)
    reliable = world.join(1, 0)
    assert not [load for load in of(act.Load, reliable) if load.ahead], "who is there to stay steps in for nobody"


def test_who_gives_something_up_is_told_before_who_gets_it() -> None:
    world = running(1, 3, pieces=24)
    world.join(0, 1)
    done = len(world.said)
    world.settle()
    works = of(act.Work, world.said[done:])
    assert works[-1].host == 4
    assert [work.host for work in works[:-1]] == sorted(work.host for work in works[:-1])
    assert {work.version for work in works} == {works[0].version}
    assert "works on 4 pieces, 0 before" in works[-1].reason


def test_an_order_to_load_of_another_host_or_number_is_not_done() -> None:
    world = running(1, 2)
    world.join(0, 1)
    load = world.loads[0]
    assert apply(world.state, Ready(load.host, load.ticket + 99)) == (world.state, ())
    assert apply(world.state, Ready(1, load.ticket)) == (world.state, ())
    assert apply(world.state, Ready(99, load.ticket)) == (world.state, ())


# Going


def test_a_warning_brings_the_seconds_of_earlier_ones_up_to_date() -> None:
    world = running(1, 6)
    warn(world, 5, seconds=30.0)
    world.tell(Warned({6: 20.0, 99: 1.0}, {}, {5: 12.0, 4: 3.0}))
    assert world.state.leaving == {5: 12.0, 6: 20.0}


def test_of_several_warned_those_without_time_have_failed_and_the_others_leave() -> None:
    world = running(1, 6)
    world.tell(Warned({5: 0.0, 4: -1.0, 6: 1e-3}))
    assert set(world.state.members) == {0, 1, 2, 3, 6}
    assert world.state.leaving == {6: 1e-3}
    assert "h6 leaves in 0.001 s" in world.said[-1].reason


def test_a_checkpoint_is_asked_for_when_the_last_reliable_host_is_warned_and_not_again() -> None:
    world = running(2, 6, partitions=4)
    assert not of(act.Checkpoint, warn(world, 0))
    assert len(of(act.Checkpoint, warn(world, 1))) == 1
    assert not of(act.Checkpoint, warn(world, 5))
    assert not of(act.Checkpoint, warn(world, 0, 1, seconds=5.0))


def test_who_is_warned_may_go_when_nobody_needs_it_and_is_told_once() -> None:
    world = running(1, 4, partitions=2, pieces=8)
    warn(world, 4)
    world.settle()
    assert [action.host for action in of(act.LetGo, world.said)] == [4]
    assert world.state.let_go == {4}
    warn(world, 3)
    world.settle()
    assert [action.host for action in of(act.LetGo, world.said)] == [4, 3]
    world.tell(Left((4,)))
    assert world.state.let_go == {3}


def test_a_backup_is_needed_until_another_one_has_its_copy() -> None:
    world = running(2, 6, partitions=4)
    actions = warn(world, 0)
    assert not of(act.LetGo, actions)
    world.settle()
    assert [action.host for action in of(act.LetGo, world.said)] == [0]
    assert {one.backup for one in world.state.partitions} == {1}


def test_left_and_failed_are_told_as_such_of_members_only() -> None:
    world = running(1, 6)
    actions = world.tell(Failed((6, 99)))
    assert all("h6 failed" in action.reason for action in actions)
    warn(world, 5)
    world.settle()
    assert all("h5 left" in action.reason for action in world.tell(Left((5, 98))))
    assert apply(world.state, Failed((98, 99))) == (world.state, ())


def test_a_change_of_stage_comes_first_and_says_of_how_many_hosts() -> None:
    world = running(1, 1)
    world.join(0, 1)
    done = len(world.said)
    world.settle()
    (change,) = of(act.ChangeStage, world.said[done:])
    assert change.stage is Stage.ACTIVE_AND_BACKUP
    assert change.reason.endswith("2 transient to 1 reliable hosts")
    # Of what followed from that event it came first: the map and the moves follow.
    place = world.said.index(change)
    assert not [action for action in world.said[done:place] if isinstance(action, act.HandOver | act.Work)]


def test_a_job_that_is_given_up_says_so_alone_and_nothing_follows_any_more() -> None:
    world = running(1, 4, partitions=4)
    (halt,) = world.tell(Failed((0, 1)))
    assert isinstance(halt, act.Halt)
    assert halt.lost == (0, 2), "those of host 1, whose backup was host 0"
    for event in (Failed((2,)), Warned({3: 9.0}), Joined(hosts(1, 0, 9)), Ready(2, 1)):
        assert apply(world.state, event) == (world.state, ())


def test_the_last_reliable_host_takes_the_job_with_it_though_all_is_served() -> None:
    world = running(1, 4, partitions=4)
    (halt,) = world.tell(Failed((0,)))
    assert isinstance(halt, act.Halt)
    assert halt.lost == ()
    assert "the last reliable host" in halt.reason


@pytest.mark.parametrize(("lacks", "kind"), [(5e5, act.Drain), (2e6, act.Restore), (None, act.Restore)])
def test_what_a_backup_lacks_decides_whether_it_can_be_drained(lacks: float | None, kind: type[act.Action]) -> None:
    """A partition of a megabyte, at a megabyte a second; of one second three quarters are planned with."""
    world = running(1, 4, partitions=2, bytes_per_s=1e6)
    actions = world.tell(Warned({1: 1.0}, {} if lacks is None else {0: lacks}))
    moves = [one for one in actions if isinstance(one, act.Drain | act.HandOver | act.Restore)]
    assert [(type(one), one.partition) for one in moves] == [(kind, 0)]
