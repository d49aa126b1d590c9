"""Hosts come, are warned, go and die in any order: what must hold does after every event."""

from hypothesis import event, given, settings
from hypothesis import strategies as st

from solvers.elastic.events import (
    HostsGone,
    HostsJoined,
    HostsWarned,
    PartitionMoved,
    PartitionReplicated,
    ShardsReady,
    TrafficMeasured,
)
from solvers.elastic.member import Member
from solvers.elastic.placement.stages import MeasuredTraffic, Stage, Thresholds
from tests.solvers.elastic.world import World, hosts

COMMON = ["arrive"] * 3 + ["load"] * 3 + ["push"] * 2
KINDS = [*COMMON, "join", "bulk", "crowd", "reliable", "return", "fail", "warn", "tight", "leave", "stale"]
KINDS += ["clocks", "rate", "restart"]
Doings = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 99), st.integers(0, 99)), min_size=8, max_size=60)


def do(world: World, kind: str, a: int, b: int) -> None:
    """One of the things that may happen, on whatever there is."""
    state = world.state
    members = [host.number for host in state.hosts]
    transient = [host.number for host in state.hosts if not host.reliable]
    some = sorted({transient[(a + i * 7) % len(transient)] for i in range(1 + b % 3)}) if transient else []
    match kind:
        case "join":
            world.join(0, 1)
        case "bulk" | "crowd":
            world.join(0, 2 + a % (3 if kind == "bulk" else 18), bulk=True)
        case "reliable":
            if b % 2:
                world.join(1, 0)
            else:
                reliable = [host for host in members if host not in transient]
                host = reliable[a % len(reliable)]
                staying = len(reliable) - len(set(reliable) & set(state.leaving))
                dies = b % 8 == 0 and staying > 1 and state.stage is not Stage.PARAMETER_SERVERS
                world.tell(HostsGone((host,)) if dies else HostsWarned({host: 20.0}))
        case "fail":
            world.tell(HostsGone(tuple(transient) if b > 90 else tuple(some)))
        case "warn":
            world.tell(HostsWarned(dict.fromkeys(transient if b > 90 else some, 5.0 + a)))
        case "tight":
            world.tell(HostsWarned({host: (a * i) % 5 * 0.1 for i, host in enumerate(some)}, {0: 1e4, 1: 0.0}))
        case "leave":
            world.tell(HostsGone(tuple(sorted(state.leaving)[: 1 + b % 3]), released=True))
        case "arrive" if world.moves:
            world.arrive(a % len(world.moves))
        case "load" if world.loads:
            world.loaded(a % len(world.loads))
        case "push":
            world.push(a % len(state.partitions), state.consistent + 1 + b % 3)
        case "clocks":
            for index in range(len(state.partitions)):
                world.push(index, state.consistent + 1)
        case "return":
            host = state.hosts[a % len(state.hosts)]
            world.tell(HostsJoined((Member(state.newest + 1, host.name, host.tier, 1 + b % 4, 1e6),)))
        case "restart":
            world.restart(some if b % 2 else ())
        case "rate":
            world.tell(TrafficMeasured(MeasuredTraffic(1.0 + a, 100.0, 1.0 + b / 10)))
        case "stale":
            item = state.partitions[a % len(state.partitions)]
            under_way = {item.term if item.waiting else -1, *(m.term for m in (item.move, item.copy) if m)}
            for late in (
                PartitionMoved(a % len(state.partitions), next(n for n in range(b, b + 99) if n not in under_way)),
                PartitionReplicated(a % len(state.partitions), 10**6, state.generation - 1),
                ShardsReady(10**6, b),
                HostsGone((10**6,)),
                HostsGone((10**6,), released=True),
                HostsWarned({10**6: 0.0}),
            ):
                assert not world.tell(late)


@settings(max_examples=60)
@given(st.integers(1, 3), st.integers(0, 6), st.integers(1, 7), st.integers(1, 30), st.booleans(), Doings)
def test_whatever_happens_everything_has_a_primary_a_replica_and_a_way_there(
    reliable: int, transient: int, partitions: int, shards: int, low: bool, doings: list[tuple[str, int, int]]
) -> None:
    thresholds = Thresholds(1, 3) if low else Thresholds()
    world = World.of(hosts(reliable, transient, rate=1e7), partitions, shards, thresholds=thresholds)
    for kind, a, b in doings:
        do(world, kind, a, b)
        if world.state.halted:
            event("halted")
            return
    event(f"stage {world.state.stage}")
    world.converge()


@settings(max_examples=60)
@given(st.integers(1, 3), st.integers(1, 12), st.integers(1, 7), st.integers(1, 30), Doings)
def test_all_transient_hosts_at_once_may_go_at_any_time(
    reliable: int, transient: int, partitions: int, shards: int, doings: list[tuple[str, int, int]]
) -> None:
    """Reliable hosts that stay keep the job alive, whatever was under way."""
    world = World.of(hosts(reliable, transient), partitions, shards)
    for kind, a, b in doings:
        if kind not in ("reliable", "return", "rate"):
            do(world, kind, a, b)
    world.tell(HostsGone(tuple(host.number for host in world.state.hosts if not host.reliable)))
    assert not world.state.halted
    assert world.state.stage is Stage.PARAMETER_SERVERS
    assert {partition.primary for partition in world.state.partitions} <= set(range(reliable))
    world.converge()
