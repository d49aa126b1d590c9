"""Decisions on the placement: who serves and who works after an event, and how that is brought about.

See Harlap thesis, 4.2. An event may be reported twice or late: nothing follows from a term, generation or ticket that
is not the last one, nor from a host that is no member.
"""

from collections.abc import Sequence
from dataclasses import replace

from solvers.elastic import (
    checkpointing,
    draining,
    evacuation,
    events,
    joining,
    migration,
    moving,
    progress,
    traffic,
    working,
)
from solvers.elastic.context import Context, PlacementDecision
from solvers.elastic.member import Member
from solvers.elastic.placement import data
from solvers.elastic.placement.cluster import Cluster
from solvers.elastic.placement.stages import measured_thresholds
from solvers.elastic.recovery import recover, roll_back_all


def decide(ctx: Context) -> str | None:
    """Decide on the next event, and carry out what follows; returns why the job cannot go on from here."""
    event, *rest = ctx.state.undecided
    ctx.state.undecided = tuple(rest)
    return execute(ctx, decision_on(ctx.state.cluster, event))


def execute(ctx: Context, decision: PlacementDecision) -> str | None:
    """Make a decision the state of things, and have it brought about; returns why the job cannot go on from here."""
    before, ctx.state.placement = ctx.state.placement, decision.cluster
    rolls_back = any(action.effect is roll_back_all for action in decision.actions)
    if before is not None and rolls_back:
        migration.give_up(ctx, before)
        migration.forget_replicas(ctx, before)  # which may not be able to go back
    for action in decision.actions:
        if action.name:
            ctx.log(what="action", action=action.name, why=action.reason)
        if action.effect is not None:
            action.effect(ctx, *action.arguments)
    if before is not None and not rolls_back:
        migration.forget_replicas(ctx, before)
    ctx.state.rebalancing = replace(ctx.state.rebalancing, target=data.worked_on(decision.cluster.shards))
    return decision.halted


def decision_on(cluster: Cluster, event: events.PlacementEvent) -> PlacementDecision:
    """Return what follows from an event for a placement."""
    decision = PlacementDecision(cluster)
    if cluster.halted:
        return decision
    match event:
        case events.HostsJoined(hosts, bulk):
            _join(decision, hosts, bulk)
        case events.ShardsReady(host, ticket):
            if (shards := data.arrived(cluster.shards, host, ticket)) != cluster.shards:
                decision.change(shards=shards)
                _replan(decision, f"{cluster.name(host)} has loaded")
        case events.HostsWarned():
            _warn(decision, event)
        case events.HostsGone():
            if lost := [host for host in sorted(set(event.hosts)) if host in cluster.members]:
                decision.cause = f"{_names(cluster, lost)} {'left' if event.released else 'failed'}"
                _remove(decision, lost)
                _replan(decision)
        case events.PartitionMoved(partition, term):
            if moving.moved(decision, partition, term):
                _replan(decision, f"partition {partition} has moved")
        case events.PartitionUnserved():
            _unserved(decision, event)
        case events.PartitionReplicated():
            _replicated(decision, event)
        case events.SpeedsMeasured(speeds):
            decision.change(speeds=speeds)
            _replan(decision, "the speeds of hosts were measured")
        case events.TrafficMeasured():
            decision.change(thresholds=measured_thresholds(event.traffic, cluster.thresholds))
            decision.do(traffic.keep, decision.cluster.thresholds)
            if decision.cluster.thresholds != cluster.thresholds:
                _replan(decision, "the reliable hosts' traffic was measured")
    return decision


def _join(decision: PlacementDecision, members: Sequence[Member], bulk: bool) -> None:
    cluster = decision.cluster
    hosts = sorted((host for host in members if host.number > cluster.newest), key=lambda host: host.number)
    if not hosts:
        return
    for host in hosts:
        decision.do(joining.welcome, host.number, f"member {host.number}, {host.tier}")
    # A reliable host can serve at once; its share of the data follows when it has loaded it.
    new = {host.number: hosts[0].number if bulk else host.number for host in hosts if not host.reliable}
    joining_hosts = {**cluster.joining, **new}
    decision.change(hosts=(*cluster.hosts, *hosts), joining=joining_hosts, newest=hosts[-1].number)
    names = {host.name for host in hosts}
    if old := [host.number for host in cluster.hosts if host.name in names]:
        # Under its old name it is another process, which has nothing of what the old one had.
        decision.cause = f"{_names(cluster, old)} came back"
        _remove(decision, old)
    _replan(decision, f"{', '.join(host.name for host in hosts)} joined")
    if decision.halted is None:
        working.load_spares(decision, [host.number for host in hosts])


