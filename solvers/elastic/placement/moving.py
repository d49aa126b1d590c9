"""Partitions on their way from one server to another, one at a time for each partition (Harlap thesis, 4.2.3)."""

from solvers.elastic.placement import actions as act
from solvers.elastic.placement.hosts import Tier
from solvers.elastic.placement.partitions import Move, PartitionPlacement, balanced
from solvers.elastic.placement.racks import place_replicas
from solvers.elastic.placement.stages import Stage
from solvers.elastic.placement.state import Cluster, Step

_MAX_PASSES = 4  # a copy cancelled for a move leaves other hosts short of replicas: once or twice, as seen in many runs


def plan_moves(step: Step) -> None:
    """Begin the moves that bring servers and replicas nearer to what the stage needs.

    Moves that no longer do are cancelled. A move that has to wait for another is begun when that one has been answered:
    this is called anew then.
    """
    for _ in range(_MAX_PASSES):
        before = step.state
        _pass(step)
        if step.state.partitions == before.partitions:
            break


def _pass(step: Step) -> None:
    replicas, primaries = replica_targets(step.state), primary_targets(step.state)
    for index, partition in enumerate(step.state.partitions):
        if partition.waiting:
            continue
        if partition.move and partition.move.to != primaries[index]:
            if partition.move.drain and partition.primary in step.state.leaving:
                continue  # all that there was time for; it moves on from its replica
            cancel(step, index, f"{step.cause}: it is to go elsewhere")
        partition = step.state.partitions[index]
        if partition.move:
            continue
        if partition.primary != primaries[index]:
            begin(step, index, primaries[index], step.cause)
        elif partition.primary != partition.replica:
            _plan_replica(step, index, replicas[index])


def primary_targets(state: Cluster) -> tuple[int, ...]:
    """Return who is to serve each partition."""
    if state.stage is Stage.PARAMETER_SERVERS:
        staying = state.servers
        return tuple(
            partition.replica if partition.primary != partition.replica and partition.replica in staying else target
            for partition, target in zip(state.partitions, replica_targets(state), strict=True)
        )
    return balanced([_bound(state, partition) for partition in state.partitions], state.servers)


def _bound(state: Cluster, partition: PartitionPlacement) -> int:
    if partition.move and partition.move.to in state.servers:
        return partition.move.to
    return partition.primary


def replica_targets(state: Cluster) -> tuple[int, ...]:
    """Return the reliable host for each partition: its ParamServ or its replica."""
    reliable = [host.number for host in state.reliable]

    def bound(partition: PartitionPlacement) -> int:
        if partition.move and partition.move.to in reliable:
            return partition.move.to
        return partition.copy.to if partition.copy else partition.replica

    current = [bound(partition) for partition in state.partitions]
    if state.stage is Stage.PARAMETER_SERVERS:
        return balanced(current, reliable)
    return place_replicas(current, primary_targets(state), state.reliable, state.members)


def begin(step: Step, index: int, to: int, reason: str) -> None:
    """Begin to move a partition from its primary to another host; to its own replica only what that lacks."""
    partition = step.state.partitions[index]
    if partition.copy and partition.safe:
        _cancel_copy(step, index, f"{reason}: the partition itself moves")
    term, drain = step.next(), to == partition.replica
    step.partition(index, move=Move(to, term, drain))
    text = f"{reason}: partition {index} goes from {step.state.name(partition.primary)} to {step.state.name(to)}"
    if drain:
        step.act(act.Drain(partition.primary, to, index, term, text))
    else:
        step.act(act.HandOver(partition.primary, to, index, term, text))


def cancel(step: Step, index: int, reason: str) -> None:
    """Cancel a move; the primary keeps the partition."""
    partition = step.state.partitions[index]
    assert partition.move
    _tell(step, index, partition.move, reason)
    step.partition(index, move=None)


def _cancel_copy(step: Step, index: int, reason: str) -> None:
    partition = step.state.partitions[index]
    assert partition.copy
    _tell(step, index, partition.copy, reason)
    step.partition(index, copy=None)


def cancel_all(step: Step, index: int, reason: str) -> None:
    """Cancel everything that is under way of a partition."""
    if step.state.partitions[index].move:
        cancel(step, index, reason)
    if step.state.partitions[index].copy:
        _cancel_copy(step, index, reason)


def _tell(step: Step, index: int, move: Move, reason: str) -> None:
    ends = (step.state.partitions[index].primary, move.to)
    members = tuple(host for host in ends if host in step.state.members)
    if members:
        step.act(act.CancelMove(members, index, move.term, reason))


def add_replica(step: Step, index: int, to: int, reason: str) -> None:
    """Make another reliable host the partition's replica."""
    primary, term = step.state.partitions[index].primary, step.next()
    step.partition(index, copy=Move(to, term))
    text = f"{reason}: {step.state.name(to)} becomes the replica of partition {index}"
    step.act(act.Replicate(to, index, term, primary, text))


def _plan_replica(step: Step, index: int, to: int) -> None:
    partition = step.state.partitions[index]
    if partition.copy and (partition.copy.to == to or not partition.safe):
        return
    if partition.copy:
        _cancel_copy(step, index, f"{step.cause}: another host is to be the replica")
    if partition.replica != to:
        add_replica(step, index, to, step.cause)


def moved(step: Step, index: int, term: int) -> bool:
    """Handle the arrival of a partition's state; False where that is no longer of interest."""
    partition = step.state.partitions[index]
    if partition.move and partition.move.term == term:
        _taken(step, index, partition.move)
    elif partition.copy and partition.copy.term == term:
        # It has what the primary can go back to and all that followed; what it had been pushed is not known.
        step.partition(index, replica=partition.copy.to, copy=None, safe=True, clock=step.state.consistent)
        reason = f"{step.state.name(partition.copy.to)} has the copy of partition {index}"
        step.act(act.ReplicateTo(partition.primary, index, partition.copy.to, reason))
    elif partition.waiting and partition.term == term:
        step.partition(index, waiting=False)
    else:
        return False
    return True


def _taken(step: Step, index: int, move: Move) -> None:
    partition = step.state.partitions[index]
    if step.state.members[move.to].tier is Tier.RELIABLE:
        if partition.copy:
            _cancel_copy(step, index, f"partition {index} is served where it is safe")
        # A replica that drains into keeps what it has; a new one can be relied on for what it can go back to.
        clock = partition.clock if move.to == partition.replica and partition.safe else step.state.consistent
        step.partition(index, primary=move.to, term=move.term, replica=move.to, clock=clock, safe=True, move=None)
        reason = f"{step.state.name(move.to)} has the state of partition {index}"
        step.act(act.PromoteReplica(move.to, (index,), move.term, reason))
        return
    step.partition(index, primary=move.to, term=move.term, move=None)
    if partition.safe:
        reason = f"{step.state.name(move.to)} has the state of partition {index}"
        step.act(act.ReplicateTo(move.to, index, partition.replica, reason))
    if partition.copy:
        # The old primary was to send the replica its copy, and it may be about to leave.
        _tell(step, index, partition.copy, f"partition {index} has another primary, who sends it")
        add_replica(step, index, partition.copy.to, "its primary changed")
