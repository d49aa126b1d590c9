"""The beginning of a job: anew, from a checkpoint, or where another controller left off (from hosts' reports)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from plink.errors import PlinkError
from plink.model.elastic.fields import ShardMap, StageThresholds
from plink.model.elastic.reports import ClockDone
from plink.model.elastic.requests import Drop, Forget, HostReport, ReplicateUpTo, ReportPartitions, Reset
from plink.model.hostlist import fold_hostlist
from solvers.elastic import checkpointing, draining, failures, joining, migration, moving, rebalancing, traffic, working
from solvers.elastic.commands import StartReliableHosts
from solvers.elastic.context import Context, PlacementDecision
from solvers.elastic.decisions import execute
from solvers.elastic.ending import fail
from solvers.elastic.events import BeginJob, HostMessage, StateLost
from solvers.elastic.member import Member
from solvers.elastic.placement.cluster import Cluster
from solvers.elastic.placement.data import Shard
from solvers.elastic.placement.partitions import PartitionPlacement
from solvers.elastic.placement.stages import Stage, Thresholds
from solvers.elastic.recovery import log_rollback, recover, roll_back
from solvers.elastic.start import start as placement_of
from solvers.elastic.state import Checkpoint, WorkerAssignment

_NOBODY = -1

Reports = Mapping[int, HostReport]
Works = Mapping[int, frozenset[int]]


def resume(
    members: Mapping[int, Member],
    reports: Reports,
    partition_bytes: Sequence[float],
    shards: int,
    thresholds: Thresholds = Thresholds(),  # noqa: B008
) -> PlacementDecision:
    """Return the placement that the reports are of, and what to do from there.

    Moves that were under way are cancelled. What only members had that do not report is recovered as after their
    failure. All go back to the clock that all replicas have where something was under way that nobody can tell.

    Of two servers of a partition the later one is right: until a map names it, everything reaches it through the other.
    What nobody remembers is lost: warnings (they are asked for again), and who had which shard when (reliable hosts
    count as the earliest owners). The stage is known by who serves and by who works.

    Without a reliable host among them the job halts, as when the last one fails.

    :param thresholds: that held.
    """
    reports = dict(sorted(reports.items()))
    hosts = tuple(members[number] for number in reports)
    workers, _ = workers_of(reports)
    works = {number: _shards_of(report, workers) for number, report in reports.items()}
    partitions = tuple(_partition(hosts, reports, index) for index in range(len(partition_bytes)))
    transient = [host.number for host in hosts if not host.reliable]
    cluster = Cluster(
        hosts,
        tuple(partition_bytes),
        thresholds,
        _stage(works, partitions, transient),
        partitions,
        tuple(_shard(hosts, reports, works, index) for index in range(shards)),
        joining={number: number for number in transient if not works[number] and not reports[number].serves},
        number=max(report.number for report in reports.values()),
        newest=hosts[-1].number,
        generation=max(report.generation for report in reports.values()),
        consistent=_common_clock(reports, partitions),
    )
    decision = PlacementDecision(cluster, "the controller started again")
    cause, forgotten = decision.cause, Forget(decision.next())
    decision.act("ForgetMoves", f"{cause}: moves that were under way are off", Context.send_all, forgotten)
    working.without(decision, {_NOBODY})
    # A member that did not receive the last roll-back has what the others went back from.
    incomplete = len({report.generation for report in reports.values()}) > 1
    recover(decision, {_NOBODY}, effective=incomplete or _something_was_under_way(reports))
    if decision.halted is None:
        for index, partition in enumerate(decision.cluster.partitions):
            if partition.primary != partition.replica and partition.safe and not partition.waiting:
                ends = partition.primary, index, partition.replica
                reason = f"{cause}: who serves what and where it is safe"
                decision.act("ReplicateTo", reason, migration.set_replica, *ends)
        working.assign(decision)
        moving.plan_moves(decision)
        decision.act("PointWorkers", f"{cause}: its map of primaries", migration.send_primaries)
        working.load(decision)
        working.tell(decision, notify_all=True)
    return decision


def _stage(works: Works, partitions: Sequence[PartitionPlacement], transient: Collection[int]) -> Stage:
    """Return the stage that it was: the slack of a threshold holds it up, or not, as before."""
    if not any(partition.primary in transient for partition in partitions):
        return Stage.PARAMETER_SERVERS
    reliable_work = any(shards for number, shards in works.items() if number not in transient)
    return Stage.ACTIVE_AND_BACKUP if reliable_work else Stage.BACKUP_ONLY


def _partition(hosts: Sequence[Member], reports: Reports, index: int) -> PartitionPlacement:
    served = [(report.serves[index], number) for number, report in reports.items() if index in report.serves]
    term, primary = max(served, default=(0, _NOBODY))
    # A transient host that serves has a whole copy too, and is no replica.
    reliable = [host.number for host in hosts if host.reliable]
    replica = _latest({number: reports[number].replicas for number in reliable}, index)
    if primary == _NOBODY and replica is None:  # who it was given to is gone
        replica = _latest({number: reports[number].in_doubt for number in reliable}, index)
    if primary in reliable:
        return PartitionPlacement(primary, term, primary, reports[primary].replicas.get(index, (-1,))[-1])
    if replica is None:
        return PartitionPlacement(primary, term, _NOBODY, -1, safe=False)
    return PartitionPlacement(primary, term, -replica[1], replica[0])


def _latest(replicas: Mapping[int, Mapping[int, tuple[int, ...]]], index: int) -> tuple[int, int] | None:
    """Return the clock of the host with the latest state of a partition, and its number, negative.

    Of several hosts it is the first; None where none has any.
    """
    return max(((clocks[index][-1], -host) for host, clocks in replicas.items() if index in clocks), default=None)


def _common_clock(reports: Reports, partitions: Sequence[PartitionPlacement]) -> int:
    """Return the latest clock that all replicas can go back to.

    Of replicas with a later one, a push may have gone past it.
    """
    safe = [(index, partition) for index, partition in enumerate(partitions) if partition.safe]
    clocks = [
        {**reports[partition.replica].in_doubt, **reports[partition.replica].replicas}.get(index, (partition.clock,))
        for index, partition in safe
    ]
    common = set(clocks[0]).intersection(*clocks[1:]) if clocks else {-1}
    return max(common, default=min((partition.clock for _, partition in safe), default=-1))


def _shard(hosts: Sequence[Member], reports: Reports, works: Works, index: int) -> Shard:
    owner = next((number for number, shards in works.items() if index in shards), _NOBODY)
    loaded = [host for host in hosts if index in reports[host.number].loaded]
    earlier = sorted(loaded, key=lambda host: (not host.reliable, host.number))
    previous = tuple(host.number for host in earlier if host.number != owner)
    return Shard(owner, previous, frozenset(host.number for host in loaded))


def workers_of(reports: Reports) -> tuple[dict[int, WorkerAssignment], int]:
    """Return who works on what by the latest map that any host has, and the first number that no worker had."""
    workers = {
        worker: WorkerAssignment(host, shards, first)
        for worker, (host, shards, first) in _latest_map(reports).everywhere.items()
    }
    numbers = {*workers, *(worker for report in reports.values() for worker in (*report.workers, *report.takeovers))}
    return workers, max(numbers, default=-1) + 1


def latest_thresholds(reports: Reports) -> StageThresholds | None:
    """Return what the latest measure of the traffic left to be kept; None: there was none."""
    thresholds = [report.thresholds for report in reports.values() if report.thresholds]
    return max(thresholds, key=lambda thresholds: thresholds.measure, default=None)


def _something_was_under_way(reports: Reports) -> bool:
    """Return whether something was under way of which no host can report the end.

    That is a barrier, a roll-back, a lost host, or a takeover.
    """
    latest = _latest_map(reports)
    if any(report.generation > latest.generation for report in reports.values()):
        return True
    for host, _, _ in latest.everywhere.values():
        if host not in reports or reports[host].map != latest:
            return True
    if any(host not in reports and _reached(reports) < until - 1 for host, until in latest.left):
        return True  # one that was told to leave was lost before it had done what was left
    if _reached(reports) < latest.clock - 1:
        return True  # should a host be lost now, nobody knows what it had before that clock
    return any(report.paused or report.takeovers for report in reports.values())


def _shards_of(report: HostReport, workers: Mapping[int, WorkerAssignment]) -> frozenset[int]:
    """Return what a host works on, or did until its workers had nothing left to do; of those that were released since
    others work on it."""
    running = {shard for shards in report.workers.values() for shard in shards}
    finished = report.finished.keys() & workers.keys()
    return frozenset(running | {shard for worker in finished for shard in workers[worker].shards})


def _latest_map(reports: Reports) -> ShardMap:
    maps = (report.map for report in reports.values() if report.map)
    return max(maps, key=lambda shard_map: (shard_map.generation, shard_map.clock))


def _reached(reports: Reports) -> int:
    """Return the clock that all partitions have."""
    clocks: dict[int, int] = {}
    for report in reports.values():
        for index, clocks_of_replica in report.replicas.items():
            clocks[index] = max(clocks_of_replica[-1], clocks.get(index, clocks_of_replica[-1]))
    return min(clocks.values(), default=-1)


_BEFORE_START = "the last reliable host was lost before the job had begun"
_NO_CHECKPOINT = ", and there is no checkpoint (--checkpoint DIR): start the job again"


def start(ctx: Context, number: int = 0) -> None:
    """Begin the job. ``number``: the last that a controller before this one gave, whose job had not begun."""
    state, settings = ctx.state, ctx.state.settings
    if not state.any_reliable:
        _wait(ctx, _BEFORE_START, number)
        return
    saved = _saved(ctx)
    origin = "" if saved is None else f"goes on from the checkpoint of clock {saved.clock} in {saved.folder}"
    _log_controller(ctx, "restarted" if number else "started", origin)
    if settings.restore and state.joining.own is None and (reason := _cannot_restore(ctx)):
        _fail(ctx, reason)
        return
    clock = -1 if saved is None else saved.clock
    if (decision := _begin_with(ctx, settings.thresholds, clock, number)) is None:
        return
    if number:
        ctx.send_all(Reset(-1, decision.cluster.generation))
    if number or saved is not None:
        roll_back(ctx, clock, anew=True)
    _restore_from(ctx, saved)
    _warn_of_racks(ctx, decision.cluster)
    execute(ctx, decision)


def _begin_with(ctx: Context, thresholds: Thresholds, clock: int, number: int) -> PlacementDecision | None:
    """Return the placement of a beginning at a clock; where there can be none the job ends."""
    members, settings = list(ctx.state.ready), ctx.state.settings
    try:
        return placement_of(members, settings.partition_bytes, settings.shards, thresholds, clock=clock, number=number)
    except PlinkError as error:
        _fail(ctx, str(error))
        return None


def _log_controller(ctx: Context, event: str, reason: str) -> None:
    settings = ctx.state.settings
    ctx.log(
        what="controller",
        event=event,
        why=reason,
        rule=settings.rule,
        shares=settings.shares,
        rebalance=settings.rebalance,
        shards=settings.shards,
        optimisers=settings.optimisers,
        divergence=settings.divergence,
    )


def _warn_of_racks(ctx: Context, cluster: Cluster) -> None:
    if ctx.state.settings.checkpoints:
        return
    for names in cluster.racks_at_risk():
        ctx.say(
            f"the job ends if the rack of {fold_hostlist(names)} is lost, with parameters and their only replicas: "
            "give --checkpoint DIR, or mark a host in another rack as tier=reliable"
        )


def _fail(ctx: Context, reason: str) -> None:
    """End the job; the reason may lie in hosts that could not begin."""
    fail(ctx, "; ".join([*ctx.state.joining.refused, reason]))


def _saved(ctx: Context) -> Checkpoint | None:
    """Return the job's own latest checkpoint; before there is one, that which it restores."""
    joining, settings = ctx.state.joining, ctx.state.settings
    if joining.own is not None:
        return checkpointing.note_saved(ctx, joining.own, settings.checkpoints)
    return checkpointing.note_saved(ctx, joining.saved, settings.restore)


