"""How a job gets on: which clocks make an iteration's time, and which objective is whose."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from plink.elastic import App, Objective, Params, StoppingCriterion, Table
from plink.model.consistency import parse_rule
from plink.model.elastic.reports import ClockDone
from plink.records.elastic_history import history_of
from plink.records.elastic_log import Entry, Iteration, ObjectiveLogEntry, RollBackLogEntry
from plink.runtime.elastic.worker.clock_work import LoadedShards
from plink.runtime.elastic.worker.progress import job_layout
from plink.runtime.elastic.worker.worker import Worker
from solvers.elastic import host_work, progress
from solvers.elastic.commands import LogLine
from solvers.elastic.context import Context
from solvers.elastic.member import Member
from solvers.elastic.observations import TrainingProgress
from solvers.elastic.settings import Settings
from solvers.elastic.state import PendingClocks, WorkerAssignment, initial
from tests.runtime.elastic.stores import store


class RecordedProgress:
    """A job's progress, whose lines are kept; clocks of one second, of an objective known an iteration later."""

    def __init__(self, batches: int = 1, rule: str = "bsp") -> None:
        self.lines: list[dict[str, Any]] = []
        self.batches, self.seconds = batches, 0.0
        self.job = initial(Settings("", 1, 2, ((8, 8),), 0.0, 0.0, rule), 1, 0.0)
        self.job.progress = TrainingProgress(stage=1)
        self.job.members = {0: Member(0, "h0", "reliable")}

    def _act(self, does: Callable[[Context], None]) -> None:
        ctx = Context(self.job, self.seconds)
        does(ctx)
        self.job = ctx.state
        self.lines += [dict(entry.fields) for entry in ctx.entries if isinstance(entry, LogLine)]

    def rolled_back(self, clock: int) -> None:
        """All are at a clock again."""
        self._act(lambda ctx: progress.rolled_back(ctx, clock))

    def interrupt(self) -> None:
        """The job is about to be ended from outside."""
        self._act(progress.log_done)

    def end(self) -> None:
        """The job is over."""
        self._act(progress.ended)

    def status(self) -> dict[str, Any]:
        """For a person."""
        return progress.status(self.job.progress)

    def clock(self, clock: int, workers: int = 3, **more: Any) -> None:
        iteration = (clock - 1) // self.batches
        first = clock % self.batches == (1 if self.batches > 1 else 0)
        self.seconds += 1.0
        messages = {
            "clock": clock, "iteration": iteration, "batches": self.batches, "seconds": 1.0, "is_leader": True,
            "evaluated_iteration": iteration - 1 if first and iteration else None,
            "objective": float(iteration - 1) if first and iteration else None,
        }  # fmt: skip
        self.report(ClockDone(**{"generation": 0, "worker": 0, **messages, **more}), workers)

    def report(self, done: ClockDone, workers: int) -> None:
        """A worker has done a clock."""

        def handle(ctx: Context) -> None:
            host_work.clock_done(ctx, 0, done)
            progress.clock_done(ctx, done, workers)

        self._act(handle)

    def works(self, *workers: int, first: int = 0) -> None:
        """These workers do all clocks from one on."""
        assignments = {worker: WorkerAssignment(0, (worker,), first) for worker in workers}
        before = self.job.rebalancing
        self.job.rebalancing = replace(before, workers={**before.workers, **assignments})

    def clocks(self, first: int, last: int) -> None:
        for clock in range(first, last + 1):
            self.clock(clock)

    @property
    def iterations(self) -> list[tuple[int, float, float | None]]:
        return [(line["iteration"], line["seconds"], line["objective"]) for line in self.lines]

    @property
    def entries(self) -> list[Entry]:
        """The lines as they are read back."""
        kinds = {"iteration": Iteration, "objective": ObjectiveLogEntry}
        return [
            kinds[line["what"]](**{"at": self.seconds} | {key: line[key] for key in line if key != "what"})
            for line in self.lines
        ]


def test_iteration_time_and_its_late_objective() -> None:
    messages = RecordedProgress(batches=2)
    messages.works(0)
    messages.clock(0)
    messages.clock(1)
    messages.clock(1, is_leader=False, seconds=5.0)
    messages.clocks(2, 2)
    assert not messages.lines
    messages.clocks(3, 4)
    assert messages.iterations == [(0, 2.0, 0.0)]
    assert (messages.lines[0]["clock"], messages.lines[0]["at"]) == (2, 4.0)
    assert messages.status() == {
        "iteration": 0, "iteration_s": 2.0, "objective": 0.0, "workers": 3, "iteration_workers": 1, "begun": 5,
        "work": {"h0": (0.0, 0.0, 2)}, "moved": 0.0, "help": {},
    }  # fmt: skip
    messages.end()
    assert messages.iterations == [(0, 2.0, 0.0), (1, 2.0, None)]


def test_workers_of_an_iteration_are_those_that_did_it() -> None:
    messages = RecordedProgress()
    messages.works(0)
    messages.works(1, 2, first=2)
    messages.clocks(1, 1)
    messages.clock(2, workers=8)
    status = messages.status()
    assert (status["iteration"], status["workers"], status["iteration_workers"]) == (0, 8, 1)


def test_an_iteration_waits_for_what_all_its_workers_report() -> None:
    """One that leaves reports no clock after its last, one whose report was lost does so at a later clock, and one that
    hangs keeps no iteration for ever."""
    messages = RecordedProgress()
    messages.works(0, 1)
    messages.job.rebalancing = replace(messages.job.rebalancing, leaving={2: PendingClocks((2,), 0, 2, 0)})
    messages.clocks(1, 3)
    assert not messages.lines
    messages.clock(1, is_leader=False, worker=2, compute_s=3.0)
    messages.clock(2, is_leader=False, worker=1)
    assert [(line["workers"], line["work"]["h0"][0]) for line in messages.lines] == [(3, 1.5), (2, 0.0)]
    messages.clocks(4, 60)
    assert [line["iteration"] for line in messages.lines] == [*range(12)]


