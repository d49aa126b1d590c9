"""Replication to replicas in rounds, up to a watermark, so that all replicas have a clock in common to go back to.

A round begins when the last is over; where the distance to replicas is bounded (``--divergence``) only when a bound
nears, or something waits for replicas: hosts that leave, partitions that move, a checkpoint that is due, the end.
"""

import math
from dataclasses import replace
from typing import Any

from plink.model.elastic.reports import PartitionsChanged
from plink.model.elastic.requests import ReplicateUpTo
from solvers.elastic import checkpointing
from solvers.elastic.context import Context
from solvers.elastic.events import PartitionReplicated
from solvers.elastic.state import State

_SERVING = "serving"


def reported(ctx: Context, host: int, report: PartitionsChanged) -> None:
    """Take note of the clocks of partitions; only the primary of a partition counts, in this generation."""
    cluster, replication = ctx.state.cluster, ctx.state.replication
    served = {n: each for n, each in report.divergence.items() if n < len(cluster.partitions)}
    served = {number: each for number, each in served.items() if host == cluster.partitions[number].primary}
    ctx.state.replication = replace(replication, divergence={**replication.divergence, **served})
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
            ctx.decide(PartitionReplicated(number, clock, generation))
        else:
            _count(ctx, number)


def advance(ctx: Context) -> None:
    """Begin the next round, if the last is over and there is something to replicate."""
    clock, watermark = ctx.state.clock, ctx.state.replication.watermark
    if ctx.state.cluster.consistent >= watermark and clock > watermark and _due(ctx):
        ctx.state.replication = replace(ctx.state.replication, rounds=ctx.state.replication.rounds + 1)
        _set_watermark(ctx, clock)
        for number in ctx.state.replication.replicated:
            _count(ctx, number)


def _due(ctx: Context) -> bool:
    """Return whether a round may begin."""
    state, cluster = ctx.state, ctx.state.cluster
    if not state.settings.divergence or cluster.leaving or state.ending.finished or checkpointing.due(ctx):
        return True
    apart = [number for number, partition in enumerate(cluster.partitions) if partition.primary != partition.replica]
    under_way = any(each.move or each.copy or each.waiting or not each.safe for each in cluster.partitions)
    divergence = state.replication.divergence
    return under_way or not apart or any(number in divergence and divergence[number].due for number in apart)


def status(state: State) -> dict[str, Any]:
    """Return the replication for a person."""
    replication = state.replication
    return {
        "rounds": replication.rounds,
        "bytes": sum(each.replicated for each in state.traffic.counters.values()),
        "bound": state.settings.divergence or None,
        "distance": math.sqrt(sum(each.square for each in replication.divergence.values())),
        "largest_distance": math.sqrt(sum(each.largest_square for each in replication.divergence.values())),
    }


def log(ctx: Context) -> None:
    """Log the rounds and bytes since the last time, if there were any, and the largest distance so far."""
    now, logged = status(ctx.state), ctx.state.replication.logged
    if now["rounds"] > logged[0]:
        rounds, size = now["rounds"] - logged[0], max(0, now["bytes"] - logged[1])
        ctx.log(what="replication", rounds=rounds, bytes=size, largest_distance=now["largest_distance"])
        ctx.state.replication = replace(ctx.state.replication, logged=(now["rounds"], now["bytes"]))


def rolled_back(ctx: Context, clock: int) -> None:
    """Reset after a roll-back to a clock."""
    state = ctx.state.replication
    ctx.state.replication = replace(state, clocks=dict.fromkeys(state.clocks, clock), replicated={}, divergence={})
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
        ctx.decide(PartitionReplicated(number, watermark, cluster.generation))


def _set_watermark(ctx: Context, clock: int) -> None:
    ctx.state.replication = replace(ctx.state.replication, watermark=clock)
    ctx.send_all(ReplicateUpTo(clock))