def _cannot_restore(ctx: Context) -> str | None:
    saved, settings = ctx.state.joining.saved, ctx.state.settings
    if saved is None:
        return f"--restore {settings.restore}: none of the reliable hosts finds a checkpoint there"
    if saved.partitions != settings.partitions:
        return (
            f"--restore {settings.restore}: it has {saved.partitions} partitions, this job {settings.partitions}; "
            f"give it --max-hosts {2 * saved.partitions}"
        )
    return None


def _restore_from(ctx: Context, saved: Checkpoint | None) -> None:
    if saved is not None:
        ctx.state.migration = replace(ctx.state.migration, restore_from=(saved.folder, saved.clock))
        ctx.note(f"goes on from the checkpoint of clock {saved.clock} in {saved.folder}")


def advance(ctx: Context) -> None:
    """Begin the job where it waits for a reliable host to begin with, and one has joined."""
    number = ctx.state.resuming.waits
    if number is None:
        return
    arrived = False
    while joining.take_ready(ctx) is not None:
        arrived = True
    if ctx.state.any_reliable:
        ctx.state.resuming = replace(ctx.state.resuming, waits=None)
        start(ctx, number)
    elif arrived:  # and it was not one, or is lost again
        ctx.command(StartReliableHosts())


def halted(ctx: Context, reason: str) -> None:
    """Restore from a checkpoint after state is lost, if there is one.

    Where a host was told to name one, and may have been lost before it said so, other hosts are asked first.
    """
    if ctx.state.ending.over:
        return
    attempt = ctx.state.checkpointing.attempt
    if attempt is not None and attempt.named:
        ctx.state.checkpointing = replace(ctx.state.checkpointing, attempt=replace(attempt, lost=reason))
        return
    suspicion = failures.suspicion(ctx.state.crash_loop)
    ctx.note(reason)
    lost = reason if suspicion is None else f"{suspicion}; {reason}"
    ctx.state.resuming = replace(ctx.state.resuming, lost=lost)
    if ctx.state.checkpointing.last is None and (ctx.state.resuming.searched or not _folders(ctx)):
        _no_checkpoint(ctx)
    else:
        restart(ctx)


