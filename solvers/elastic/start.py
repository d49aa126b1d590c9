"""The placement with which a job begins, anew or from a checkpoint (Harlap thesis, 4.2.1 and 4.2.3)."""

from collections.abc import Sequence

from plink.errors import UsageError
from solvers.elastic import joining, migration, opening, progress, working
from solvers.elastic.context import PlacementDecision
from solvers.elastic.member import Member
from solvers.elastic.placement import data
from solvers.elastic.placement.cluster import Cluster
from solvers.elastic.placement.partitions import PartitionPlacement, balanced, place_replicas, serving
from solvers.elastic.placement.stages import Stage, Thresholds, check_reliable, stage_for


def start(
    hosts: Sequence[Member],
    partition_bytes: Sequence[float],
    shards: int,
    thresholds: Thresholds = Thresholds(),  # noqa: B008
    *,
    clock: int = -1,
    number: int = 0,
) -> PlacementDecision:
    """Begin a job: all hosts at once share partitions and data, and load.

    :param partition_bytes: of each partition; as many as :func:`.partitions.partition_count` says.
    :param shards: of the input data.
    :param clock: of the checkpoint that servers read their state from; -1 for a new job.
    :param number: the last that a job given up had (``Cluster.number``): what is still under way from it is stale then.
    :raises UsageError: without a reliable host, a partition or a shard; for hosts that are not told apart.
    """
    check_reliable(sum(host.reliable for host in hosts))
    members = tuple(sorted(hosts, key=lambda host: host.number))
    if len({host.number for host in hosts}) < len(hosts) or len({host.name for host in hosts}) < len(hosts):
        raise UsageError("two hosts of one name or number: give every host a name of its own in the hosts file")
    if not partition_bytes or shards < 1:
        raise UsageError("a job needs one partition of parameters and one shard of data at least")
    reliable = [host for host in members if host.reliable]
    stage = stage_for(len(reliable), len(members) - len(reliable), thresholds)
    unplaced = [None] * len(partition_bytes)
    primaries = balanced(unplaced, serving(stage, members, len(unplaced)))
    replicas = primaries
    if stage is not Stage.PARAMETER_SERVERS:
        replicas = place_replicas(unplaced, primaries, reliable, {host.number: host for host in members})
    term = number + 2  # the number before it is free: a replica reads its checkpoint in that term
    cluster = Cluster(
        members,
        tuple(partition_bytes),
        thresholds,
        stage,
        tuple(
            PartitionPlacement(primary, term, replica, clock)
            for primary, replica in zip(primaries, replicas, strict=True)
        ),
        (),
        number=term,
        newest=members[-1].number,
        generation=number,
        consistent=clock,
    )
    decision = PlacementDecision(cluster, "start")
    assigned = data.first_assignment(shards, cluster.workers(newcomers=False))
    decision.change(shards=data.with_homes(assigned, [host.number for host in reliable]))
    for host in members:
        decision.do(joining.welcome, host.number, f"member {host.number}, {host.tier}")
    ratio = f"{len(members) - len(reliable)} transient to {len(reliable)} reliable hosts"
    decision.do(progress.change_stage, stage, f"start: {ratio}")
    for index, primary in enumerate(primaries):
        decision.do(opening.serve, index, term, primary)
    decision.act("PointWorkers", "start: every partition has its primary", migration.send_primaries)
    working.load(decision)
    return decision
