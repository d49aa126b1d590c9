"""Partitions on their way from one server to another, one at a time for each partition (Harlap thesis, 4.2.3)."""

from plink.model.elastic.requests import AddReplica, Prepare
from solvers.elastic import migration
from solvers.elastic.context import PlacementDecision
from solvers.elastic.migration import StateTransferred
from solvers.elastic.placement.cluster import Cluster
from solvers.elastic.placement.partitions import Move, PartitionPlacement, balanced, place_replicas
from solvers.elastic.placement.stages import Stage

_MAX_PASSES = 4  # a copy cancelled for a move leaves other hosts short of replicas: once or twice, as seen in many runs


def plan_moves(decision: PlacementDecision) -> None:
    """Begin the moves that bring servers and replicas nearer to what the stage needs.

    Moves that no longer do are cancelled. A move that has to wait for another is begun when that one has been answered:
    this is called anew then.
    """
    for _ in range(_MAX_PASSES):
        before = decision.cluster
        _pass(decision)
        if decision.cluster.partitions == before.partitions:
            break


def _pass(decision: PlacementDecision) -> None:
    replicas, primaries = replica_targets(decision.cluster), primary_targets(decision.cluster)
    for index, partition in enumerate(decision.cluster.partitions):
        if partition.waiting:
            continue
        if partition.move and partition.move.to != primaries[index]:
            if partition.move.drain and partition.primary in decision.cluster.leaving:
                continue  # all that there was time for; it moves on from its replica
            cancel(decision, index, f"{decision.cause}: it is to go elsewhere")
        partition = decision.cluster.partitions[index]
        if partition.move:
            continue
        if partition.primary != primaries[index]:
            begin(decision, index, primaries[index], decision.cause)
        elif partition.primary != partition.replica:
            _plan_replica(decision, index, replicas[index])


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


def begin(decision: PlacementDecision, index: int, to: int, reason: str) -> None:
    """Begin to move a partition from its primary to another host; to its own replica only what that lacks."""
    partition = decision.cluster.partitions[index]
    if partition.copy and partition.safe:
        cancel_copy(decision, index, f"{reason}: the partition itself moves")
    term, drain = decision.next(), to == partition.replica
    decision.partition(index, move=Move(to, term, drain))
    source, target = (decision.cluster.name(host) for host in (partition.primary, to))
    text = f"{reason}: partition {index} goes from {source} to {target}"
    sent = StateTransferred(Prepare, partition.primary, to, index, term)
    decision.act("Drain" if drain else "HandOver", text, migration.transfer, sent)


def cancel(decision: PlacementDecision, index: int, reason: str) -> None:
    """Cancel a move, if there is one; the primary keeps the partition."""
    _tell(decision, index, decision.cluster.partitions[index].move, reason)
    decision.partition(index, move=None)


def cancel_copy(decision: PlacementDecision, index: int, reason: str) -> None:
    _tell(decision, index, decision.cluster.partitions[index].copy, reason)
    decision.partition(index, copy=None)


def _tell(decision: PlacementDecision, index: int, move: Move | None, reason: str) -> None:
    if move is None:
        return
    ends = (decision.cluster.partitions[index].primary, move.to)
    members = tuple(host for host in ends if host in decision.cluster.members)
    if members:
        decision.act("CancelMove", reason, migration.cancel, members, index, move.term)


def add_replica(decision: PlacementDecision, index: int, to: int, reason: str) -> None:
    """Make another reliable host the partition's replica."""
    primary, term = decision.cluster.partitions[index].primary, decision.next()
    decision.partition(index, copy=Move(to, term))
    text = f"{reason}: {decision.cluster.name(to)} becomes the replica of partition {index}"
    decision.act("Replicate", text, migration.transfer, StateTransferred(AddReplica, primary, to, index, term))


def _plan_replica(decision: PlacementDecision, index: int, to: int) -> None:
    partition = decision.cluster.partitions[index]
    if partition.copy and (partition.copy.to == to or not partition.safe):
        return
    cancel_copy(decision, index, f"{decision.cause}: another host is to be the replica")
    if partition.replica != to:
        add_replica(decision, index, to, decision.cause)


def moved(decision: PlacementDecision, index: int, term: int) -> bool:
    """Handle the arrival of a partition's state; False where that is no longer of interest."""
    partition = decision.cluster.partitions[index]
    if partition.move and partition.move.term == term:
        _taken(decision, index, partition.move)
    elif partition.copy and partition.copy.term == term:
        # It has what the primary can go back to and all that followed; what it had been pushed is not known.
        decision.partition(index, replica=partition.copy.to, copy=None, safe=True, clock=decision.cluster.consistent)
        reason = f"{decision.cluster.name(partition.copy.to)} has the copy of partition {index}"
        decision.act("ReplicateTo", reason, migration.set_replica, partition.primary, index, partition.copy.to)
    elif partition.waiting and partition.term == term:
        decision.partition(index, waiting=False)
    else:
        return False
    return True


def _taken(decision: PlacementDecision, index: int, move: Move) -> None:
    partition = decision.cluster.partitions[index]
    decision.do(migration.commit, index, partition)
    if decision.cluster.members[move.to].reliable:
        cancel_copy(decision, index, f"partition {index} is served where it is safe")
        # A replica that drains into keeps what it has; a new one can be relied on for what it can go back to.
        clock = partition.clock if move.to == partition.replica and partition.safe else decision.cluster.consistent
        decision.partition(index, primary=move.to, term=move.term, replica=move.to, clock=clock, safe=True, move=None)
        reason = f"{decision.cluster.name(move.to)} has the state of partition {index}"
        decision.act("PromoteReplica", reason, migration.promote, move.to, (index,), move.term)
        return
    decision.partition(index, primary=move.to, term=move.term, move=None)
    if partition.safe:
        reason = f"{decision.cluster.name(move.to)} has the state of partition {index}"
        decision.act("ReplicateTo", reason, migration.set_replica, move.to, index, partition.replica)
    if partition.copy:
        # The old primary was to send the replica its copy, and it may be about to leave.
        _tell(decision, index, partition.copy, f"partition {index} has another primary, who sends it")
        add_replica(decision, index, partition.copy.to, "its primary changed")