def restart(ctx: Context) -> None:
    """Begin from the last checkpoint, with the hosts that are left; without a reliable one it is waited for."""
    attempt = ctx.state.checkpointing.attempt
    if attempt is not None and attempt.lost:  # StateLost follows
        return
    if not ctx.state.any_reliable:
        ctx.command(StartReliableHosts())
        return
    saved = _saved(ctx)
    if saved is None:
        if ctx.state.resuming.lost:
            _no_checkpoint(ctx)
        else:
            start_anew(ctx, None)
        return
    begun = ctx.state.rebalancing.begun
    ctx.state.resuming = replace(ctx.state.resuming, lost="")
    start_anew(ctx, saved)
    log_rollback(ctx, saved.clock, ctx.state.cluster.generation, begun)


def _folders(ctx: Context) -> bool:
    """Return whether there may be checkpoints."""
    return bool(ctx.state.settings.checkpoints or ctx.state.settings.restore)


def _no_checkpoint(ctx: Context) -> None:
    folder = ctx.state.settings.checkpoints
    place = f" in {folder} yet" if folder else ": --checkpoint DIR"
    fail(ctx, f"{ctx.state.resuming.lost} (no checkpoint was written{place})")


def _wait(ctx: Context, what: str, number: int) -> None:
    """Wait for a reliable host where that helps: nothing was done, or can be had again from what is on disk."""
    if not _folders(ctx):
        _fail(ctx, f"{what}{_NO_CHECKPOINT}")
        return
    ctx.state.resuming = replace(ctx.state.resuming, waits=number)
    ctx.command(StartReliableHosts())


