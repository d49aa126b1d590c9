"""The toy example of the Harlap thesis, Figure 4.4: two spot instances, two more, and the first two are evicted."""

from solvers.elastic.events import HostsGone
from solvers.elastic.placement.stages import Stage, Thresholds
from tests.solvers.elastic.world import World, hosts, of, warn


def owned(world: World) -> dict[int, int]:
    """How many shards each host works on."""
    return {host: len(which) for host, which in world.working.items()}


def test_forty_shards_move_to_newcomers_and_stay() -> None:
    # Machine 0 keeps the replicas only, as drawn: for that stage 3 has to begin at such a small ratio.
    world = World.of(hosts(1, 2), 2, 40, thresholds=Thresholds(1, 1))
    assert world.state.stage is Stage.BACKUP_ONLY
    world.converge()
    assert owned(world) == {1: 20, 2: 20}
    assert {partition.primary for partition in world.state.partitions} == {1}
    assert {partition.replica for partition in world.state.partitions} == {0}

    joined = world.join(0, 2, bulk=True)
    assert not of("Work", joined)
    loads = of("Load", joined)
    for newcomer in (3, 4):
        # Half of the input data each, of which they will work on a quarter.
        first, spare = [load for load in loads if load.host == newcomer]
        assert (len(first.shards), first.ahead) == (10, False)
        assert (len(spare.shards), spare.ahead) == (10, True)
    assert owned(world) == {1: 20, 2: 20}
    world.converge()
    assert owned(world) == {1: 10, 2: 10, 3: 10, 4: 10}
    assert {partition.primary for partition in world.state.partitions} == {1, 2}

    done = len(world.actions)
    warn(world, 1, 2)
    # The work is theirs at once, with nothing to load; partitions go to a survivor that had none.
    assert owned(world) == {3: 20, 4: 20}
    moves = of("HandOver", world.actions[done:])
    assert [(move.source, move.to) for move in moves] == [(1, 3), (2, 3)]
    world.converge()
    assert {1, 2} == {action.number for action in of("Release", world.actions[done:])}
    assert not of("Load", world.actions[done:])
    assert not of("RollBackAll", world.actions)
    assert not of("RollBackAll", world.tell(HostsGone((1, 2), released=True)))
    world.converge()
    assert {partition.primary for partition in world.state.partitions} == {3}
