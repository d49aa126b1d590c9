"""Real workers that help a slow one: what is learnt is what undisturbed workers learn."""

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from plink.elastic import App, AppError, Objective, Params, Rebalance, StoppingCriterion, Table, train
from plink.errors import UsageError
from plink.model.consistency import SSP, Rule, parse_rule
from plink.model.rules.dssp import DSSP
from tests.runtime.elastic.test_apps import elastic_lda

CLOCKS, SHARDS, GRAINS, SLOW = 6, 6, 6, 1
ALLOWANCE_S = 5.0  # of a clock, that nobody waits for unless no help comes


class Helped(App[int]):
    """The grains of worker 1 take long until a helper has begun one of its clock's."""

    tables = (Table("n", SHARDS, 2, "int64"), Table("m", 5, 2, "float64"))
    shards, grains, seed, stop = SHARDS, GRAINS, 4, StoppingCriterion(clocks=CLOCKS)

    def __init__(self, fails: Callable[[str, Params], None] = lambda name, params: None) -> None:
        self.helped = {clock: threading.Event() for clock in range(1, CLOCKS + 1)}
        self.begun: dict[int, float] = {}
        self._fails = fails

    def load(self, shard: int) -> Sequence[int]:
        return [shard]

    def part(self, items: int, grain: int) -> int:
        return items

    def process(self, items: int, params: Params) -> Objective:
        name, clock = threading.current_thread().name, params.clock
        m = params.read("m")
        if name.startswith("plink-helper-"):
            self.helped[clock].set()
        elif name == f"plink-worker-{SLOW}":
            until = self.begun.setdefault(clock, time.monotonic()) + ALLOWANCE_S
            self.helped[clock].wait(min(0.3, max(0.0, until - time.monotonic())))
        self._fails(name, params)
        params.update("n", [items, items], [[1, params.grain], [0, params.random.integers(9)]])
        params.update("m", None, 0.02 * (1 - m) + 0.01 * params.random.normal(size=m.shape))
        return Objective(float((1 - m).sum()), 2)


def expected_counts() -> np.ndarray:
    """What table ``n`` must be."""
    result = np.zeros((SHARDS, 2), dtype=np.int64)
    for shard in range(SHARDS):
        for clock in range(1, CLOCKS + 1):
            for grain in range(GRAINS):
                random = np.random.default_rng((Helped.seed, shard, clock, grain))
                result[shard] += (1, grain + random.integers(9))
    return result


@pytest.mark.parametrize("rule", [None, SSP(1), DSSP(0, 3)], ids=["bsp", "ssp:1", "dssp:0:3"])
def test_slow_worker_is_helped_and_nothing_counts_twice(rule: Rule | None) -> None:
    trained = train(Helped(), workers=3, servers=2, rule=rule, rebalance=Rebalance())
    assert trained.moved > 0
    assert (trained.tables["n"] == expected_counts()).all()


def test_helped_bsp_learns_what_bsp_does() -> None:
    alone = train(Helped(), workers=1)
    helped = train(Helped(), workers=3, servers=2, rebalance=Rebalance())
    assert helped.moved > 0
    np.testing.assert_allclose(helped.tables["m"], alone.tables["m"], rtol=1e-12)
    np.testing.assert_allclose(helped.objectives, alone.objectives, rtol=1e-12)


@pytest.mark.extended
@pytest.mark.parametrize("rule", [SSP(2), DSSP(1, 4)], ids=["ssp:2", "dssp:1:4"])
def test_shard_state_stays_consistent_under_staleness(rule: Rule) -> None:
    """A helper sees what the worker itself has added at its last clock."""
    data = elastic_lda.made(documents=300, vocabulary=200, length=40, topics=5, seed=1)
    app = elastic_lda.TopicModel(data, 5, StoppingCriterion(clocks=12), shards=24, seed=2)
    trained = train(app, workers=3, servers=2, rule=rule, rebalance=Rebalance(trigger=0.01, report=0.1))
    words, total = trained.tables["words"], trained.tables["topics"][0]
    assert (words.sum(axis=0) == total).all()
    assert words.min() >= 0
    assert total.sum() == np.count_nonzero(trained.tables["tokens"]) > 0


class Weighed(Helped):
    """Says what its grains cost: of each shard's the first most."""

    def __init__(self, cost: Callable[[int], float]) -> None:
        super().__init__()
        self.requested: set[tuple[int, int]] = set()
        self._cost = cost

    def cost(self, items: int, grain: int) -> float:
        self.requested.add((items, grain))
        return self._cost(grain)


def test_costs_of_grains_decide_what_is_given_away_and_not_what_is_learnt() -> None:
    app = Weighed(lambda grain: 1.0 if grain else 4.0)
    trained = train(app, workers=3, servers=2, rebalance=Rebalance())
    assert trained.moved > 0
    assert (trained.tables["n"] == expected_counts()).all()
    assert app.requested == {(shard, grain) for shard in range(SHARDS) for grain in range(GRAINS)}


@pytest.mark.parametrize("cost", [0.0, -1.0, float("nan"), float("inf"), "much"])
def test_cost_that_cannot_be_ends_the_job(cost: float) -> None:
    with pytest.raises(AppError, match=r"cost\(\) of shard \d, grain \d"):
        train(Weighed(lambda grain: cost), workers=2, rebalance=Rebalance())


def test_cost_is_not_called_without_helpers() -> None:
    app = Weighed(lambda grain: 0.0)
    train(app, workers=1)
    assert not app.requested


@pytest.mark.parametrize("what", ["raises", "nan"])
def test_a_helper_that_fails_costs_only_its_help(what: str) -> None:
    def fail(name: str, params: Params) -> None:
        if name.startswith("plink-helper-"):
            if what == "raises":
                raise ValueError("as was requested")
            params.update("m", [0], [[np.nan, 0.0]])

    trained = train(Helped(fail), workers=3, rebalance=Rebalance())
    assert trained.moved == 0
    assert (trained.tables["n"] == expected_counts()).all()


def test_overflowing_sums_end_the_job() -> None:
    """Helpers' sums alone are not, nor is what the worker itself has added."""
    largest = np.iinfo(np.int64).max // (SHARDS * GRAINS // 3 - 1)

    def add(name: str, params: Params) -> None:
        if params.clock == 3 and params.shard % 3 == SLOW:
            params.update("n", [0], [[largest, 0]])

    with pytest.raises(AppError, match=r"row 0: with what worker 1 adds at clock 3 there is more than int64 has room"):
        train(Helped(add), workers=3, rebalance=Rebalance())


def test_an_error_of_the_program_ends_the_job_as_without_helpers() -> None:
    def fail(name: str, params: Params) -> None:
        if params.shard == SLOW and params.clock == 3:
            raise ValueError("as was requested")

    with pytest.raises(AppError, match=r"process\(\) of shard 1, grain \d, at clock 3 raised ValueError"):
        train(Helped(fail), workers=3, rebalance=Rebalance())


def test_invalid_settings_are_refused() -> None:
    for name, value in (("helpers", 0), ("helpers", 100), ("trigger", 0.0), ("initial", 1.5), ("redo_least_s", 0.0)):
        with pytest.raises(UsageError):
            Rebalance(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="--rebalance goes with"):
        train(Helped(), workers=2, rule=parse_rule("elastic-bsp:4"), rebalance=Rebalance())