def start_anew(ctx: Context, saved: Checkpoint | None) -> None:
    """Begin anew with all hosts that there are; what they have is of no use, or of the checkpoint."""
    state, clock = ctx.state, -1 if saved is None else saved.clock
    if not state.any_reliable:
        if saved is None and not _folders(ctx):
            _fail(ctx, f"{_BEFORE_START}{_NO_CHECKPOINT}")
            return
        state.migration = replace(state.migration, opening={}, commits={})
        state.placement = replace(state.cluster, halted=True)
        ctx.command(StartReliableHosts())
        return
    decision = _begin_with(ctx, state.cluster.thresholds, clock, state.cluster.number)
    if decision is None:
        return
    ctx.send_all(Reset(clock, decision.cluster.generation))
    roll_back(ctx, clock, anew=True)
    _restore_from(ctx, saved)
    execute(ctx, decision)
    draining.decide(ctx, list(state.draining.deadlines))  # nothing is known of it in the new beginning


def go_on(ctx: Context) -> None:
    """Begin from what the hosts have; with those that were about to join."""
    members, unbegun = ctx.state.members, ctx.state.joining.unbegun
    # Some may have been lost since they answered.
    reports = {number: report for number, report in ctx.state.joining.reports.items() if number in members}
    if not reports and not unbegun:
        _wait(ctx, "all hosts were lost with the controller", 0)
        return
    if not any(report.map for report in reports.values()):  # no host has worked yet
        number = max((report.number for report in reports.values()), default=0)
        joining.begin(ctx, unbegun, BeginJob(number))
        return
    reason = _resume(ctx, reports)
    for member in sorted(unbegun, key=lambda member: -member.number):
        joining.arrive(ctx, (member,), False, first=True)
    if reason is not None:
        ctx.emit(StateLost(reason))


