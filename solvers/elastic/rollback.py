"""Rolling back: every sub-state at a clock again. What has to be reset when all go back is listed here alone."""

from dataclasses import replace

from solvers.elastic import checkpointing, host_work, migration, progress, rebalancing, replication, speeds, stragglers
from solvers.elastic.context import Context


def roll_back(ctx: Context, clock: int, generation: int, *, anew: bool) -> None:
    """Reset everything to the state of a clock, in a new generation.

    ``anew``: hosts have nothing but a checkpoint's state.
    """
    state = ctx.state
    state.ending = replace(state.ending, finished={})
    state.migration = migration.rolled_back(state.migration, anew=anew)
    if anew:
        state.draining = replace(state.draining, free=frozenset())
    rebalancing.rolled_back(ctx, clock, generation)
    replication.rolled_back(ctx, clock)
    progress.rolled_back(ctx, clock)
    host_work.rolled_back(ctx)
    state.stragglers = stragglers.rolled_back(state.stragglers)
    state.speeds = speeds.rolled_back(state.speeds)
    state.checkpointing = checkpointing.rolled_back(state.checkpointing, clock)
