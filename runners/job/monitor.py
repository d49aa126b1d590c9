"""Monitor of a running job, for any runner: the first rank that fails, exit codes, and the time limit."""

import math
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from runners.job.placement import TIMED_OUT, Failure, RankAssignment, RankLocation, RunResult

_TAIL_LINES = 30
# A rank that never ends its line is shown in pieces of this size.
_MAX_LINE_CHARS = 1 << 16
_STATE_S = 5.0  # a line that is written over (\r, as progress bars do) is shown at most so often before it ends

_NCCL_TIMEOUT = "Watchdog caught collective operation timeout"  # PyTorch's ProcessGroupNCCL, of each rank that waited

# (rank, stream, line); rank None: the launcher itself.
Sink = Callable[[int | None, str, str], None]


# Ranks that fail for the same reason do so together: others are ended a moment later, and may report their own code.
SAME_FAILURE_S = 0.3
_KILLED = 128 + signal.SIGKILL  # what no rank does for another one's end, as it may crash or abort

STOP_TIMEOUT_S = 5.0  # for ranks, or a launcher, to end after they were told to


class RankOutput:
    """Splitter of many ranks' output into lines; calls ``sink(rank, stream, line)``, stream ``out`` or ``err``.

    Of a line that is written over, as progress bars are, a state that is shown is a line that ends with ``\\r``.

    :ivar waited: ranks whose wait for others NCCL's watchdog ended.
    """

    def __init__(self, sink: Sink, clock: Callable[[], float] = time.monotonic) -> None:
        self._sink, self._clock = sink, clock
        self.waited: set[int] = set()
        self._incomplete: dict[tuple[int | None, str], str] = {}
        self._states: dict[tuple[int | None, str], tuple[float, str]] = {}  # of incomplete lines: when shown, and what
        self._last: dict[int | None, deque[str]] = {}

    def add(self, rank: int | None, stream: str, text: str) -> None:
        """Add text as it came, cut anywhere."""
        *lines, rest = (self._incomplete.pop((rank, stream), "") + text).split("\n")
        for line in lines:
            self._end(rank, stream, line)
        if "\r" in rest:
            rest = self._written_over(rank, stream, rest)
        while len(rest) > _MAX_LINE_CHARS:
            self._show(rank, stream, rest[:_MAX_LINE_CHARS])
            rest = rest[_MAX_LINE_CHARS:]
        if rest:
            self._incomplete[rank, stream] = rest

    def finish(self, rank: int) -> None:
        """Show the incomplete lines of a rank that has ended."""
        for stream in ("out", "err"):
            if rest := self._incomplete.pop((rank, stream), ""):
                self._end(rank, stream, rest)

    def last_lines(self, rank: int) -> list[str]:
        """Return the last lines that a rank printed, on either stream; what is no UTF-8 as U+FFFD, for documents."""
        lines = (line.removesuffix("\r") for line in self._last.get(rank, ()))
        return [line.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for line in lines]

    def _written_over(self, rank: int | None, stream: str, text: str) -> str:
        """Show the last whole state of an incomplete line, if it is time to; return what is left of the text."""
        whole, _, rest = text.rpartition("\r")
        state, now = _last_state(whole), self._clock()
        shown_at, shown = self._states.get((rank, stream), (-math.inf, ""))
        if state.strip() and state != shown and now - shown_at >= _STATE_S:
            self._states[rank, stream] = now, state
            self._show(rank, stream, f"{state}\r")
        return f"{state}\r{rest}"

    def _end(self, rank: int | None, stream: str, line: str) -> None:
        """Show a line that has ended, unless its last state has been shown."""
        line = _last_state(line)
        if self._states.pop((rank, stream), (0.0, None))[1] != line:
            self._show(rank, stream, line)
        elif self._last[rank][-1] == f"{line}\r":  # from now on nothing takes its place
            self._last[rank][-1] = line

    def _show(self, rank: int | None, stream: str, line: str) -> None:
        if rank is not None and _NCCL_TIMEOUT in line:
            self.waited.add(rank)
        last = self._last.setdefault(rank, deque(maxlen=_TAIL_LINES))
        if last and last[-1].endswith("\r"):  # a state gives way to what follows it
            last.pop()
        last.append(line)
        self._sink(rank, stream, line)


def _last_state(line: str) -> str:
    return line.rstrip("\r").rpartition("\r")[2]


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
        self._replaceable_until = -math.inf  # whom the failure is blamed on

    @property
    def is_stopping(self) -> bool:
        """Return whether the job has failed or run out of time."""
        return self.failure is not None or self.timed_out

    def record_exit(self, rank: int, code: int, by_itself: bool) -> bool:
        """Record the exit of a rank; return whether it is the first failure.

        Of ranks that end at nearly the same time one that was killed is blamed: others fail as its connections close.

        :param by_itself: the rank was not told to end.
        """
        self.output.finish(rank)
        if by_itself:
            self.exits[rank] = code
        if code == 0 or not by_itself:
            return False
        first = not self.is_stopping
        if first:
            self._replaceable_until = self.clock() + SAME_FAILURE_S if code != _KILLED else -math.inf
        elif code != _KILLED or self.timed_out or self.clock() > self._replaceable_until:
            return False
        else:
            self._replaceable_until = -math.inf
        self.record_failure(rank, code)
        return first

    def record_failure(self, rank: int, code: int) -> None:
        """Record the failure that ends the job."""
        lines = tuple(self.output.last_lines(rank))
        assignment = self.assignments[rank]
        ended = tuple(sorted(other for other, code in self.exits.items() if code == 0))
        self.failure = Failure(rank, assignment.host, code, lines, hub=assignment.hub, ended=ended)

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
