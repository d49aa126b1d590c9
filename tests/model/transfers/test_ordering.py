"""The order of a batch: the bound holds, few are dropped (M1 of the work order)."""

from dataclasses import replace

import numpy as np
from hypothesis import given

from benchmarks.transfer_batches import Batch, most_kept, ordered_as_printed, random_batch
from plink.model.transfers.free_capacity import FreeCapacity
from plink.model.transfers.ordering import Order, WaitingUpdate, ordered
from tests.model.transfers.batches import batches


def order_of(batch: Batch) -> Order:
    return ordered(batch.updates, batch.free, batch.server, 0.0)


@given(batches(max_updates=24, max_members=3))
def test_bound_is_never_broken(batch: Batch) -> None:
    """Each update is kept or dropped, arrives in its turn, and is in position by its deadline."""
    order = order_of(batch)
    assert sorted(order.sent + order.dropped) == list(range(len(batch.updates)))
    assert order.is_in_time(batch.updates)
    capacity = batch.free
    for number, arrival_s in zip(order.sent, order.arrivals_s, strict=True):
        update = batch.updates[number]
        capacity, end_s = capacity.reserve(update.way_out, batch.server, update.size_bytes, 0.0)
        assert end_s == arrival_s or abs(end_s - arrival_s) < 1e-6 * end_s
    assert all(np.diff(order.arrivals_s) >= -1e-6)


def test_keeps_nine_tenths_of_what_any_order_could() -> None:
    """Exhaustive, 150 random batches of 2 to 7: nine tenths of all, and never more than any order."""
    rng = np.random.default_rng(7)
    sent, most = [], []
    for k in range(150):
        batch = random_batch(2 + k % 6, rng, hosts=5)
        sent.append(len(order_of(batch).sent))
        most.append(most_kept(batch))
    assert sum(sent) >= 0.9 * sum(most)
    assert all(number <= best for number, best in zip(sent, most, strict=True))


def test_nothing_is_dropped_that_deadlines_allow_on_equal_links() -> None:
    """Equal transfers: only as many are dropped as have no position."""
    updates = [WaitingUpdate(k, 1e6, deadline) for k, deadline in enumerate([2, 2, 2, 0, 7, 5, 5])]
    order = ordered(updates, FreeCapacity.idle([1e6] * 8), 7, 0.0)
    assert len(order.sent) == 5
    assert 3 in order.dropped


def test_slow_sender_that_must_come_next_is_dropped() -> None:
    """M Figure 5: a sender at a tenth of the link would keep link and server idle."""
    capacity = FreeCapacity.idle([10.0, 90.0, 100.0])
    order = ordered([WaitingUpdate(0, 100.0, 1), WaitingUpdate(1, 100.0, 5)], capacity, 2, 0.0)
    assert (order.sent, order.dropped) == ((1,), (0,))


def test_sender_without_capacity_is_dropped() -> None:
    order = ordered([WaitingUpdate(0, 1.0, 5), WaitingUpdate(1, 1.0, 1)], FreeCapacity.idle([0.0, 1.0, 1.0]), 2, 0.0)
    assert (order.sent, order.dropped) == ((1,), (0,))


def test_algorithm_as_printed_breaks_its_bound() -> None:
    """Two of one deadline: the second comes late. One whose deadline has passed is sent nevertheless."""
    for deadlines in ([1, 1], [0, 2]):
        updates = tuple(WaitingUpdate(k, 1.0, deadline) for k, deadline in enumerate(deadlines))
        batch = Batch(updates, (1.0,) * 5)
        assert not ordered_as_printed(batch).is_in_time(updates)
        assert order_of(batch).is_in_time(updates)


@given(batches(max_updates=8))
def test_as_printed_is_the_same_where_no_deadline_presses(batch: Batch) -> None:
    """Then both are shortest transfer first."""
    batch = replace(batch, updates=tuple(replace(u, deadline=100 + k) for k, u in enumerate(batch.updates)))
    assert order_of(batch).arrivals_s == ordered_as_printed(batch).arrivals_s
