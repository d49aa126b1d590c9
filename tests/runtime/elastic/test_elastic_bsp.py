"""ElasticBSP: supersteps of as many steps as workers are fast, and BSP where there is one."""

import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from plink.elastic import Objective, Params, StoppingCriterion, Values, train
from plink.model.consistency import BSP, Rule, parse_rule
from plink.model.elastic.reports import ClockDone
from plink.model.rules.elastic_bsp import ElasticBSP
from plink.runtime.elastic.worker import steps, worker
from plink.runtime.elastic.worker.clock_work import LoadedShards
from plink.runtime.elastic.worker.primaries import Unanswered
from plink.runtime.elastic.worker.progress import job_layout
from plink.runtime.elastic.worker.worker import RELEASED, Assignment, Finished, Worker
from tests.runtime.elastic import stepping
from tests.runtime.elastic.small_app import Means
from tests.runtime.elastic.stepping import (
    MIXED,
    SHARDS,
    Counting,
    counted,
    running,
    uneven,
)
from tests.runtime.elastic.stores import PATIENCE_S, Store, store, together
from tests.runtime.elastic.test_apps import PROGRAMS, WORKERS


class MadeTime:
    """Seconds of each thread's own, which pass only where it sleeps."""

    def __init__(self) -> None:
        self._passed = threading.local()

    def seconds(self) -> float:
        result: float = getattr(self._passed, "seconds", 0.0)
        return result

    def sleep(self, seconds: float) -> None:
        self._passed.seconds = self.seconds() + seconds


