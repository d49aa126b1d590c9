"""Timers that are due, each given to the sub-state that it belongs to."""

from solvers.elastic import draining, migration, rebalancing
from solvers.elastic import pending as p
from solvers.elastic.context import Context


def take_due(ctx: Context) -> p.Due | None:
    """Return what is due first, and forget its timer."""
    timers = ctx.state.timers
    if not timers or timers[0].at_s > ctx.now:
        return None
    ctx.state.timers = timers[1:]
    return timers[0].due


def dispatch(ctx: Context, due: p.Due) -> None:
    """Do what is due."""
    match due:
        case p.WarnedHostsDue():
            draining.decide(ctx, due.hosts)
        case p.ParticipantsSet():
            rebalancing.retry_participants(ctx, due)
        case p.PartitionOpened():
            migration.retry_hand_on(ctx, due)
        case p.FirstReplicaAdded():
            migration.retry_first_replica(ctx, due)
        case p.StateTransferred():
            migration.try_transfer(ctx, due)
        case p.ReplicaPromoted():
            migration.try_promote(ctx, due)
        case p.MoveCommitted():
            migration.try_commit(ctx, due)
