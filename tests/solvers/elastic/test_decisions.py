"""What follows from an event, case by case."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.elastic.events import (
    HostsGone,
    HostsJoined,
    HostsWarned,
    PartitionMoved,
    PartitionReplicated,
    PartitionUnserved,
    ShardsReady,
    TrafficMeasured,
)
from solvers.elastic.member import Member
from solvers.elastic.placement.stages import MeasuredTraffic, Stage
from tests.solvers.elastic.jobs import primaries, push_all, running
from tests.solvers.elastic.world import World, hosts, of, unchanged, warn

STAGE_1, STAGE_2, STAGE_3 = Stage.PARAMETER_SERVERS, Stage.ACTIVE_AND_BACKUP, Stage.BACKUP_ONLY


# Joining


@settings(max_examples=30)
@given(st.integers(3, 9), st.integers(1, 9), st.integers(2, 12), st.booleans())
def test_hosts_that_join_move_no_more_partitions_than_the_new_servers_need(
    transient: int, joining: int, partitions: int, bulk: bool
) -> None:
    world = running(1, transient, partitions)
    before = primaries(world)
    world.join(0, joining, bulk=bulk)
    world.converge()
    if not bulk:
        return  # each newcomer is a change of its own; balance after every one is checked elsewhere
    servers = world.state.servers
    moved = sum(first != other for first, other in zip(before, primaries(world), strict=True))
    assert moved == sum(primaries(world).count(server) for server in set(servers) - set(before))
    assert moved <= (len(servers) - len(set(before))) * -(-partitions // len(servers))
    assert len(of("HandOver", world.actions)) == moved
    assert not of("CancelMove", world.actions)


def test_a_newcomer_takes_no_work_and_serves_nothing_before_it_has_loaded() -> None:
    world = running(1, 1)
    assert world.state.stage is STAGE_1
    actions = world.join(0, 1)
    assert {action.name for action in actions} == {"Welcome", "Load"}
    assert [load.ahead for load in of("Load", actions)] == [False, True]
    world.loaded(1)  # what it keeps for others makes it none the readier
    assert world.state.stage is STAGE_1
    world.loaded(0)
    assert world.state.stage is STAGE_2
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
        world.converge()
        assert {3, 4, 5} <= set(world.working)


def test_a_bulk_does_not_wait_for_one_of_its_hosts_that_failed() -> None:
    world = running(1, 2)
    world.join(0, 2, bulk=True)
    world.loaded(next(i for i, load in enumerate(world.loads) if load.host == 3 and not load.ahead))
    assert 3 not in world.working
    world.tell(HostsGone((4,)))
    while any(not load.ahead for load in world.loads):
        world.loaded(next(i for i, load in enumerate(world.loads) if not load.ahead))
    assert 3 in world.working


def test_stage_two_migrates_partitions_in_the_background() -> None:
    world = running(1, 2, partitions=2)
    assert primaries(world) == [1, 1]
    world = running(1, 1, partitions=2)
    world.join(0, 1)
    while world.loads:
        world.loaded(0)
    assert world.state.stage is STAGE_2
    assert primaries(world) == [0, 0]
    world.arrive(0)
    assert primaries(world) == [1, 0]
    assert of("ReplicateTo", world.actions)[-1].replica == 0
    world.arrive(0)
    assert primaries(world) == [1, 1]


# Leaving one after the other


def test_new_replica_lacks_all_whatever_the_old_one_had() -> None:
    world = running(2, 6, partitions=1, rate=1e6)
    world.tell(HostsGone((world.state.partitions[0].replica,)))
    assert not world.state.partitions[0].safe
    primary = primaries(world)[0]
    actions = world.tell(HostsWarned({primary: 0.5}, {0: 0.0}))
    assert not of("Drain", actions)
    assert not of("RollBackAll", actions)
    assert of("HandOver", actions), "it goes as far as it gets: nobody else has it"


def test_successively_leaving_hosts_return_nothing_to_the_first() -> None:
    world = running(2, 6, partitions=4)
    warn(world, 0)
    world.converge()
    assert {action.number for action in of("Release", world.actions)} == {0}
    actions = warn(world, 1)
    assert of("UrgentCheckpoint", actions)
    assert not of("Replicate", actions)
    assert {partition.replica for partition in world.state.partitions} == {1}


# Stale, twice, and back


def test_a_host_that_comes_back_under_its_name_is_another_member() -> None:
    world = running(1, 4, partitions=4)
    actions = world.tell(HostsJoined((Member(9, "h1", "transient"),)))
    assert 1 not in world.state.members
    assert of("RollBackAll", actions), "what the old one served is gone"
    assert 9 in world.state.joining
    assert not world.tell(HostsGone((1,)))
    assert not world.tell(HostsJoined((Member(9, "h1", "transient"),)))
    world.converge()
    assert primaries(world).count(9) == 0, "others have been running longer"


def test_nothing_follows_from_a_move_that_nobody_waits_for() -> None:
    """Not even what another event would set going: a host that came back has more slots than it had."""
    world = World.of(hosts(1, 2), 2, 4)
    world.tell(HostsJoined((Member(3, "h1", "transient", 4),)))
    before = world.state
    assert not world.tell(PartitionMoved(0, 10**6))
    assert world.state == before


def test_messages_of_an_generation_that_is_over_change_nothing() -> None:
    world = running(1, 4, partitions=4)
    push_all(world, 5)
    generation = world.state.generation
    world.tell(HostsGone((1,)))
    assert world.state.generation > generation
    before = world.state
    for partition in range(4):
        assert not world.tell(PartitionReplicated(partition, 9, generation))
    assert world.state == before
    assert not world.tell(ShardsReady(2, 10**6))


def test_a_host_that_flaps_at_a_threshold_moves_the_stage_once() -> None:
    world = running(4, 4)
    changes = 0
    for _ in range(5):
        world.join(0, 1)
        world.converge()
        world.tell(HostsGone((world.state.newest,)))
        world.converge()
    changes = len(of("ChangeStage", world.actions))
    assert changes == 1


def test_measured_traffic_moves_the_stage() -> None:
    world = running(1, 6)
    assert world.state.stage is STAGE_2
    world.tell(TrafficMeasured(MeasuredTraffic(worker=40.0, capacity=100.0, replica=20.0)))
    assert world.state.stage is STAGE_3
    world.converge()
    assert 0 not in world.working


# State lost on its way


def test_only_the_partition_lost_in_transit_is_restored() -> None:
    world = running(1, 4, partitions=4)
    assert primaries(world) == [1, 2, 1, 2]
    push_all(world, 3)
    generation = world.state.generation
    actions = world.tell(PartitionUnserved(1, world.state.partitions[1].term, has_replica=True))
    assert [
        (action.partition, action.source, action.to, action.clock) for action in of("RestorePartition", actions)
    ] == [(1, 0, 2, 3)]
    assert of("RollBackAll", actions)[0].clock == 3
    assert "partition 1 was lost on its way to h2" in of("RollBackAll", actions)[0].reason
    assert world.state.generation > generation
    assert [partition.waiting for partition in world.state.partitions] == [False, True, False, False]
    world.converge()


def test_a_partition_that_was_lost_on_its_way_and_has_no_replica_is_lost() -> None:
    world = running(1, 4, partitions=4)
    (halt,) = world.tell(PartitionUnserved(2, world.state.partitions[2].term, has_replica=False))
    assert halt.name == "Halt"
    assert "the state of 1 partitions" in halt.reason
    assert world.state.halted


def test_stale_unserved_event_changes_nothing() -> None:
    world = running(1, 4, partitions=4)
    term = world.state.partitions[3].term
    for partition, of_term in ((3, term - 1), (3, term + 1)):
        assert unchanged(world.state, PartitionUnserved(partition, of_term, has_replica=True))


# Clocks


def test_consistent_clock_follows_the_last_replica() -> None:
    world = running(1, 4, partitions=4)
    for index in range(3):
        assert not world.tell(PartitionReplicated(index, 6 + index, world.state.generation))
    (messages,) = world.tell(PartitionReplicated(3, 4, world.state.generation))
    assert messages.name == "Consistent"
    assert (messages.clock, world.state.consistent) == (4, 4)
    assert [partition.clock for partition in world.state.partitions] == [6, 7, 8, 4]
    world.consistent = 4
    assert not world.tell(PartitionReplicated(2, 9, world.state.generation)), "the least stays where it is"


@pytest.mark.parametrize(("partition", "clock", "generation"), [(0, 5, 0), (0, 4, 0), (0, 9, 1)])
def test_a_clock_that_is_no_news_changes_nothing(partition: int, clock: int, generation: int) -> None:
    world = running(1, 4, partitions=4)
    push_all(world, 5)
    assert unchanged(world.state, PartitionReplicated(partition, clock, generation))


# Coming and going


def test_a_newcomer_loads_as_many_spares_as_it_has_to_do() -> None:
    """Of 24 shards a fifth host is due five at most of one slot; it loads as many again ahead of need."""
    world = running(1, 3, shards=24)
    actions = world.join(0, 1)
    first, spare = of("Load", actions)
    assert (first.host, first.ahead, spare.host, spare.ahead) == (4, False, 4, True)
    assert len(first.shards) == len(spare.shards) == 24 // 5
    assert not set(first.shards) & set(spare.shards)
    reliable = world.join(1, 0)
    assert not [load for load in of("Load", reliable) if load.ahead], "who is there to stay steps in for nobody"


def test_warned_host_is_released_once() -> None:
    world = running(1, 4, partitions=2, shards=8)
    warn(world, 4)
    world.converge()
    assert [action.number for action in of("Release", world.actions)] == [4]
    assert world.state.released == {4}
    warn(world, 3)
    world.converge()
    assert [action.number for action in of("Release", world.actions)] == [4, 3]
    world.tell(HostsGone((4,), released=True))
    assert world.state.released == {3}


def test_warned_hosts_without_time_fail_and_the_others_leave() -> None:
    world = running(1, 6)
    world.tell(HostsWarned({5: 0.0, 4: -1.0, 6: 1e-3}))
    assert set(world.state.members) == {0, 1, 2, 3, 6}
    assert world.state.leaving == {6}
    assert "h6 leaves in 0.001 s" in world.actions[-1].reason


def test_halted_job_reports_only_that() -> None:
    world = running(1, 4, partitions=4)
    (halt,) = world.tell(HostsGone((0, 1)))
    assert halt.name == "Halt"
    assert "the state of 2 partitions" in halt.reason, "those of host 1, whose replica was host 0"
    for event in (HostsGone((2,)), HostsWarned({3: 9.0}), HostsJoined(hosts(1, 0, 9)), ShardsReady(2, 1)):
        assert unchanged(world.state, event)


def test_the_last_reliable_host_takes_the_job_with_it_though_all_is_served() -> None:
    world = running(1, 4, partitions=4)
    (halt,) = world.tell(HostsGone((0,)))
    assert halt.name == "Halt"
    assert "the last reliable host" in halt.reason
