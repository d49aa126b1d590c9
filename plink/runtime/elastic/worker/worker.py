"""The loop of one worker: clock after clock, the work on the shards it has (Harlap thesis, 4.2.1).

Clock 0 gives the tables their first values: shard p's part are the rows r with ``r mod shards = p``. From clock 1 on
a clock is one mini-batch of every shard, an iteration ``app.batches`` clocks. Under ElasticBSP and ASP a clock is some
mini-batches of every shard, not as many for every worker, and an iteration is one clock. All that a worker has can be
had again, from the servers or from the input data: it may go back to any clock, and others may go on for it.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from msgspec import structs

from plink.elastic.app import Items, Objective, check_app
from plink.elastic.app_error import MISTAKES, AppError, app_error
from plink.elastic.params import Params
from plink.errors import InputError, PlinkError
from plink.model.elastic.reports import ClockDone
from plink.model.rules.dssp import DSSP
from plink.runtime.elastic.worker.client import Client, OtherSteps
from plink.runtime.elastic.worker.clock_work import ClockWork, LoadedShards
from plink.runtime.elastic.worker.dynamic_staleness import DynamicStaleness
from plink.runtime.elastic.worker.primaries import RolledBack
from plink.runtime.elastic.worker.progress import Criterion, Progress
from plink.runtime.elastic.worker.steps import planner_of


@dataclass(frozen=True)
class Assignment:
    """Shards of a worker from ``clock`` on, once the generation is ``generation`` or later; ``shards`` None: the worker
    is no longer needed."""

    clock: int
    generation: int
    shards: tuple[int, ...] | None


class Assigned:
    """Assignments of one worker; for any thread.

    All of them are kept: after a roll-back every clock is redone with the shards it had, unless there is an assignment
    of the new generation.

    :param every_generation: every generation has an assignment, and no clock of one is begun before it is there.
    """

    def __init__(self, shards: Sequence[int], *, generation: int = -1, every_generation: bool = False) -> None:
        self._assignments = [Assignment(-1, generation, tuple(shards))]
        self._begun = (-1, -1)  # generation, clock
        self._every_generation = every_generation
        self._paused: int | None = None
        self._back: RolledBack | None = None
        self._ended = False
        self._changed = threading.Condition()

    def add(self, assignment: Assignment) -> None:
        """Add an assignment; the latest counts. :raises PlinkError: the clock has begun; choose a later one."""
        with self._changed:
            generation, clock = self._begun
            if assignment.generation <= generation and assignment.clock <= clock:
                raise PlinkError(f"shards cannot change at clock {assignment.clock}: clock {clock} has begun")
            self._assignments.append(assignment)
            self._changed.notify_all()

    def pause(self, clock: int) -> int:
        """Pause before ``clock`` until :meth:`resume`, unless it has begun already. Return the latest clock that has
        begun, to be compared with ``clock``."""
        with self._changed:
            if self._begun[1] < clock:
                self._paused = clock
            return self._begun[1]

    @property
    def wants_changes(self) -> bool:
        """Return whether somebody waits for the clock that has begun to end."""
        return self._paused is not None or self._ended

    @property
    def begun(self) -> int:
        """Return the latest clock that has begun."""
        return self._begun[1]

    def resume(self) -> None:
        """Resume: nothing is paused any more."""
        with self._changed:
            self._paused = None
            self._changed.notify_all()

    def rolled_back(self, clock: int, generation: int) -> None:
        """Notify the waiting worker that all are back at a clock; a pause ends."""
        with self._changed:
            self._back, self._paused = RolledBack(clock, generation), None
            self._changed.notify_all()

    def end(self) -> None:
        """End: no clock is begun any more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def begin(self, clock: int, generation: int) -> tuple[int, ...] | None:
        """Return the shards of a clock that begins now; waits during a pause.

        :raises RolledBack: it is not to be.
        """
        with self._changed:
            while not self._ended:
                if self._back is not None and self._back.generation > generation:
                    raise self._back
                if (self._paused is None or clock < self._paused) and self._has_assignment(generation):
                    break
                self._changed.wait()
            else:
                return None
            self._begun = generation, clock
            fitting = [
                cached for cached in self._assignments if cached.clock <= clock and cached.generation <= generation
            ]
            return fitting[-1].shards

    def _has_assignment(self, generation: int) -> bool:
        return not self._every_generation or any(cached.generation == generation for cached in self._assignments)


RELEASED = "released"
Say = Callable[[str], None]
WorkOff = Callable[[ClockWork[Any], Client], None]


@dataclass(frozen=True)
class Finished:
    """Why the loop ended; ``clock`` is the first that was not done."""

    clock: int
    reason: str


