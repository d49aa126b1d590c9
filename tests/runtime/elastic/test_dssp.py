"""DSSP with real servers: SSP's promises, within the upper bound, whatever happens."""

import numpy as np
import pytest

from plink.elastic import StoppingCriterion, train
from plink.model.elastic.reports import ClockDone
from plink.model.rules.dssp import DSSP
from plink.runtime.elastic.worker.progress import job_layout
from plink.runtime.elastic.worker.steps import CLOCK, STEPS, WORKER
from plink.runtime.elastic.worker.worker import Assignment
from tests.runtime.elastic.small_app import Means
from tests.runtime.elastic.stepping import SHARDS, Counting, running, uneven
from tests.runtime.elastic.stores import store, together


@pytest.mark.parametrize("rule", [DSSP(0, 0), DSSP(1, 5), DSSP(3, 15)])
def test_every_clock_counts_once(rule: DSSP) -> None:
    app = Counting(uneven(3), 30)
    result = train(app, workers=4, servers=2, rule=rule)
    assert result.tables["count"][:, 0].tolist() == [30] * SHARDS
    assert all([items for items, _ in seen] == [turn % 3 for turn in range(30)] for seen in app.seen.values())


def test_learning_ends_where_the_data_is() -> None:
    app = Means(stop=StoppingCriterion(clocks=60))
    result = train(app, workers=3, rule=DSSP(1, 5))
    np.testing.assert_allclose(result.tables["m"][0], app.data.mean(axis=(0, 1, 2)), atol=0.3)
    assert result.tables["n"][:, 0].tolist() == [0, 60 * 8 * 21, 0, 0, 60 * 8]


@pytest.mark.parametrize("lower", [0, 2])
def test_workers_are_no_farther_apart_than_the_upper_bound(lower: int) -> None:
    app, upper = Counting(uneven(4), 40), 4
    with store(job_layout(app, 4), DSSP(lower, upper), servers=2) as made:
        made.open(2)
        apart: list[int] = []

        def note(clock: ClockDone) -> None:
            apart.append(first.assigned.begun - second.assigned.begun)

        first = running(app, made, 0, [0, 1, 2, 4], done=note)
        second = running(app, made, 1, [3, 5, 6, 7])
        together(first.run, second.run)
        assert made.state(0)[:, 0].tolist() == [40] * SHARDS
    assert max(apart) <= upper + 1  # the slow one may be about to begin its next clock


def test_steps_table_is_exact_after_shards_move() -> None:
    """Each row is of its latest clocks: two of them, which its last worker has written."""
    app = Counting(uneven(3), 24)
    with store(job_layout(app, 4), DSSP(2, 8), servers=2) as made:
        made.open(2)
        first, second = running(app, made, 0, [0, 1, 2, 4]), running(app, made, 1, [3, 5, 6, 7])
        for clock, shares in ((22, ((0, 3), (1, 2, 4, 5, 6, 7))), (24, ((0, 1, 2, 3, 4, 5, 6), (7,)))):
            for each, shards in zip((first, second), shares, strict=True):
                each.assigned.add(Assignment(clock, 0, shards))
        together(first.run, second.run)
        steps = made.state(made.config.layout.table("plink.steps")).reshape(SHARDS, 2, 5)
    assert steps[:, :, [STEPS, CLOCK]].tolist() == [[[24.0, 24.0], [23.0, 23.0]]] * SHARDS
    lowest = {shard: row[WORKER] - 1 for shard, row in enumerate(steps[:, 0]) if row[WORKER]}
    assert lowest == {0: 0, 7: 1}
