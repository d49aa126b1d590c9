"""A job from the opening of the gate to the end of its last rank."""

import threading
import time
from dataclasses import dataclass, field, replace

from runners.job.crew import Crew
from runners.job.proof import Seat
from runners.job.result import TIMED_OUT, Failure

_END_S = 5.0  # the agents' own grace, and then some
# Ranks that fail for the same reason do so together: the others are ended a moment later, and may tell their own code.
_TOGETHER_S = 0.3
_STACKS_S = 15.0
_LAST_WORDS_S = 1.0
_NAMED = 4


@dataclass
class End:
    """How the ranks ended; as in :class:`runners.job.result.RunResult`."""

    failure: Failure | None = None
    timed_out: bool = False
    exits: dict[int, int] = field(default_factory=dict)


class Watching:
    """Waits for the end of all ranks; the first that fails ends the others, and so does the end of the job's time."""

    def __init__(self, crew: Crew, asked: list[Seat]) -> None:
        self._crew = crew
        self._running = {seat.rank: seat.host for seat in asked}
        self._end = End()
        self._end_at: float | None = None  # when ranks that still run are told to end
        self._deadline: float | None = None  # when they are no longer waited for
        self._asked_at: float | None = None  # for a sign of life of every host, when the first rank failed
        self._pause = ""  # of plink itself, shortly before the first rank failed
        self._agent_gone = False
        self._lost: list[str] = []  # hosts whose agents were found gone after that
        self._stacks_of: set[str] = set()  # hosts that have not told their ranks' stacks yet

    def watch(self) -> End:
        """Open the gate, and wait."""
        clock, fleet, limit = self._crew.clock, self._crew.fleet, self._crew.job.timeout_s
        fleet.send_all(do="go")
        latest = None if limit is None else clock() + limit
        try:
            while self._running and (self._deadline is None or clock() < self._deadline):
                if latest is not None and clock() >= latest and self._end_at is None:
                    self._ask_for_stacks()
                if self._end_at is not None and clock() >= self._end_at and self._deadline is None:
                    self._deadline = clock() + _END_S
                    fleet.send_all(do="end")
                due = [at - clock() for at in (latest, self._end_at, self._deadline) if at is not None]
                self._hear(min([1.0, *due]))
        except KeyboardInterrupt:
            self._end_in_order()
            raise
        self._name_the_lost()
        return self._end

    def _hear(self, timeout_s: float) -> None:
        crew, end = self._crew, self._end
        message = crew.fleet.receive(max(0.01, timeout_s))
        if message is None:
            return
        ended = crew.note(message)
        if message.body is None:
            self._agent_gone = True
            # Its ranks are gone with it, or will be when their lease runs out.
            lost = [rank for rank, host in self._running.items() if host == message.host]
            self._stacks_of.discard(message.host)
            for rank in lost:
                del self._running[rank]
                crew.output.finish(rank)
            if lost and end.failure is not None:
                self._lost.append(message.host)
            if lost and end.failure is None:
                assert message.error is not None
                self._fail(Failure(lost[0], message.host, 1, (message.error.reason,)))
        elif message.body["is"] == "stacks":
            self._stacks_of.discard(message.host)
            if not self._stacks_of and self._deadline is None:
                self._end_at = crew.clock() + _LAST_WORDS_S
        for rank, code in ended:
            if self._running.get(rank) != message.host:  # ended before, or no rank of that host's
                continue
            host = self._running.pop(rank)
            crew.output.finish(rank)
            if self._deadline is None and not end.timed_out:
                end.exits[rank] = code
            if code and end.failure is None:
                self._fail(Failure(rank, host, code, tuple(crew.output.last_lines(rank))))

    def _fail(self, failure: Failure) -> None:
        fleet = self._crew.fleet
        self._pause = fleet.pause_told if fleet.pause_s else ""
        self._end.failure = failure
        self._end_at = self._crew.clock() + _TOGETHER_S
        self._asked_at = time.monotonic()
        fleet.send_all(do="alive")  # whoever does not answer until all is over is lost

    def _name_the_lost(self) -> None:
        """A rank that waits for a lost host may fail before that host's lease runs out, and leases run out while plink
        itself is stopped."""
        failure = self._end.failure
        if failure is None or failure.cause is not None or self._asked_at is None:
            return
        if self._pause and self._agent_gone:
            self._end.failure = replace(failure, cause=f"{self._pause}; the hosts ended the job meanwhile")
            return
        silent = set(self._crew.fleet.silent_since(self._asked_at))
        unheard = [host for host in dict.fromkeys(self._running.values()) if host in silent]
        lost = [host for host in (*self._lost, *unheard) if host != failure.host]
        if lost:
            named = ", ".join(lost[:_NAMED]) + (" ..." if len(lost) > _NAMED else "")
            self._end.failure = replace(
                failure,
                cause=f"{named}: lost, it does not answer; rank {failure.rank} on {failure.host} then failed with exit "
                f"code {failure.code}",
            )

    def _ask_for_stacks(self) -> None:
        self._end.timed_out = True
        first = min(self._running)
        lines = tuple(self._crew.output.last_lines(first))
        self._end.failure = Failure(first, self._running[first], TIMED_OUT, lines)
        self._end_at = self._crew.clock() + _STACKS_S
        self._stacks_of = set(self._running.values())
        for host in sorted(self._stacks_of):
            self._crew.fleet.send(host, do="stacks")

    def _end_in_order(self) -> None:
        crew, running = self._crew, self._running
        # Where nobody reads what we print (`| less`), showing more of it takes for ever: the ranks end all the same.
        alarm = threading.Timer(_END_S, crew.fleet.close)
        alarm.daemon = True
        alarm.start()
        try:
            crew.fleet.send_all(do="end")
            deadline = crew.clock() + _END_S
            while running and crew.clock() < deadline:
                message = crew.fleet.receive(deadline - crew.clock())
                if message is None:
                    return
                for rank, _ in crew.note(message):
                    running.pop(rank, None)
                    crew.output.finish(rank)
                if message.body is None:
                    running = {rank: host for rank, host in running.items() if host != message.host}
        finally:
            alarm.cancel()
