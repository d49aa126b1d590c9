"""Workers whose clocks have several steps, and what may befall them: shards that move, a roll-back, a takeover."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from plink.elastic import App, Objective, Params, StoppingCriterion, Table, Values
from plink.model.consistency import Rule
from plink.model.elastic.reports import ClockDone
from plink.runtime.elastic.worker.clock_work import LoadedShards
from plink.runtime.elastic.worker.progress import job_layout
from plink.runtime.elastic.worker.worker import Assignment, Finished, Worker
from tests.runtime.elastic.stores import Store, store, together

SHARDS = 8
MIXED = [0, 1, 2, 4], [3, 5, 6, 7]  # shards of two workers


class Counting(App[int]):
    """Counts the mini-batches of each shard, of which each takes its seconds; ``seen`` says which they were."""

    tables = (Table("count", SHARDS, 1, "int64"),)

    def __init__(self, seconds: list[float], clocks: int, batches: int = 3) -> None:
        self.shards, self.batches, self.stop = SHARDS, batches, StoppingCriterion(clocks=clocks)
        self.seconds = seconds
        self.seen: dict[int, list[tuple[int, float]]] = {shard: [] for shard in range(SHARDS)}

    def load(self, shard: int) -> list[int]:
        return list(range(self.batches))

    def process(self, items: int, params: Params) -> Objective:
        time.sleep(self.seconds[params.shard])
        self.seen[params.shard].append((items, float(params.random.random())))
        params.update("count", [params.shard], [[1]])
        return Objective(1.0, 1.0)


def uneven(slow: int) -> list[float]:
    """Seconds of a mini-batch of each shard, where one of four workers takes so many times as long."""
    return [2**-8 * (slow if shard % 4 == 3 else 1) for shard in range(SHARDS)]


def running(app: Counting, made: Store, number: int, shards: list[int], **more: Any) -> Worker[int]:
    """Return a worker."""
    return Worker(LoadedShards(app), made.client(number), shards, say=[].append, **more)


def counted(app: Counting, made: Store) -> int:
    """The servers' counts are the steps that the workers have written down, of at least the clocks that are wanted.
    Return their sum."""
    counts, steps = made.state(0)[:, 0], made.state(made.config.layout.table("plink.steps"))
    assert counts.tolist() == steps[:, [0, 5]].max(axis=1).tolist()
    assert app.stop.clocks is not None
    assert app.stop.clocks * SHARDS <= counts.sum()
    return int(counts.sum())


class Lost(Exception):
    """A worker is no more."""


class Broken(LoadedShards[int]):
    """Raises after some mini-batches."""

    def __init__(self, app: Counting, after: int) -> None:
        super().__init__(app)
        self.left = after

    def get(self, shard: int) -> Any:
        self.left -= 1
        if self.left < 0:
            raise Lost
        return super().get(shard)


def steps_with_moves(rule: Rule, app: Counting, moves: dict[int, Sequence[Sequence[int]]]) -> int:
    """Two workers whose shards change at some clocks. Return the sum of the counts, which are exact; each shard goes
    on where it was."""
    with store(job_layout(app, 4), rule, servers=2) as made:
        made.open(2)
        workers = [running(app, made, number, MIXED[number]) for number in range(2)]
        for clock, shares in moves.items():
            for each, shards in zip(workers, shares, strict=True):
                each.assigned.add(Assignment(clock, 0, tuple(shards)))
        together(*(each.run for each in workers))
        result = counted(app, made)
    for seen in app.seen.values():
        assert [items for items, _ in seen] == [number % app.batches for number in range(len(seen))]
    return result


def steps_with_roll_back(rule: Rule, app: Counting, back_to: int) -> int:
    """Two workers that are rolled back to a clock, once one of them has done clock 5. Return the sum of the counts,
    which are exact."""
    rolled: list[int] = []
    with store(job_layout(app, 4), rule, servers=2) as made:
        made.open(2, history=True)

        def roll_back(clock: ClockDone) -> None:
            stable = min(status.clocks[-1] for server in made.servers for status in server.status())
            if clock.clock >= 5 and stable >= back_to and not rolled:
                rolled.append(clock.clock)
                for server in made.servers:
                    server.roll_back(back_to, 1)

        first = running(app, made, 0, MIXED[0], done=roll_back)
        second = running(app, made, 1, MIXED[1])
        together(first.run, second.run)
        result = counted(app, made)
    assert rolled
    return result


def steps_with_takeover(rule: Rule, app: Counting) -> int:
    """Two workers of which one is lost between two steps; a stand-in begins its clock anew. Return the sum of the
    counts, which are exact: steps that the servers have already count once."""
    lost: list[Worker[int]] = []
    with store(job_layout(app, 4), rule, servers=2) as made:
        made.open(2)

        def fail(clock: ClockDone) -> None:
            if clock.clock == 2 and not lost:
                lost.append(first)
                first.loaded = Broken(app, after=9)

        first = running(app, made, 0, MIXED[0], done=fail)
        second = running(app, made, 1, MIXED[1])

        def with_stand_in() -> None:
            with pytest.raises(Lost):
                first.run()
            Worker(LoadedShards(app), made.client(0, clock=first._client.now), MIXED[0], say=[].append).run()

        together(with_stand_in, second.run)
        return counted(app, made)


def train_disturbed(
    app: App[Any], moved: Sequence[Sequence[int]], back: Mapping[int, int]
) -> tuple[dict[str, Values], Finished]:
    """Train with two workers whose shards are these from clock 4 on, and that all roll back at some clocks to others.
    Return the tables, and how the first worker ended."""
    rolled: list[int] = []
    with store(job_layout(app, 4), servers=2) as made:
        made.open(2, history=True)

        def disturb(clock: ClockDone) -> None:
            if clock.clock == 2 and not rolled:
                for each, shards in zip((first, second), moved, strict=True):
                    each.assigned.add(Assignment(4, 0, tuple(shards)))
            if clock.clock in back and clock.clock not in rolled:
                rolled.append(clock.clock)
                for server in made.servers:
                    server.roll_back(back[clock.clock], len(rolled))

        first = Worker(LoadedShards(app), made.client(0), [0, 1], say=[].append, done=disturb)
        others = list(range(2, sum(map(len, moved))))
        second = Worker(LoadedShards(app), made.client(1), others, say=[].append)
        ended, _ = together(first.run, second.run)
        assert rolled == list(back)
        return {table.name: made.state(number) for number, table in enumerate(app.tables)}, ended
