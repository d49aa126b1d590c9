"""Replication to backups in rounds, up to a watermark, so that all backups have a clock in common to go back to."""

from dataclasses import replace

from plink.model.elastic.reports import PartitionsChanged
from plink.model.elastic.requests import ReplicateUpTo
from solvers.elastic.context import Context
from solvers.elastic.placement.events import PushedTo
from solvers.elastic.state import CLOCK_SHIFT

_SERVING = "serving"


def reported(ctx: Context, host: int, report: PartitionsChanged) -> None:
    """Take note of the clocks of partitions; only the owner of a partition counts, in this era."""
    cluster = ctx.state.cluster
    for number, (role, era, _, clock, replicated) in report.partitions.items():
        if number >= len(cluster.partitions) or role != _SERVING or era != cluster.era:
            continue
        partition = cluster.partitions[number]
        if host != partition.owner:
            continue
        state = ctx.state.replication
        ctx.state.replication = replace(
            state, clocks={**state.clocks, number: clock}, replicated={**state.replicated, number: (host, replicated)}
        )
        if partition.owner == partition.backup:
            ctx.state.undecided = (*ctx.state.undecided, PushedTo(number, clock + CLOCK_SHIFT, era))
        else:
            _count(ctx, number)


def advance(ctx: Context) -> None:
    """Begin the next round, if the last is over and there is something to replicate."""
    clock, watermark = ctx.state.clock, ctx.state.replication.watermark
    if ctx.state.cluster.consistent - CLOCK_SHIFT >= watermark and clock > watermark:
        _set_watermark(ctx, clock)
        for number in ctx.state.replication.replicated:
            _count(ctx, number)


def rolled_back(ctx: Context, clock: int) -> None:
    """All are at a clock again."""
    state = ctx.state.replication
    ctx.state.replication = replace(state, clocks=dict.fromkeys(state.clocks, clock), replicated={})
    _set_watermark(ctx, clock)


def _count(ctx: Context, number: int) -> None:
    """Count the replica of a partition as far as the watermark. One that was added at a clock between two watermarks
    has that clock, but others go past it in one push, and could not go back to it."""
    owner, replicated = ctx.state.replication.replicated[number]
    cluster, watermark = ctx.state.cluster, ctx.state.replication.watermark
    partition = cluster.partitions[number]
    if owner == partition.owner != partition.backup and replicated >= watermark:
        ctx.state.undecided = (*ctx.state.undecided, PushedTo(number, watermark + CLOCK_SHIFT, cluster.era))


def _set_watermark(ctx: Context, clock: int) -> None:
    ctx.state.replication = replace(ctx.state.replication, watermark=clock)
    ctx.send_all(ReplicateUpTo(clock))
