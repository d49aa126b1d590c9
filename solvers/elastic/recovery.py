"""On-line roll-back recovery: what is done when servers are gone before they could hand over (Harlap thesis, 4.2.3)."""

from collections.abc import Collection
from dataclasses import replace

from plink.model.elastic.reports import Answer
from plink.model.elastic.requests import RestoreTo, Result, RollBack
from solvers.elastic import checkpointing, host_work, migration, progress, rebalancing, replication, speeds, stragglers
from solvers.elastic.context import Context, PlacementDecision
from solvers.elastic.events import HostsLost
from solvers.elastic.migration import StateTransferred
from solvers.elastic.moving import add_replica, cancel, cancel_copy, primary_targets, replica_targets
from solvers.elastic.placement.stages import Stage
from solvers.elastic.state import GONE


def roll_back_all(ctx: Context, clock: int, generation: int) -> None:
    """Have servers and replicas go back to a clock and forget what came after it; workers do again what did.

    Messages of an earlier generation change nothing any more.
    """
    log_rollback(ctx, clock, generation, ctx.state.rebalancing.begun)
    for host in ctx.state.members:
        ctx.request(host, RollBack(clock, generation), _host_rolled_back, host, clock, generation)
    roll_back(ctx, clock, anew=False)


def _host_rolled_back(
    ctx: Context, host: int, clock: int, generation: int, answer: Answer, result: Result | None
) -> None:
    """Go on without a host that cannot go back: its state is of another clock than everybody else's."""
    if answer.error is not None and answer.kind != GONE and generation == ctx.state.cluster.generation:
        ctx.emit(HostsLost((host,), f"it cannot roll back to clock {clock}: {answer.error}"))


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
    host_work.rolled_back(ctx, clock)
    state.stragglers = stragglers.rolled_back(state.stragglers)
    state.speeds = speeds.rolled_back(state.speeds)
    state.checkpointing = checkpointing.rolled_back(state.checkpointing, clock)


def recover(decision: PlacementDecision, lost: Collection[int], *, effective: bool = False) -> None:
    """Recover from hosts that are gone from the state's members already.

    ``effective``: those that are leaving have as good as failed.

    Lost replicas are made anew from the primaries. Where a primary is lost everybody goes back to the clock
    that all replicas have, and its partitions start from there: on other transient hosts, in stage 1 where the replicas
    are.
    """
    partitions = decision.cluster.partitions
    lost_partitions = tuple(
        index
        for index, partition in enumerate(partitions)
        if (partition.primary in lost or partition.waiting) and (partition.replica in lost or not partition.safe)
    )
    if lost_partitions or not decision.cluster.reliable:
        _halt(decision, lost_partitions)
        return
    for index, partition in enumerate(partitions):
        if partition.move and partition.move.to in lost and partition.primary not in lost:
            cancel(decision, index, f"{decision.cause}: who was to take partition {index} is gone")
        if partition.replica in lost or (partition.copy and partition.copy.to in lost):
            _mend_replica(decision, index, lost)
    if effective or any(partition.primary in lost for partition in partitions):
        _roll_back(decision, lost)


def _halt(decision: PlacementDecision, lost_partitions: tuple[int, ...]) -> None:
    what = f"the state of {len(lost_partitions)} partitions" if lost_partitions else "the last reliable host"
    decision.halt(f"{decision.cause}: {what} is gone; start again from a checkpoint, with a reliable host")


def _mend_replica(decision: PlacementDecision, index: int, lost: Collection[int]) -> None:
    """Replace a replica that is gone, or was to become one, of a partition whose primary is alive."""
    partition = decision.cluster.partitions[index]
    if partition.copy and partition.copy.to not in lost:
        # The copy that was under way is now the only one.
        decision.partition(index, replica=partition.copy.to, safe=False)
        return
    if partition.copy and partition.primary not in lost:
        reason = f"{decision.cause}: who was to be the replica of partition {index} is gone"
        decision.act("CancelMove", reason, migration.cancel, (partition.primary,), index, partition.copy.term)
    decision.partition(index, copy=None)
    if partition.replica in lost:
        to = replica_targets(decision.cluster)[index]
        decision.partition(index, replica=to, safe=False)
        add_replica(decision, index, to, decision.cause)


def _roll_back(decision: PlacementDecision, lost: Collection[int]) -> None:
    state, generation = decision.cluster, decision.next()
    decision.change(generation=generation)
    reason = f"{decision.cause}: what came after clock {state.consistent} has to be done again"
    decision.act("RollBackAll", reason, roll_back_all, state.consistent, generation)
    for index, partition in enumerate(state.partitions):
        # What is under way is neither here nor there, and newer than the clock: it starts again from those that stay.
        unsafe = None if partition.safe else partition.copy
        cancel(decision, index, "rolled back")
        cancel_copy(decision, index, "rolled back")
        decision.partition(index, clock=state.consistent)
        if unsafe:
            add_replica(decision, index, unsafe.to, "rolled back")
    if decision.cluster.stage is Stage.PARAMETER_SERVERS:
        _promote(decision)
    else:
        _restore(decision, lost)


def _promote(decision: PlacementDecision) -> None:
    """Promote replicas, which have what everybody goes back to: nothing needs to be sent."""
    promoted: dict[int, list[int]] = {}
    term = decision.next()
    for index, partition in enumerate(decision.cluster.partitions):
        if partition.safe and (partition.primary != partition.replica or partition.waiting):
            decision.partition(index, primary=partition.replica, term=term, waiting=False)
            promoted.setdefault(partition.replica, []).append(index)
    for host, which in sorted(promoted.items()):
        reason = f"{decision.cause}: {decision.cluster.name(host)} serves {len(which)} partitions from its replica"
        decision.act("PromoteReplica", reason, migration.promote, host, tuple(which), term)


def _restore(decision: PlacementDecision, lost: Collection[int]) -> None:
    targets = primary_targets(decision.cluster)
    for index, partition in enumerate(decision.cluster.partitions):
        needed = partition.primary in lost or partition.primary in decision.cluster.leaving or partition.waiting
        if not needed or not partition.safe:
            continue
        to, term = targets[index], decision.next()
        decision.partition(index, primary=to, term=term, waiting=True)
        reason = f"{decision.cause}: partition {index} goes to {decision.cluster.name(to)} from its replica"
        sent = StateTransferred(RestoreTo, partition.replica, to, index, term, decision.cluster.consistent)
        decision.act("RestorePartition", reason, migration.transfer, sent)
