"""Monitor of a job under an external launcher, from its start to its end, by what ranks write through its output."""

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from msgspec import Struct, convert

from runners.job.messages import Versions
from runners.job.monitor import STOP_TIMEOUT_S, JobMonitor, RankOutput
from runners.job.placement import (
    Failure,
    Located,
    PlacementError,
    RankAssignment,
    RankLocation,
    check_placement,
    verify_placement,
)
from runners.job.runner import RunContext
from runners.launchers.frames import ERR, EXIT, OUT, REPORT, FrameDecoder
from runners.launchers.launcher import Launcher, LauncherProcess

REPORT_TIMEOUT_S = 120.0
_OTHERS_S = 1.0  # for what other ranks have to say of the first failure
# That are kept. After the first failure, which they name first, there may be one of each node.
MAX_LAUNCHER_LINES = 10_000
# Ranks that ran out of time show their stacks and are held for 3 s (rank_supervisor.py).
_STACKS_TIMEOUT_S = 10.0
_MAX_LAST_LINES = 10
# By which ssh ends: a host is not reached then, and Hydra waits for it all the same.
SSH_ERROR = re.compile(
    r"ssh: |Host key verification failed|kex_exchange_identification: |banner exchange: |Unable to negotiate with |"
    r"Connection (closed|reset) by |Connection timed out during banner|Received disconnect from |Disconnected from |"
    r"Bad owner or permissions on |(\S+@\S+: )?Permission denied( \(|, please)"
)
# By which Open MPI, the ssh that Hydra started, or srun says that a host is lost once ranks run there.
_LOST_HOST = re.compile(
    r"\s*Remote daemon: .* on node (\S+)|Timeout, server (\S+) not responding|srun: error: Node failure on (\S+)"
)
# As an address may be one, but none of a path, nor what is quoted.
_WORD = re.compile(r"(?<![\"'/\[])\b[\w.:-]*\w")
Message = TypeVar("Message")


class ShimReport(Struct, frozen=True):
    """What a rank reports before it becomes the program (:mod:`runners.launchers.shim`); a message with less was cut
    short, or is not of plink."""

    rank: int
    pid: int
    hostname: str
    addresses: list[str]
    moved: bool
    problems: list[str]
    port: int
    address: str
    versions: Versions | None


class RankExit(Struct, frozen=True):
    """How a rank ended."""

    code: int
    signalled: bool
    timed_out: bool


class OutputParser:
    """Parser of one job's output; keeps the ranks' reports and exits, by rank.

    :param names: of hosts, by their addresses: the launcher's own lines have addresses.
    """

    def __init__(self, launcher: Launcher, names: Mapping[str, str] = MappingProxyType({})) -> None:
        self._launcher, self._names = launcher, names
        self._decoders: dict[tuple[int, str], FrameDecoder] = {}
        self.reports: dict[int, ShimReport] = {}
        self.exits: dict[int, RankExit] = {}

    def _name_of(self, word: re.Match[str]) -> str:
        return self._names.get(word[0], word[0])

    def parse_line(self, stream: str, line: str) -> Iterator[tuple[int | None, str, str]]:
        """Yield (rank, kind, text) of all frames that a line completes; rank None: the launcher itself."""
        for rank, origin, part in self._launcher.parse_output_line(stream, line):
            default = ERR if origin == "err" else OUT
            if rank is None:
                is_command = "ssh-keygen" in part  # that ssh advises
                yield None, default, part if is_command else _WORD.sub(self._name_of, part)
                continue
            for kind, text in self._decoders.setdefault((rank, origin), FrameDecoder()).add(part):
                if kind == REPORT and (report := _message(text, ShimReport)) is not None:
                    self.reports[report.rank] = report
                    yield report.rank, kind, text
                elif kind == EXIT and (end := _message(text, RankExit)) is not None:
                    self.exits[rank] = end
                    yield rank, kind, text
                elif kind not in (REPORT, EXIT):
                    yield rank, kind or default, text if kind else text + "\n"


def _message(text: str, kind: type[Message]) -> Message | None:
    """Return what a rank sent; None where the launcher lost a part of it."""
    try:
        return convert(json.loads(text), kind)
    except (ValueError, RecursionError):  # ValidationError is a ValueError
        return None


def rank_locations(assignments: Sequence[RankAssignment], reports: Mapping[int, Located]) -> list[RankLocation]:
    """Return the verified locations; a rank that has moved since its dry run is misplaced for that alone."""
    locations = verify_placement(assignments, {rank: (None, report) for rank, report in reports.items()})
    return [
        replace(location, problem="is not where it was found just before")
        if getattr(reports[location.rank], "moved", False) and location.problem is None
        else location
        for location in locations
    ]


def verified_locations(assignments: Sequence[RankAssignment], reports: Mapping[int, Located]) -> list[RankLocation]:
    """Return the locations of all ranks. :raises PlacementError: one is on another host than assigned."""
    return check_placement(rank_locations(assignments, reports))