def _resume(ctx: Context, reports: Mapping[int, HostReport]) -> str | None:
    state, settings = ctx.state, ctx.state.settings
    _log_controller(ctx, "restarted", "")
    workers, next_worker = workers_of(reports)
    thresholds, measured = settings.thresholds, latest_thresholds(reports)
    if measured is not None:
        traffic.resume(ctx, measured)
        thresholds = Thresholds(measured.active, measured.backup_only)
    decision = resume(state.members, reports, settings.partition_bytes, settings.shards, thresholds)
    cluster = decision.cluster
    finished = dict(state.ending.finished)  # some may have finished since they reported
    for report in reports.values():
        finished = report.finished | finished
    state.ending = replace(state.ending, finished=finished)
    state.rebalancing = replace(
        state.rebalancing,
        workers=workers,
        next_worker=next_worker,
        start_at=None,
        begun=max(report.begun for report in reports.values()),
        frozen=bool(finished),
        history={number: ((worker.first, worker.shards),) for number, worker in workers.items()},
    )
    state.sizes = rebalancing.sizes_of(workers)
    _saved(ctx)
    state.resuming = replace(state.resuming, searched=state.any_reliable)
    state.joining = replace(state.joining, folder_marked=True)  # by the controller that began the job
    clocks = {index: clocks[-1] for report in reports.values() for index, clocks in report.replicas.items()}
    logged = sum(report.traffic.replicated for report in reports.values())  # by the controller before
    state.replication = replace(state.replication, clocks=clocks, logged=(0, logged))
    for number, partition in enumerate(cluster.partitions):  # what was on its way while they reported
        for host in state.members:
            if host not in (partition.primary, partition.replica):
                ctx.send(host, Drop(number, partition.term))
    state.welcomed = frozenset(state.members)
    state.progress = replace(state.progress, stage=cluster.stage.value)
    reason = execute(ctx, decision)
    for host, early in state.resuming.early:
        ctx.emit(HostMessage(host, early))
    state.resuming = replace(state.resuming, early=())
    ctx.send_all(ReplicateUpTo(state.replication.watermark))
    ctx.send_all(ReportPartitions())  # what has changed meanwhile
    return reason


def clock_done_early(ctx: Context, host: int, report: ClockDone) -> None:
    """Remember a clock that was done while hosts report: it counts when the job goes on."""
    ctx.state.resuming = replace(ctx.state.resuming, early=(*ctx.state.resuming.early, (host, report)))
