"""A controller that was started again in mid-run: its state, from what the members say that they have."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from plink.errors import UsageError
from solvers.elastic.placement import actions as act
from solvers.elastic.placement import moving, working
from solvers.elastic.placement.data import Shard
from solvers.elastic.placement.hosts import JobHost, Tier
from solvers.elastic.placement.partitions import PartitionPlacement
from solvers.elastic.placement.recovery import recover
from solvers.elastic.placement.stages import Stage, Thresholds
from solvers.elastic.placement.state import Cluster, Step

_NOBODY = -1

Clocks = tuple[int, ...]  # that a partition can go back to, rising; the last is the present one


@dataclass(frozen=True)
class MemberReport:
    """Report of a member.

    What a member has. ``serves``: partitions whose state it has as their server, with the term of that; ``replicas``:
    those that it is the replica of and has a whole copy of. ``loaded`` and ``works``: shards of the input data.
    ``number``: the largest term, version, ticket or generation it was ever told; ``generation``: of the last roll-back.
    ``in_doubt``: those whose state it has still because it does not know whether the member that it gave them to has
    begun to serve them.
    """

    host: JobHost
    number: int
    generation: int
    serves: Mapping[int, int] = field(default_factory=dict)
    replicas: Mapping[int, Clocks] = field(default_factory=dict)
    loaded: frozenset[int] = frozenset()
    works: frozenset[int] = frozenset()
    in_doubt: Mapping[int, Clocks] = field(default_factory=dict)


def resume(
    reports: Sequence[MemberReport],
    partition_bytes: Sequence[float],
    shards: int,
    thresholds: Thresholds | None = None,
    *,
    again: bool = False,
) -> tuple[Cluster, tuple[act.Action, ...]]:
    """Return the state that the reports are of, and what to do from there.

    Moves that were under way are cancelled. What only members had that do not report is recovered as after their
    failure.

    Of two servers of a partition the later one is right: until a map names it, everything reaches it through the other.
    What nobody remembers is lost: warnings (they are asked for again), and who had which shard when (reliable hosts
    count as the earliest owners). The stage is known by who serves and by who works.

    :param thresholds: that held.

    :param again: all go back to the clock that all replicas have, because something was under way that nobody can tell.
    Without a reliable host among them it is a :class:`.actions.Halt`, as when the last one fails.

    :raises UsageError: for two reports of one host.
    """
    if len({report.host.number for report in reports}) < len(reports):
        raise UsageError("two reports of one host: two controllers seem to be at work, end one of them")
    reports = sorted(reports, key=lambda report: report.host.number)
    number = max(report.number for report in reports)
    partitions = tuple(_partition(reports, index) for index in range(len(partition_bytes)))
    transient = {report.host.number for report in reports if report.host.tier is Tier.TRANSIENT}
    cluster = Cluster(
        hosts=tuple(report.host for report in reports),
        partition_bytes=tuple(partition_bytes),
        thresholds=thresholds or Thresholds(),
        stage=_stage(reports, partitions, transient),
        partitions=partitions,
        shards=tuple(_shard(reports, index) for index in range(shards)),
        joining={
            r.host.number: r.host.number for r in reports if r.host.number in transient and not r.works | {*r.serves}
        },
        number=number,
        newest=reports[-1].host.number,
        generation=max(report.generation for report in reports),
        consistent=_common_clock(reports, partitions),
    )
    step = Step(cluster, "the controller started again")
    step.act(act.ForgetMoves(step.next(), f"{step.cause}: moves that were under way are off"))
    working.without(step, {_NOBODY})
    # A member that did not receive the last roll-back has what the others went back from.
    recover(step, {_NOBODY}, effective=again or len({report.generation for report in reports}) > 1)
    if not step.state.halted:
        for index, partition in enumerate(step.state.partitions):
            if partition.primary != partition.replica and partition.safe and not partition.waiting:
                step.act(
                    act.ReplicateTo(
                        partition.primary,
                        index,
                        partition.replica,
                        f"{step.cause}: who serves what and where it is safe",
                    )
                )
        working.assign(step)
        moving.plan_moves(step)
        step.change(version=step.next())
        primaries = tuple(partition.primary for partition in step.state.partitions)
        step.act(act.PointWorkers(step.state.version, primaries, f"{step.cause}: its map of primaries"))
        working.load(step)
        working.tell(step, notify_all=True)
    return step.state, tuple(step.actions)


def _stage(
    reports: Sequence[MemberReport], partitions: Sequence[PartitionPlacement], transient: Collection[int]
) -> Stage:
    """Return the stage that it was: the slack of a threshold holds it up, or not, as before."""
    if not any(partition.primary in transient for partition in partitions):
        return Stage.PARAMETER_SERVERS
    works = any(report.works for report in reports if report.host.number not in transient)
    return Stage.ACTIVE_AND_BACKUP if works else Stage.BACKUP_ONLY


def _partition(reports: Sequence[MemberReport], index: int) -> PartitionPlacement:
    served = max(
        ((report.serves[index], report.host.number) for report in reports if index in report.serves),
        default=(0, _NOBODY),
    )
    tier = {report.host.number: report.host.tier for report in reports}
    # A transient host that serves has a whole copy too, and is no replica.
    has_replica = _latest({report.host: report.replicas for report in reports}, index)
    term, primary = served
    if primary == _NOBODY and has_replica is None:  # who it was given to is gone
        has_replica = _latest({report.host: report.in_doubt for report in reports}, index)
    if tier.get(primary) is Tier.RELIABLE:
        clocks = next(report.replicas.get(index, (0,)) for report in reports if report.host.number == primary)
        return PartitionPlacement(primary, term, primary, clocks[-1])
    if has_replica is None:
        return PartitionPlacement(primary, term, _NOBODY, 0, safe=False)
    return PartitionPlacement(primary, term, -has_replica[1], has_replica[0])


def _common_clock(reports: Sequence[MemberReport], partitions: Sequence[PartitionPlacement]) -> int:
    """Return the latest clock that all replicas can go back to.

    Of replicas with a later one, a push may have gone past it.
    """
    by_host = {report.host.number: {**report.in_doubt, **report.replicas} for report in reports}
    has_replica = [(index, partition) for index, partition in enumerate(partitions) if partition.safe]
    clocks = [by_host[partition.replica].get(index, (partition.clock,)) for index, partition in has_replica]
    common = set(clocks[0]).intersection(*clocks[1:]) if clocks else {0}
    return max(common, default=min((partition.clock for _, partition in has_replica), default=0))


def _latest(clocks: Mapping[JobHost, Mapping[int, Clocks]], index: int) -> tuple[int, int] | None:
    """Return the clock of the reliable host with the latest state of a partition, and its number, negative.

    Of several hosts it is the first; None where none has any.
    """
    return max(
        (
            (clocks_by_partition[index][-1], -host.number)
            for host, clocks_by_partition in clocks.items()
            if index in clocks_by_partition and host.tier is Tier.RELIABLE
        ),
        default=None,
    )


def _shard(reports: Sequence[MemberReport], index: int) -> Shard:
    host = next((report.host.number for report in reports if index in report.works), _NOBODY)
    loaded = [report for report in reports if index in report.loaded]
    earlier = sorted(loaded, key=lambda report: (report.host.tier is Tier.TRANSIENT, report.host.number))
    previous = tuple(report.host.number for report in earlier if report.host.number != host)
    return Shard(host, previous, frozenset(report.host.number for report in loaded))
