"""Shards that change hands under staleness: programs that keep state of a shard in tables find it as it was left."""

import time

import numpy as np
import pytest

from examples import elastic_lda
from plink.elastic import StoppingCriterion
from plink.model.consistency import SSP
from plink.runtime.elastic.worker.clock_work import LoadedShards
from plink.runtime.elastic.worker.progress import job_layout
from plink.runtime.elastic.worker.worker import Assignment, Worker
from tests.runtime.elastic.stores import Store, store, together

CLOCKS = 12
SWAPS = 4, 6, 8


def topics(batches: int) -> elastic_lda.TopicModel:
    data = elastic_lda.made(documents=120, vocabulary=100, length=40, topics=5, seed=1)
    return elastic_lda.TopicModel(data, 5, StoppingCriterion(clocks=CLOCKS), shards=4, batches=batches, seed=2)


def consistent(app: elastic_lda.TopicModel, made: Store) -> None:
    """Every token has a topic, and is counted once, with its word, there."""
    words, totals, tokens = (made.state(number) for number in range(3))
    topic_of = tokens[tokens > 0] - 1
    assert len(topic_of) == len(app.data.word)
    assert tokens.min() >= 0
    assert (totals[0] == np.bincount(topic_of, minlength=5)).all()
    assert (words.sum(axis=0) == totals[0]).all()
    assert (words.sum(axis=1) == np.bincount(app.data.word, minlength=100)).all()


@pytest.mark.parametrize(("staleness", "batches"), [(1, 1), (2, 1), (3, 1), (2, 2), (5, 2), (9, 2)])
def test_shards_swapped_with_a_slow_worker(staleness: int, batches: int) -> None:
    """With several mini-batches a new primary comes to rows of the shard only after its first clock with it: neither
    what it knew of them before, nor what the servers had by then, will do."""
    app = topics(batches)
    with store(job_layout(app, 4), SSP(staleness), servers=2) as made:
        made.open(2)
        slow = Worker(LoadedShards(app), made.client(0), [0, 1], say=[].append, done=lambda clock: time.sleep(0.02))
        fast = Worker(LoadedShards(app), made.client(1), [2, 3], say=[].append)
        shares = (0, 1), (2, 3)
        for number, clock in enumerate(SWAPS, 1):
            slow.assigned.add(Assignment(clock, 0, shares[number % 2]))
            fast.assigned.add(Assignment(clock, 0, shares[1 - number % 2]))
        together(slow.run, fast.run)
        consistent(app, made)
