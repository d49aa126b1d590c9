"""Rolling back: every sub-state at a clock again. What has to be reset when all go back is listed here alone."""

from dataclasses import dataclass, replace

from plink.model.elastic.reports import Answer
from plink.model.elastic.requests import RollBack
from plink.model.elastic.results import Result
from solvers.elastic import checkpointing, host_work, migration, progress, rebalancing, replication, speeds, stragglers
from solvers.elastic.context import Context
from solvers.elastic.dispatch import on_answer
from solvers.elastic.events import HostsLost
from solvers.elastic.state import GONE


@dataclass(frozen=True)
class HostRolledBack:
    """A host goes back to a clock."""

    host: int
    clock: int
    generation: int


def roll_back_all(ctx: Context, clock: int, generation: int) -> None:
    """Have servers and replicas go back to a clock and forget what came after it; workers do again what did.

    Messages of an earlier generation change nothing any more.
    """
    log_rollback(ctx, clock, generation, ctx.state.rebalancing.begun)
    for host in ctx.state.members:
        ctx.request(host, RollBack(clock, generation), HostRolledBack(host, clock, generation))
    roll_back(ctx, clock, anew=False)


@on_answer(HostRolledBack)
def _host_rolled_back(ctx: Context, purpose: HostRolledBack, answer: Answer, result: Result | None) -> None:
    """Go on without a host that cannot go back: its state is of another clock than everybody else's."""
    if answer.error is not None and answer.kind != GONE and purpose.generation == ctx.state.cluster.generation:
        ctx.emit(HostsLost((purpose.host,), f"it cannot roll back to clock {purpose.clock}: {answer.error}"))


def log_rollback(ctx: Context, clock: int, generation: int, begun: int) -> None:
    """Log that all go back from the latest clock that was ``begun``, and how many clocks will be done again."""
    ctx.log(**{"what": "rolled back", "clock": clock, "generation": generation, "redone": max(0, begun - 1 - clock)})


def roll_back(ctx: Context, clock: int, *, anew: bool) -> None:
    """Reset everything to the state of a clock.

    ``anew``: hosts have nothing but a checkpoint's state.
    """
    state = ctx.state
    state.ending = replace(state.ending, finished={})
    state.migration = migration.rolled_back(state.migration, anew=anew)
    if anew:
        state.draining = replace(state.draining, free=frozenset())
    rebalancing.rolled_back(ctx, clock)
    replication.rolled_back(ctx, clock)
    progress.rolled_back(ctx, clock)
    host_work.rolled_back(ctx)
    state.stragglers = stragglers.rolled_back(state.stragglers)
    state.speeds = speeds.rolled_back(state.speeds)
    state.checkpointing = checkpointing.rolled_back(state.checkpointing, clock)
