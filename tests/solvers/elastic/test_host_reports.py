"""A controller that starts again in mid-run."""

from collections.abc import Sequence
from typing import Any

import msgspec

from plink.model.elastic.requests import HostReport
from solvers.elastic.member import Member
from solvers.elastic.placement.cluster import Cluster
from solvers.elastic.placement.partitions import PartitionPlacement
from solvers.elastic.placement.stages import Stage, Thresholds
from solvers.elastic.resuming import resume, workers_of
from tests.solvers.elastic.world import Seen, World, hosts, of, report_of, seen, warn


def test_idle_restart_moves_nothing_and_reassigns_all() -> None:
    world = World.of(hosts(2, 6), 4, 24)
    world.converge()
    before = world.state
    actions = world.restart(())
    assert {action.name for action in actions} == {"ForgetMoves", "ReplicateTo", "PointWorkers", "Work"}
    assert [partition.primary for partition in world.state.partitions] == [
        partition.primary for partition in before.partitions
    ]
    assert [partition.replica for partition in world.state.partitions] == [
        partition.replica for partition in before.partitions
    ]
    assert [shard.owner for shard in world.state.shards] == [shard.owner for shard in before.shards]
    assert world.state.stage is Stage.ACTIVE_AND_BACKUP


def test_who_died_with_the_controller_has_failed() -> None:
    world = World.of(hosts(1, 4), 4, 24)
    world.converge()
    for index in range(4):
        world.push(index, 5)
    actions = world.restart((1,))
    assert of("RollBackAll", actions)[0].clock == 5
    assert {action.to for action in of("RestorePartition", actions)} == {3}
    world.converge()


def test_a_move_that_was_done_before_the_old_controller_knew_counts() -> None:
    world = World.of(hosts(1, 4), 2, 24)
    world.converge()
    warn(world, 1)
    (move,) = world.moves
    world.holds[move.partition][move.to] = move.term
    world.restart(())
    assert world.state.partitions[move.partition].primary == move.to
    assert not of("RollBackAll", world.actions)


def test_incomplete_roll_back_is_repeated() -> None:
    works, everything = {1: range(4)}, tuple(range(4))
    reports = {
        0: report_of(0, 9, 9, works, replicas={0: (3,)}, loaded=everything),
        1: report_of(1, 8, 4, works, serves={0: 2}, loaded=everything),
        2: report_of(2, 9, 9, works),
    }
    state, actions = resumed(reports, hosts(1, 2), partitions=1, shards=4)
    (back,) = of("RollBackAll", actions)
    assert back.clock == 3
    assert back.generation == state.generation > 9


def test_state_that_nobody_reports_is_lost() -> None:
    state, (halt,) = resumed({n: report_of(n, 99, 0, {0: {0}}) for n in (0, 1)}, hosts(1, 1), shards=4)
    assert halt.name == "Halt"
    assert " 2 " in halt.reason
    assert state.halted


def test_number_of_a_worker_that_another_stands_in_for_is_not_given_again() -> None:
    """The end of the stand-in may be heard of long after a roll-back."""
    _, unused = workers_of({0: report_of(0, 9, 0, {0: {0}}, takeovers={7: 20})})
    assert unused == 8


# What reports are taken for


def reports(**changes: Any) -> dict[int, HostReport]:
    """In a quiet moment: hosts 2 and 3 serve, 0 and 1 have the replicas, each works on a shard, 0 has all of them.
    ``h3={...}``: what another report of that host says, and ``works``: on which shards; None: it does not report."""
    quiet: list[dict[str, Any]] = [{"loaded": (k,)} for k in range(6)]
    for k, more in enumerate(
        (
            {"replicas": {0: (8,)}, "loaded": tuple(range(6))},
            {"replicas": {1: (7,)}},
            {"serves": {0: 5}},
            {"serves": {1: 6}},
        )
    ):
        quiet[k] |= more
    changed = {k: quiet[k] | (changes.get(f"h{k}") or {}) for k in range(6) if changes.get(f"h{k}", {}) is not None}
    works = {k: more.pop("works", {k}) for k, more in changed.items()}
    works = {k: shards for k, shards in works.items() if shards}
    return {k: report_of(k, 20, more.pop("generation", 4), works, **more) for k, more in changed.items()}


def resumed(
    some: dict[int, HostReport], members: Sequence[Member] = hosts(2, 4), *, partitions: int = 2, shards: int = 6,
    **more: Any,
) -> tuple[Cluster, tuple[Seen, ...]]:  # fmt: skip
    decision = resume({host.number: host for host in members}, some, [1e6] * partitions, shards, **more)
    return decision.cluster, seen(decision)


