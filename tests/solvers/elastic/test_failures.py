"""Hosts that fail: what is restored from replicas, and what needs a checkpoint."""

import pytest

from solvers.elastic.events import (
    HostsGone,
    PartitionMoved,
)
from solvers.elastic.placement.stages import Stage
from tests.solvers.elastic.jobs import primaries, push_all, running
from tests.solvers.elastic.world import World, hosts, of, warn

STAGE_1, STAGE_3 = Stage.PARAMETER_SERVERS, Stage.BACKUP_ONLY


def test_failed_active_server_is_restored_and_all_roll_back() -> None:
    world = running(1, 4, partitions=4)
    assert primaries(world) == [1, 2, 1, 2]
    push_all(world, 5)
    world.push(0, 7)
    actions = world.tell(HostsGone((1,)))
    (back,) = of("RollBackAll", actions)
    assert back.clock == 5
    restored = of("RestorePartition", actions)
    assert {(action.partition, action.source, action.clock) for action in restored} == {(0, 0, 5), (2, 0, 5)}
    assert {action.to for action in restored} == {3}
    assert primaries(world) == [3, 2, 3, 2]
    assert actions.index(back) < actions.index(restored[0]) < actions.index(of("PointWorkers", actions)[0])


def test_in_stage_one_nothing_is_lost_with_transient_hosts() -> None:
    world = running(2, 2)
    assert world.state.stage is STAGE_1
    actions = world.tell(HostsGone((2, 3)))
    assert not of("RollBackAll", actions)
    assert set(world.working) == {0, 1}


def test_replicas_serve_when_all_transient_hosts_fail() -> None:
    world = World.of(hosts(1, 16), 8, 68)
    world.converge()
    assert world.state.stage is STAGE_3
    assert 0 not in world.working
    push_all(world, 3)
    actions = world.tell(HostsGone(tuple(range(1, 17))))
    assert world.state.stage is STAGE_1
    assert [(action.host, action.partitions) for action in of("PromoteReplica", actions)] == [(0, tuple(range(8)))]
    assert of("RollBackAll", actions)[0].clock == 3
    assert len(world.working[0]) == 68, "its homes are loaded: nothing to wait for"
    assert not of("RestorePartition", actions)
    assert not world.moves


def test_failed_migration_target_is_replaced_without_roll_back() -> None:
    world = running(1, 4, partitions=4)
    warn(world, 1)
    assert {move.to for move in world.moves} == {3}
    actions = world.tell(HostsGone((3,)))
    assert not of("RollBackAll", actions)
    assert {cancelled.hosts for cancelled in of("CancelMove", actions)} == {(1,)}
    assert {move.to for move in of("HandOver", actions)} <= {2, 4}
    world.converge()


@pytest.mark.parametrize("fails", [True, False])
def test_copies_to_a_host_that_fails_or_is_warned_are_cancelled(fails: bool) -> None:
    world = running(2, 6, partitions=4)
    world.join(1, 0)
    under_way = {(action.source, action.partition, action.term) for action in of("Replicate", world.moves)}
    assert {action.to for action in of("Replicate", world.moves)} == {8}
    cancelled = of("CancelMove", world.tell(HostsGone((8,))) if fails else warn(world, 8))
    assert {(action.hosts[0], action.partition, action.term) for action in cancelled} == under_way
    assert {len(action.hosts) for action in cancelled} == {1 if fails else 2}
    assert not world.moves
    assert {partition.replica for partition in world.state.partitions} == {0, 1}


def test_pending_moves_restart_under_a_new_term() -> None:
    world = running(1, 4, partitions=4)
    warn(world, 1)
    old = {move.term for move in world.moves}
    actions = world.tell(HostsGone((2,)))
    assert {action.term for action in of("CancelMove", actions)} == old
    assert {action.source for action in of("RestorePartition", actions)} == {0}, (
        "replicas have what the leaving host went back to"
    )
    assert len(of("RestorePartition", actions)) == 4
    for partition in range(4):
        for term in old:
            assert not world.tell(PartitionMoved(partition, term))


def test_failed_reliable_hosts_replicas_are_copied_anew() -> None:
    world = running(2, 6, partitions=6)
    replicas = [partition.replica for partition in world.state.partitions]
    assert sorted(replicas) == [0, 0, 0, 1, 1, 1]
    actions = world.tell(HostsGone((1,)))
    made = of("Replicate", actions)
    assert {action.partition for action in made} == {index for index, replica in enumerate(replicas) if replica == 1}
    assert {action.to for action in made} == {0}
    assert all(action.source == primaries(world)[action.partition] for action in made)
    push_all(world, 9)
    assert world.state.consistent == -1, "replicas without a copy have nothing"
    world.converge()
    push_all(world, 9)
    assert world.state.consistent == 9


def test_the_last_reliable_host_is_missed_at_its_warning_and_at_its_end() -> None:
    world = running(1, 4)
    (request,) = of("UrgentCheckpoint", warn(world, 0))
    assert "no reliable host stays" in request.reason
    (halt,) = world.tell(HostsGone((0,), released=True))
    assert halt.name == "Halt"


def test_a_reliable_host_that_joins_in_time_takes_over_from_the_last_one() -> None:
    world = running(1, 4, partitions=4)
    warn(world, 0)
    world.join(1, 0)
    world.converge()
    assert {partition.replica for partition in world.state.partitions} == {5}
    world.tell(HostsGone((0,), released=True))
    assert not world.state.halted
    world.converge()


def test_a_new_primary_sends_the_copy_that_the_old_one_had_begun_to_send() -> None:
    world = running(2, 6, partitions=3)
    world.tell(HostsGone((1,)))
    index = next(move.partition for move in world.moves if move.name == "Replicate")
    primary = primaries(world)[index]
    warn(world, primary)
    old = next(i for i, move in enumerate(world.moves) if move.name == "Replicate" and move.partition == index)
    term = world.moves[old].term
    world.arrive(next(i for i, move in enumerate(world.moves) if move.name == "HandOver" and move.partition == index))
    assert not world.tell(PartitionMoved(index, term))
    (again,) = [move for move in world.moves if move.name == "Replicate" and move.partition == index]
    assert again.source == primaries(world)[index] != primary
    world.converge()
