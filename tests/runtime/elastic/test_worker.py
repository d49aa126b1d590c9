"""The loop of a worker: the same result however the shards are spread, move and are redone."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from plink.elastic import App, Objective, Params, StoppingCriterion, TrainingResult, train
from plink.errors import PlinkError
from plink.model.consistency import BSP, SSP, Rule
from plink.model.elastic.reports import ClockDone
from plink.runtime.elastic.worker.clock_work import LoadedShards
from plink.runtime.elastic.worker.primaries import Timeouts, Unanswered
from plink.runtime.elastic.worker.progress import job_layout
from plink.runtime.elastic.worker.worker import Assignment, Finished, Worker, folded
from tests.runtime.elastic.small_app import Means
from tests.runtime.elastic.stores import HANGS_S, PATIENCE_S, PATIENT, Store, store, together


def worker(
    made: Store, app: App[Any], number: int, shards: range | list[int], clock: int = 0, *,
    done: Callable[[ClockDone], None] | None = None, lines: list[str] | None = None,
) -> Worker[Any]:  # fmt: skip
    """One that says its lines into a list."""
    say = (lines if lines is not None else []).append
    return Worker(LoadedShards(app), made.client(number, clock=clock), shards, say=say, done=done)


def same(made: Store, app: Means, wanted: TrainingResult) -> None:
    """Whether the servers have what an undisturbed run gives: counts exactly, the rest to rounding."""
    for number, table in enumerate(app.tables):
        np.testing.assert_allclose(made.state(number), wanted.tables[table.name], rtol=1e-9, atol=1e-12)
    assert (made.state(1) == wanted.tables["n"]).all()


def test_any_number_of_workers_gives_the_same_under_bsp() -> None:
    item, many = train(Means()), train(Means(), workers=3, servers=2)
    for name, values in item.tables.items():
        np.testing.assert_allclose(many.tables[name], values, rtol=1e-9, atol=1e-12)
    assert (many.tables["n"] == item.tables["n"]).all()
    np.testing.assert_allclose(many.objectives, item.objectives)
    assert len(item.objectives) == 5
    # The last iteration's objective was taken with the parameters that the steps before led to: the mean, nearly.
    assert item.finished == many.finished == Finished(11, "10 clocks are done")


def test_counts_and_objective_are_what_the_data_say() -> None:
    app = Means(stop=StoppingCriterion(clocks=2 * 2))
    trained = train(app, workers=3)
    assert trained.tables["n"][:, 0].tolist() == [0, 4 * 8 * 21, 0, 0, 4 * 8]
    assert trained.objectives[0] == pytest.approx(
        np.mean([((app.data[:, 0]) ** 2).sum(axis=2).mean(),
                 ((app.data[:, 1] - app.data[:, 0].mean(axis=(0, 1))) ** 2).sum(axis=2).mean()])
    )  # fmt: skip


def test_a_worker_with_nothing_to_do_holds_nobody_up() -> None:
    few = train(Means(shards=2), workers=4)
    np.testing.assert_allclose(few.tables["m"], train(Means(shards=2)).tables["m"])


def test_shards_that_move_change_nothing() -> None:
    app = Means(stop=StoppingCriterion(clocks=12))
    lines: list[str] = []
    with store(job_layout(app, 4), servers=2) as made:
        made.open(3)

        def move(clock: ClockDone) -> None:  # worker 0 is at the end of clock 4: nobody has begun clock 6
            if clock.clock == 4:
                first.assigned.add(Assignment(6, 0, (1, 2)))
                second.assigned.add(Assignment(6, 0, (0, 3, 4, 5, 6)))
                third.assigned.add(Assignment(6, 0, (7,)))

        first = worker(made, app, 0, [0, 1, 2], done=move, lines=lines)
        second, third = worker(made, app, 1, [3, 4, 5]), worker(made, app, 2, [6, 7])
        together(first.run, second.run, third.run)
        same(made, app, train(app))
    assert lines == [
        "clock 0: worker 0 has shards 0-2, 3 of 8; the global batch stays the same, 1/2 of all shards",
        "clock 6: worker 0 has shards 1-2 (it had 0-2), 2 of 8; the global batch stays the same, 1/2 of all shards",
    ]


def test_workers_that_join_and_leave_change_nothing() -> None:
    app = Means(stop=StoppingCriterion(clocks=12))
    with store(job_layout(app, 4), servers=2) as made:
        made.open(2)

        cached = threading.Event()

        def change(clock: ClockDone) -> None:  # worker 1 is at clock 4 or 5
            if clock.clock == 4:
                for partition in range(4):
                    made.holding(partition).workers_from(partition, [0, 2], 7)
                second.assigned.add(Assignment(7, 0, None))
                cached.set()

        first = worker(made, app, 0, range(4), done=change)
        second, third = worker(made, app, 1, range(4, 8)), worker(made, app, 2, range(4, 8), clock=7)
        third.loaded.ahead([4, 5, 6, 7])
        loaded = len(app.loads)

        def join() -> Finished:
            assert cached.wait(HANGS_S)
            return third.run()

        ended = together(first.run, second.run, join)
        assert ended[1] == Finished(7, "released")
        assert ended[0] == ended[2] == Finished(13, "12 clocks are done")
        assert loaded == 4
        assert sorted(app.loads) == sorted([*range(8), 4, 5, 6, 7])
        same(made, app, train(app))


@pytest.mark.parametrize("back_to", [5, 0])
def test_a_roll_back_gives_the_undisturbed_result(back_to: int) -> None:
    app, lines = Means(stop=StoppingCriterion(clocks=12)), list[str]()
    with store(job_layout(app, 4), servers=2) as made:
        made.open(2, history=True)
        rolled: list[int] = []

        def roll_back(clock: ClockDone) -> None:
            if clock.clock == 7 and not rolled:
                rolled.append(clock.clock)
                for server in made.servers:
                    server.roll_back(back_to, 1)

        first = worker(made, app, 0, range(3), done=roll_back, lines=lines)
        second = worker(made, app, 1, range(3, 8))
        together(first.run, second.run)
        same(made, app, train(app))
    assert any(f"rolled back to clock {back_to}, generation 1" in line for line in lines)


class Distrustful(Means):
    """The parameters are rolled back while it works, and it makes something of its own of every error."""

    def __init__(self, roll_back: Callable[[], None]) -> None:
        super().__init__(stop=StoppingCriterion(clocks=8))
        self.roll_back, self.errors = roll_back, 0

    def process(self, items: np.ndarray, params: Params) -> Objective:
        if (params.clock, params.shard) == (5, 3) and not self.errors:
            self.roll_back()
            try:
                params.read("r")  # no shard has read it at this clock
            except PlinkError as error:
                self.errors += 1
                raise RuntimeError("not my fault") from error
        return super().process(items, params)


def test_a_program_cannot_hide_a_roll_back() -> None:
    app = Distrustful(lambda: made.servers[0].roll_back(3, 1))
    with store(job_layout(app, 4)) as made:
        made.open(1, history=True)
        worker(made, app, 0, range(8)).run()
        assert app.errors == 1
        same(made, app, train(Means(stop=StoppingCriterion(clocks=8))))


def test_roll_back_restores_shards_unless_reassigned() -> None:
    app = Means(stop=StoppingCriterion(clocks=12))
    with store(job_layout(app, 4), servers=2) as made:
        made.open(2, history=True)
        rolled: list[int] = []

        def change(clock: ClockDone) -> None:
            if clock.clock == 3 and not rolled:
                first.assigned.add(Assignment(5, 0, (0,)))
                second.assigned.add(Assignment(5, 0, tuple(range(1, 8))))
            if clock.clock == 8 and not rolled:
                rolled.append(8)
                first.assigned.add(Assignment(5, 1, (6, 7)))
                second.assigned.add(Assignment(5, 1, tuple(range(6))))
                for server in made.servers:
                    server.roll_back(2, 1)

        first = worker(made, app, 0, range(3), done=change)
        second = worker(made, app, 1, range(3, 8))
        together(first.run, second.run)
        assert first._had == (6, 7)
        same(made, app, train(app))


def test_timed_out_wait_can_be_resumed() -> None:
    app = Means(stop=StoppingCriterion(clocks=4))
    with store(job_layout(app, 2)) as made:
        made.open(2)
        client = made.client(0, timeouts=Timeouts(PATIENCE_S, 0.5))
        first = Worker(LoadedShards(app), client, range(4), say=[].append)
        second = worker(made, app, 1, range(4, 8))
        with pytest.raises(Unanswered, match="waits for the updates of workers 1"):
            first.run()
        client._timeouts = PATIENT
        together(first.run, second.run)
        same(made, app, train(app))


def test_convergence_ends_all_at_the_same_clock() -> None:
    stop = StoppingCriterion(clocks=500, patience=2, tolerance=1e-6)
    item, four = train(Means(stop=stop)), train(Means(stop=stop), workers=4)
    assert item.finished == four.finished
    assert item.finished.reason == "2 iterations did not improve the objective"
    assert item.finished.clock < 20
    assert stop.converged(item.objectives)
    assert (four.tables["n"] == item.tables["n"]).all()


def test_the_ring_of_objectives_goes_round() -> None:
    app = Means(shards=2, batches=1, stop=StoppingCriterion(clocks=140))
    objectives = train(app, workers=2).objectives
    assert len(objectives) == 31
    np.testing.assert_allclose(objectives, objectives[0], rtol=1e-9)


@pytest.mark.parametrize("rule", [BSP(), SSP(2)])
def test_time_that_is_over_ends_all_at_the_same_clock(rule: Rule) -> None:
    trained = train(Means(stop=StoppingCriterion(seconds=1e-6)), workers=3, rule=rule)
    # Decided at clock 1, seen by all before the first clock that needs the state of clock 1.
    assert trained.finished.clock == (2 if rule == BSP() else 4)
    assert trained.tables["n"][4] == 8 * (trained.finished.clock - 1)


def test_staleness_loses_nothing() -> None:
    trained = train(Means(stop=StoppingCriterion(clocks=40)), workers=3, rule=SSP(3))
    assert trained.tables["n"][4] == 8 * 40
    np.testing.assert_allclose(
        trained.tables["r"], train(Means(stop=StoppingCriterion(clocks=40))).tables["r"], rtol=1e-9
    )


def test_shards_that_are_none() -> None:
    app = Means()
    with store(job_layout(app, 2)) as made:
        made.open(1)
        for shards in ([8], [-1], [1, 1]):
            with pytest.raises(PlinkError, match="of which there are 0 to 7, each once"):
                worker(made, app, 0, shards)
        first = worker(made, app, 0, range(8))
        first.run()
        with pytest.raises(PlinkError, match="shards cannot change at clock 10: clock 10 has begun"):
            first.assigned.add(Assignment(10, 0, (1,)))
        with pytest.raises(PlinkError, match="clock 10 has begun"):
            first.assigned.add(Assignment(4, 0, None))


def test_runs_are_folded() -> None:
    assert folded([]) == "none"
    assert folded([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
