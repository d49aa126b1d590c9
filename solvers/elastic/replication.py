"""Replication to backups in rounds, up to a watermark, so that all backups have a clock in common to go back to."""

from dataclasses import replace

from plink.model.elastic.reports import PartitionsChanged
from plink.model.elastic.requests import ReplicateUpTo
from solvers.elastic.context import Context
from solvers.elastic.placement.events import PushedTo
from solvers.elastic.state import CLOCK_SHIFT

_SERVING = "serving"


def reported(ctx: Context, host: int, report: PartitionsChanged) -> None:
    """A host reports partitions; what counts is the word of a partition's owner in this era."""
    cluster = ctx.state.cluster
    for number, (role, era, _, clock, pushed) in report.partitions.items():
        if number >= len(cluster.partitions) or role != _SERVING or era != cluster.era:
            continue
        partition = cluster.partitions[number]
        if host != partition.owner:
            continue
        ctx.state.replication = replace(ctx.state.replication, clocks={**ctx.state.replication.clocks, number: clock})
        backed = clock if partition.owner == partition.backup else pushed
        ctx.state.undecided = (*ctx.state.undecided, PushedTo(number, backed + CLOCK_SHIFT, era))


def advance(ctx: Context) -> None:
    """Begin the next round, if the last is over and there is something to replicate."""
    clock, watermark = ctx.state.clock, ctx.state.replication.watermark
    if ctx.state.cluster.consistent - CLOCK_SHIFT >= watermark and clock > watermark:
        _set_watermark(ctx, clock)


def rolled_back(ctx: Context, clock: int) -> None:
    """All are at a clock again."""
    ctx.state.replication = replace(ctx.state.replication, clocks=dict.fromkeys(ctx.state.replication.clocks, clock))
    _set_watermark(ctx, clock)


def _set_watermark(ctx: Context, clock: int) -> None:
    ctx.state.replication = replace(ctx.state.replication, watermark=clock)
    ctx.send_all(ReplicateUpTo(clock))
