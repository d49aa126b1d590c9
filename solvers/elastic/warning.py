"""Hosts that will be taken away: what they serve goes elsewhere while there is time (Harlap thesis, 4.2.3)."""

from collections.abc import Mapping

from solvers.elastic.context import PlacementDecision
from solvers.elastic.moving import begin, cancel, primary_targets
from solvers.elastic.placement import eviction
from solvers.elastic.recovery import recover


def evacuate(decision: PlacementDecision, unreplicated: Mapping[int, float]) -> None:
    """Begin to move or drain partitions of the leaving transient hosts.

    The order is the one that brings most to safety. Where one cannot be in time it is an effective failure: nobody
    waits for the deadline to roll back.

    :param unreplicated: bytes by partition that its replica lacks; of others, all of it. Transfers may be kept back for
        a part of the warning, so that what is planned fits into the rest of it.
    """
    _cancel_moves_to_leaving(decision)
    plan = eviction.plan_evacuation(
        _at_risk(decision, unreplicated),
        {host: (1 - eviction.WAIT_SHARE) * seconds for host, seconds in decision.cluster.leaving.items()},
        {host.number: host.rate for host in decision.cluster.hosts if host.rate is not None},
    )
    failed = [partition for partition in plan if partition.kind is eviction.EvacuationKind.FAIL]
    # Going back to the replicas saves nothing that they do not have: that is sent as far as it gets.
    if late := [partition for partition in failed if decision.cluster.partitions[partition.partition].safe]:
        decision.cause = f"{decision.cause}: partition {late[0].partition} cannot be saved ({late[0].reason})"
        recover(decision, (), effective=True)
        return
    for partition in plan:
        if partition.to is not None:
            begin(decision, partition.partition, partition.to, f"{decision.cause}: {partition.reason}")


def _cancel_moves_to_leaving(decision: PlacementDecision) -> None:
    servers, leaving = decision.cluster.servers, decision.cluster.leaving
    for index, partition in enumerate(decision.cluster.partitions):
        move = partition.move
        if move and move.to in leaving and move.to not in servers and not move.drain:
            cancel(decision, index, f"{decision.cause}: who was to take partition {index} leaves too")


def _at_risk(decision: PlacementDecision, unreplicated: Mapping[int, float]) -> list[eviction.AtRiskPartition]:
    state, threats = decision.cluster, []
    for index, (partition, target) in enumerate(zip(state.partitions, primary_targets(state), strict=True)):
        # A ParamServ that leaves has nobody to drain to, and one that waits has nothing yet: settling sees to them.
        if (
            partition.primary not in state.leaving
            or partition.primary == partition.replica
            or partition.waiting
            or partition.move
        ):
            continue
        size = state.partition_bytes[index]
        lacks = min(size, unreplicated.get(index, size)) if partition.safe else size
        survivor = None if state.members[target].reliable else target
        threats.append(eviction.AtRiskPartition(index, partition.primary, partition.replica, survivor, size, lacks))
    return threats
