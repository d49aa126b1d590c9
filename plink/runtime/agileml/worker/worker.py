"""The loop of one worker: clock after clock, the work on the pieces it has (Harlap thesis, 4.2.1).

Clock 0 gives the tables their first values: piece p's part are the rows r with ``r mod pieces = p``. From clock 1 on
a clock is one mini-batch of every piece, an iteration ``app.batches`` clocks. Nothing a worker has is needed but what
can be had again, from the servers or from the input data: it may go back to any clock, and others may go on for it.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic

from plink.elastic.app import Items, check_app
from plink.elastic.app_error import AppError, app_error
from plink.elastic.objective import Objective
from plink.elastic.params import Params
from plink.errors import InputError, PlinkError
from plink.runtime.agileml.worker.assignments import Assigned
from plink.runtime.agileml.worker.client import Client, RolledBack
from plink.runtime.agileml.worker.clock_work import Shift
from plink.runtime.agileml.worker.loaded_shards import Loaded
from plink.runtime.agileml.worker.progress import Progress

TOLD = "told to leave"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Clock:
    """What a worker did at one clock: how long it took, of which ``working_s`` in the program (with its reads).
    ``leads``: it has piece 0; then at an iteration's first clock ``judged`` is the latest iteration that all have
    finished (with staleness not always the last), and ``objective`` its objective, None if nothing had weight."""

    clock: int
    iteration: int
    pieces: int
    seconds: float
    working_s: float
    leads: bool = False
    judged: int | None = None
    objective: float | None = None


@dataclass(frozen=True)
class Finished:
    """Why the loop ended; ``clock`` is the first that was not done."""

    clock: int
    why: str


class Worker(Generic[Items]):
    """One worker over one client, which is the worker's from now on. :meth:`run` is for one thread; what ``assigned``
    says and ``loaded`` has is for any.

    :param loaded: the program, with the pieces in memory.
    :param client: at the first clock that it works in.
    :param pieces: it has at first, or when it has what: :class:`Assigned`.
    :param started: when the job was, by ``time.time``; seconds of the stopping criterion count from there.
    :param say: for lines of the log. :param done: called after every clock.
    """

    def __init__(
        self, loaded: Loaded[Items], client: Client, pieces: Sequence[int] | Assigned, *, say: Say,
        started: float | None = None, done: Callable[[Clock], None] | None = None,
    ) -> None:  # fmt: skip
        check_app(loaded.app)
        self.loaded, self._app, self._client = loaded, loaded.app, client
        self._started = time.time() if started is None else started
        self._say, self._done = say, done
        self._progress = Progress(client, self._app.batches)
        self.assigned = pieces if isinstance(pieces, Assigned) else Assigned(self._checked(pieces))
        self._had: tuple[int, ...] | None = None

    def run(self) -> Finished:
        """To the end of the job, or until it is told to leave.

        :raises AppError: the program made a mistake. :raises Unanswered: as :meth:`Client.read`; this may be
            called again, and goes on where it was.
        """
        self._client.discard()  # of a clock that was broken off
        while True:
            try:
                if self._client.unfinished:
                    self._client.push()
                finished = self._clock()
            except RolledBack as back:
                self._say(f"clock {self._client.now}: rolled back to clock {back.clock}, era {back.era}")
                self._client.roll_back(back.clock, back.era)
                continue
            if finished:
                return finished

    def _clock(self) -> Finished | None:
        client, begun = self._client, time.perf_counter()
        now = client.now
        pieces = self._pieces()
        if isinstance(pieces, Finished):
            return pieces
        working = time.perf_counter()
        judged, objective = self._work(pieces)
        worked = time.perf_counter()
        client.push()
        if self._done:
            iteration = self._progress.iteration(now)
            seconds = time.perf_counter() - begun
            leads, spent = 0 in pieces, worked - working
            self._done(Clock(now, iteration, len(pieces), seconds, spent, leads, judged, objective))
        return None

    def _pieces(self) -> tuple[int, ...] | Finished:
        """Begin a clock: those that are to be worked on, unless there is nothing more to be done."""
        client, now = self._client, self._client.now
        if self._app.stop.clocks is not None and now > self._app.stop.clocks:
            return Finished(now, f"{self._app.stop.clocks} clocks are done")
        if now and self._progress.stops_at() == now:
            return Finished(now, "the stopping criterion is met")
        pieces = self.assigned.begin(now, client.era)
        if pieces is None:
            return Finished(now, TOLD)
        if pieces != self._had:
            if not set(pieces) <= set(self._had or ()):
                client.require_previous()
            self._announce(pieces)
        return pieces

    def _work(self, pieces: Sequence[int]) -> tuple[int | None, float | None]:
        """What is to be sent at the end of this clock; the iteration that is judged by then, and its objective."""
        if self._client.now == 0:
            self._initialise(pieces)
            return None, None
        shift = Shift(self.loaded, self._client, self._client.now, pieces)
        shift.work_off()
        self._score_all(shift.scores)
        return self._decide() if 0 in pieces else (None, None)

    def _announce(self, pieces: tuple[int, ...]) -> None:
        had, self._had = self._had, pieces
        before = "" if had is None else f" (it had {folded(had)})"
        self._say(
            f"clock {self._client.now}: worker {self._client.worker} has pieces {folded(pieces)}{before}, "
            f"{len(pieces)} of {self._app.pieces}; the global batch stays the same, 1/{self._app.batches} of all pieces"
        )

    def _initialise(self, pieces: Sequence[int]) -> None:
        """The first values of the rows that go with the pieces."""
        for piece in pieces:
            params = Params(self._client, self._app.seed, piece, 0)
            for table in self._app.tables:
                rows = range(piece, table.rows, self._app.pieces)
                where = f"app {self._app.name}: initial({table.name!r})"
                if not rows:
                    continue
                try:
                    values = self._app.initial(table.name, rows, params.random)
                except Exception as error:
                    raise app_error(where, error) from error
                if values is not None:
                    try:
                        params.update(table.name, rows, values)
                    except InputError as error:
                        raise AppError(f"{where}: {error}") from error

    def _score_all(self, scores: Iterable[Objective]) -> None:
        try:
            self._progress.add(scores)
        except InputError as error:
            whose = f"the objectives of worker {self._client.worker} at clock {self._client.now}"
            raise AppError(f"app {self._app.name}: {whose}: {error}") from error

    def _decide(self) -> tuple[int | None, float | None]:
        """Only the one who has piece 0, for all; once an iteration the latest that is judged, and its objective."""
        self._progress.make_room()
        first, stop = self._progress.first_of_iteration, self._app.stop
        objectives = self._progress.objectives() if first and (self._done or stop.patience is not None) else {}
        if self._progress.stops_at() is None:
            late = stop.seconds is not None and time.time() - self._started >= stop.seconds
            if late or (first and stop.converged(list(objectives.values()))):
                self._progress.stop_soon()
        judged = self._progress.judged
        return (judged, objectives.get(judged)) if first and judged >= 0 else (None, None)

    def _checked(self, pieces: Sequence[int]) -> tuple[int, ...]:
        result = tuple(sorted(pieces))
        if len(set(result)) < len(result) or any(not 0 <= piece < self._app.pieces for piece in result):
            raise PlinkError(f"pieces {folded(result)}, of which there are 0 to {self._app.pieces - 1}, each once")
        return result


def folded(numbers: Sequence[int]) -> str:
    """Rising numbers with runs as one: ``0-3,7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs) or "none"
