"""ASP: nobody waits, clocks go by time, and what the elastic machinery needs of clocks holds all the same."""

import time

import numpy as np
import pytest

from plink.elastic import Objective, Params, StoppingCriterion, train
from plink.model.rules.asp import ASP
from tests.runtime.elastic.small_app import Means
from tests.runtime.elastic.stepping import (
    SHARDS,
    Counting,
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
