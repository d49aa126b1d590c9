"""How a job begins: anew, from a checkpoint, or where another controller left off (rebuilt from hosts' reports)."""

from collections.abc import Mapping
from dataclasses import replace

from plink.errors import PlinkError
from plink.model.elastic.reports import ClockDone
from plink.model.elastic.requests import Drop, ReplicateUpTo, ReportPartitions, Reset
from plink.model.elastic.results import HostReport
from plink.model.hostlist import fold_hostlist
from solvers.elastic import checkpointing, crash_loop, draining, joining, rebalancing, traffic
from solvers.elastic.commands import StartReliableHosts
from solvers.elastic.context import Context, PlacementDecision
from solvers.elastic.decisions import execute
from solvers.elastic.ending import fail
from solvers.elastic.events import BeginJob, HostMessage, StateLost
from solvers.elastic.host_reports import latest_thresholds, leaving_workers, resume, workers_of
from solvers.elastic.placement.cluster import Cluster
from solvers.elastic.placement.stages import Thresholds
from solvers.elastic.rollback import log_rollback, roll_back
from solvers.elastic.start import start as placement_of
from solvers.elastic.state import Checkpoint

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
    members, settings = list(ctx.state.members.values()), ctx.state.settings
    try:
        return placement_of(members, settings.partition_bytes, settings.shards, thresholds, clock=clock, number=number)
    except PlinkError as error:
        _fail(ctx, str(error))
        return None


def _log_controller(ctx: Context, event: str, reason: str) -> None:
    settings = ctx.state.settings
    ctx.log(
        what="controller", event=event, why=reason, rule=settings.rule, shares=settings.shares, shards=settings.shards,
        optimisers=settings.optimisers, divergence=settings.divergence,
    )  # fmt: skip


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
    """Restore from a checkpoint after state is lost, if there is one."""
    suspicion = crash_loop.suspicion(ctx.state.crash_loop)
    ctx.note(reason)
    lost = reason if suspicion is None else f"{suspicion}; {reason}"
    ctx.state.resuming = replace(ctx.state.resuming, lost=lost)
    if ctx.state.checkpointing.last is None and (ctx.state.resuming.searched or not _folders(ctx)):
        _no_checkpoint(ctx)
    else:
        restart(ctx)


def restart(ctx: Context) -> None:
    """Begin from the last checkpoint, with the hosts that are left; without a reliable one it is waited for."""
    if not ctx.state.any_reliable:
        ctx.command(StartReliableHosts())
        return
    saved = ctx.state.checkpointing.last or _saved(ctx)
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
        state.rebalancing, workers=workers, next_worker=next_worker, start_at=None,
        begun=max(report.begun for report in reports.values()), frozen=bool(finished),
        after_rollback=leaving_workers(reports, workers),
    )  # fmt: skip
    state.sizes = rebalancing.sizes_of(workers)
    _saved(ctx)
    state.resuming = replace(state.resuming, searched=state.any_reliable)
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
