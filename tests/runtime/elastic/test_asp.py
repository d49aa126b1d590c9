"""ASP: nobody waits, clocks go by time, and what the elastic machinery needs of clocks holds all the same."""

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from plink.elastic import Objective, Params, StoppingCriterion, train
from plink.model.rules.asp import ASP
from plink.runtime.elastic.worker.steps import TimedPlanner
from tests.runtime.elastic.small_app import Means
from tests.runtime.elastic.stepping import (
    SHARDS,
    Counting,
    steps_with_moves,
    steps_with_roll_back,
    steps_with_takeover,
    uneven,
)

QUICK = ASP(0.1)


class Held(Counting):
    """Worker 1's shards, the odd ones, take no step before the others have done so many."""

    def __init__(self, most: int, clocks: int) -> None:
        super().__init__([0.002] * SHARDS, clocks)
        self.most = most

    def process(self, items: int, params: Params) -> Objective:
        if params.shard % 2:
            end = time.monotonic() + 20
            while len(self.seen[0]) < self.most and time.monotonic() < end:
                time.sleep(0.001)
        return super().process(items, params)


def test_slow_worker_delays_no_other() -> None:
    """A worker does sixty steps while another one does its first."""
    app = Held(60, 40)
    result = train(app, workers=2, servers=2, rule=ASP(2.0))
    counts = result.tables["count"][:, 0]
    assert counts.tolist() == [len(app.seen[shard]) for shard in range(SHARDS)]
    assert counts[0] >= 60
    assert counts.sum() >= 40 * SHARDS


def test_mini_batches_of_a_shard_are_in_order() -> None:
    app = Counting(uneven(3), 12)
    train(app, workers=4, servers=2, rule=QUICK)
    alone = Counting([0.0] * SHARDS, 100)
    train(alone)
    for shard, seen in app.seen.items():
        assert seen == alone.seen[shard][: len(seen)]


@pytest.mark.parametrize("stop", [StoppingCriterion(seconds=0.6), StoppingCriterion(clocks=60)])
def test_job_ends_by_each_criterion(stop: StoppingCriterion) -> None:
    app = Means(stop=stop)
    result = train(app, workers=3, servers=2, rule=QUICK)
    np.testing.assert_allclose(result.tables["m"][0], app.data.mean(axis=(0, 1, 2)), atol=0.3)
    assert result.finished.reason == (f"{stop.clocks} clocks are done" if stop.clocks else f"{stop.seconds} s are over")


@pytest.mark.parametrize("back_to", [3, 0])
def test_roll_back_amid_steps(back_to: int) -> None:
    steps_with_roll_back(QUICK, Counting(uneven(4), 60), back_to)


def test_worker_taken_over_amid_steps() -> None:
    steps_with_takeover(QUICK, Counting(uneven(4), 60))


def test_shards_that_move_go_on_where_they_were() -> None:
    moves = {3: ((0, 3), (1, 2, 4, 5, 6, 7)), 5: ((0, 1, 2, 3, 4, 5, 6), (7,))}
    steps_with_moves(QUICK, Counting(uneven(3), 40), moves)


class Table:
    """What a planner reads: the steps of two workers, one of which leads."""

    def __init__(self) -> None:
        self.steps, self.seconds = 0, 0.0

    def read(self, anew: bool = False) -> None:
        pass

    @property
    def latest(self) -> Any:
        return np.array([[0.0, 0.0, self.seconds, 0.0, 0.0]])

    def clocks_done(self) -> int:
        return self.steps

    def before(self, shards: Any) -> dict[int, int]:
        return dict.fromkeys(shards, 0)


def planned(clock_s: float, shards: list[int], most: int | None = None) -> tuple[Any, Any, Any, list[float]]:
    """A plan, its planner, its table and client, and a watch."""
    watch, table, client = [0.0], Table(), SimpleNamespace(now=7, latest_finished=6)
    planner = TimedPlanner(client, table, clock_s, lambda: watch[0])  # type: ignore[arg-type]
    return planner.plan(shards, most), (planner, table), client, watch


def test_leader_ends_its_clock_after_its_time() -> None:
    plan, _, _, watch = planned(2.0, [0, 1])
    assert not plan.over(0)
    watch[0] = 1.9
    assert not plan.over(5)
    watch[0] = 2.0
    assert plan.over(6)


def test_clock_is_no_shorter_than_the_slowest_step() -> None:
    watch, table, client = [0.0], Table(), SimpleNamespace(now=7, latest_finished=6)
    table.seconds = 5.0
    plan = TimedPlanner(client, table, 2.0, lambda: watch[0]).plan([0], None)  # type: ignore[arg-type]
    watch[0] = 4.9
    assert not plan.over(3)
    watch[0] = 5.0
    assert plan.over(3)


def test_first_finished_clock_ends_those_of_other_workers() -> None:
    """Without a step where they are behind by more."""
    plan, _, client, watch = planned(2.0, [1])
    watch[0] = 1000.0
    assert not plan.over(4)
    client.latest_finished = 7
    assert plan.over(4)
    assert plan.over(0)


def test_leader_ends_the_job_when_the_work_is_done() -> None:
    plan, (planner, table), _, watch = planned(2.0, [0], 10)
    table.steps, watch[0] = 9, 0.5
    assert not plan.over(1)
    table.steps, watch[0] = 10, 1.0
    assert plan.over(2)
    assert planner.done


def test_clocks_have_no_steps_once_the_job_stops() -> None:
    plan, (planner, _), _, _ = planned(2.0, [0])
    planner.stopping = True
    assert plan.over(0)
