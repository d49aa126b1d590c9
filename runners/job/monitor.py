"""Monitor of a running job, for any runner: the first rank that fails, exit codes, and the time limit."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from runners.job.output import RankOutput
from runners.job.placement import RankAssignment, RankLocation
from runners.job.result import TIMED_OUT, Failure, RunResult

STOP_TIMEOUT_S = 5.0  # for ranks, or a launcher, to end after they were told to


class JobMonitor:
    """State of a running job. Subclasses receive events, call the methods below, and end what still runs.

    :ivar stop_at: when ranks that still run are no longer waited for; None: no limit yet.
    :ivar exits: exit codes of the ranks that ended by themselves.
    """

    def __init__(self, assignments: Sequence[RankAssignment], output: RankOutput, clock: Callable[[], float]) -> None:
        self.assignments, self.output, self.clock = assignments, output, clock
        self.began = clock()
        self.stop_at: float | None = None
        self.failure: Failure | None = None
        self.timed_out = False
        self.exits: dict[int, int] = {}

    @property
    def is_stopping(self) -> bool:
        """Return whether the job has failed or run out of time."""
        return self.failure is not None or self.timed_out

    def record_exit(self, rank: int, code: int, by_itself: bool) -> bool:
        """Record the exit of a rank; return whether it is the first failure.

        :param by_itself: the rank was not told to end.
        """
        self.output.finish(rank)
        if by_itself:
            self.exits[rank] = code
        if code == 0 or self.is_stopping or not by_itself:
            return False
        self.record_failure(rank, code)
        return True

    def record_failure(self, rank: int, code: int) -> None:
        """Record the failure that ends the job."""
        lines = tuple(self.output.last_lines(rank))
        assignment = self.assignments[rank]
        self.failure = Failure(rank, assignment.host, code, lines, hub=assignment.hub)

    def record_timeout(self, rank: int) -> None:
        """Record that the job ran out of time; ``rank`` still ran then."""
        self.timed_out = True
        self.record_failure(rank, TIMED_OUT)

    def add_cause(self, cause: str) -> None:
        """Add the root cause of the failure, unless there is one."""
        if self.failure is not None and self.failure.cause is None:
            self.failure = replace(self.failure, cause=cause)

    def result(self, run_id: str, locations: Sequence[RankLocation]) -> RunResult:
        """Return how the job ended, now that it has."""
        code = self.failure.code if self.failure else 0
        seconds = self.clock() - self.began
        return RunResult(run_id, code, tuple(locations), seconds, self.failure, self.timed_out, self.exits)
