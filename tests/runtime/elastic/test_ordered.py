"""Ordered: an update that is too old is dropped, whatever happened to its partition meanwhile, and counts as a step."""

import time
from collections.abc import Iterator

import numpy as np
import pytest

from plink.elastic import Objective, Params, Table, train
from plink.model.elastic.fields import UpdateCounts
from plink.model.rules.asp import ASP
from plink.model.rules.ordered import Ordered
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.worker.client import Client
from plink.runtime.elastic.worker.primaries import RolledBack
from tests.runtime.elastic.stepping import Counting, uneven
from tests.runtime.elastic.stores import Store, hand_over, store

ROWS, PARTITIONS, BOUND = range(4), 2, 1
LAYOUT = Layout((Table("m", len(ROWS), 1), Table("plink.n", len(ROWS), 1)), PARTITIONS)


@pytest.fixture
def made() -> Iterator[Store]:
    """Two partitions on two servers, for two workers that have done clock 0."""
    with store(LAYOUT, Ordered(max_delay=BOUND), servers=2) as result:
        result.open(2, history=True)
        for worker in range(2):
            result.client(worker).push()
        yield result


def counts(made: Store) -> UpdateCounts:
    """Of all servers."""
    return sum((server.updates() for server in made.servers), UpdateCounts())


def send(client: Client) -> None:
    """A step that adds 1 to each row, also to those of plink's own table."""
    for table in ("m", "plink.n"):
        client.update(table, ROWS, np.ones((len(ROWS), 1)))
    client.push(last=False)


def step(client: Client) -> None:
    """A step that is computed from what it reads now."""
    client.read("m", ROWS)
    send(client)


def seen(client: Client) -> tuple[list[float], list[float]]:
    """What a worker that reads anew sees of both tables."""
    for table in ("m", "plink.n"):
        client.forget_fetched(table)
    m, n = (sorted(set(client.read(table, ROWS, own=False).ravel().tolist())) for table in ("m", "plink.n"))
    return m, n


@pytest.mark.parametrize("others", [0, BOUND, BOUND + 1, 9])
def test_late_update_is_dropped_and_counts_as_a_step(made: Store, others: int) -> None:
    slow, fast = (made.client(worker, clock=1) for worker in range(2))
    slow.read("m", ROWS)
    for _ in range(others):
        step(fast)
    send(slow)
    late = others > BOUND
    assert seen(fast) == ([others + (not late)], [others + 1])
    assert (counts(made).applied, counts(made).dropped) == (PARTITIONS * (others + (not late)), PARTITIONS * late)
    assert counts(made).largest == (0 if late else others)
    step(slow)  # with the step after it all is well again
    assert seen(fast) == ([others + (not late) + 1], [others + 2])
    assert slow.step == 2


def test_later_read_does_not_make_a_step_newer(made: Store) -> None:
    """As one of the progress of all, which a worker reads before it sends what it computed."""
    slow, fast = (made.client(worker, clock=1) for worker in range(2))
    slow.read("m", ROWS)
    for _ in range(BOUND + 1):
        step(fast)
    slow.read("plink.n", ROWS)
    slow.forget_fetched("m")
    slow.read("m", ROWS)
    send(slow)
    assert counts(made).dropped == PARTITIONS


def test_what_reads_nothing_is_as_old_as_the_step_before(made: Store) -> None:
    blind, fast = (made.client(worker, clock=1) for worker in range(2))
    step(blind)
    for _ in range(BOUND):
        step(fast)
    send(blind)
    assert not counts(made).dropped
    for _ in range(BOUND + 1):
        step(fast)
    send(blind)
    assert counts(made).dropped == PARTITIONS


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("late", [False, True])
def test_delays_go_on_where_a_partition_moves(made: Store, before: int, late: bool) -> None:
    slow, fast = (made.client(worker, clock=1) for worker in range(2))
    step(fast)
    slow.read("m", ROWS)
    for _ in range(before):
        step(fast)
    hand_over(made.servers[0], 0, made.servers[1].address, 1)
    for _ in range(BOUND + late - before):
        step(fast)
    send(slow)
    assert counts(made).dropped == PARTITIONS * late


def test_delays_go_on_at_a_replica_that_is_promoted_in_order(made: Store) -> None:
    """It was pushed the state, not how many updates that has."""
    slow, fast = (made.client(worker, clock=1) for worker in range(2))
    made.servers[0].add_replica(0, made.servers[1].address)
    for _ in range(9):
        step(fast)
    slow.read("m", ROWS)
    step(fast)
    hand_over(made.servers[0], 0, made.servers[1].address, 1)
    send(slow)
    assert not counts(made).dropped
    slow.read("m", ROWS)
    for _ in range(BOUND + 1):
        step(fast)
    send(slow)
    assert counts(made).dropped == PARTITIONS


def test_update_from_before_a_roll_back_is_not_taken(made: Store) -> None:
    slow, fast = (made.client(worker, clock=1) for worker in range(2))
    slow.read("m", ROWS)
    step(fast)
    for server in made.servers:
        server.roll_back(0, 1)
    with pytest.raises(RolledBack) as back:
        send(slow)
    for client in (slow, fast):
        client.roll_back(back.value.clock, back.value.generation)
    assert seen(fast) == ([0], [0])
    step(slow)
    step(fast)
    assert seen(fast) == ([2], [2])
    assert not counts(made).dropped


class Shared(Counting):
    """All mini-batches count in one row, which each reads first."""

    def process(self, items: int, params: Params) -> Objective:
        params.read("count", [0])
        time.sleep(self.seconds[params.shard])
        self.seen[params.shard].append((items, 0.0))
        params.update("count", [0], [[1]])
        return Objective(1.0, 1.0)


@pytest.mark.parametrize("rule", [Ordered(max_delay=2, clock_s=0.1), ASP(0.1)])
def test_counts_of_a_training_add_up(rule: ASP) -> None:
    """Every step of a worker, with two shards, is in the sum or is dropped."""
    app = Shared(uneven(3), 20)
    result = train(app, workers=4, servers=2, rule=rule)
    assert result.tables["count"][0] == 2 * result.updates.applied
    assert sum(map(len, app.seen.values())) == 2 * (result.updates.applied + result.updates.dropped)
    assert result.updates.applied
    if isinstance(rule, Ordered):
        assert result.updates.largest <= rule.max_delay
    else:
        assert not result.updates.dropped