def _warn(decision: PlacementDecision, event: events.HostsWarned) -> None:
    before = decision.cluster
    deadlines = {host: seconds for host, seconds in sorted(event.deadlines.items()) if host in before.members}
    if late := [host for host, seconds in deadlines.items() if seconds <= 0]:
        decision.cause = f"{_names(before, late)} warned with no time left"
        _remove(decision, late)
    new = {host: seconds for host, seconds in deadlines.items() if seconds > 0}
    if decision.halted is not None or (not new and not late):
        return
    if new:
        decision.cause = f"{_names(before, list(new))} leaves in {min(new.values()):g} s"
        decision.change(leaving=decision.cluster.leaving | {*new})
        reliable = {host.number for host in decision.cluster.hosts if host.reliable}
        if reliable <= decision.cluster.leaving and reliable - before.leaving:
            reason = f"{decision.cause}, and no reliable host stays: write a checkpoint or add one"
            decision.act("UrgentCheckpoint", reason, checkpointing.urge, reason)
        working.assign(decision)
        evacuation.evacuate(decision, {**event.others, **new}, event.unreplicated)
    _replan(decision)


def _remove(decision: PlacementDecision, lost: Sequence[int]) -> None:
    working.without(decision, lost)
    recover(decision, lost)


def _replicated(decision: PlacementDecision, event: events.PartitionReplicated) -> None:
    cluster = decision.cluster
    partition = cluster.partitions[event.partition]
    if event.generation != cluster.generation or not partition.safe or event.clock <= partition.clock:
        return
    decision.partition(event.partition, clock=event.clock)
    clock = min(partition.clock for partition in decision.cluster.partitions)
    if clock > cluster.consistent:
        decision.change(consistent=clock)
        decision.do(checkpointing.consistent, clock)


def _unserved(decision: PlacementDecision, event: events.PartitionUnserved) -> None:
    cluster = decision.cluster
    partition = cluster.partitions[event.partition]
    if partition.term == event.term:
        decision.cause = f"partition {event.partition} was lost on its way to {cluster.name(partition.primary)}"
        decision.partition(event.partition, waiting=True, safe=event.has_replica)
        recover(decision, (), effective=True)
        _replan(decision)


def _replan(decision: PlacementDecision, cause: str = "") -> None:
    """Decide all that members and moves under way allow, and notify those whom it concerns, unless all is lost."""
    if decision.halted is not None:
        return
    decision.cause = cause or decision.cause
    working.assign(decision)
    moving.plan_moves(decision)
    before, after = decision.before, decision.cluster
    if after.stage is not before.stage:
        ratio = f"{len(after.transient)} transient to {len(after.reliable)} reliable hosts"
        decision.do(progress.change_stage, after.stage, f"{decision.cause}: {ratio}")
        decision.actions.insert(0, decision.actions.pop())
    if [partition.primary for partition in after.partitions] != [partition.primary for partition in before.partitions]:
        reason = f"{decision.cause}: partitions have other primaries"
        decision.act("PointWorkers", reason, migration.send_primaries)
    working.load(decision)
    working.tell(decision)
    _release_members(decision)


def _release_members(decision: PlacementDecision) -> None:
    """Release warned members that have nothing left that anybody needs, before they are taken."""
    cluster = decision.cluster
    needed = {shard.owner for shard in cluster.shards}
    for partition in cluster.partitions:
        needed |= {partition.primary, partition.replica}
    free = cluster.leaving - needed - cluster.released
    for host in sorted(free):
        reason = f"{cluster.name(host)} has nothing left that anybody needs"
        decision.act("Release", reason, draining.free, host)
    decision.change(released=(cluster.released | free) & cluster.leaving)


def _names(cluster: Cluster, hosts: Sequence[int]) -> str:
    return ", ".join(cluster.name(host) for host in hosts)
