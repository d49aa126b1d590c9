"""A job under a launcher of others from its start to its end: what it did, and until when it may go on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from runners.job.output import Output
from runners.job.placement import RankLocation, RankAssignment, verify
from runners.job.result import Failure, PlacementError, kept
from runners.job.runner import Watch
from runners.launchers.frames import ERR, EXIT, REPORT
from runners.launchers.output_parser import OutputParser
from runners.launchers.launcher import Launcher
from runners.launchers.process import Process

REPORT_S = 120.0
END_S = 5.0
# Ranks that ran out of time show their stacks and are held for 3 s (keeper.py).
_STACKS_S = 10.0
TIMED_OUT = 124  # as timeout(1) says it

Reports = Mapping[int, Mapping[str, Any]]


def locations(asked: Sequence[RankAssignment], reports: Reports) -> list[RankLocation]:
    """What the reports prove; a rank that is not where it was a moment ago is wrong for that alone."""
    found = verify(list(asked), {rank: (None, dict(report)) for rank, report in reports.items()})
    return [
        replace(location, wrong="is not where it was found just before")
        if reports[location.rank].get("moved") and location.wrong is None
        else location
        for location in found
    ]


def proven(asked: Sequence[RankAssignment], reports: Reports) -> list[RankLocation]:
    """:raises PlacementError: when a rank is not where it was asked to be."""
    return kept(locations(asked, reports))


@dataclass
class Course:
    """The job as it goes: how far it is, and until when it may go on."""

    launcher: Launcher
    seats: Sequence[RankAssignment]
    watch: Watch
    timeout_s: float | None
    heard: OutputParser
    proof: list[RankLocation]
    began: float = 0.0
    deadline: float | None = None
    first: tuple[int, int] | None = None
    timed_out: bool = False
    moved: bool = False
    refused: bool = False
    own: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.output = Output(self.watch.sink)
        self.began = self.watch.clock()
        self.deadline = self.began + REPORT_S

    def follow(self, process: Process) -> None:
        """Until the launcher has ended, or has had its time.

        :raises PlacementError: when a rank is not where it was.
        """
        while process.open and not ((self.moved or self.refused) and len(self.heard.reports) == len(self.seats)):
            before = self.deadline
            for stream, line in process.lines(self.watch.clock, before):
                for rank, kind, text in self.heard.line(stream, line):
                    self._take(rank, kind, text)
                if self.deadline != before:
                    break
            else:
                ending = self.first is not None or self.timed_out or self.moved or self.refused
                if ending or not process.open or len(self.heard.reports) < len(self.seats):
                    break
                self._out_of_time()
        if self.moved:
            known = {rank.rank: {"hostname": rank.hostname, "addresses": rank.addresses, "pid": rank.pid}
                     for rank in self.proof}  # fmt: skip
            raise PlacementError(locations(self.seats, {**known, **self.heard.reports}), "the job was ended")

    def _take(self, rank: int | None, kind: str, text: str) -> None:
        if rank is None:
            self.own.append(text)
            self.watch.sink(None, "err" if kind == ERR else "out", text)
        elif kind == REPORT:
            self._proven(rank)
        elif kind == EXIT:
            self.output.finish(rank)
            end = self.heard.exits[rank]
            ending = self.first is not None or self.timed_out or self.moved
            if end["out_of_time"] and not ending:
                self._out_of_time()
            elif end["code"] and not end["told"] and not ending:
                # The launcher ends the others, and is ended where it does not.
                self.first, self.deadline = (rank, end["code"]), self.watch.clock() + END_S
        else:
            self.output.add(rank, "err" if kind == ERR else "out", text)

    def _proven(self, rank: int) -> None:
        reports = self.heard.reports
        if reports[rank]["moved"]:
            # Its program does not run, and the launcher ends the others'; they may still say where they are.
            self.moved, self.deadline = True, self.watch.clock() + END_S
        elif reports[rank]["problems"] and not self.refused:
            # The others would wait for it at the gate: Hydra does not end them.
            self.refused, self.deadline = True, self.watch.clock() + END_S
        if self.moved or self.refused:
            return
        if len(reports) == len(self.seats):
            self.proof, self.began = proven(self.seats, reports), self.watch.clock()
            if self.first is None and not self.timed_out:
                self.deadline = None if self.timeout_s is None else self.began + self.timeout_s

    def _out_of_time(self) -> None:
        if not self.timed_out:
            self.timed_out, self.deadline = True, self.watch.clock() + _STACKS_S

    def failure(self, code: int) -> Failure | None:
        """What there is to say of a job that did not end well; ``code``: the launcher's own exit code."""
        if self.timed_out:
            exits = self.heard.exits
            in_time = {rank for rank, end in exits.items() if not end["out_of_time"] and not end["told"]}
            return self._of(next((seat.rank for seat in self.seats if seat.rank not in in_time), 0), TIMED_OUT)
        if self.first is not None:
            return self._of(*self.first)
        if not code:
            return None
        told = self.launcher.first_failure(self.own)
        if told is not None and 0 <= told[0] < len(self.seats):
            return self._of(*told)
        return Failure(None, None, code, tuple(text for text in self.own if text.strip(" -="))[-10:])

    def _of(self, rank: int, code: int) -> Failure:
        return Failure(rank, self.seats[rank].host, code, tuple(self.output.last_lines(rank)))
