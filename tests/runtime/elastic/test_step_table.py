"""The table of steps and the plans made from it, without servers: what a worker reads is what all have written."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from plink.runtime.elastic.worker.steps import SECONDS, STEPS, StepTable, SuperstepPlanner

SHARDS = 4


class FakeClient:
    """One of several workers of one table; what it adds is there at once."""

    def __init__(self, values: np.ndarray, worker: int, now: int) -> None:
        self.values, self.worker, self.now, self.generation = values, worker, now, 0

    def read(self, table: str, rows: Sequence[int], *, own: bool) -> np.ndarray:
        return self.values[np.asarray(rows)]

    def update(self, table: str, rows: Sequence[int], deltas: np.ndarray) -> None:
        self.values[np.asarray(rows)] += deltas

    def forget_fetched(self, table: str) -> None:
        pass


class Pair:
    """Two workers of two shards each, at one clock."""

    def __init__(self, now: int = 1, most_steps: int = 15) -> None:
        self.values = np.zeros((SHARDS, 10))
        self.clients = [FakeClient(self.values, worker, now) for worker in range(2)]
        self.planners = [
            SuperstepPlanner(client, StepTable(client, SHARDS), most_steps)  # type: ignore[arg-type]
            for client in self.clients
        ]

    def superstep(self, *seconds: float, most_clocks: int | None = None) -> list[int]:
        """Both do their steps, which take so many seconds each; return how many."""
        plans = [planner.plan([2 * k, 2 * k + 1], most_clocks) for k, planner in enumerate(self.planners)]
        steps = [next(count for count in range(1, 99) if plan.over(count)) for plan in plans]
        for planner, plan, count, each in zip(self.planners, plans, steps, seconds, strict=True):
            for done in range(1, count + 1):
                planner.table.note(plan.before, done, each)
        for client in self.clients:
            client.now += 1
        return steps

    def done(self) -> list[int]:
        """Steps of each shard."""
        table = StepTable(self.clients[0], SHARDS)  # type: ignore[arg-type]
        table.read()
        return [int(steps) for steps in table.latest[:, STEPS]]


@pytest.mark.parametrize(
    ("seconds", "noted"), [(0.0, 1e-3), (-1.0, 1e-3), (math.nan, 1e-3), (1e9, 600.0), (math.inf, 600.0)]
)
def test_invalid_step_times_are_bounded(seconds: float, noted: float) -> None:
    """Zero, a clock that went back, no number, three years, or for ever."""
    pair = Pair()
    pair.superstep(seconds, 1.0)
    pair.planners[1].table.read()
    assert pair.planners[1].table.previous[0, SECONDS] == noted
    steps = pair.superstep(1.0, 1.0)
    assert 1 <= min(steps) <= max(steps) <= 15


@pytest.mark.parametrize("first", [0, 1])
def test_checkpoint_of_another_rule_has_a_step_a_clock(first: int) -> None:
    """Whoever begins first: the job was at clock 40 without a table of steps."""
    pair = Pair(now=41)
    plans: list[Any] = [None, None]
    for worker in (first, 1 - first):
        plans[worker] = pair.planners[worker].plan([2 * worker, 2 * worker + 1], 100)
        assert set(plans[worker].before.values()) == {40}
        pair.planners[worker].table.note(plans[worker].before, 1, 1.0)
    assert not pair.planners[0].finished(41)
    for client in pair.clients:
        client.now += 1
    assert pair.planners[0].finished(41)
    assert pair.done() == [41] * SHARDS


def test_clock_done_again_counts_once() -> None:
    """With fewer steps than the first time, after its worker was lost."""
    pair = Pair()
    pair.superstep(1.0, 1.0)
    plan = pair.planners[0].plan([0, 1], None)
    for done in (1, 2, 3):
        pair.planners[0].table.note(plan.before, done, 1.0)
    pair.planners[0].table.forget()
    again = pair.planners[0].plan([0, 1], None)
    assert again.before == plan.before
    pair.planners[0].table.note(again.before, 1, 1.0)
    assert pair.done()[:2] == [2, 2]
