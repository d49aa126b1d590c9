"""What is done for each partition when hosts are gone, on states made up by hand."""

from typing import Any

import pytest

from solvers.elastic.context import PlacementDecision
from solvers.elastic.placement.cluster import Cluster
from solvers.elastic.placement.partitions import Move, PartitionPlacement
from solvers.elastic.placement.stages import Stage, Thresholds
from solvers.elastic.recovery import recover
from tests.solvers.elastic.world import Seen, hosts, of, seen

STAGE_1, STAGE_2 = Stage.PARAMETER_SERVERS, Stage.ACTIVE_AND_BACKUP


def recovered(
    gone: set[int], *partitions: PartitionPlacement, stage: Stage = STAGE_2, effective: bool = False, **more: Any
) -> tuple[tuple[PartitionPlacement, ...], list[Seen], PlacementDecision]:
    """Of three reliable hosts (0 to 2) and six transient ones (3 to 8) some are gone; number 20 was the last, clock 4
    is what all replicas have."""
    left = tuple(host for host in hosts(3, 6) if host.number not in gone)
    state = Cluster(
        left, (1e6,) * len(partitions), Thresholds(), stage, partitions, (), number=20, consistent=4, **more
    )
    decision = PlacementDecision(state, "why")
    recover(decision, gone, effective=effective)
    return decision.cluster.partitions, list(seen(decision)), decision


SOUND = PartitionPlacement(4, 7, 1, 6)


def test_lost_replica_is_copied_anew_without_roll_back() -> None:
    result, actions, decision = recovered({0}, PartitionPlacement(3, 5, 0, 6), SOUND)
    assert result == (PartitionPlacement(3, 5, 2, 6, safe=False, copy=Move(2, 21)), SOUND)
    (copy,) = actions
    assert copy.name == "Replicate"
    assert (copy.to, copy.partition, copy.term, copy.source) == (2, 0, 21, 3)
    assert not decision.cluster.halted


def test_a_copy_that_was_under_way_when_the_replica_went_is_the_only_one_now() -> None:
    result, actions, _ = recovered({0}, PartitionPlacement(3, 5, 0, 6, copy=Move(2, 9)), SOUND)
    assert result == (PartitionPlacement(3, 5, 2, 6, safe=False, copy=Move(2, 9)), SOUND)
    assert actions == []


@pytest.mark.parametrize(("gone", "changed", "lost"), [
    ({3, 0}, PartitionPlacement(3, 5, 0, 6), True),
    ({3}, PartitionPlacement(3, 5, 0, 6), False),
    ({0}, PartitionPlacement(3, 5, 0, 6), False),
    ({3}, PartitionPlacement(3, 5, 0, 6, safe=False, copy=Move(0, 9)), True),
    ({8}, PartitionPlacement(3, 5, 0, 6, safe=False, copy=Move(0, 9)), False),
    ({0}, PartitionPlacement(3, 5, 0, 6, waiting=True), True),
    ({8}, PartitionPlacement(3, 5, 0, 6, waiting=True), False),
    ({8}, PartitionPlacement(3, 5, 0, 6, waiting=True, safe=False), True),
])  # fmt: skip
def test_state_is_lost_where_neither_a_server_nor_a_whole_replica_has_it(
    gone: set[int], changed: PartitionPlacement, lost: bool
) -> None:
    _, actions, decision = recovered(gone, SOUND, changed)
    assert decision.cluster.halted is lost
    assert len(of("Halt", actions)) == lost
    if lost:
        assert len(actions) == 1
        assert "the state of 1 partitions is gone" in actions[0].reason


# Going back


def test_lost_primary_rolls_all_back_to_its_replicas() -> None:
    """Host 3 served the first; those whose primary leaves or waits are sent again too, others go on."""
    result, actions, decision = recovered(
        {3}, PartitionPlacement(3, 5, 0, 6), PartitionPlacement(4, 7, 1, 5), PartitionPlacement(5, 8, 2, 4),
        PartitionPlacement(6, 8, 1, 9, waiting=True), leaving=frozenset({5}),
    )  # fmt: skip
    back, *restored = actions
    assert back.name == "RollBackAll"
    assert (back.clock, back.generation, decision.cluster.generation) == (4, 21, 21)
    assert [action.name for action in restored] == ["RestorePartition"] * 3
    assert [(action.source, action.partition, action.term, action.clock) for action in of("RestorePartition",
    restored)] == [
        (0, 0, 22, 4), (2, 2, 23, 4), (1, 3, 24, 4),
    ]  # fmt: skip
    assert result[1] == PartitionPlacement(4, 7, 1, 4)
    assert [(partition.term, partition.clock, partition.waiting) for partition in result] == [
        (22, 4, True), (7, 4, False), (23, 4, True), (24, 4, True),
    ]  # fmt: skip
    assert {partition.primary for partition in result} <= set(decision.cluster.servers)
    assert [action.to for action in of("RestorePartition", restored)] == [result[k].primary for k in (0, 2, 3)]


def test_in_stage_one_replicas_serve_what_they_have() -> None:
    """A reliable host that serves stays as it is; what a transient one served, or waits, is the replica's; what has no
    whole replica stays where it is."""
    serves = PartitionPlacement(0, 5, 0, 6)
    unsafe = PartitionPlacement(4, 8, 1, 6, safe=False, copy=Move(1, 11))
    result, actions, _ = recovered(
        {3}, serves, PartitionPlacement(3, 6, 1, 6), PartitionPlacement(4, 7, 0, 6), PartitionPlacement(2, 7, 2, 6,
        waiting=True), unsafe, PartitionPlacement(5, 8, 1, 6), stage=STAGE_1,
    )  # fmt: skip
    promoted = [(action.host, action.partitions) for action in of("PromoteReplica", actions)]
    assert promoted == [(0, (2,)), (1, (1, 5)), (2, (3,))]
    (term,) = {action.term for action in of("PromoteReplica", actions)}
    assert result[:4] == (
        PartitionPlacement(0, 5, 0, 4), PartitionPlacement(1, term, 1, 4), PartitionPlacement(0, term, 0, 4),
        PartitionPlacement(2, term, 2, 4),
    )  # fmt: skip
    assert (result[4].primary, result[4].term, result[5]) == (4, 8, PartitionPlacement(1, term, 1, 4))
    assert not of("RestorePartition", actions)
