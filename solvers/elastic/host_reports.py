"""What hosts report to a controller that was started again, put together: the placement, and who works on what."""

from collections.abc import Collection, Mapping, Sequence

from plink.model.elastic.fields import ShardMap, StageThresholds
from plink.model.elastic.requests import Forget
from plink.model.elastic.results import HostReport
from solvers.elastic import migration, moving, working
from solvers.elastic.context import Context, PlacementDecision
from solvers.elastic.member import Member
from solvers.elastic.placement.cluster import Cluster
from solvers.elastic.placement.data import Shard
from solvers.elastic.placement.partitions import PartitionPlacement
from solvers.elastic.placement.stages import Stage, Thresholds
from solvers.elastic.recovery import recover
from solvers.elastic.state import WorkerAssignment

_NOBODY = -1

Reports = Mapping[int, HostReport]
Works = Mapping[int, frozenset[int]]


def resume(
    members: Mapping[int, Member],
    reports: Reports,
    partition_bytes: Sequence[float],
    shards: int,
    thresholds: Thresholds = Thresholds(),  # noqa: B008
) -> PlacementDecision:
    """Return the placement that the reports are of, and what to do from there.

    Moves that were under way are cancelled. What only members had that do not report is recovered as after their
    failure. All go back to the clock that all replicas have where something was under way that nobody can tell.

    Of two servers of a partition the later one is right: until a map names it, everything reaches it through the other.
    What nobody remembers is lost: warnings (they are asked for again), and who had which shard when (reliable hosts
    count as the earliest owners). The stage is known by who serves and by who works.

    Without a reliable host among them the job halts, as when the last one fails.

    :param thresholds: that held.
    """
    reports = dict(sorted(reports.items()))
    hosts = tuple(members[number] for number in reports)
    workers, _ = workers_of(reports)
    works = {number: _shards_of(report, workers) for number, report in reports.items()}
    partitions = tuple(_partition(hosts, reports, index) for index in range(len(partition_bytes)))
    transient = [host.number for host in hosts if not host.reliable]
    cluster = Cluster(
        hosts,
        tuple(partition_bytes),
        thresholds,
        _stage(works, partitions, transient),
        partitions,
        tuple(_shard(hosts, reports, works, index) for index in range(shards)),
        joining={number: number for number in transient if not works[number] and not reports[number].serves},
        number=max(report.number for report in reports.values()),
        newest=hosts[-1].number,
        generation=max(report.generation for report in reports.values()),
        consistent=_common_clock(reports, partitions),
    )
    decision = PlacementDecision(cluster, "the controller started again")
    cause, forgotten = decision.cause, Forget(decision.next())
    decision.act("ForgetMoves", f"{cause}: moves that were under way are off", Context.send_all, forgotten)
    working.without(decision, {_NOBODY})
    # A member that did not receive the last roll-back has what the others went back from.
    incomplete = len({report.generation for report in reports.values()}) > 1
    recover(decision, {_NOBODY}, effective=incomplete or _something_was_under_way(reports))
    if decision.halted is None:
        for index, partition in enumerate(decision.cluster.partitions):
            if partition.primary != partition.replica and partition.safe and not partition.waiting:
                ends = partition.primary, index, partition.replica
                reason = f"{cause}: who serves what and where it is safe"
                decision.act("ReplicateTo", reason, migration.set_replica, *ends)
        working.assign(decision)
        moving.plan_moves(decision)
        decision.act("PointWorkers", f"{cause}: its map of primaries", migration.send_primaries)
        working.load(decision)
        working.tell(decision, notify_all=True)
    return decision


def _stage(works: Works, partitions: Sequence[PartitionPlacement], transient: Collection[int]) -> Stage:
    """Return the stage that it was: the slack of a threshold holds it up, or not, as before."""
    if not any(partition.primary in transient for partition in partitions):
        return Stage.PARAMETER_SERVERS
    reliable_work = any(shards for number, shards in works.items() if number not in transient)
    return Stage.ACTIVE_AND_BACKUP if reliable_work else Stage.BACKUP_ONLY


def _partition(hosts: Sequence[Member], reports: Reports, index: int) -> PartitionPlacement:
    served = [(report.serves[index], number) for number, report in reports.items() if index in report.serves]
    term, primary = max(served, default=(0, _NOBODY))
    # A transient host that serves has a whole copy too, and is no replica.
    reliable = [host.number for host in hosts if host.reliable]
    replica = _latest({number: reports[number].replicas for number in reliable}, index)
    if primary == _NOBODY and replica is None:  # who it was given to is gone
        replica = _latest({number: reports[number].in_doubt for number in reliable}, index)
    if primary in reliable:
        return PartitionPlacement(primary, term, primary, reports[primary].replicas.get(index, (-1,))[-1])
    if replica is None:
        return PartitionPlacement(primary, term, _NOBODY, -1, safe=False)
    return PartitionPlacement(primary, term, -replica[1], replica[0])


