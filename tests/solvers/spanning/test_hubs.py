"""Schedules of hubs: proven, and at the least time on uneven networks of tiers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.model.schedule import forward_and_reverse
from solvers.schedules.hubs import busiest_time, hubs_reduce_scatter
from solvers.schedules.verifier import verify
from solvers.spanning.least_time import least_time, work
from solvers.spanning.tier_tree import tree_of
from tests.solvers.spanning.networks import small, tree, uneven


@pytest.mark.parametrize("seed", range(50))
def test_uneven_networks_are_within_a_hundredth_of_the_bound(seed: int) -> None:
    network = uneven(seed)
    schedule = hubs_reduce_scatter(network)
    assert verify(schedule) == verify(forward_and_reverse(schedule)) == []
    ratio = busiest_time(network, schedule) / least_time(network).us_per_byte
    assert 1 - 1e-9 <= ratio <= 1.01


@settings(max_examples=40, deadline=None)
@given(hosts=st.integers(2, 9), seed=st.integers(0, 9999), symmetric=st.booleans())
def test_any_tiers_give_a_proven_schedule(hosts: int, seed: int, symmetric: bool) -> None:
    """Racks of one, tiers of one group, uplinks below a host's rate, and rates that differ by direction."""
    network = tree(*small(hosts, seed, symmetric))
    schedule = hubs_reduce_scatter(network)
    assert verify(forward_and_reverse(schedule)) == []
    ratio = busiest_time(network, schedule) / least_time(network).us_per_byte
    assert ratio >= 1 - 1e-9
    if symmetric:
        assert ratio <= 1.03  # of the most chunks where a small rack exports nearly all


def test_work_of_a_slow_host_is_none() -> None:
    gbps = np.full(16, 10.0)
    gbps[7] = 2.5
    result = work(tree([], [(gbps, gbps)]))
    assert result[8] == pytest.approx(0, abs=1e-5)
    assert result[1:].sum() == pytest.approx(14)


def test_uplinks_without_limit() -> None:
    gbps, free = np.full(12, 10.0), np.full(3, np.inf)
    network = tree([np.repeat(range(3), 4).tolist()], [(gbps, gbps), (free, free)])
    assert busiest_time(network, hubs_reduce_scatter(network)) <= 1.01 * least_time(network).us_per_byte
    assert least_time(network).limited_by == "all hosts' links together"


@pytest.mark.parametrize("slots", [[2, 1, 1], [4, 4], [1, 3, 2, 5]])
def test_ranks_of_a_host_share_its_link(slots: list[int]) -> None:
    order = np.repeat(np.arange(len(slots)), slots)
    free, gbps = np.full(len(order), np.inf), np.linspace(10, 20, len(slots))
    ranks = [""] * len(order)
    network = tree_of(
        [np.arange(len(order)), order], [(free, free), (gbps, gbps)], [ranks, [f"h{k}" for k in range(len(slots))]]
    )
    schedule = hubs_reduce_scatter(network)
    assert verify(forward_and_reverse(schedule)) == []
    assert busiest_time(network, schedule) <= 1.01 * least_time(network).us_per_byte
