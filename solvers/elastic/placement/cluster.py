"""The elasticity controller's decisions: a state and an event give the next state and what to do (Harlap thesis, 4.2).

Pure: the same events give the same decisions again. What a controller does with them, and how it comes to know of the
events, is its own affair; it may be told of an event twice or late, which changes nothing.
"""

from solvers.elastic.placement import actions as act
from solvers.elastic.placement import data, moving, recovery, warning, working
from solvers.elastic.placement.events import (
    Event,
    HostsFailed,
    HostsLeft,
    Joined,
    Measured,
    Moved,
    Ready,
    Replicated,
    SpeedsMeasured,
    Unserved,
    Warned,
)
from solvers.elastic.placement.hosts import JobHost, Tier
from solvers.elastic.placement.stages import measured_thresholds
from solvers.elastic.placement.state import Cluster, Step


def apply(cluster: Cluster, event: Event) -> tuple[Cluster, tuple[act.Action, ...]]:
    """Return the next state, and the actions in the order in which to carry them out.

    Nothing follows from what is stale: a term, generation or ticket that is not the last one, a host that is no member.
    """
    if cluster.halted:
        return cluster, ()
    step = Step(cluster, "")
    match event:
        case Joined():
            _joined(step, event)
        case Ready():
            _ready(step, event)
        case Warned():
            _warned(step, event)
        case HostsLeft() | HostsFailed():
            _gone(step, event)
        case Moved(partition, term):
            _moved(step, partition, term)
        case Replicated():
            _pushed(step, event)
        case Unserved():
            _unserved(step, event)
        case SpeedsMeasured(speeds):
            step.change(speeds=speeds)
            step.cause = "the speeds of hosts were measured"
            _replan(step)
        case Measured():
            step.change(thresholds=measured_thresholds(event.traffic, cluster.thresholds))
            if step.state.thresholds != cluster.thresholds:
                step.cause = "the reliable hosts' traffic was measured"
                _replan(step)
    return step.state, tuple(step.actions)


def _joined(step: Step, event: Joined) -> None:
    hosts = sorted((h for h in event.hosts if h.number > step.state.newest), key=lambda host: host.number)
    if not hosts:
        return
    names = {host.name for host in hosts}
    if old := tuple(host.number for host in step.state.hosts if host.name in names):
        # Under its old name it is another process, which has nothing of what the old one had.
        step.cause = f"{_named(step, old)} came back"
        _admit(step, hosts, event.bulk)
        _remove(step, old)
        if step.state.halted:
            return
    else:
        _admit(step, hosts, event.bulk)
    step.cause = f"{', '.join(host.name for host in hosts)} joined"
    _replan(step)
    working.load_spares(step, [host.number for host in hosts])


def _admit(step: Step, hosts: list[JobHost], bulk: bool) -> None:
    for host in hosts:
        step.act(act.Welcome(host, f"member {host.number}, {host.tier}"))
    # A reliable host can serve at once; its share of the data follows when it has loaded it.
    new = {h.number: hosts[0].number if bulk else h.number for h in hosts if h.tier is Tier.TRANSIENT}
    members = (*step.state.hosts, *hosts)
    step.change(hosts=members, joining={**step.state.joining, **new}, newest=hosts[-1].number)


def _ready(step: Step, event: Ready) -> None:
    if event.host not in step.state.members:
        return
    shards = data.arrived(step.state.shards, event.host, event.ticket)
    if shards == step.state.shards:
        return
    step.change(shards=shards)
    step.cause = f"{step.state.name(event.host)} has loaded"
    _replan(step)


