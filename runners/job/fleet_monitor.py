"""Monitor of a job whose ranks run below agents: from the opening of the start barrier to the end of the last rank."""

import threading
import time
from collections.abc import Mapping
from typing import Any

from runners.job.agent_pool import AgentPool
from runners.job.monitor import STOP_TIMEOUT_S, JobMonitor
from runners.job.placement import RankAssignment, verify_placement
from runners.job.result import Failure, RunResult, check_placement
from runners.job.runner import RunContext

# Ranks that fail for the same reason do so together: others are ended a moment later, and may report their own code.
_SAME_FAILURE_S = 0.3
_STACKS_TIMEOUT_S = 15.0
_LAST_OUTPUT_S = 1.0
_MAX_NAMED_HOSTS = 4


def run_to_end(
    pool: AgentPool,
    assignments: list[RankAssignment],
    reports: Mapping[int, tuple[str, dict[str, Any]]],
    context: RunContext,
) -> RunResult:
    """Verify the placement of ranks at the start barrier, let them start, and wait for their end.

    :raises PlacementError: when one is on another host.
    """
    locations = check_placement(verify_placement(assignments, reports))
    context.observer.on_placement(locations)
    monitor = FleetMonitor(pool, assignments)
    monitor.run()
    return monitor.result(context.run_id, locations)


class FleetMonitor(JobMonitor):
    """Monitor over a pool of agents; the first rank that fails ends the others, and so does the time limit."""

    def __init__(self, pool: AgentPool, assignments: list[RankAssignment]) -> None:
        super().__init__(assignments, pool.output, pool.clock)
        self._pool = pool
        self._running = {assignment.rank: assignment.host for assignment in assignments}
        self._end_ranks_at: float | None = None
        self._failed_at: float | None = None  # since then every connected host has been asked for a heartbeat
        self._pause = ""  # of plink itself, shortly before the first rank failed
        self._agent_lost = False
        self._hosts_lost_later: list[str] = []  # after the first failure
        self._stacks_pending: set[str] = set()  # hosts that have not sent their ranks' stacks yet

    def run(self) -> None:
        """Open the start barrier, and wait until the job has ended."""
        clock, fleet, limit_s = self.clock, self._pool.fleet, self._pool.job.timeout_s
        self.began = clock()
        fleet.send_all(method="go")
        time_out_at = None if limit_s is None else clock() + limit_s
        try:
            while self._has_ranks() and (self.stop_at is None or clock() < self.stop_at):
                if time_out_at is not None and clock() >= time_out_at and self._end_ranks_at is None:
                    self._request_stacks()
                if self._end_ranks_at is not None and clock() >= self._end_ranks_at and self.stop_at is None:
                    self.stop_at = clock() + STOP_TIMEOUT_S
                    fleet.send_all(method="end")
                due = [at - clock() for at in (time_out_at, self._end_ranks_at, self.stop_at) if at is not None]
                self._receive(min([1.0, *due]))
        except KeyboardInterrupt:
            self._end_ranks()
            raise
        self._add_root_cause()

    def _has_ranks(self) -> bool:
        """Return whether any rank runs: hub processes end with the last."""
        return any(self.assignments[rank].hub is None for rank in self._running)

    def _receive(self, timeout_s: float) -> None:
        pool = self._pool
        message = pool.fleet.receive(max(0.01, timeout_s))
        if message is None:
            return
        exits = pool.handle(message)
        if message.body is None:
            assert message.error is not None
            self._host_lost(message.host, message.error.reason)
        elif message.body["type"] == "stacks":
            self._stacks_pending.discard(message.host)
            if not self._stacks_pending and self.stop_at is None:
                self._end_ranks_at = pool.clock() + _LAST_OUTPUT_S
        for rank, code in exits:
            if self._running.get(rank) != message.host:  # it ended before, or is not a rank of that host
                continue
            del self._running[rank]
            by_itself = self.stop_at is None and not self.timed_out
            if self.record_exit(rank, code, by_itself):
                self._on_failure()

    def _host_lost(self, host: str, error: str) -> None:
        """Count the ranks of a lost host as ended: they are, or will be when their lease runs out."""
        self._agent_lost = True
        lost = [rank for rank, its_host in self._running.items() if its_host == host]
        self._stacks_pending.discard(host)
        for rank in lost:
            del self._running[rank]
            self.output.finish(rank)
        if lost and self.failure is not None:
            self._hosts_lost_later.append(host)
        elif lost:
            self.failure = Failure(lost[0], host, 1, (error,), hub=self.assignments[lost[0]].hub)
            self._on_failure()

    def _on_failure(self) -> None:
        fleet = self._pool.fleet
        self._pause = fleet.pause_message if fleet.pause_s else ""
        self._end_ranks_at = self.clock() + _SAME_FAILURE_S
        self._failed_at = time.monotonic()
        fleet.send_all(method="alive")  # hosts that do not answer until the end are lost

    def _add_root_cause(self) -> None:
        """Name lost hosts: a rank that waits for one may fail before that host's lease runs out.

        Leases also run out while plink itself is stopped.
        """
        failure = self.failure
        if failure is None or self._failed_at is None:
            return
        if self._pause and self._agent_lost:
            self.add_cause(f"{self._pause}; the hosts ended the job meanwhile")
            return
        without_heartbeat = set(self._pool.fleet.hosts_without_heartbeat_since(self._failed_at))
        silent = [host for host in dict.fromkeys(self._running.values()) if host in without_heartbeat]
        lost = [host for host in (*self._hosts_lost_later, *silent) if host != failure.host]
        if lost:
            named = ", ".join(lost[:_MAX_NAMED_HOSTS]) + (" ..." if len(lost) > _MAX_NAMED_HOSTS else "")
            self.add_cause(
                f"{named}: lost, it does not answer; {failure.process} on {failure.host} then failed with exit "
                f"code {failure.code}"
            )

    def _request_stacks(self) -> None:
        self.record_timeout(min(self._running))
        self._end_ranks_at = self.clock() + _STACKS_TIMEOUT_S
        self._stacks_pending = set(self._running.values())
        for host in sorted(self._stacks_pending):
            self._pool.fleet.send(host, method="stacks")

    def _end_ranks(self) -> None:
        """End all ranks after Ctrl-C, and show their last output."""
        pool, running = self._pool, self._running
        # Where nobody reads what plink prints (`| less`), showing more of it would wait forever.
        alarm = threading.Timer(STOP_TIMEOUT_S, pool.fleet.close)
        alarm.daemon = True
        alarm.start()
        try:
            pool.fleet.send_all(method="end")
            deadline = pool.clock() + STOP_TIMEOUT_S
            while running and pool.clock() < deadline:
                message = pool.fleet.receive(deadline - pool.clock())
                if message is None:
                    return
                for rank, _ in pool.handle(message):
                    running.pop(rank, None)
                    self.output.finish(rank)
                if message.body is None:
                    running = {rank: host for rank, host in running.items() if host != message.host}
        finally:
            alarm.cancel()
