"""Jobs under way on paper, for the tests of what follows from an event."""

from types import SimpleNamespace

from tests.solvers.elastic.world import World, hosts


def running(reliable: int, transient: int, partitions: int = 8, shards: int = 24, **more: float) -> World:
    """A job whose hosts have loaded what they were told to."""
    world = World.of(hosts(reliable, transient, **more), partitions, shards)
    world.converge()
    world.actions.clear()
    # What was said since the start is what a test looks at; the last map is still in force.
    primaries = tuple(partition.primary for partition in world.state.partitions)
    world.actions.append(SimpleNamespace(name="PointWorkers", primaries=primaries, reason="as it is"))
    return world


def push_all(world: World, clock: int) -> None:
    """Every replica gets to a clock."""
    for index in range(len(world.state.partitions)):
        world.push(index, clock)


def primaries(world: World) -> list[int]:
    """Of each partition."""
    return [partition.primary for partition in world.state.partitions]
