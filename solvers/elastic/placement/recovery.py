"""On-line roll-back recovery: what is done when servers are gone before they could hand over (Harlap thesis, 4.2.3)."""

from collections.abc import Collection

from solvers.elastic.placement import actions as act
from solvers.elastic.placement.moving import add_replica, cancel, cancel_all, primary_targets, replica_targets
from solvers.elastic.placement.stages import Stage
from solvers.elastic.placement.state import Step


def recover(step: Step, lost: Collection[int], *, effective: bool = False) -> None:
    """Recover from hosts that are gone from the state's members already.

    ``effective``: those that are leaving have as good as failed.

    Lost replicas are made anew from the primaries. Where a primary is lost everybody goes back to the clock
    that all replicas have, and its partitions start from there: on other transient hosts, in stage 1 where the replicas
    are.
    """
    partitions = step.state.partitions
    lost_partitions = tuple(
        index
        for index, partition in enumerate(partitions)
        if (partition.primary in lost or partition.waiting) and (partition.replica in lost or not partition.safe)
    )
    if lost_partitions or not step.state.reliable:
        _halt(step, lost_partitions)
        return
    for index, partition in enumerate(partitions):
        if partition.move and partition.move.to in lost and partition.primary not in lost:
            cancel(step, index, f"{step.cause}: who was to take partition {index} is gone")
        if partition.replica in lost or (partition.copy and partition.copy.to in lost):
            _mend_replica(step, index, lost)
    if effective or any(partition.primary in lost for partition in partitions):
        _roll_back(step, lost)


def _halt(step: Step, lost_partitions: tuple[int, ...]) -> None:
    what = f"the state of {len(lost_partitions)} partitions" if lost_partitions else "the last reliable host"
    reason = f"{step.cause}: {what} is gone; start again from a checkpoint, with a reliable host"
    step.actions = [act.Halt(lost_partitions, reason)]
    step.change(halted=True)


def _mend_replica(step: Step, index: int, lost: Collection[int]) -> None:
    """Replace a replica that is gone, or was to become one, of a partition whose primary is alive."""
    partition = step.state.partitions[index]
    if partition.copy and partition.copy.to not in lost:
        # The copy that was under way is now the only one.
        step.partition(index, replica=partition.copy.to, safe=False)
        return
    if partition.copy and partition.primary not in lost:
        reason = f"{step.cause}: who was to be the replica of partition {index} is gone"
        step.act(act.CancelMove((partition.primary,), index, partition.copy.term, reason))
    step.partition(index, copy=None)
    if partition.replica in lost:
        to = replica_targets(step.state)[index]
        step.partition(index, replica=to, safe=False)
        add_replica(step, index, to, step.cause)


def _roll_back(step: Step, lost: Collection[int]) -> None:
    state, generation = step.state, step.next()
    step.change(generation=generation)
    reason = f"{step.cause}: what came after clock {state.consistent} has to be done again"
    step.act(act.RollBackAll(state.consistent, generation, reason))
    for index, partition in enumerate(state.partitions):
        # What is under way is neither here nor there, and newer than the clock: it starts again from those that stay.
        unsafe = None if partition.safe else partition.copy
        cancel_all(step, index, "rolled back")
        step.partition(index, clock=state.consistent)
        if unsafe:
            add_replica(step, index, unsafe.to, "rolled back")
    if step.state.stage is Stage.PARAMETER_SERVERS:
        _promote(step)
    else:
        _restore(step, lost)


def _promote(step: Step) -> None:
    """Promote replicas, which have what everybody goes back to: nothing needs to be sent."""
    promoted: dict[int, list[int]] = {}
    term = step.next()
    for index, partition in enumerate(step.state.partitions):
        if partition.safe and (partition.primary != partition.replica or partition.waiting):
            step.partition(index, primary=partition.replica, term=term, waiting=False)
            promoted.setdefault(partition.replica, []).append(index)
    for host, which in sorted(promoted.items()):
        reason = f"{step.cause}: {step.state.name(host)} serves {len(which)} partitions from its replica"
        step.act(act.PromoteReplica(host, tuple(which), term, reason))


def _restore(step: Step, lost: Collection[int]) -> None:
    targets = primary_targets(step.state)
    for index, partition in enumerate(step.state.partitions):
        needed = partition.primary in lost or partition.primary in step.state.leaving or partition.waiting
        if not needed or not partition.safe:
            continue
        to, term = targets[index], step.next()
        step.partition(index, primary=to, term=term, waiting=True)
        reason = f"{step.cause}: partition {index} goes to {step.state.name(to)} from its replica"
        step.act(act.RestorePartition(partition.replica, to, index, term, step.state.consistent, reason))
