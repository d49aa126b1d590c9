"""Groups that are added up on the way: sooner than straight, near the optimum (M2 of the work order)."""

import numpy as np
import pytest
from hypothesis import given

from benchmarks.transfer_aggregation import Aggregator, Grouping, grouped
from benchmarks.transfer_batches import Batch, best_end_s, random_batch
from plink.model.transfers.free_capacity import FreeCapacity
from plink.model.transfers.ordering import WaitingUpdate
from tests.model.transfers.batches import batches


def grouping_of(batch: Batch, aggregators: int) -> Grouping:
    return grouped(batch.updates, batch.free, batch.server, batch.aggregators(aggregators), 0.0)


@given(batches(max_updates=40))
def test_never_later_than_all_straight(batch: Batch) -> None:
    """Every update travels once, in the batch's order."""
    straight, result = grouping_of(batch, 0), grouping_of(batch, 4)
    assert result.end_s <= straight.end_s
    members = [k for group in result.groups for k in group.members]
    assert [*range(result.straight), *members] == list(range(len(batch.updates)))
    assert len({group.aggregator for group in result.groups}) == len(result.groups)
    assert all(group.members for group in result.groups)


@given(batches(max_updates=12))
def test_end_is_when_the_last_arrives(batch: Batch) -> None:
    """Reserved by hand: straight updates, then what aggregators receive and send on."""
    result = grouping_of(batch, 3)
    capacity, ends = batch.free, [0.0]
    for update in batch.updates[: result.straight]:
        capacity, end_s = capacity.reserve(update.way_out, batch.server, update.size_bytes, 0.0)
        ends.append(end_s)
    for group in result.groups:
        added_s = 0.0
        for update in (batch.updates[k] for k in group.members):
            if update.way_out != group.aggregator.way_out:
                into = group.aggregator.way_in
                capacity, end_s = capacity.reserve(update.way_out, into, update.size_bytes, 0.0)
                added_s = max(added_s, end_s)
        size = max(batch.updates[k].size_bytes for k in group.members)
        capacity, end_s = capacity.reserve(group.aggregator.way_out, batch.server, size, added_s)
        ends.append(end_s)
    assert max(ends) == pytest.approx(result.end_s)


def test_groups_begin_when_the_server_is_free() -> None:
    """A server that is busy for three transfers: three updates have been added up by then, and travel as one."""
    capacity = FreeCapacity.idle([1.0] * 11)
    for _ in range(3):
        capacity, _ = capacity.reserve(9, 10, 1.0, 0.0)
    updates = [WaitingUpdate(way, 1.0, 100) for way in range(3)]
    result = grouped(updates, capacity, 10, [Aggregator(7, 8)], 0.0)
    assert (result.straight, [group.members for group in result.groups]) == (0, [(0, 1, 2)])
    assert result.end_s == pytest.approx(4.0)


def test_workers_of_the_aggregators_host_send_it_nothing() -> None:
    updates = [WaitingUpdate(0, 1.0, 100), WaitingUpdate(0, 1.0, 100)]
    result = grouped(updates, FreeCapacity.idle([1.0, 0.1, 1.0]), 2, [Aggregator(0, 1)], 0.0)
    assert result.end_s == pytest.approx(1.0)


def test_between_the_optimum_and_all_straight() -> None:
    """Beside the integer programme of M 10.1 (SciPy's milp): batches of 2 to 5 updates, two aggregators. How near it
    comes, the benchmark ``transfers`` measures."""
    rng = np.random.default_rng(3)
    for k in range(20):
        batch = random_batch(2 + k % 4, rng, hosts=5)
        best_s, straight_s = best_end_s(batch, 2), grouping_of(batch, 0).end_s
        assert best_s * (1 - 1e-6) <= grouping_of(batch, 2).end_s <= straight_s
