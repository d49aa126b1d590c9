"""What follows from a warning: moves, drains, effective failures, and work that goes on meanwhile."""

from solvers.elastic.events import HostsGone, HostsWarned
from solvers.elastic.placement.stages import Stage, Thresholds
from tests.solvers.elastic.jobs import primaries, push_all, running
from tests.solvers.elastic.world import World, hosts, of, warn

STAGE_1, STAGE_2, STAGE_3 = Stage.PARAMETER_SERVERS, Stage.ACTIVE_AND_BACKUP, Stage.BACKUP_ONLY


def test_all_warned_hosts_drain_without_roll_back() -> None:
    world = running(1, 4, partitions=4)
    actions = warn(world, 1, 2, 3, 4)
    assert world.state.stage is STAGE_1
    assert {(action.source, action.to) for action in of("Drain", actions)} == {(1, 0), (2, 0)}
    assert set(world.working) == {0}, "its homes are loaded: it works at once"
    world.converge()
    assert primaries(world) == [0] * 4
    assert {action.host for action in of("PromoteReplica", world.actions)} == {0}
    assert {action.number for action in of("Release", world.actions)} == {1, 2, 3, 4}
    world.tell(HostsGone((1, 2, 3, 4), released=True))
    assert not of("RollBackAll", world.actions)


def test_short_warning_drains_to_the_replica() -> None:
    world = running(1, 4, partitions=2, rate=1e6)
    assert primaries(world) == [1, 2]
    actions = world.tell(HostsWarned({1: 0.5}, {0: 1e5}))
    (drain,) = of("Drain", actions)
    assert (drain.partition, drain.source, drain.to) == (0, 1, 0)
    world.arrive(0)
    assert primaries(world) == [0, 2]
    (move,) = of("HandOver", world.actions)
    assert (move.source, move.to) == (0, 3)
    world.converge()
    assert not of("RollBackAll", world.actions)


def test_a_warning_too_late_even_for_that_is_an_effective_failure_at_once() -> None:
    world = running(1, 4, partitions=2, rate=1e6)
    push_all(world, 4)
    actions = world.tell(HostsWarned({1: 0.5}))
    assert of("RollBackAll", actions)[0].clock == 4
    assert [(action.partition, action.source, action.to) for action in of("RestorePartition", actions)] == [(0, 0, 3)]
    assert "cannot be saved" in of("RollBackAll", actions)[0].reason


def test_partitions_stay_balanced_after_cancelled_moves() -> None:
    """Copies to a new replica and from one that leaves are under way; then the primaries are to serve no longer."""
    world = running(3, 4, partitions=4, shards=1)
    world.join(1, 0)
    warn(world, 2)
    assert len(of("Replicate", world.moves)) == 2
    warn(world, 5, 6)
    assert world.state.stage is STAGE_1
    bound = [partition.move.to for partition in world.state.partitions if partition.move]
    assert sorted(bound.count(server) for server in (0, 1, 7)) == [1, 1, 2]
    world.converge()


def test_a_warning_of_no_seconds_is_a_failure() -> None:
    item, other = running(1, 4), running(1, 4)
    assert item.tell(HostsWarned({1: 0.0})) != ()
    other.tell(HostsGone((1,)))
    assert item.state == other.state


def test_who_leaves_before_its_partitions_have_moved_has_failed() -> None:
    world = running(1, 4, partitions=2)
    warn(world, 1)
    actions = world.tell(HostsGone((1,), released=True))
    assert of("RollBackAll", actions)
    assert [action.to for action in of("RestorePartition", actions)] == [3]


def test_warned_worker_works_until_its_shards_are_loaded() -> None:
    world = World.of(hosts(1, 2), 1, 12, thresholds=Thresholds(1, 1))
    for load in [load for load in world.loads if not load.ahead]:
        world.loaded(world.loads.index(load))
    assert set(world.working) == {1, 2}
    actions = warn(world, 1)
    assert not of("Work", actions)
    assert [(load.host, load.ahead) for load in of("Load", actions)] == [(2, False)]
    world.converge()
    assert set(world.working) == {2}