def _latest(replicas: Mapping[int, Mapping[int, tuple[int, ...]]], index: int) -> tuple[int, int] | None:
    """Return the clock of the host with the latest state of a partition, and its number, negative.

    Of several hosts it is the first; None where none has any.
    """
    return max(((clocks[index][-1], -host) for host, clocks in replicas.items() if index in clocks), default=None)


def _common_clock(reports: Reports, partitions: Sequence[PartitionPlacement]) -> int:
    """Return the latest clock that all replicas can go back to.

    Of replicas with a later one, a push may have gone past it.
    """
    safe = [(index, partition) for index, partition in enumerate(partitions) if partition.safe]
    clocks = [
        {**reports[partition.replica].in_doubt, **reports[partition.replica].replicas}.get(index, (partition.clock,))
        for index, partition in safe
    ]
    common = set(clocks[0]).intersection(*clocks[1:]) if clocks else {-1}
    return max(common, default=min((partition.clock for _, partition in safe), default=-1))


def _shard(hosts: Sequence[Member], reports: Reports, works: Works, index: int) -> Shard:
    owner = next((number for number, shards in works.items() if index in shards), _NOBODY)
    loaded = [host for host in hosts if index in reports[host.number].loaded]
    earlier = sorted(loaded, key=lambda host: (not host.reliable, host.number))
    previous = tuple(host.number for host in earlier if host.number != owner)
    return Shard(owner, previous, frozenset(host.number for host in loaded))


def workers_of(reports: Reports) -> tuple[dict[int, WorkerAssignment], int]:
    """Return who works on what by the latest map that any host has, and the first number that no worker had."""
    workers = {
        worker: WorkerAssignment(host, shards, first)
        for worker, (host, shards, first) in _latest_map(reports).everywhere.items()
    }
    numbers = {*workers, *(worker for report in reports.values() for worker in report.workers)}
    return workers, max(numbers, default=-1) + 1


def latest_thresholds(reports: Reports) -> StageThresholds | None:
    """Return what the latest measure of the traffic left to be kept; None: there was none."""
    thresholds = [report.thresholds for report in reports.values() if report.thresholds]
    return max(thresholds, key=lambda thresholds: thresholds.measure, default=None)


def leaving_workers(reports: Reports, workers: Mapping[int, WorkerAssignment]) -> dict[int, int]:
    """Return workers that were told to leave and have not yet, with their hosts."""
    return {
        worker: host for host, report in reports.items() for worker in report.workers if worker not in workers
    }  # fmt: skip


def _something_was_under_way(reports: Reports) -> bool:
    """Return whether something was under way of which no host can report the end.

    That is a barrier, a roll-back, a lost host, or a takeover.
    """
    latest = _latest_map(reports)
    if any(report.generation > latest.generation for report in reports.values()):
        return True
    for host, _, _ in latest.everywhere.values():
        if host not in reports or reports[host].map != latest:
            return True
    if any(host not in reports and _reached(reports) < until - 1 for host, until in latest.left):
        return True  # one that was told to leave was lost before it had done what was left
    if _reached(reports) < latest.clock - 1:
        return True  # should a host be lost now, nobody knows what it had before that clock
    return any(report.paused or report.takeovers for report in reports.values())


def _shards_of(report: HostReport, workers: Mapping[int, WorkerAssignment]) -> frozenset[int]:
    """Return what a host works on, or did until its workers had nothing left to do; of those that were released since
    others work on it."""
    running = {shard for shards in report.workers.values() for shard in shards}
    finished = report.finished.keys() & workers.keys()
    return frozenset(running | {shard for worker in finished for shard in workers[worker].shards})


def _latest_map(reports: Reports) -> ShardMap:
    maps = (report.map for report in reports.values() if report.map)
    return max(maps, key=lambda shard_map: (shard_map.generation, shard_map.clock))


def _reached(reports: Reports) -> int:
    """Return the clock that all partitions have."""
    clocks: dict[int, int] = {}
    for report in reports.values():
        for index, clocks_of_replica in report.replicas.items():
            clocks[index] = max(clocks_of_replica[-1], clocks.get(index, clocks_of_replica[-1]))
    return min(clocks.values(), default=-1)