def test_iterations_are_reported_anew_after_a_roll_back() -> None:
    messages = RecordedProgress()
    messages.clocks(1, 4)
    messages.rolled_back(2)
    assert messages.status()["begun"] == 3
    messages.clocks(3, 4)
    messages.end()
    assert messages.iterations == [(0, 1, 0), (1, 1, 1), (2, 1, 2), (3, 1, None), (2, 1, 2), (3, 1, None)]


@pytest.mark.parametrize("rule", ["ssp:3", "asp:1s", "ordered:12"])
def test_iteration_is_logged_once_all_workers_have_done_it_and_its_objective_later(rule: str) -> None:
    messages = RecordedProgress(rule=rule)
    messages.works(0, 1)
    for clock in range(1, 12):
        late = clock - 9 if clock >= 9 else None
        messages.clock(clock, evaluated_iteration=late, objective=None if late is None else float(late))
        assert messages.status()["iteration"] == clock - 2
        messages.clock(clock, is_leader=False, worker=1, compute_s=3.0)
        status = messages.status()
        assert (status["iteration"], status["work"]["h0"]) == (clock - 1, (1.5, 0.0, 1))
    history = history_of(messages.entries)
    assert [step.objective for step in history.completed] == [0.0, 1.0, 2.0, *[None] * 8]
    before = len(messages.lines)
    messages.end()
    assert len(messages.lines) == before


@pytest.mark.parametrize("rule", ["bsp", "asp:1s"])
def test_interrupted_job_logs_what_all_workers_have_done(rule: str) -> None:
    """The last iteration is not: one worker has not reported it."""
    messages = RecordedProgress(rule=rule)
    messages.works(0, 1)
    for clock in range(1, 4):
        messages.clock(clock, evaluated_iteration=None, objective=None)
        if clock < 3:
            messages.clock(clock, is_leader=False, worker=1)
    messages.interrupt()
    assert [(iteration, objective) for iteration, _, objective in messages.iterations] == [(0, None), (1, None)]


def test_objectives_come_again_with_iterations_that_are_done_again() -> None:
    """And only with these."""
    messages = RecordedProgress(rule="ssp:2")

    def clocks(first: int, last: int, offset: float) -> None:
        for clock in range(first, last + 1):
            late = clock - 4 if clock >= 4 else None
            messages.clock(clock, evaluated_iteration=late, objective=None if late is None else late + offset)

    clocks(1, 8, 0.0)
    messages.rolled_back(3)
    clocks(4, 9, 0.5)
    steps = [(step.iteration.iteration, step.iteration.objective) for step in history_of(messages.entries).steps]
    assert steps[:8] == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (5, None), (6, None), (7, None)]
    assert steps[8:] == [(3, 3.5), (4, 4.5), (5, 5.5), (6, None), (7, None), (8, None)]


@pytest.mark.parametrize("done", [99, 101])
def test_roll_back_within_an_iteration_removes_only_redone_clocks(done: int) -> None:
    """Whether it had come to its end, and had been told, or not."""
    messages = RecordedProgress(batches=100)
    messages.clocks(1, done)
    before = len(messages.lines)
    messages.rolled_back(97)
    messages.lines.insert(before, {"back": messages.seconds})
    messages.clocks(98, 210)
    messages.end()
    entries = [
        RollBackLogEntry(line["back"], 97, 1, 0)
        if "back" in line
        else Iteration(**{k: line[k] for k in line if k != "what"})
        for line in messages.lines
    ]
    remaining = history_of(entries).completed
    assert [(iteration.iteration, iteration.seconds, iteration.objective) for iteration in remaining] == [
        (0, 100.0, 0.0),
        (1, 100.0, 1.0),
    ]


class Counts(App[int]):
    """The objective of iteration i is i; every third has none."""

    shards, seed, stop = 2, 0, StoppingCriterion(clocks=24)
    tables = (Table("w", 4, 1),)

    def __init__(self, batches: int) -> None:
        self.batches = batches

    def load(self, shard: int) -> list[int]:
        return [shard] * self.batches

    def process(self, items: int, params: Params) -> Objective | None:
        iteration = (params.clock - 1) // self.batches
        return Objective(total=float(iteration), weight=1.0) if iteration % 3 else None


@pytest.mark.parametrize("rule", ["bsp", "ssp:3"])
@pytest.mark.parametrize("batches", [1, 2])
def test_objective_gets_its_own_iteration(rule: str, batches: int) -> None:
    """With staleness it is known later, and those of the last iterations not any more."""
    messages = RecordedProgress(batches, rule)

    def done(clock: ClockDone) -> None:
        messages.clock(
            clock.clock,
            is_leader=clock.is_leader,
            evaluated_iteration=clock.evaluated_iteration,
            objective=clock.objective,
        )

    app = Counts(batches)
    with store(job_layout(app, 1), parse_rule(rule)) as made:
        made.open(1)
        Worker(LoadedShards(app), made.client(0), range(app.shards), say=[].append, done=done).run()
    messages.end()
    late = -(-parse_rule(rule).apart // batches)
    wanted = [(i, float(batches), None if i % 3 == 0 or i >= 24 // batches - 1 - late else float(i))
              for i in range(24 // batches)]  # fmt: skip
    steps = history_of(messages.entries).completed
    assert [(step.iteration, step.seconds, step.objective) for step in steps] == wanted