class LauncherMonitor(JobMonitor):
    """Monitor over the output of an external launcher, which ends the other ranks itself when one fails.

    :param locations: of the ranks, as the dry run found them; then as the job's own processes report. :param names: of
        hosts, by their addresses.
    :ivar launcher_lines: what the launcher itself printed, the last of it.
    """

    def __init__(
        self,
        launcher: Launcher,
        assignments: Sequence[RankAssignment],
        context: RunContext,
        timeout_s: float | None,
        locations: list[RankLocation],
        names: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(assignments, RankOutput(context.observer.on_line), context.clock)
        self._launcher, self._on_line, self._timeout_s = launcher, context.observer.on_line, timeout_s
        self.locations = locations
        self.parser = OutputParser(launcher, names)
        self.stop_at = self.began + REPORT_TIMEOUT_S
        self.launcher_lines = deque[str](maxlen=MAX_LAUNCHER_LINES)
        self._moved = False
        self._has_problems = False

    @property
    def is_stopping(self) -> bool:
        """Return whether the job has failed, run out of time, or started on another host."""
        return super().is_stopping or self._moved

    def follow(self, process: LauncherProcess) -> None:
        """Read the launcher's output until it has ended, or its time is over.

        :raises PlacementError: when a rank is not where it was in the dry run.
        """
        while process.open and not ((self._moved or self._has_problems) and self._all_reported()):
            stop_at = self.stop_at
            for stream, line in process.lines(self.clock, stop_at):
                for rank, kind, text in self.parser.parse_line(stream, line):
                    self._handle(rank, kind, text)
                if self.stop_at != stop_at:
                    break
            else:
                if self.is_stopping or self._has_problems or not process.open or not self._all_reported():
                    break
                self._on_timeout()
        if self._moved:
            reports: dict[int, Located] = {location.rank: location for location in self.locations}
            reports |= self.parser.reports
            raise PlacementError(rank_locations(self.assignments, reports), "the job was ended")

    def finish(self, code: int) -> None:
        """Record the failure of a job that did not end well.

        :param code: the launcher's own exit code.
        """
        if self.timed_out:
            ranks = (assignment.rank for assignment in self.assignments)
            self.record_timeout(next((rank for rank in ranks if rank not in self.exits), 0))
        elif self.failure is None and code:
            named = self._launcher.first_failure(self.launcher_lines)
            if named is not None and 0 <= named[0] < len(self.assignments):
                self.record_failure(*named)
            else:
                lines = tuple(text for text in self.launcher_lines if text.strip(" -="))
                self.failure = Failure(None, None, code, lines[-_MAX_LAST_LINES:])

    def _all_reported(self) -> bool:
        return len(self.parser.reports) == len(self.assignments)

    def _handle(self, rank: int | None, kind: str, text: str) -> None:
        stream = "err" if kind == ERR else "out"
        if rank is None:
            self.launcher_lines.append(text)
            self._on_line(None, stream, text)
            if SSH_ERROR.match(text) and not self._all_reported():
                self._await_others()
            elif (lost := _LOST_HOST.match(text)) and not self.is_stopping:
                self._record_lost(lost[1] or lost[2] or lost[3])
        elif kind == REPORT:
            self._on_report(rank)
        elif kind == EXIT:
            end = self.parser.exits[rank]
            if end.timed_out and not self.is_stopping:
                self._on_timeout()
            if self.record_exit(rank, end.code, by_itself=not end.signalled and not end.timed_out):
                self._stop_soon()
        else:
            self.output.add(rank, stream, text)

    def _record_lost(self, host: str) -> None:
        names = {assignment.rank: assignment.host for assignment in self.assignments}
        # Open MPI 5 cuts names at their first dot.
        rank = next((rank for rank, name in names.items() if host in (name, name.split(".")[0])), None)
        if rank is not None:
            self.record_failure(rank, 1)
            self.add_cause(f"the connection to {names[rank]} was lost")
            self._stop_soon()

    def _stop_soon(self) -> None:
        """Give the launcher the time to end the others; it is ended where it does not."""
        self.stop_at = self.clock() + (_OTHERS_S if self._launcher.waits_for_ranks else STOP_TIMEOUT_S)

    def _on_report(self, rank: int) -> None:
        report = self.parser.reports[rank]
        if report.moved:
            # Its program does not run, and the launcher ends the others'; they may still report.
            self._moved, self.stop_at = True, self.clock() + STOP_TIMEOUT_S
        elif report.problems:
            self._await_others()
        if self._moved or self._has_problems or not self._all_reported():
            return
        self.locations, self.began = verified_locations(self.assignments, self.parser.reports), self.clock()
        if not self.is_stopping:
            self.stop_at = None if self._timeout_s is None else self.began + self._timeout_s

    def _await_others(self) -> None:
        """End the job soon: the others would wait at the start barrier for a rank that does not start the program, and
        Hydra does not end them."""
        if not self._has_problems:
            self._has_problems, self.stop_at = True, self.clock() + STOP_TIMEOUT_S

    def _on_timeout(self) -> None:
        if not self.timed_out:
            self.timed_out, self.stop_at = True, self.clock() + _STACKS_TIMEOUT_S
