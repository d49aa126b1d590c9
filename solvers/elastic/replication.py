"""Replication to replicas in rounds, up to a watermark, so that all replicas have a clock in common to go back to."""

from dataclasses import replace

from plink.model.elastic.reports import PartitionsChanged
from plink.model.elastic.requests import ReplicateUpTo
from solvers.elastic.context import Context
from solvers.elastic.placement.events import Replicated
from solvers.elastic.state import CLOCK_SHIFT

_SERVING = "serving"


def reported(ctx: Context, host: int, report: PartitionsChanged) -> None:
    """Take note of the clocks of partitions; only the primary of a partition counts, in this generation."""
    cluster = ctx.state.cluster
    for number, (role, generation, _, clock, replicated) in report.partitions.items():
        if number >= len(cluster.partitions) or role != _SERVING or generation != cluster.generation:
            continue
        partition = cluster.partitions[number]
        if host != partition.primary:
            continue
        state = ctx.state.replication
        ctx.state.replication = replace(
            state, clocks={**state.clocks, number: clock}, replicated={**state.replicated, number: (host, replicated)}
        )
        if partition.primary == partition.replica:
            ctx.state.undecided = (*ctx.state.undecided, Replicated(number, clock + CLOCK_SHIFT, generation))
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
    """Reset after a roll-back to a clock."""
    state = ctx.state.replication
    ctx.state.replication = replace(state, clocks=dict.fromkeys(state.clocks, clock), replicated={})
    _set_watermark(ctx, clock)


def _count(ctx: Context, number: int) -> None:
    """Count the replica of a partition as far as the watermark.

    One that was added at a clock between two watermarks has that clock, but others go past it in one push, and could
    not go back to it.
    """
    primary, replicated = ctx.state.replication.replicated[number]
    cluster, watermark = ctx.state.cluster, ctx.state.replication.watermark
    partition = cluster.partitions[number]
    if primary == partition.primary != partition.replica and replicated >= watermark:
        ctx.state.undecided = (*ctx.state.undecided, Replicated(number, watermark + CLOCK_SHIFT, cluster.generation))


def _set_watermark(ctx: Context, clock: int) -> None:
    ctx.state.replication = replace(ctx.state.replication, watermark=clock)
    ctx.send_all(ReplicateUpTo(clock))
