"""The state in which a job begins, anew or from a checkpoint (Harlap thesis, 4.2.1 and 4.2.3)."""

from collections.abc import Sequence

from plink.errors import UsageError
from solvers.elastic.placement import actions as act
from solvers.elastic.placement import data, working
from solvers.elastic.placement.hosts import JobHost, Tier
from solvers.elastic.placement.partitions import PartitionPlacement, balanced, serving
from solvers.elastic.placement.racks import place_replicas
from solvers.elastic.placement.stages import Stage, Thresholds, check_reliable, stage_for
from solvers.elastic.placement.state import Cluster, Step


def start(
    hosts: Sequence[JobHost],
    partition_bytes: Sequence[float],
    shards: int,
    thresholds: Thresholds | None = None,
    *,
    clock: int = 0,
    number: int = 0,
) -> tuple[Cluster, tuple[act.Action, ...]]:
    """Begin a job: all hosts at once share partitions and data, and load.

    :param partition_bytes: of each partition; as many as :func:`.partitions.partition_count` says.
    :param shards: of the input data.
    :param clock: of the checkpoint that servers read their state from; 0 for a new job.
    :param number: the last that a job given up had (``Cluster.number``): what is still under way from it is stale then.
    :raises UsageError: without a reliable host, a partition or a shard; for hosts that are not told apart.
    """
    check_reliable(sum(host.tier is Tier.RELIABLE for host in hosts))
    members = tuple(sorted(hosts, key=lambda host: host.number))
    if len({host.number for host in hosts}) < len(hosts) or len({host.name for host in hosts}) < len(hosts):
        raise UsageError("two hosts of one name or number: give every host a name of its own in the hosts file")
    if not partition_bytes or shards < 1:
        raise UsageError("a job needs one partition of parameters and one shard of data at least")
    thresholds = thresholds or Thresholds()
    reliable = [host.number for host in members if host.tier is Tier.RELIABLE]
    stage = stage_for(len(reliable), len(members) - len(reliable), thresholds)
    unplaced = [None] * len(partition_bytes)
    primaries = balanced(unplaced, serving(stage, members, len(unplaced)))
    replicas = primaries
    if stage is not Stage.PARAMETER_SERVERS:
        by_number = {host.number: host for host in members}
        replicas = place_replicas(unplaced, primaries, [by_number[number] for number in reliable], by_number)
    cluster = Cluster(members, tuple(partition_bytes), thresholds, stage, (), (), number=number + 2)
    step = Step(cluster, "start")
    term = step.state.number  # the number before it is free: a replica reads its checkpoint in that term
    step.change(
        partitions=tuple(
            PartitionPlacement(primary, term, replica, clock)
            for primary, replica in zip(primaries, replicas, strict=True)
        ),
        shards=data.first_assignment(shards, step.state.workers(newcomers=False)),
        newest=members[-1].number,
        generation=number,
        consistent=clock,
    )
    step.change(shards=data.with_homes(step.state.shards, reliable))
    for host in members:
        step.act(act.Welcome(host, f"member {host.number}, {host.tier}"))
    ratio = f"{len(members) - len(reliable)} transient to {len(reliable)} reliable hosts"
    step.act(act.ChangeStage(stage, f"start: {ratio}"))
    for index, partition in enumerate(step.state.partitions):
        step.act(
            act.Serve(
                partition.primary,
                index,
                term,
                partition.replica,
                f"start: {step.state.name(partition.primary)} serves it",
            )
        )
    step.change(version=step.next())
    step.act(act.PointWorkers(step.state.version, primaries, "start: every partition has its primary"))
    working.load(step)
    return step.state, tuple(step.actions)
