"""The state in which a job begins, anew or from a checkpoint (Harlap thesis, 4.2.1 and 4.2.3)."""

from collections.abc import Sequence

from plink.errors import UsageError
from solvers.elastic.placement import actions as act
from solvers.elastic.placement import data, working
from solvers.elastic.placement.hosts import Host, Tier
from solvers.elastic.placement.partitions import Partition, balanced, serving
from solvers.elastic.placement.racks import place_backups
from solvers.elastic.placement.stages import Stage, Thresholds, check_reliable, stage_for
from solvers.elastic.placement.state import Cluster, Step


def start(
    hosts: Sequence[Host],
    partition_bytes: Sequence[float],
    pieces: int,
    thresholds: Thresholds | None = None,
    *,
    clock: int = 0,
    number: int = 0,
) -> tuple[Cluster, tuple[act.Action, ...]]:
    """All hosts at once share partitions and data, and load.

    :param partition_bytes: of each partition; as many as :func:`.partitions.partition_count` says.
    :param pieces: of the input data.
    :param clock: of the checkpoint that servers read their state from; 0 for a new job.
    :param number: the last that a job given up had (``Cluster.number``): what is still under way from it is stale then.
    :raises UsageError: without a reliable host, a partition or a piece; for hosts that are not told apart.
    """
    check_reliable(sum(host.tier is Tier.RELIABLE for host in hosts))
    members = tuple(sorted(hosts, key=lambda host: host.number))
    if len({host.number for host in hosts}) < len(hosts) or len({host.name for host in hosts}) < len(hosts):
        raise UsageError("two hosts of one name or number: give every host a name of its own in the hosts file")
    if not partition_bytes or pieces < 1:
        raise UsageError("a job needs one partition of parameters and one piece of data at least")
    thresholds = thresholds or Thresholds()
    reliable = [host.number for host in members if host.tier is Tier.RELIABLE]
    stage = stage_for(len(reliable), len(members) - len(reliable), thresholds)
    nobody = [None] * len(partition_bytes)
    owners = balanced(nobody, serving(stage, members, len(nobody)))
    backups = owners
    if stage is not Stage.PARAMETER_SERVERS:
        by_number = {host.number: host for host in members}
        backups = place_backups(nobody, owners, [by_number[number] for number in reliable], by_number)
    cluster = Cluster(members, tuple(partition_bytes), thresholds, stage, (), (), number=number + 2)
    step = Step(cluster, "start")
    epoch = step.state.number  # the number before it is free: a backup reads its checkpoint in that epoch
    step.change(
        partitions=tuple(Partition(owner, epoch, backup, clock) for owner, backup in zip(owners, backups, strict=True)),
        pieces=data.dealt(pieces, step.state.workers(newcomers=False)),
        newest=members[-1].number,
        era=number,
        consistent=clock,
    )
    step.change(pieces=data.with_homes(step.state.pieces, reliable))
    for host in members:
        step.act(act.Welcome(host, f"{host.name} is member {host.number}, {host.tier}"))
    ratio = f"{len(members) - len(reliable)} transient to {len(reliable)} reliable hosts"
    step.act(act.ChangeStage(stage, f"start: {ratio}"))
    for index, partition in enumerate(step.state.partitions):
        step.act(
            act.Serve(
                partition.owner, index, epoch, partition.backup, f"start: {step.state.name(partition.owner)} serves it"
            )
        )
    step.change(version=step.next())
    step.act(act.PointWorkers(step.state.version, owners, "start: every partition has its owner"))
    working.load(step)
    return step.state, tuple(step.actions)