class Worker(Generic[Items]):
    """One worker over one client, which is the worker's from now on. :meth:`run` is for one thread; what ``assigned``
    says and ``loaded`` has is for any.

    :param loaded: the program, with the shards in memory.
    :param client: at the first clock that it works in.
    :param shards: it has at first, or when it has what: :class:`Assigned`.
    :param started: when the job was, by ``time.time``; seconds of the stopping criterion count from there.
    :param say: for lines of the log. :param done: called after every clock.
    :ivar work_off: works off the grains of a clock: all here, unless others help.
    """

    def __init__(
        self,
        loaded: LoadedShards[Items],
        client: Client,
        shards: Sequence[int] | Assigned,
        *,
        say: Say,
        started: float | None = None,
        done: Callable[[ClockDone], None] | None = None,
    ) -> None:
        check_app(loaded.app)
        self.loaded, self._app, self._client = loaded, loaded.app, client
        self._started = time.time() if started is None else started
        self._say, self._done = say, done
        self._progress = Progress(client, self._app.batches)
        rule, shards_in_all = client.rule, self._app.shards
        self._planner = planner_of(rule, client, shards_in_all)
        self._staleness = DynamicStaleness(client, shards_in_all, rule) if isinstance(rule, DSSP) else None
        self.assigned = shards if isinstance(shards, Assigned) else Assigned(self._checked(shards))
        self._had: tuple[int, ...] | None = None
        self._steps_done = 1
        self._waited_until_begun_s = 0.0  # of all that the client has waited
        self._clock_began: float | None = None  # which may be resumed, or done again, after an unanswered message
        self._compute_s = self._waited_s = 0.0  # of this clock
        self._unreported: ClockDone | None = None  # of which the last step is only to be sent
        self._scores: list[Objective] = []  # of this clock's steps, sent with the last of them
        self.work_off: WorkOff = _alone

    def run(self) -> Finished:
        """Run to the end of the job, or until the worker is released.

        :raises AppError: the program made a mistake. :raises Unanswered: as :meth:`Client.read`; this may be
            called again, and goes on where it was.
        """
        self._discard()  # of a clock that was broken off
        while True:
            try:
                if self._client.unfinished:
                    self._client.push()
                    self._report()
                finished = self._clock()
            except RolledBack as back:
                self._say(f"clock {self._client.now}: rolled back to clock {back.clock}, generation {back.generation}")
                self._client.roll_back(back.clock, back.generation)
                self._unreported = self._clock_began = None
                self._discard()
                continue
            except OtherSteps as other:
                self._say(f"{other}: doing it again")
                self._discard()
                continue
            if finished:
                return finished

    def _discard(self) -> None:
        """Begin the clock again; not where a step of it is only to be sent."""
        if not self._client.unfinished:
            self._scores.clear()
            self._compute_s, self._unreported = 0.0, None
        self._client.discard()
        if self._planner is not None:
            self._planner.table.forget()

    def _clock(self) -> Finished | None:
        client, begun = self._client, time.perf_counter()
        now, waited_s = client.now, client.waited_s
        if self._clock_began is None:
            self._clock_began, self._compute_s, self._waited_s = begun, 0.0, 0.0
        shards = self._shards()
        if isinstance(shards, Finished):
            return shards
        self._waited_s += self._waited_until_begun_s - waited_s
        working = time.perf_counter()
        evaluated_iteration, objective = self._work(shards)
        if self._staleness is not None and now:
            self._staleness.note(shards, time.perf_counter() - working)
        self._unreported = ClockDone(
            clock=now,
            iteration=self._progress.iteration(now),
            batches=self._progress.batches,
            seconds=0.0,  # when it is over
            is_leader=0 in shards,
            evaluated_iteration=evaluated_iteration,
            objective=objective,
            generation=client.generation,
            worker=client.worker,
            shards=len(shards),
            steps=self._steps_done,
            compute_s=self._compute_s,
            waited_s=max(0.0, self._waited_s),
        )
        client.push()
        self._report()
        return None

    def _report(self) -> None:
        """Report the clock that is over, unless it was only a step of one."""
        done, begun = self._unreported, self._clock_began
        if done is None or begun is None:
            return
        self._unreported = self._clock_began = None
        if self._done:
            self._done(structs.replace(done, seconds=time.perf_counter() - begun))

    def _shards(self) -> tuple[int, ...] | Finished:
        """Begin a clock: those that are to be worked on, unless there is nothing more to be done."""
        client, now = self._client, self._client.now
        if self._app.stop.clocks is not None and self._have_done(self._app.stop.clocks):
            return Finished(now, self._reason(Criterion.CLOCKS))
        if self._staleness is not None and now:
            self._staleness.begin()
        stops_at = self._progress.stops_at() if now else None
        if stops_at is not None and stops_at[0] == now:
            return Finished(now, self._reason(stops_at[1]))
        if self._planner is not None:
            self._planner.stopping = stops_at is not None
        self._waited_until_begun_s = client.waited_s  # others are as far as is needed; what follows may be a pause
        shards = self.assigned.begin(now, client.generation)
        if shards is None:
            return Finished(now, RELEASED)
        if shards != self._had:
            if not set(shards) <= set(self._had or ()):
                client.require_previous()
                if self._staleness is not None and now:
                    self._staleness.shards_added()
            self._announce(shards)
        return shards

    def _reason(self, criterion: Criterion) -> str:
        """Return why the job ends, for a person."""
        stop = self._app.stop
        match criterion:
            case Criterion.CLOCKS:
                return f"{stop.clocks} clocks are done"
            case Criterion.SECONDS:
                return f"{stop.seconds:g} s are over"
            case Criterion.PATIENCE:
                return f"{stop.patience} iterations did not improve the objective"

    def _have_done(self, clocks: int) -> bool:
        """Return whether so many mini-batches of every shard are done."""
        if self._planner is None or self._client.now == 0:
            return self._client.now - 1 >= clocks
        return self._planner.finished(clocks)

    def _work(self, shards: Sequence[int]) -> tuple[int | None, float | None]:
        """Do the work of this clock; return the iteration that is evaluated by then, and its objective."""
        if self._client.now == 0:
            self._initialise(shards)
            return None, None
        if self._planner is None:
            self._work_on(dict.fromkeys(shards, self._client.now))
        else:
            self._steps(shards)
        self._score_all()
        return self._decide() if 0 in shards else (None, None)

    def _work_on(self, turns: Mapping[int, int]) -> None:
        begun, work = time.perf_counter(), ClockWork(self.loaded, self._client, turns)
        self.work_off(work, self._client)
        self._compute_s += time.perf_counter() - begun
        self._scores += work.scores

    def _steps(self, shards: Sequence[int]) -> None:
        """Do the steps of a clock, and send all but the last; fewer where shards are to change hands."""
        assert self._planner is not None
        plan = self._planner.plan(shards, self._app.stop.clocks)
        begun, first = time.perf_counter(), self._client.step
        done = first
        while True:
            over = plan.over(done) or (done > first and self.assigned.wants_changes)
            has_work = done > self._client.step
            if self._client.is_last(over, has_work):
                break
            if has_work:
                self._client.push(last=False)
            self._work_on({shard: before + done + 1 for shard, before in plan.before.items()})
            done += 1
            self._planner.table.note(plan.before, done, (time.perf_counter() - begun) / (done - first))
        if not done:
            self._planner.table.note(plan.before, 0, None)
        self._steps_done = done

    def _announce(self, shards: tuple[int, ...]) -> None:
        had, self._had = self._had, shards
        before = "" if had is None else f" (it had {folded(had)})"
        self._say(
            f"clock {self._client.now}: worker {self._client.worker} has shards {folded(shards)}{before}, "
            f"{len(shards)} of {self._app.shards}; the global batch stays the same, 1/{self._app.batches} of all shards"
        )

    def _initialise(self, shards: Sequence[int]) -> None:
        """Send the first values of the rows that go with the shards."""
        for shard in shards:
            params = Params(self._client, self._app.seed, shard, 0)
            for table in self._app.tables:
                rows = range(shard, table.rows, self._app.shards)
                location = f"app {self._app.name}: initial({table.name!r})"
                if not rows:
                    continue
                try:
                    values = self._app.initial(table.name, rows, params.random)
                except MISTAKES as error:
                    raise app_error(location, error) from error
                if values is not None:
                    try:
                        params.update(table.name, rows, values)
                    except InputError as error:
                        raise AppError(f"{location}: {error}") from error

    def _score_all(self) -> None:
        try:
            self._progress.add(self._scores)
        except InputError as error:
            subject = f"the objectives of worker {self._client.worker} at clock {self._client.now}"
            raise AppError(f"app {self._app.name}: {subject}: {error}") from error
        self._scores.clear()

    def _decide(self) -> tuple[int | None, float | None]:
        """Decide for all, as the worker that has shard 0, when to stop; once an iteration return the latest one that is
        evaluated, and its objective."""
        self._progress.make_room()
        first, stop = self._progress.first_of_iteration, self._app.stop
        objectives = self._progress.objectives() if first and (self._done or stop.patience is not None) else {}
        if self._progress.stops_at() is None:
            if self._planner is not None and self._planner.done:
                self._progress.stop_soon(Criterion.CLOCKS)
            elif stop.seconds is not None and time.time() - self._started >= stop.seconds:
                self._progress.stop_soon(Criterion.SECONDS)
            elif first and stop.converged(list(objectives.values())):
                self._progress.stop_soon(Criterion.PATIENCE)
        evaluated_iteration = self._progress.evaluated_iteration
        return (
            (evaluated_iteration, objectives.get(evaluated_iteration))
            if first and evaluated_iteration >= 0
            else (None, None)
        )

    def _checked(self, shards: Sequence[int]) -> tuple[int, ...]:
        result = tuple(sorted(shards))
        if len(set(result)) < len(result) or any(not 0 <= shard < self._app.shards for shard in result):
            raise PlinkError(f"shards {folded(result)}, of which there are 0 to {self._app.shards - 1}, each once")
        return result


def _alone(work: ClockWork[Any], client: Client) -> None:
    work.work_off()


def folded(numbers: Sequence[int]) -> str:
    """Return rising numbers with runs as one: ``0-3,7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs) or "none"
