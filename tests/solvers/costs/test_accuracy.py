"""Intervals of predictions: what widens them, and where there are none."""

import math
from dataclasses import replace

import numpy as np
import pytest

from solvers.costs.by_name import prediction_interval
from solvers.costs.fabric import MIN_RATE_SIGMA, Fabric
from tests.solvers.ordering.instances import alike


@pytest.fixture
def fabric() -> Fabric:
    return replace(alike(np.ones((4, 4))), capacities="measured")


def test_the_interval_contains_the_prediction_and_grows_with_the_rates_error(fabric: Fabric) -> None:
    widths = []
    for sigma in (MIN_RATE_SIGMA, 0.1, 0.3):
        interval = prediction_interval(1e6, "ring", 8e6, "contention", replace(fabric, rate_sigma=sigma))
        assert interval is not None
        assert interval[0] < 1e6 < interval[1]
        widths.append(interval[1] - interval[0])
    assert widths == sorted(set(widths))
    # 1.645 standard deviations of 0.3, both ways in the logarithm: the model's own error is less than a fifth of that.
    assert widths[-1] == pytest.approx(1e6 * (math.exp(1.645 * 0.3) - math.exp(-1.645 * 0.3)), rel=0.2)


def test_no_interval_where_nothing_was_calibrated(fabric: Fabric) -> None:
    assert prediction_interval(1e6, "ring", 8e6, "latency", fabric) is None
    assert prediction_interval(1e6, "ring", 8e6, "alpha-beta", fabric) is None
    assert (
        prediction_interval(1e6, "ring", 8e6, "contention", replace(fabric, capacities="inferred from the latencies"))
        is None
    )


def test_nccl_has_the_interval_of_what_it_is(fabric: Fabric) -> None:
    """A ring from 16 MB on, a blend between; each in its own interval."""
    ring, tree = (prediction_interval(1e6, algo, 1e6, "contention", fabric) for algo in ("nccl-ring", "nccl-tree"))
    assert ring != tree
    for size, own in ((64e6, ring), (8e6, tree), (64e3, tree)):
        assert prediction_interval(1e6, "nccl", size, "contention", fabric) == own


def test_libraries_do_more_than_rings_where_they_exchange(fabric: Fabric) -> None:
    ring, other = (
        prediction_interval(1e6, algo, 8e6, "contention", fabric) for algo in ("gloo", "openmpi-rabenseifner")
    )
    assert ring is not None
    assert other is not None
    assert other[0] < ring[0] < 1e6 < ring[1] < other[1]
