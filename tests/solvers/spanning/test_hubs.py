"""Schedules of hubs: proven, and at the least time on uneven networks of tiers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.optimal import most_messages, uneven, uneven_tree
from plink.model.schedule import forward_and_reverse, mirrored
from solvers.schedules.hierarchical import two_level_masters, two_level_reduce_scatter
from solvers.schedules.hubs import busiest_time, hubs
from solvers.schedules.verifier import verify
from solvers.spanning.least_time import alike_both_ways, least_time, work
from solvers.spanning.tier_tree import tree_of
from tests.solvers.spanning.networks import small, tree


@pytest.mark.parametrize("seed", range(50))
def test_uneven_networks_are_within_a_hundredth_of_the_bound(seed: int) -> None:
    network = uneven_tree(seed)
    reduction, gathering = hubs(network)
    schedule = forward_and_reverse(reduction, gathering)
    assert verify(reduction) == verify(gathering) == verify(schedule) == []
    ratio = busiest_time(network, schedule) / least_time(network).us_per_byte
    assert 1 - 1e-9 <= ratio <= 1.01


@pytest.mark.parametrize("apart", [1.2, 1.5, 3.0])
@pytest.mark.parametrize("seed", range(8))
def test_rates_apart_are_within_a_fiftieth_of_the_bound(seed: int, apart: float) -> None:
    network = uneven_tree(seed, apart)
    reduction, gathering = hubs(network)
    schedule = forward_and_reverse(reduction, gathering)
    assert verify(reduction) == verify(gathering) == verify(schedule) == []
    assert 1 - 1e-9 <= busiest_time(network, schedule) / least_time(network).us_per_byte <= 1.02


def test_half_of_the_hosts_send_little_and_the_others_receive_little() -> None:
    slow, fast = np.full(4, 1.0), np.full(4, 10.0)
    network = tree([], [(np.append(slow, fast), np.append(fast, slow))])
    schedule = forward_and_reverse(*hubs(network))
    assert verify(schedule) == []
    assert busiest_time(network, schedule) <= 1.01 * least_time(network).us_per_byte
    assert least_time(alike_both_ways(network)).us_per_byte > 1.7 * least_time(network).us_per_byte


@pytest.mark.parametrize("seed", range(0, 50, 7))
def test_rates_alike_both_ways_have_one_tree(seed: int) -> None:
    reduction, gathering = hubs(uneven_tree(seed, 1.001))
    back = mirrored(reduction)
    for column in ("round", "source", "target", "first", "count"):
        assert np.array_equal(getattr(gathering, column), getattr(back, column))


@pytest.mark.parametrize("seed", range(50))
def test_messages_of_a_rank_are_at_most_twice_those_of_two_levels(seed: int) -> None:
    fabric = uneven(seed)
    groups = [np.flatnonzero(fabric.group_of == k).tolist() for k in np.unique(fabric.group_of)]
    two_levels = two_level_reduce_scatter(groups, *two_level_masters(groups))
    assert most_messages(hubs(uneven_tree(seed))[0]) <= 2 * most_messages(two_levels)


@settings(max_examples=40, deadline=None)
@given(hosts=st.integers(2, 9), seed=st.integers(0, 9999), symmetric=st.booleans())
def test_any_tiers_give_a_proven_schedule(hosts: int, seed: int, symmetric: bool) -> None:
    """Racks of one, tiers of one group, uplinks below a host's rate, and rates that differ by direction."""
    network = tree(*small(hosts, seed, symmetric))
    schedule = forward_and_reverse(*hubs(network))
    assert verify(schedule) == []
    ratio = busiest_time(network, schedule) / least_time(network).us_per_byte
    assert ratio >= 1 - 1e-9
    if symmetric:
        assert ratio <= 1.02


def test_work_of_a_slow_host_is_none() -> None:
    gbps = np.full(16, 10.0)
    gbps[7] = 2.5
    result = work(tree([], [(gbps, gbps)]))
    assert result[8] == pytest.approx(0, abs=1e-5)
    assert result[1:].sum() == pytest.approx(14)


def test_uplinks_without_limit() -> None:
    gbps, free = np.full(12, 10.0), np.full(3, np.inf)
    network = tree([np.repeat(range(3), 4).tolist()], [(gbps, gbps), (free, free)])
    assert busiest_time(network, forward_and_reverse(*hubs(network))) <= 1.01 * least_time(network).us_per_byte
    assert least_time(network).limited_by == "all hosts' links together"


@pytest.mark.parametrize("slots", [[2, 1, 1], [4, 4], [1, 3, 2, 5]])
def test_ranks_of_a_host_share_its_link(slots: list[int]) -> None:
    order = np.repeat(np.arange(len(slots)), slots)
    free, gbps = np.full(len(order), np.inf), np.linspace(10, 20, len(slots))
    ranks = [""] * len(order)
    network = tree_of(
        [np.arange(len(order)), order], [(free, free), (gbps, gbps)], [ranks, [f"h{k}" for k in range(len(slots))]]
    )
    schedule = forward_and_reverse(*hubs(network))
    assert verify(schedule) == []
    assert busiest_time(network, schedule) <= 1.01 * least_time(network).us_per_byte
