"""What follows from an event, case by case."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.errors import UsageError
from solvers.elastic.placement import actions as act
from solvers.elastic.placement.cluster import apply
from solvers.elastic.placement.events import Failed, Joined, Left, Measured, Moved, PushedTo, Ready, Unserved, Warned
from solvers.elastic.placement.hosts import Host, Tier
from solvers.elastic.placement.partitions import Partition
from solvers.elastic.placement.stages import Stage, Traffic
from solvers.elastic.placement.start import start
from tests.solvers.elastic.placement.jobs import owners, push_all, running
from tests.solvers.elastic.placement.world import World, hosts, of, warn

ONE, TWO, THREE = Stage.PARAMETER_SERVERS, Stage.ACTIVE_AND_BACKUP, Stage.BACKUP_ONLY


# Joining


@settings(max_examples=30)
@given(st.integers(3, 9), st.integers(1, 9), st.integers(2, 12), st.booleans())
def test_hosts_that_join_move_no_more_partitions_than_the_new_servers_need(
    transient: int, joining: int, partitions: int, bulk: bool
) -> None:
    world = running(1, transient, partitions)
    before = owners(world)
    world.join(0, joining, bulk=bulk)
    world.settle()
    if not bulk:
        return  # each newcomer is a change of its own; balance after every one is checked elsewhere
    servers = world.state.servers
    moved = sum(first != other for first, other in zip(before, owners(world), strict=True))
    assert moved == sum(owners(world).count(server) for server in set(servers) - set(before))
    assert moved <= (len(servers) - len(set(before))) * -(-partitions // len(servers))
    assert len(of(act.HandOver, world.said)) == moved
    assert not of(act.Cancel, world.said)


def test_a_newcomer_takes_no_work_and_serves_nothing_before_it_has_loaded() -> None:
    world = running(1, 1)
    assert world.state.stage is ONE
    actions = world.join(0, 1)
    assert {type(action) for action in actions} == {act.Welcome, act.Load}
    assert [load.ahead for load in of(act.Load, actions)] == [False, True]
    world.loaded(1)  # what it keeps for others makes it none the readier
    assert world.state.stage is ONE
    world.loaded(0)
    assert world.state.stage is TWO
    assert world.working[2]
    assert {move.to for move in world.moves} == {1}


def test_hosts_that_join_in_bulk_take_over_together_and_others_one_by_one() -> None:
    for bulk in (False, True):
        world = running(1, 2)
        world.join(0, 3, bulk=bulk)
        first = next(i for i, load in enumerate(world.loads) if not load.ahead)
        newcomer = world.loads[first].host
        world.loaded(first)
        assert (newcomer in world.working) is not bulk
        world.settle()
        assert {3, 4, 5} <= set(world.working)


def test_a_bulk_does_not_wait_for_one_of_its_hosts_that_failed() -> None:
    world = running(1, 2)
    world.join(0, 2, bulk=True)
    world.loaded(next(i for i, load in enumerate(world.loads) if load.host == 3 and not load.ahead))
    assert 3 not in world.working
    world.tell(Failed((4,)))
    while any(not load.ahead for load in world.loads):
        world.loaded(next(i for i, load in enumerate(world.loads) if not load.ahead))
    assert 3 in world.working


def test_going_to_stage_two_partitions_move_in_the_background_and_workers_follow_each() -> None:
    world = running(1, 2, partitions=2)
    assert owners(world) == [1, 1]
    world = running(1, 1, partitions=2)
    world.join(0, 1)
    while world.loads:
        world.loaded(0)
    assert world.state.stage is TWO
    assert owners(world) == [0, 0]
    world.arrive(0)
    assert owners(world) == [1, 0]
    assert of(act.PushTo, world.said)[-1].backup == 0
    world.arrive(0)
    assert owners(world) == [1, 1]


# Failing


def test_when_an_active_server_fails_its_backup_restores_it_and_all_go_back_to_what_every_backup_has() -> None:
    world = running(1, 4, partitions=4)
    assert owners(world) == [1, 2, 1, 2]
    push_all(world, 5)
    world.push(0, 7)
    actions = world.tell(Failed((1,)))
    (back,) = of(act.RollBack, actions)
    assert back.clock == 5
    restored = of(act.Restore, actions)
    assert {(action.partition, action.source, action.clock) for action in restored} == {(0, 0, 5), (2, 0, 5)}
    assert {action.to for action in restored} == {3}
    assert owners(world) == [3, 2, 3, 2]
    assert actions.index(back) < actions.index(restored[0]) < actions.index(of(act.PointWorkers, actions)[0])


def test_a_worker_that_serves_nothing_fails_without_a_roll_back() -> None:
    world = running(1, 4, partitions=4)
    actions = world.tell(Failed((4,)))
    assert not of(act.RollBack, actions)
    assert not of(act.PointWorkers, actions)
    assert {work.host for work in of(act.Work, actions)} <= {0, 1, 2, 3}
    assert sum(map(len, world.working.values())) == 24


def test_in_stage_one_nothing_is_lost_with_transient_hosts() -> None:
    world = running(2, 2)
    assert world.state.stage is ONE
    actions = world.tell(Failed((2, 3)))
    assert not of(act.RollBack, actions)
    assert set(world.working) == {0, 1}


def test_when_all_transient_hosts_fail_backups_serve_and_reliable_hosts_work() -> None:
    world = World.of(hosts(1, 16), 8, 68)
    world.settle()
    assert world.state.stage is THREE
    assert 0 not in world.working
    push_all(world, 3)
    actions = world.tell(Failed(tuple(range(1, 17))))
    assert world.state.stage is ONE
    assert [(action.host, action.partitions) for action in of(act.Promote, actions)] == [(0, tuple(range(8)))]
    assert of(act.RollBack, actions)[0].clock == 3
    assert len(world.working[0]) == 68, "its homes are loaded: nothing to wait for"
    assert not of(act.Restore, actions)
    assert not world.moves


def test_a_move_target_that_fails_costs_no_roll_back_and_another_one_is_found() -> None:
    world = running(1, 4, partitions=4)
    warn(world, 1)
    assert {move.to for move in world.moves} == {3}
    actions = world.tell(Failed((3,)))
    assert not of(act.RollBack, actions)
    assert {cancelled.hosts for cancelled in of(act.Cancel, actions)} == {(1,)}
    assert {move.to for move in of(act.HandOver, actions)} <= {2, 4}
    world.settle()


def test_who_was_to_send_a_backup_to_a_host_that_fails_is_told_to_stop() -> None:
    world = running(2, 6, partitions=4)
    world.join(1, 0)
    under_way = {(action.source, action.partition, action.epoch) for action in of(act.BackUp, world.moves)}
    assert {action.host for action in of(act.BackUp, world.moves)} == {8}
    actions = world.tell(Failed((8,)))
    assert {(*action.hosts, action.partition, action.epoch) for action in of(act.Cancel, actions)} == under_way
    assert not world.moves
    assert {partition.backup for partition in world.state.partitions} == {0, 1}


def test_copies_to_a_warned_host_are_cancelled() -> None:
    world = running(2, 6, partitions=4)
    world.join(1, 0)
    under_way = {(action.partition, action.epoch) for action in of(act.BackUp, world.moves)}
    actions = warn(world, 8)
    assert {(action.partition, action.epoch) for action in of(act.Cancel, actions)} == under_way != set()
    assert not world.moves
    assert {partition.backup for partition in world.state.partitions} == {0, 1}


def test_what_was_under_way_at_a_roll_back_starts_again_under_another_epoch() -> None:
    world = running(1, 4, partitions=4)
    warn(world, 1)
    old = {move.epoch for move in world.moves}
    actions = world.tell(Failed((2,)))
    assert {action.epoch for action in of(act.Cancel, actions)} == old
    assert {action.source for action in of(act.Restore, actions)} == {0}, (
        "backups have what the leaving host went back to"
    )
    assert len(of(act.Restore, actions)) == 4
    for partition in range(4):
        for epoch in old:
            assert not world.tell(Moved(partition, epoch))


def test_when_a_reliable_host_fails_its_backups_are_made_anew_from_those_who_serve() -> None:
    world = running(2, 6, partitions=6)
    backups = [partition.backup for partition in world.state.partitions]
    assert sorted(backups) == [0, 0, 0, 1, 1, 1]
    actions = world.tell(Failed((1,)))
    made = of(act.BackUp, actions)
    assert {action.partition for action in made} == {index for index, backup in enumerate(backups) if backup == 1}
    assert {action.host for action in made} == {0}
    assert all(action.source == owners(world)[action.partition] for action in made)
    push_all(world, 9)
    assert world.state.consistent == 0, "backups without a copy have nothing"
    world.settle()
    push_all(world, 9)
    assert world.state.consistent == 9


def test_state_that_only_a_failed_reliable_host_had_needs_a_checkpoint() -> None:
    world = running(2, 1, partitions=4)
    assert world.state.stage is ONE
    (halt,) = world.tell(Failed((1,)))
    assert isinstance(halt, act.Halt)
    assert halt.lost == (1, 3)
    assert "checkpoint" in halt.reason
    assert apply(world.state, Joined(hosts(1, 1, 10))) == (world.state, ())


def test_the_last_reliable_host_is_missed_at_its_warning_and_at_its_end() -> None:
    world = running(1, 4)
    (request,) = of(act.Checkpoint, warn(world, 0))
    assert "no reliable host stays" in request.reason
    (halt,) = world.tell(Left((0,)))
    assert isinstance(halt, act.Halt)


def test_a_reliable_host_that_joins_in_time_takes_over_from_the_last_one() -> None:
    world = running(1, 4, partitions=4)
    warn(world, 0)
    world.join(1, 0)
    world.settle()
    assert {partition.backup for partition in world.state.partitions} == {5}
    world.tell(Left((0,)))
    assert not world.state.halted
    world.settle()


def test_an_owner_that_waits_for_a_backup_that_fails_has_nothing() -> None:
    world = running(2, 6, partitions=4)
    lost = {
        index
        for index, partition in enumerate(world.state.partitions)
        if partition.owner == 2 and partition.backup == 1
    }
    assert lost
    world.tell(Failed((2,)))
    (halt,) = world.tell(Failed((1,)))
    assert isinstance(halt, act.Halt)
    assert set(halt.lost) == lost


def test_a_new_owner_sends_the_copy_that_the_old_one_had_begun_to_send() -> None:
    world = running(2, 6, partitions=3)
    world.tell(Failed((1,)))
    index = next(move.partition for move in world.moves if isinstance(move, act.BackUp))
    owner = owners(world)[index]
    warn(world, owner)
    old = next(i for i, move in enumerate(world.moves) if isinstance(move, act.BackUp) and move.partition == index)
    epoch = world.moves[old].epoch
    world.arrive(
        next(i for i, move in enumerate(world.moves) if isinstance(move, act.HandOver) and move.partition == index)
    )
    assert not world.tell(Moved(index, epoch))
    (again,) = [move for move in world.moves if isinstance(move, act.BackUp) and move.partition == index]
    assert again.source == owners(world)[index] != owner
    world.settle()


# Leaving one after the other


def test_a_backup_without_a_copy_lacks_all_whatever_was_said_of_the_old_one() -> None:
    world = running(2, 6, partitions=1, bytes_per_s=1e6)
    world.tell(Failed((world.state.partitions[0].backup,)))
    assert not world.state.partitions[0].safe
    owner = owners(world)[0]
    actions = world.tell(Warned({owner: 0.5}, {0: 0.0}))
    assert not of(act.Drain, actions)
    assert not of(act.RollBack, actions)
    assert of(act.HandOver, actions), "it goes as far as it gets: nobody else has it"


def test_reliable_hosts_that_leave_one_after_the_other_give_nothing_back_to_the_first() -> None:
    world = running(2, 6, partitions=4)
    warn(world, 0)
    world.settle()
    assert {action.host for action in of(act.LetGo, world.said)} == {0}
    actions = warn(world, 1)
    assert of(act.Checkpoint, actions)
    assert not of(act.BackUp, actions)
    assert {partition.backup for partition in world.state.partitions} == {1}


# Stale, twice, and back


def test_a_host_that_comes_back_under_its_name_is_another_member() -> None:
    world = running(1, 4, partitions=4)
    actions = world.tell(Joined((Host(9, "h1", Tier.TRANSIENT),)))
    assert 1 not in world.state.members
    assert of(act.RollBack, actions), "what the old one served is gone"
    assert 9 in world.state.joining
    assert not world.tell(Failed((1,)))
    assert not world.tell(Joined((Host(9, "h1", Tier.TRANSIENT),)))
    world.settle()
    assert owners(world).count(9) == 0, "others have been running longer"


def test_nothing_follows_from_a_move_that_nobody_waits_for() -> None:
    """Not even what another event would set going: a host that came back has more slots than it had."""
    world = World.of(hosts(1, 2), 2, 4)
    world.tell(Joined((Host(3, "h1", Tier.TRANSIENT, 4),)))
    before = world.state
    assert not world.tell(Moved(0, 10**6))
    assert world.state == before


def test_messages_of_an_era_that_is_over_change_nothing() -> None:
    world = running(1, 4, partitions=4)
    push_all(world, 5)
    era = world.state.era
    world.tell(Failed((1,)))
    assert world.state.era > era
    before = world.state
    for partition in range(4):
        assert not world.tell(PushedTo(partition, 9, era))
    assert world.state == before
    assert not world.tell(Ready(2, 10**6))


def test_the_same_events_give_the_same_decisions() -> None:
    def course() -> list[act.Action]:
        world = World.of(hosts(2, 9), 6, 40)
        world.join(1, 7, bulk=True)
        world.settle()
        warn(world, 2, 5)
        world.tell(Failed((4, 1)))
        world.settle()
        return world.said

    assert course() == course()


def test_a_host_that_flaps_at_a_threshold_moves_the_stage_once() -> None:
    world = running(4, 4)
    changes = 0
    for _ in range(5):
        world.join(0, 1)
        world.settle()
        world.tell(Failed((world.state.newest,)))
        world.settle()
    changes = len(of(act.ChangeStage, world.said))
    assert changes == 1


def test_measured_traffic_moves_the_stage() -> None:
    world = running(1, 6)
    assert world.state.stage is TWO
    world.tell(Measured(Traffic(worker=40.0, capacity=100.0, backup=20.0)))
    assert world.state.stage is THREE
    world.settle()
    assert 0 not in world.working


# Starting


def test_a_job_without_reliable_hosts_is_refused() -> None:
    with pytest.raises(UsageError, match="tier=reliable"):
        start(hosts(0, 3), [1.0], 4)


@pytest.mark.parametrize(
    ("members", "partitions", "pieces"), [(2 * hosts(1, 0), 1, 1), (hosts(1, 0), 0, 1), (hosts(1, 0), 1, 0)]
)
def test_a_job_that_cannot_be_is_refused(members: tuple[Host, ...], partitions: int, pieces: int) -> None:
    with pytest.raises(UsageError):
        start(members, [1.0] * partitions, pieces)


def test_a_job_begun_again_from_a_checkpoint_takes_nothing_stale_for_its_own() -> None:
    old = running(2, 1, partitions=4)
    old.tell(Failed((1,)))
    state, actions = start(old.state.hosts, [1e6] * 4, 24, clock=30, number=old.state.number)
    assert min(action.epoch for action in of(act.Serve, actions)) > old.state.number
    assert (state.consistent, state.era) == (30, old.state.number)
    assert apply(state, PushedTo(0, 99, 0)) == (state, ())


@pytest.mark.parametrize("wrong", [{"slots": 0}, {"bytes_per_s": 0.0}, {"bytes_per_s": float("inf")}, {"number": -1}])
def test_hosts_with_numbers_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="host a"):
        Host(**{"number": 1, "name": "a", "tier": Tier.RELIABLE, **wrong})  # type: ignore[arg-type]


def test_in_stage_one_reliable_hosts_serve_what_they_back_up() -> None:
    state, actions = start(hosts(2, 1), [1.0] * 3, 1)
    assert state.stage is ONE
    assert [(partition.owner, partition.backup) for partition in state.partitions] == [(0, 0), (0, 0), (1, 1)]
    assert of(act.PointWorkers, actions)[0].owners == (0, 0, 1)


def test_hosts_that_are_not_told_apart_are_refused_and_the_least_job_is_not() -> None:
    for other in (Host(0, "b", Tier.TRANSIENT), Host(1, "a", Tier.TRANSIENT)):
        with pytest.raises(UsageError, match="two hosts of one name or number"):
            start((Host(0, "a", Tier.RELIABLE), other), [1.0], 1)
    state, _ = start((Host(0, "a", Tier.RELIABLE),), [1.0], 1)
    (partition,) = state.partitions
    assert partition == Partition(0, partition.epoch, 0, 0)


# State lost on its way


def test_a_partition_that_was_lost_on_its_way_is_restored_from_its_backup_and_no_other_is() -> None:
    world = running(1, 4, partitions=4)
    assert owners(world) == [1, 2, 1, 2]
    push_all(world, 3)
    era = world.state.era
    actions = world.tell(Unserved(1, world.state.partitions[1].epoch, backed=True))
    assert [(action.partition, action.source, action.to, action.clock) for action in of(act.Restore, actions)] == [
        (1, 0, 2, 3)
    ]
    assert of(act.RollBack, actions)[0].clock == 3
    assert "partition 1 was lost on its way to h2" in of(act.RollBack, actions)[0].reason
    assert world.state.era > era
    assert [partition.waiting for partition in world.state.partitions] == [False, True, False, False]
    world.settle()


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


def test_consistent_clock_follows_the_last_backup() -> None:
    world = running(1, 4, partitions=4)
    for index in range(3):
        assert not world.tell(PushedTo(index, 6 + index, world.state.era))
    (messages,) = world.tell(PushedTo(3, 4, world.state.era))
    assert isinstance(messages, act.Consistent)
    assert (messages.clock, world.state.consistent) == (4, 4)
    assert [partition.clock for partition in world.state.partitions] == [6, 7, 8, 4]
    world.consistent = 4
    assert not world.tell(PushedTo(2, 9, world.state.era)), "the least stays where it is"


@pytest.mark.parametrize(("partition", "clock", "era"), [(-1, 9, 0), (4, 9, 0), (0, 5, 0), (0, 4, 0), (0, 9, 1)])
def test_a_clock_that_is_no_news_changes_nothing(partition: int, clock: int, era: int) -> None:
    world = running(1, 4, partitions=4)
    push_all(world, 5)
    assert apply(world.state, PushedTo(partition, clock, era)) == (world.state, ())


# Coming and going


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


def test_warned_host_is_released_once() -> None:
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


def test_of_several_warned_those_without_time_have_failed_and_the_others_leave() -> None:
    world = running(1, 6)
    world.tell(Warned({5: 0.0, 4: -1.0, 6: 1e-3}))
    assert set(world.state.members) == {0, 1, 2, 3, 6}
    assert world.state.leaving == {6: 1e-3}
    assert "h6 leaves in 0.001 s" in world.said[-1].reason


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