def test_later_server_and_fuller_replica_win() -> None:
    state, _ = resumed(reports(h3={"serves": {1: 6, 0: 9}}))
    assert (state.partitions[0].primary, state.partitions[0].term) == (3, 9)
    state, _ = resumed(reports(h1={"replicas": {1: (7,), 0: (9,)}}))
    assert (state.partitions[0].replica, state.partitions[0].clock, state.consistent) == (1, 9, 7)
    state, _ = resumed(reports(h1={"replicas": {1: (7,), 0: (8,)}}))
    assert (state.partitions[0].replica, state.partitions[0].clock) == (0, 8)


def test_a_reliable_server_is_its_own_replica_at_its_own_clock() -> None:
    some = reports(h0={"serves": {0: 5}, "replicas": {0: (3,)}}, h1={"serves": {1: 6}, "replicas": {0: (9,), 1: (4,)}},
                   h2={"serves": {}}, h3={"serves": {}}, h4=None, h5=None)  # fmt: skip
    state, actions = resumed(some)
    assert state.stage is Stage.PARAMETER_SERVERS
    assert state.partitions == (PartitionPlacement(0, 5, 0, 3), PartitionPlacement(1, 6, 1, 4))
    assert state.consistent == 3
    assert not of("ReplicateTo", actions)
    some[0] = msgspec.structs.replace(some[0], replicas={})
    assert resumed(some)[0].partitions[0].clock == -1


def test_a_partition_that_nobody_serves_is_restored_from_its_replica() -> None:
    state, actions = resumed(reports(h3={"serves": {}, "works": {3}}))
    assert of("RollBackAll", actions)[0].clock == 7
    (item,) = of("RestorePartition", actions)
    assert (item.partition, item.source, item.clock) == (1, 1, 7)
    assert state.partitions[1].waiting
    assert [push.partition for push in of("ReplicateTo", actions)] == [0], "what is on its way is not pushed yet"


def test_all_roll_back_on_request_or_if_the_last_was_incomplete() -> None:
    for some in (reports(h5={"paused": True}), reports(h5={"generation": 3})):
        state, actions = resumed(some)
        assert of("RollBackAll", actions)[0].clock == 7
        assert state.generation > 20


def test_a_transient_host_that_neither_works_nor_serves_is_a_newcomer() -> None:
    state, actions = resumed(reports(h4={"works": set(), "loaded": ()}, h3={"works": set()}))
    assert state.joining == {4: 4}
    assert 4 in {load.host for load in of("Load", actions)}
    state, _ = resumed(reports(h1={"works": set()}))
    assert state.joining == {}, "a reliable host is none"


def test_partition_moved_to_a_lost_host_stays_at_its_source() -> None:
    """Its old primary did not hear whether the new one had begun, when that one and the controller were lost."""
    in_doubt = {"replicas": {}, "in_doubt": {0: (8,)}}
    state, actions = resumed(reports(h0=in_doubt, h2=None))
    assert not state.halted
    assert state.partitions[0].replica == 0
    assert of("RollBackAll", actions)
    there = resumed(reports(h0=in_doubt))[0].partitions[0]
    assert (there.primary, there.term) == (2, 5)  # who serves it is believed
    has_replica = resumed(
        reports(h0={"replicas": {}, "in_doubt": {0: (9,)}}, h1={"replicas": {0: (8,), 1: (7,)}}, h2=None)
    )[0]
    assert has_replica.partitions[0].replica == 1  # and a replica before who gave it away
    assert resumed(reports(h0={"replicas": {}}, h2=None))[0].halted


def test_idle_reliable_hosts_imply_stage_3_with_hysteresis() -> None:
    """Four to two is at the threshold of 2, and less than one host under that of 2.4."""
    idle = {f"h{k}": {"works": set()} for k in (0, 1)}
    theirs = {f"h{k}": {"serves": {k - 2: k + 3}, "works": {k, k - 2}} for k in (2, 3)}
    for ratio, stage in ((2.0, Stage.BACKUP_ONLY), (2.4, Stage.BACKUP_ONLY), (2.6, Stage.ACTIVE_AND_BACKUP)):
        assert resumed(reports(**idle, **theirs), thresholds=Thresholds(0.5, ratio))[0].stage is stage
        assert resumed(reports(), thresholds=Thresholds(0.5, ratio))[0].stage is Stage.ACTIVE_AND_BACKUP
