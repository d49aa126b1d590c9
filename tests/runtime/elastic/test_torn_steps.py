"""A worker is lost while it pushes: one of two partitions has the update. Who takes over leaves no mini-batch that
counts in one partition only, wherever the clock was to end."""

import numpy as np
import pytest

from plink.elastic import App, Objective, Params, StoppingCriterion, Table
from plink.model.consistency import BSP, SSP, Rule
from plink.model.elastic.reports import ClockDone
from plink.model.rules.elastic_bsp import ElasticBSP
from plink.runtime.elastic.worker import steps
from plink.runtime.elastic.worker.client import Client
from plink.runtime.elastic.worker.clock_work import LoadedShards
from plink.runtime.elastic.worker.primaries import PrimaryAddress, Timeouts, Unanswered
from plink.runtime.elastic.worker.progress import job_layout
from plink.runtime.elastic.worker.worker import Assigned, Worker
from tests.runtime.elastic.stores import PATIENCE_S, Store, store, together

SHARDS, PARTITIONS, STEPS, TORN_CLOCK = 4, 2, 5, 3
SHARES = (0, 1), (2, 3)
UNREACHABLE = PrimaryAddress("127.0.0.1:9", term=99)


class CountingElsewhere(App[int]):
    """Counts the mini-batches of each shard in the partition that does not have the shard's row of steps."""

    tables = (Table("count", SHARDS, 1, "int64"),)
    shards, batches, stop = SHARDS, 2, StoppingCriterion(clocks=40)

    def load(self, shard: int) -> list[int]:
        return [0, 1]

    def process(self, items: int, params: Params) -> Objective:
        params.update("count", [(params.shard + 1) % SHARDS], [[1]])
        return Objective(1.0, 1.0)


class LosingClient(Client):
    """Loses a partition when it pushes step ``step``, from 1 on, of clock :data:`TORN_CLOCK`; ``cut_short``: its worker
    is asked before to end the clock with this step."""

    def __init__(self, made: Store, partition: int, step: int, cut_short: bool) -> None:
        self.partition, self.torn, self.cut_short = partition, (TORN_CLOCK, step - 1), cut_short
        self.timeouts, self.assigned = Timeouts(PATIENCE_S, PATIENCE_S), Assigned(SHARES[0])
        super().__init__(made.config, 0, made.primaries, timeouts=self.timeouts)
        made.clients.append(self)

    def push(self, last: bool = True) -> None:
        if (self.now, self.step) == self.torn:
            self.set_primary(self.partition, UNREACHABLE)
            object.__setattr__(self.timeouts, "primary_s", 0.1)  # of what it is connected to they stay
        super().push(last)
        if self.cut_short and (self.now, self.step) == self.torn:
            self.assigned.pause(TORN_CLOCK + 1)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Barriers are after as many steps of each, whatever time they take."""
    monkeypatch.setattr(steps, "barrier", lambda ends: (0.0, np.full(len(ends), STEPS)))


def torn(rule: Rule, partition: int, step: int, cut_short: bool, successor_cut_short: bool) -> list[tuple[int, int]]:
    """Of each shard, how many mini-batches are counted, and how many steps it is said to have had."""
    app = CountingElsewhere()
    with store(job_layout(app, PARTITIONS), rule, servers=2) as made:
        made.open(2)
        lost = LosingClient(made, partition, step, cut_short)

        def with_successor() -> None:
            with pytest.raises(Unanswered):
                Worker(LoadedShards(app), lost, lost.assigned, say=[].append).run()
            assert (lost.now, lost.step) == lost.torn
            assigned = Assigned(SHARES[0])
            if successor_cut_short:
                assigned.pause(TORN_CLOCK + 1)

            def resume(done: ClockDone) -> None:
                assigned.resume()

            client = made.client(0, clock=TORN_CLOCK)
            Worker(LoadedShards(app), client, assigned, say=[].append, done=resume).run()

        other = Worker(LoadedShards(app), made.client(1), SHARES[1], say=[].append)
        together(with_successor, other.run)
        counts, steps = made.state(0)[:, 0], made.state(made.config.layout.table("plink.steps"))[:, [0, 5]].max(axis=1)
        return [(int(counts[(shard + 1) % SHARDS]), int(steps[shard])) for shard in range(SHARDS)]


@pytest.mark.usefixtures("plans")
@pytest.mark.parametrize("partition", range(PARTITIONS))
@pytest.mark.parametrize("step", [1, 3, STEPS])
@pytest.mark.parametrize(("cut_short", "successor_cut_short"), [(False, True), (True, False), (True, True)])
def test_lost_in_a_push_of_a_superstep(partition: int, step: int, cut_short: bool, successor_cut_short: bool) -> None:
    counted = torn(ElasticBSP(15), partition, step, cut_short, successor_cut_short)
    assert all(count == steps for count, steps in counted)
    assert len({count for count, _ in counted[:2]}) == len({count for count, _ in counted[2:]}) == 1


@pytest.mark.parametrize("partition", range(PARTITIONS))
@pytest.mark.parametrize("rule", [BSP(), SSP(1), ElasticBSP(1)])
def test_lost_in_a_push_of_a_clock_of_one_step(rule: Rule, partition: int) -> None:
    counted = torn(rule, partition, 1, cut_short=True, successor_cut_short=True)
    assert [count for count, _ in counted] == [CountingElsewhere.stop.clocks] * SHARDS
