"""Pool of the agents of one job: sends to all, gathers their answers, and passes on what ranks print meanwhile."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from plink.errors import HostError, PlinkError
from plink.model.hosts import Hosts
from plink.transport.fleet import AgentMessage, Fleet
from runners.job.messages import (
    AgentFailed,
    Exited,
    HostReady,
    Output,
    PlacementReport,
    RankLine,
    RanksStopped,
    StacksShown,
)
from runners.job.monitor import SAME_FAILURE_S, STOP_TIMEOUT_S, JobMonitor, RankOutput, Sink
from runners.job.placement import Failure, RankAssignment, RunResult, check_placement, verify_placement
from runners.job.runner import Job, RunContext

_ANSWER_TIMEOUT_S = 30.0
_MAX_NAMED_HOSTS = 4
_STACKS_TIMEOUT_S = 15.0
_LAST_OUTPUT_S = 1.0
Answer = TypeVar("Answer")


class AgentPool:
    """Agents on the hosts of a job.

    :param hosts: in rank order.
    :param on_rank_line: gets every line of rank 0 (:mod:`runners.job.rank_channel`), returns the answers.
    :ivar identities: of the hosts, once they are set up.
    """

    def __init__(
        self,
        fleet: Fleet,
        hosts: Hosts,
        job: Job,
        sink: Sink,
        clock: Callable[[], float],
        on_rank_line: Callable[[str], list[str]] | None = None,
    ) -> None:
        self.fleet, self.hosts, self.job, self.clock = fleet, hosts, job, clock
        self.on_rank_line = on_rank_line
        self._rank_count = sum(host.slots for host in hosts) + len(job.hubs)
        self.output = RankOutput(sink)
        self.identities: dict[str, HostReady] = {}

    def each(self, kind: type[Answer], names: Sequence[str]) -> dict[str, Answer]:
        """Return one message of a type from each of these hosts, by host.

        :raises HostError: when an agent is lost meanwhile, or fails.
        :raises PlinkError: when answers do not come in time.
        """
        answers: dict[str, Answer] = {}
        expected, deadline = set(names), self.clock() + _ANSWER_TIMEOUT_S
        while len(answers) < len(names):
            try:
                name, answer = self.next_of(kind, deadline - self.clock())
            except TimeoutError:
                raise _missing_answers(kind, list(answers), len(names), _ANSWER_TIMEOUT_S, names) from None
            if name in expected:
                answers.setdefault(name, answer)
        return answers

    def rank_reports(self, timeout_s: float = _ANSWER_TIMEOUT_S) -> dict[int, tuple[str, PlacementReport]]:
        """Return by rank the host whose agent sent its report, and the report.

        :raises HostError: as :meth:`each`.
        :raises PlinkError: as :meth:`each`, and for ranks that the job does not have.
        """
        reports: list[tuple[str, PlacementReport]] = []
        deadline = self.clock() + timeout_s
        while len(reports) < self._rank_count:
            try:
                reports.append(self.next_of(PlacementReport, deadline - self.clock()))
            except TimeoutError:
                hosts = [host for host, _ in reports]
                raise _missing_answers(PlacementReport, hosts, self._rank_count, timeout_s, self.hosts.names) from None
        by_rank = {report.rank: (name, report) for name, report in reports}
        if by_rank.keys() != set(range(self._rank_count)):
            shown = ", ".join(f"{report.rank} on {name}" for name, report in reports[:8])
            raise PlinkError(f"ranks started that are not of this job ({shown}); nothing was run")
        return by_rank

    def next_of(self, kind: type[Answer], timeout_s: float) -> tuple[str, Answer]:
        """Return the next message of a type, or of a union of types, and its host.

        :raises HostError: when an agent is lost, fails, or a rank of its ends before the job has begun.
        :raises TimeoutError: when none comes in time.
        """
        deadline = self.clock() + timeout_s
        while True:
            message = self.fleet.receive(deadline - self.clock())
            if message is None:
                raise TimeoutError(f"no answer within {timeout_s:.0f} s")
            if message.error is not None:
                raise message.error
            if isinstance(message.body, kind):
                return message.host, message.body
            if isinstance(message.body, AgentFailed):
                raise HostError(message.host, message.body.error)
            if (exited := self.handle(message)) is not None:
                last = "".join(f"; its last line: {line}" for line in self.output.last_lines(exited.rank)[-1:])
                error = f"rank {exited.rank} ended before the job began, with exit code {exited.code}{last}"
                raise HostError(message.host, error)

    def handle(self, message: AgentMessage) -> Exited | None:
        """Show output and answer lines of rank 0; return the end of a rank, if it is that.

        Ignores messages about ranks that the job does not have.
        """
        body = message.body
        if isinstance(body, Output | Exited) and body.rank is not None and not 0 <= body.rank < self._rank_count:
            return None
        if isinstance(body, RankLine) and self.on_rank_line is not None:
            for text in self.on_rank_line(body.text):
                self.fleet.send(message.host, method="line", text=text)
        if isinstance(body, Output):
            self.output.add(body.rank, body.stream, body.text)
        return body if isinstance(body, Exited) else None


def _missing_answers(
    kind: Any, answered: Sequence[str], count: int, timeout_s: float, names: Sequence[str]
) -> PlinkError:
    missing = [name for name in names if name not in set(answered)]
    return PlinkError(
        f"{count - len(answered)} of {count} answers ({kind.__struct_config__.tag}) did not come within "
        f"{timeout_s:.0f} s" + (f" (from {_first(missing)})" if missing else "")
    )


def _first(names: Sequence[str]) -> str:
    """Return the first names, and dots where there are more."""
    return ", ".join(names[:_MAX_NAMED_HOSTS]) + (" ..." if len(names) > _MAX_NAMED_HOSTS else "")


def run_to_end(
    pool: AgentPool,
    assignments: list[RankAssignment],
    reports: Mapping[int, tuple[str, PlacementReport]],
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
        self._lost_first = ""  # why the host is lost whose ranks failed first
        self._hosts_lost_later: list[str] = []  # after the first failure
        self._stopped: set[int] = set()  # ranks, by SIGSTOP
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
        exited = pool.handle(message)
        if message.body is None:
            assert message.error is not None
            self._host_lost(message.host, message.error.reason)
        elif isinstance(message.body, RanksStopped):
            self._stopped |= {rank for rank in message.body.ranks if self._running.get(rank) == message.host}
        elif isinstance(message.body, StacksShown):
            self._stacks_pending.discard(message.host)
            if not self._stacks_pending and self.stop_at is None:
                self._end_ranks_at = pool.clock() + _LAST_OUTPUT_S
        # A rank may have ended before, or be none of that host.
        if exited is not None and self._running.get(exited.rank) == message.host:
            del self._running[exited.rank]
            by_itself = self.stop_at is None and not self.timed_out
            if self.record_exit(exited.rank, exited.code, by_itself):
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
            self.failure = Failure(lost[0], host, 1, (), hub=self.assignments[lost[0]].hub)
            self._lost_first = f"{host}: lost, {error}; {self.failure.process} ran there"
            self._on_failure()

    def _on_failure(self) -> None:
        fleet = self._pool.fleet
        self._pause = fleet.pause_message if fleet.pause_s else ""
        self._end_ranks_at = self.clock() + SAME_FAILURE_S
        self._failed_at = time.monotonic()
        fleet.send_all(method="alive")  # hosts that do not answer until the end are lost

    def _add_root_cause(self) -> None:
        """Name lost hosts, and ranks that others waited for: a rank that waits may fail first.

        Leases also run out while plink itself is stopped.
        """
        failure = self.failure
        if failure is None:
            return
        if self._pause and self._agent_lost:
            self.add_cause(f"{self._pause}; the hosts ended the job meanwhile")
            return
        consequence = f"{failure.process} on {failure.host} then failed with exit code {failure.code}"
        if self.timed_out:
            consequence = "the job was ended by its --timeout"
        lost = list[str]()
        if self._failed_at is not None:
            without_heartbeat = set(self._pool.fleet.hosts_without_heartbeat_since(self._failed_at))
            silent = [host for host in dict.fromkeys(self._running.values()) if host in without_heartbeat]
            lost = [host for host in (*self._hosts_lost_later, *silent) if host != failure.host]
        waited = self.output.waited
        here = {*waited, *self.exits}
        absent = [each.rank for each in self.assignments if each.hub is None and each.rank not in here]
        if self._lost_first:
            others = f"; {_first(lost)}: lost, too" if lost else ""
            self.add_cause(self._lost_first + others)
        elif lost:
            self.add_cause(f"{_first(lost)}: lost, it does not answer; {consequence}")
        elif self._stopped:
            self.add_cause(f"{self._named(self._stopped)}: stopped (SIGSTOP, or a debugger); {consequence}")
        elif 0 < len(absent) <= len(waited) and (failure.rank in waited or self.timed_out):
            self.add_cause(f"{self._named(absent)}: NCCL timed out on the others, not here; {consequence}")

    def _named(self, ranks: Iterable[int]) -> str:
        return _first([f"{self.assignments[rank].process} on {self.assignments[rank].host}" for rank in sorted(ranks)])

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
                if (exited := pool.handle(message)) is not None:
                    running.pop(exited.rank, None)
                    self.output.finish(exited.rank)
                if message.body is None:
                    running = {rank: host for rank, host in running.items() if host != message.host}
        finally:
            alarm.cancel()