def _warned(step: Step, event: Warned) -> None:
    deadlines = {host: seconds for host, seconds in sorted(event.deadlines.items()) if host in step.state.members}
    if late := tuple(host for host, seconds in deadlines.items() if seconds <= 0):
        step.cause = f"{_named(step, late)} warned with no time left"
        _remove(step, late)
    new = {host: seconds for host, seconds in deadlines.items() if seconds > 0}
    if step.state.halted or (not new and not late):
        return
    if new:
        step.cause = f"{_named(step, tuple(new))} leaves in {min(new.values()):g} s"
        others = {host: seconds for host, seconds in event.others.items() if host in step.state.leaving}
        step.change(leaving={**step.state.leaving, **others, **new})
        reliable = {host.number for host in step.state.hosts if host.tier is Tier.RELIABLE}
        if reliable <= set(step.state.leaving) and reliable - set(step.before.leaving):
            step.act(act.UrgentCheckpoint(f"{step.cause}, and no reliable host stays: write a checkpoint or add one"))
        working.assign(step)
        warning.evacuate(step, event.unreplicated)
    _replan(step)


def _gone(step: Step, event: HostsLeft | HostsFailed) -> None:
    lost = tuple(sorted(set(event.hosts) & set(step.state.members)))
    if not lost:
        return
    step.cause = f"{_named(step, lost)} {'left' if isinstance(event, HostsLeft) else 'failed'}"
    _remove(step, lost)
    if not step.state.halted:
        _replan(step)


def _remove(step: Step, lost: tuple[int, ...]) -> None:
    working.without(step, lost)
    recovery.recover(step, lost)


def _moved(step: Step, partition: int, term: int) -> None:
    if 0 <= partition < len(step.state.partitions) and moving.moved(step, partition, term):
        step.cause = f"partition {partition} has moved"
        _replan(step)


def _pushed(step: Step, event: Replicated) -> None:
    state = step.state
    if event.generation != state.generation or not 0 <= event.partition < len(state.partitions):
        return
    partition = state.partitions[event.partition]
    if not partition.safe or event.clock <= partition.clock:
        return
    step.partition(event.partition, clock=event.clock)
    clock = min(partition.clock for partition in step.state.partitions)
    if clock > state.consistent:
        step.change(consistent=clock)
        step.act(act.Consistent(clock, f"every replica has all up to clock {clock}"))


def _unserved(step: Step, event: Unserved) -> None:
    partitions = step.state.partitions
    if not 0 <= event.partition < len(partitions) or partitions[event.partition].term != event.term:
        return
    primary = step.state.name(partitions[event.partition].primary)
    step.cause = f"partition {event.partition} was lost on its way to {primary}"
    step.partition(event.partition, waiting=True, safe=event.has_replica)
    recovery.recover(step, (), effective=True)
    if not step.state.halted:
        _replan(step)


def _replan(step: Step) -> None:
    """Decide all that members and moves under way allow, and notify those whom it concerns."""
    working.assign(step)
    moving.plan_moves(step)
    _finish(step)


def _finish(step: Step) -> None:
    before, after = step.before, step.state
    if after.stage is not before.stage:
        ratio = f"{len(after.transient)} transient to {len(after.reliable)} reliable hosts"
        step.actions.insert(0, act.ChangeStage(after.stage, f"{step.cause}: {ratio}"))
    if [partition.primary for partition in after.partitions] != [partition.primary for partition in before.partitions]:
        primaries = tuple(partition.primary for partition in after.partitions)
        step.change(version=step.next())
        step.act(act.PointWorkers(step.state.version, primaries, f"{step.cause}: partitions have other primaries"))
    working.load(step)
    working.tell(step)
    _release_members(step)


def _release_members(step: Step) -> None:
    """Release warned members that have nothing left that anybody needs, before they are taken."""
    state = step.state
    needed = {shard.owner for shard in state.shards}
    for partition in state.partitions:
        needed |= {partition.primary, partition.replica}
    free = set(state.leaving) - needed - state.released
    for host in sorted(free):
        step.act(act.Release(host, f"{state.name(host)} has nothing left that anybody needs"))
    step.change(released=(state.released | free) & frozenset(state.leaving))


def _named(step: Step, hosts: tuple[int, ...]) -> str:
    return ", ".join(step.state.name(host) for host in hosts)