@pytest.fixture(autouse=True)
def made_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine does meanwhile takes workers no time."""
    made = MadeTime()
    monkeypatch.setattr(worker, "time", SimpleNamespace(**(vars(time) | {"perf_counter": made.seconds})))
    for module in (stepping, sys.modules[__name__]):
        monkeypatch.setattr(module, "time", made)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_one_step_is_bsp_to_the_bit(program: str, workers: int) -> None:
    bsp, elastic = (
        train(PROGRAMS[program](10), workers=workers, servers=2, rule=rule).tables
        for rule in (BSP(), parse_rule("elastic-bsp:1"))
    )
    assert all(np.array_equal(bsp[name], elastic[name]) for name in bsp)


def disturbed(rule: Rule) -> dict[str, Values]:
    """What two workers learn in fifty clocks, with shards that move twice and a roll-back in between."""
    app, rolled = Means(stop=StoppingCriterion(clocks=50)), list[int]()
    with store(job_layout(app, 4), rule, servers=2) as made:
        made.open(2, history=True)

        def roll_back(clock: ClockDone) -> None:
            if clock.clock == 30 and not rolled:
                rolled.append(clock.clock)
                for server in made.servers:
                    server.roll_back(28, 1)

        first, second = (
            Worker(
                LoadedShards(app), made.client(number), shards, say=[].append, done=roll_back if number == 0 else None
            )
            for number, shards in enumerate(MIXED)
        )
        for clock, shares in ((10, ((0, 3), (1, 2, 4, 5, 6, 7))), (40, ((0, 1, 2, 3, 4, 5, 6), (7,)))):
            for each, shards in zip((first, second), shares, strict=True):
                each.assigned.add(Assignment(clock, 0, shards))
        together(first.run, second.run)
        assert rolled
        return {table.name: made.state(number) for number, table in enumerate(app.tables)}


def test_one_step_is_bsp_to_the_bit_with_moves_and_a_roll_back() -> None:
    bsp, elastic = disturbed(BSP()), disturbed(ElasticBSP(1))
    assert all(np.array_equal(bsp[name], elastic[name]) for name in bsp)
    assert bsp["n"][:, 0].tolist() == [0, 50 * 8 * 21, 0, 0, 50 * 8]


def test_fast_workers_do_more_steps() -> None:
    """One of four at a third of the speed: the others do about three steps where it does one."""
    app = Counting(uneven(3), 24)
    result = train(app, workers=4, servers=2, rule=ElasticBSP(15))
    counts = result.tables["count"][:, 0]
    assert counts.tolist() == [len(app.seen[shard]) for shard in range(SHARDS)]
    fast, slow = counts[[0, 1, 2, 4, 5, 6]], counts[[3, 7]]
    assert fast.min() > 2 * slow.max()
    assert 24 * SHARDS <= counts.sum() < 25.5 * SHARDS


@pytest.mark.parametrize("clocks", [1, 2, 7, 13])
@pytest.mark.parametrize("slow", [2, 5])
def test_no_more_than_one_mini_batch_of_every_shard_too_many(slow: int, clocks: int) -> None:
    """Every worker does a step in the last superstep, whatever little is left to do."""
    counts = train(Counting(uneven(slow), clocks), workers=4, rule=ElasticBSP(15)).tables["count"]
    assert clocks * SHARDS <= counts.sum() <= (clocks + 1) * SHARDS


def test_each_shard_goes_through_its_own_mini_batches() -> None:
    """In turn, with random numbers of their own, however many steps its worker does."""
    app = Counting(uneven(3), 12)
    train(app, workers=4, servers=2, rule=ElasticBSP(15))
    alone = Counting([0.0] * SHARDS, 24)
    train(alone, rule=BSP())
    for shard, seen in app.seen.items():
        assert seen == alone.seen[shard][: len(seen)]


def test_equal_work_takes_less_time_than_under_bsp() -> None:
    """A clock takes as long as its slowest worker."""
    seconds = []
    for rule in (BSP(), ElasticBSP(15)):
        app, clocks = Counting(uneven(2), 24), list[ClockDone]()
        with store(job_layout(app, 4), rule, servers=2) as made:
            made.open(4)
            workers = [running(app, made, number, [number, number + 4], done=clocks.append) for number in range(4)]
            together(*(each.run for each in workers))
        slowest = dict[int, float]()
        for done in clocks:
            slowest[done.clock] = max(slowest.get(done.clock, 0.0), done.compute_s)
        seconds.append(sum(slowest.values()))
    assert 0 < seconds[1] < 0.7 * seconds[0]


class Held(Counting):
    """Waits in a mini-batch of shard 0 until it is released."""

    def __init__(self, mini_batch: int) -> None:
        super().__init__([0.0] * SHARDS, 1000)
        self.mini_batch, self.begun, self.released = mini_batch, threading.Event(), threading.Event()

    def process(self, items: int, params: Params) -> Objective:
        if params.shard == 0 and len(self.seen[0]) == self.mini_batch:
            self.begun.set()
            assert self.released.wait(PATIENCE_S)
        return super().process(items, params)


def test_pause_ends_a_superstep_with_the_step_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 240 steps: shards that are to change hands do not wait for them."""
    monkeypatch.setattr(steps, "barrier", lambda ends: (0.0, np.full(len(ends), 240)))
    app = Held(mini_batch=3)  # from 0 on; clock 1 has one, as nobody knows yet how long it takes
    with store(job_layout(app, 4), ElasticBSP(240)) as made:
        made.open(1)
        alone = running(app, made, 0, list(range(SHARDS)), done=lambda done: done.clock == 2 and alone.assigned.end())

        def pause() -> None:
            assert app.begun.wait(PATIENCE_S)
            assert alone.assigned.pause(3) == 2
            app.released.set()

        finished, _ = together(alone.run, pause)
        assert finished == Finished(3, RELEASED)
        assert made.state(0)[:, 0].tolist() == [4] * SHARDS


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_unanswered_steps_are_resumed_and_each_counts_once(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clock 1 has a step, later ones four: no answer comes to the first, an inner one, or the last of a clock. Each
    clock is reported, with the seconds of all its steps."""
    monkeypatch.setattr(steps, "barrier", lambda ends: (0.0, np.full(len(ends), 4)))
    app = GivesUp(count, 17)
    with store(job_layout(app, 2), ElasticBSP(4)) as made:
        made.open(1)
        clocks = resumed(app, made)
        assert counted(app, made) < (17 + 2) * SHARDS
        objectives = made.state(made.config.layout.table("plink.objective"))
        assert objectives.sum(axis=0).tolist() == [made.state(0).sum()] * 2
        assert sum(done.steps for done in clocks[1:]) * SHARDS == made.state(0).sum()
    assert [done.evaluated_iteration for done in clocks[2:]] == list(range(len(clocks) - 2))


@pytest.mark.parametrize("count", range(1, 8))
def test_clock_with_an_unanswered_push_is_reported(count: int) -> None:
    """Under BSP, an iteration of three clocks: also its first, at which another one is evaluated, and its last."""
    app = GivesUp(count, 8)
    with store(job_layout(app, 2), BSP()) as made:
        made.open(1)
        clocks = resumed(app, made)
    assert [done.evaluated_iteration for done in clocks if done.clock % 3 == 1] == [None, 0, 1]
    assert [done.objective for done in clocks if done.clock % 3 == 1] == [None, 1.0, 1.0]


def resumed(app: "GivesUp", made: Store) -> list[ClockDone]:
    """Run one worker, which gives up and is run again; return the clocks that it reported: all of them, once."""
    clocks = list[ClockDone]()
    alone, client = running(app, made, 0, list(range(SHARDS)), done=clocks.append), made.clients[0]
    app.give_up = client.give_up
    with pytest.raises(Unanswered):
        alone.run()
    client._cancelled = False
    finished = alone.run()
    assert [done.clock for done in clocks] == list(range(finished.clock))
    assert all(done.compute_s == done.steps * sum(app.seconds) <= done.seconds for done in clocks[1:])
    return clocks


class GivesUp(Counting):
    """Its client gives up at the end of a mini-batch of the last shard."""

    def __init__(self, count: int, clocks: int) -> None:
        super().__init__(uneven(1), clocks)
        self.count, self.give_up = count, lambda: None

    def process(self, items: int, params: Params) -> Objective:
        result = super().process(items, params)
        if params.shard == SHARDS - 1 and len(self.seen[params.shard]) == self.count:
            self.give_up()
        return result


def test_job_ends_after_its_seconds() -> None:
    result = train(Means(stop=StoppingCriterion(seconds=0.3)), workers=3, servers=2, rule=ElasticBSP(15))
    assert result.finished.reason == "0.3 s are over"


@pytest.mark.parametrize("spec", ["elastic-bsp:0", "elastic-bsp:241"])
def test_steps_out_of_range_are_refused(spec: str) -> None:
    with pytest.raises(Exception, match="choose 1 to 240 steps"):
        parse_rule(spec)
