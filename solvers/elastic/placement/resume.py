"""A controller that was started again in mid-run: its state, from what the members say that they have."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from plink.errors import UsageError
from solvers.elastic.placement import actions as act
from solvers.elastic.placement import moving, working
from solvers.elastic.placement.data import Piece
from solvers.elastic.placement.hosts import Host, Tier
from solvers.elastic.placement.partitions import Partition
from solvers.elastic.placement.recovery import recover
from solvers.elastic.placement.stages import Stage, Thresholds
from solvers.elastic.placement.state import Cluster, Step

_NOBODY = -1

Clocks = tuple[int, ...]  # that a partition can go back to, rising; the last is the present one


@dataclass(frozen=True)
class Report:
    """What a member has. ``serves``: partitions whose state it has as their server, with the epoch of that; ``backs``:
    those that it is the backup of and has a whole copy of. ``loaded`` and ``works``: pieces of the
    input data. ``number``: the largest epoch, version, ticket or era it was ever told; ``era``: of the last
    roll-back. ``gave``: those whose state it has still because it does not know whether the member that it gave them to
    has begun to serve them."""

    host: Host
    number: int
    era: int
    serves: Mapping[int, int] = field(default_factory=dict)
    backs: Mapping[int, Clocks] = field(default_factory=dict)
    loaded: frozenset[int] = frozenset()
    works: frozenset[int] = frozenset()
    gave: Mapping[int, Clocks] = field(default_factory=dict)


def resume(
    reports: Sequence[Report],
    partition_bytes: Sequence[float],
    pieces: int,
    thresholds: Thresholds | None = None,
    *,
    again: bool = False,
) -> tuple[Cluster, tuple[act.Action, ...]]:
    """The state that the reports are of, and what to do from there: moves that were under way are off, and what only
    members had that do not report is recovered as after their failure.

    Of two servers of a partition the later one is right: until a map names it, everything reaches it through the other.
    What nobody remembers is lost: warnings (they are asked for again), and who had which piece when (reliable hosts
    count as the earliest owners). The stage is known by who serves and by who works.

    :param thresholds: that held.

    :param again: all go back to the clock that all backups have, because something was under way that nobody can tell.
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
        pieces=tuple(_piece(reports, index) for index in range(pieces)),
        joining={
            r.host.number: r.host.number for r in reports if r.host.number in transient and not r.works | {*r.serves}
        },
        number=number,
        newest=reports[-1].host.number,
        era=max(report.era for report in reports),
        consistent=_common_clock(reports, partitions),
    )
    step = Step(cluster, "the controller started again")
    step.act(act.Forget(step.next(), f"{step.cause}: moves that were under way are off"))
    working.without(step, {_NOBODY})
    # A member that has not heard of the last roll-back has what the others went back from.
    recover(step, {_NOBODY}, effective=again or len({report.era for report in reports}) > 1)
    if not step.state.halted:
        for index, partition in enumerate(step.state.partitions):
            if partition.owner != partition.backup and partition.safe and not partition.waiting:
                step.act(
                    act.PushTo(
                        partition.owner, index, partition.backup, f"{step.cause}: who serves what and where it is safe"
                    )
                )
        working.settle(step)
        moving.settle(step)
        step.change(version=step.next())
        owners = tuple(partition.owner for partition in step.state.partitions)
        step.act(act.PointWorkers(step.state.version, owners, f"{step.cause}: its map of owners"))
        working.load(step)
        working.tell(step, everybody=True)
    return step.state, tuple(step.actions)


def _stage(reports: Sequence[Report], partitions: Sequence[Partition], transient: Collection[int]) -> Stage:
    """That it was: the slack of a threshold holds it up, or not, as before."""
    if not any(partition.owner in transient for partition in partitions):
        return Stage.PARAMETER_SERVERS
    works = any(report.works for report in reports if report.host.number not in transient)
    return Stage.ACTIVE_AND_BACKUP if works else Stage.BACKUP_ONLY


def _partition(reports: Sequence[Report], index: int) -> Partition:
    served = max(
        ((report.serves[index], report.host.number) for report in reports if index in report.serves),
        default=(0, _NOBODY),
    )
    tier = {report.host.number: report.host.tier for report in reports}
    # A transient host that serves has a whole copy too, and is no backup.
    backed = _latest({report.host: report.backs for report in reports}, index)
    epoch, owner = served
    if owner == _NOBODY and backed is None:  # who it was given to is gone
        backed = _latest({report.host: report.gave for report in reports}, index)
    if tier.get(owner) is Tier.RELIABLE:
        clocks = next(report.backs.get(index, (0,)) for report in reports if report.host.number == owner)
        return Partition(owner, epoch, owner, clocks[-1])
    if backed is None:
        return Partition(owner, epoch, _NOBODY, 0, safe=False)
    return Partition(owner, epoch, -backed[1], backed[0])


def _common_clock(reports: Sequence[Report], partitions: Sequence[Partition]) -> int:
    """The latest clock that all backups can go back to: of some that have a later one, a push may have gone past it."""
    by_host = {report.host.number: {**report.gave, **report.backs} for report in reports}
    backed = [(index, partition) for index, partition in enumerate(partitions) if partition.safe]
    clocks = [by_host[partition.backup].get(index, (partition.clock,)) for index, partition in backed]
    common = set(clocks[0]).intersection(*clocks[1:]) if clocks else {0}
    return max(common, default=min((partition.clock for _, partition in backed), default=0))


def _latest(clocks: Mapping[Host, Mapping[int, Clocks]], index: int) -> tuple[int, int] | None:
    """The clock of the reliable host that has the latest state of a partition, and its number, negative; of several the
    first. None where none has any."""
    return max(
        (
            (clocks_by_partition[index][-1], -host.number)
            for host, clocks_by_partition in clocks.items()
            if index in clocks_by_partition and host.tier is Tier.RELIABLE
        ),
        default=None,
    )


def _piece(reports: Sequence[Report], index: int) -> Piece:
    owner = next((report.host.number for report in reports if index in report.works), _NOBODY)
    loaded = [report for report in reports if index in report.loaded]
    earlier = sorted(loaded, key=lambda report: (report.host.tier is Tier.TRANSIENT, report.host.number))
    previous = tuple(report.host.number for report in earlier if report.host.number != owner)
    return Piece(owner, previous, frozenset(report.host.number for report in loaded))
