"""Free capacity over time: nothing is reserved twice, and bytes in are bytes out."""

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.model.transfers.free_capacity import FreeCapacity

_RATES = st.lists(st.sampled_from([1.0, 2.0, 3.3, 10.0, 0.1]), min_size=4, max_size=4)
_TRANSFERS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(2, 3), st.sampled_from([0.0, 0.7, 5.0, 30.0]), st.floats(0, 20)),
    max_size=12,
)


def test_transfer_of_figure_4() -> None:
    """M Figure 4: 30 MB on a path whose free capacity changes arrive when the stretches add up to it."""
    capacity, _ = FreeCapacity.idle([10.0, 10.0, 5.0]).reserve(2, 1, 10.0, 0.0)  # leaves 5 until second 2
    assert capacity.arrival(0, 1, 30.0, 0.0) == pytest.approx(4.0)
    left, end_s = capacity.reserve(0, 1, 30.0, 0.0)
    assert end_s == pytest.approx(4.0)
    assert left.free_bytes_s(1, 1.0) == 0
    assert left.free_bytes_s(0, 1.0) == pytest.approx(5.0)
    assert left.free_bytes_s(1, 4.0) == 10.0
    assert left.first_free_s(1, 0.0) == pytest.approx(4.0)


@given(_RATES, _TRANSFERS)
def test_reservations_never_exceed_capacity(rates: list[float], transfers: list[tuple[int, int, float, float]]) -> None:
    """Each way loses exactly what was sent over it, at no time more than it has, and is whole again in the end."""
    capacity, horizon_s = FreeCapacity.idle(rates), 1e5
    sent = np.zeros(4)
    for out, into, size, ready_s in transfers:
        expected = capacity.arrival(out, into, size, ready_s)
        capacity, end_s = capacity.reserve(out, into, size, ready_s)
        assert end_s == expected >= ready_s
        sent[[out, into]] += size
    for way, rate in enumerate(rates):
        assert all(0 <= free <= rate * (1 + 1e-9) for _, free in capacity.ways[way])
        assert [time for time, _ in capacity.ways[way]] == sorted({time for time, _ in capacity.ways[way]})
        assert capacity.ways[way][-1][1] == rate
        times = [time for time, _ in capacity.ways[way]] + [horizon_s]
        free = [free for _, free in capacity.ways[way]]
        taken = rate * horizon_s - float(np.dot(free, np.diff(times)))
        assert taken == pytest.approx(sent[way], rel=1e-6, abs=1e-3)


@given(_RATES, _TRANSFERS, st.floats(0, 30))
def test_arrivals_of_many_are_those_of_each(
    rates: list[float], transfers: list[tuple[int, int, float, float]], ready_s: float
) -> None:
    capacity = FreeCapacity.idle(rates)
    for out, into, size, begin_s in transfers:
        capacity, _ = capacity.reserve(out, into, size, begin_s)
    outs, sizes = np.array([0, 1, 0, 1, 1]), np.array([3.0, 3.0, 50.0, 0.0, 0.2])
    together = capacity.arrivals(outs, 2, sizes, ready_s)
    alone = [capacity.arrival(int(out), 2, float(size), ready_s) for out, size in zip(outs, sizes, strict=True)]
    assert together == pytest.approx(np.array(alone), rel=1e-6)


def test_way_without_capacity() -> None:
    """What can never arrive takes nothing from others; an empty update needs no way at all."""
    capacity = FreeCapacity.idle([0.0, 1.0])
    assert capacity.reserve(0, 1, 5.0, 2.0) == (capacity, inf)
    assert capacity.arrivals(np.array([0, 0]), 1, np.array([5.0, 0.0]), 2.0).tolist() == [inf, 2.0]
    assert capacity.arrivals(np.array([1]), 0, np.array([5.0]), 2.0).tolist() == [inf]
