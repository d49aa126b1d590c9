"""Decisions of the placement carried out: each action is given to the sub-state that brings it about."""

from dataclasses import dataclass, replace

from plink.model.elastic.reports import Answer
from plink.model.elastic.requests import Forget, RollBack, SetPrimaries
from plink.model.elastic.results import Result
from solvers.elastic import checkpointing, loading, migration, opening, rebalancing, traffic
from solvers.elastic.context import Context
from solvers.elastic.dispatch import on_answer
from solvers.elastic.events import HostsLost
from solvers.elastic.pending import GONE
from solvers.elastic.placement import actions as act
from solvers.elastic.placement.cluster import apply
from solvers.elastic.placement.data import worked_on
from solvers.elastic.placement.events import Measured, Moved
from solvers.elastic.placement.state import Cluster
from solvers.elastic.rollback import roll_back
from solvers.elastic.state import CLOCK_SHIFT

_NOT_LOGGED = act.Consistent | act.Welcome | act.ChangeStage | act.Serve  # or logged as something else


@dataclass(frozen=True)
class HostRolledBack:
    """A host goes back to a clock."""

    host: int
    clock: int
    generation: int


def decide(ctx: Context) -> act.Halt | None:
    """Decide on the next event, and carry out what follows; returns why the job cannot go on from here."""
    event, *rest = ctx.state.undecided
    ctx.state.undecided = tuple(rest)
    before = ctx.state.cluster
    after, actions = apply(before, event)
    if isinstance(event, Moved):
        migration.commit(ctx, before, after, event)
    if isinstance(event, Measured):
        traffic.keep(ctx, after.thresholds)
    return execute(ctx, after, actions)


def execute(ctx: Context, after: Cluster, actions: tuple[act.Action, ...]) -> act.Halt | None:
    """Make a decision the state of things, and have it brought about; returns a halt among its actions."""
    before, ctx.state.placement = ctx.state.placement, after
    rolls_back = any(isinstance(action, act.RollBackAll) for action in actions)
    if before is not None and rolls_back:
        migration.give_up(ctx, before)
        migration.forget_replicas(ctx, before)  # which may not be able to go back
    for action in actions:
        if not isinstance(action, _NOT_LOGGED):
            ctx.log(what="action", action=type(action).__name__, why=action.reason)
        _execute_action(ctx, action)
    if before is not None and not rolls_back:
        migration.forget_replicas(ctx, before)
    ctx.state.rebalancing = replace(ctx.state.rebalancing, target=worked_on(after.shards))
    rebalancing.advance(ctx)
    return next((action for action in actions if isinstance(action, act.Halt)), None)


def send_primaries(ctx: Context) -> None:
    """Send all members the primaries of all partitions."""
    cluster = ctx.state.cluster
    primaries = {
        number: (ctx.state.address(partition.primary), partition.term)
        for number, partition in enumerate(cluster.partitions)
        if partition.primary in ctx.state.members
    }
    ctx.send_all(SetPrimaries(primaries, cluster.number))


def _execute_action(ctx: Context, action: act.Action) -> None:
    match action:
        case act.Welcome():
            _welcome(ctx, action)
        case act.ChangeStage():
            ctx.state.progress = replace(ctx.state.progress, stage=action.stage.value)
            ctx.log(what="stage", stage=action.stage.value, why=action.reason)
        case act.Serve():
            opening.serve(ctx, action)
        case act.HandOver() | act.Drain() | act.Replicate():
            migration.transfer(ctx, action)
        case act.CancelMove():
            migration.cancel(ctx, action)
        case act.ReplicateTo():
            migration.set_replica(ctx, action)
        case act.RestorePartition():
            migration.restore(ctx, action)
        case act.PromoteReplica():
            migration.promote(ctx, action)
        case act.ForgetMoves():
            ctx.send_all(Forget(action.term))
        case act.RollBackAll():
            clock = action.clock - CLOCK_SHIFT
            log_rollback(ctx, clock, action.generation, ctx.state.rebalancing.begun)
            for host in ctx.state.members:
                ctx.request(host, RollBack(clock, action.generation), HostRolledBack(host, clock, action.generation))
            roll_back(ctx, clock, action.generation, anew=False)
        case act.Consistent():
            checkpointing.consistent(ctx, action.clock - CLOCK_SHIFT)
        case act.PointWorkers():
            send_primaries(ctx)
        case act.Load():
            loading.load(ctx, action)
        case act.Release():
            ctx.state.draining = replace(ctx.state.draining, free=ctx.state.draining.free | {action.host})
        case act.UrgentCheckpoint():
            ctx.state.checkpointing = replace(ctx.state.checkpointing, urgent=True)
            ctx.say(action.reason)
        case act.Halt() | act.Work() | act.StopWork():
            pass  # by whoever decides, and by rebalancing


@on_answer(HostRolledBack)
def _host_rolled_back(ctx: Context, purpose: HostRolledBack, answer: Answer, result: Result | None) -> None:
    """Go on without a host that cannot go back: its state is of another clock than everybody else's."""
    if answer.error is not None and answer.kind != GONE and purpose.generation == ctx.state.cluster.generation:
        ctx.emit(HostsLost((purpose.host,), f"it cannot roll back to clock {purpose.clock}: {answer.error}"))


def _welcome(ctx: Context, action: act.Welcome) -> None:
    number = action.host.number
    if number in ctx.state.members.keys() - ctx.state.welcomed:  # it may be gone by now
        ctx.state.welcomed |= {number}
        ctx.log(**ctx.state.members[number].line("joined", action.reason))


def log_rollback(ctx: Context, clock: int, generation: int, begun: int) -> None:
    """Log that all go back from the latest clock that was ``begun``, and how many clocks will be done again."""
    ctx.log(**{"what": "rolled back", "clock": clock, "generation": generation, "redone": max(0, begun - 1 - clock)})
