"""What hosts report to a controller that was started again, put together."""

from collections.abc import Mapping

from plink.model.elastic.fields import ShardMap, StageThresholds
from plink.model.elastic.results import HostReport
from solvers.elastic.state import WorkerAssignment

Reports = Mapping[int, HostReport]


def workers_of(reports: Reports) -> tuple[dict[int, WorkerAssignment], int]:
    """Return who works on what by the latest map that any host has, and the first number that no worker had."""
    workers = {
        worker: WorkerAssignment(host, shards, first)
        for worker, (host, shards, first) in _latest_map(reports).everywhere.items()
    }
    numbers = {*workers, *(worker for report in reports.values() for worker in report.workers)}
    return workers, max(numbers) + 1


def latest_thresholds(reports: Reports) -> StageThresholds | None:
    """Return what the latest measure of the traffic left to be kept; None: there was none."""
    thresholds = [report.thresholds for report in reports.values() if report.thresholds]
    return max(thresholds, key=lambda thresholds: thresholds.measure, default=None)


def leaving_workers(reports: Reports, workers: Mapping[int, WorkerAssignment]) -> dict[int, int]:
    """Return workers that were told to leave and have not yet, with their hosts."""
    return {
        worker: host for host, report in reports.items() for worker in report.workers if worker not in workers
    }  # fmt: skip


def something_was_under_way(reports: Reports) -> bool:
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


def shards_of(report: HostReport, workers: Mapping[int, WorkerAssignment]) -> frozenset[int]:
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
