"""What follows after every event: decisions of the placement, and whatever has become possible by them."""

from plink.model.elastic.requests import ReplicateUpTo
from solvers.elastic import (
    checkpointing,
    decisions,
    draining,
    ending,
    extensions,
    joining,
    migration,
    rebalancing,
    replication,
    resuming,
    stragglers,
    traffic,
)
from solvers.elastic.context import Context
from solvers.elastic.events import HostsJoined
from solvers.elastic.member import Member


def advance(ctx: Context) -> None:
    """Decide on what has happened, then do what has become possible."""
    while ctx.state.undecided and ctx.state.placement is not None and not ctx.state.ending.over:
        if (reason := decisions.decide(ctx)) is not None:
            resuming.halted(ctx, reason)
    if ctx.state.placement is not None and not ctx.state.ending.over:
        replication.advance(ctx)
        _advance_modules(ctx)


def time_passed(ctx: Context) -> None:
    """Do what follows from nothing but time."""
    if ctx.state.placement is None:
        resuming.advance(ctx)
    if not ctx.state.ending.over and ctx.state.placement is not None:
        draining.release_overdue(ctx)
        stragglers.note(ctx)
        _advance_modules(ctx)
        advance(ctx)


def _advance_modules(ctx: Context) -> None:
    while (arrival := joining.take_ready(ctx)) is not None:
        _join(ctx, *arrival)
    draining.apply_early_warnings(ctx)
    if ctx.state.cluster.halted:
        return
    rebalancing.advance(ctx)
    draining.release_free(ctx)
    checkpointing.advance(ctx, checkpointing.last_reliable_s(ctx))
    traffic.advance(ctx)
    ending.advance(ctx)
    extensions.advance(ctx)


def _join(ctx: Context, members: list[Member], bulk: bool) -> None:
    cluster = ctx.state.cluster
    new = [member for member in members if member.number not in cluster.members]
    if cluster.halted:
        resuming.restart(ctx)
        return
    for member in new:
        if member.number <= cluster.newest:  # it fell between two controllers
            draining.release(ctx, member.number, "it came while the controller changed; add it again")
        ctx.send(member.number, ReplicateUpTo(ctx.state.replication.watermark))
    migration.send_primaries(ctx)
    ctx.decide(HostsJoined(tuple(new), bulk))
