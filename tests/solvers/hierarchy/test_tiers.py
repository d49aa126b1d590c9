"""Groups found in latencies: the racks where there are any, one group where none stands out; tiers at their limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from plink.model.network import Matrix
from solvers.hierarchy.tiers import adjusted_rand, completed_by_detours, groupings, nearest_tier, tiers
from tests.solvers.synthetic import racks


def nested(members: list[int], times_us: list[float]) -> Matrix:
    """Hosts in a row: so many, one after the other, are in a group of each tier, and as far apart as it says; the last
    group is all hosts."""
    n = members[-1]
    cost = np.zeros((n, n))
    for size, us in reversed(list(zip(members, times_us, strict=True))):
        label = np.arange(n) // size
        cost[label[:, None] == label] = us
    np.fill_diagonal(cost, 0.0)
    return cost


def row(n: int, members: int) -> list[int]:
    return (np.arange(n) // members).tolist()


def measured(cost: Matrix, sigma: float, seed: int) -> Matrix:
    drawn = cost * np.random.default_rng(seed).lognormal(0, sigma, cost.shape)
    return np.maximum(drawn, drawn.T)


@settings(max_examples=40)
@given(st.lists(st.integers(2, 5), min_size=2, max_size=5), st.integers(0, 2**32 - 1))
def test_racks_are_found_exactly(sizes: list[int], seed: int) -> None:
    """Whatever the order of the hosts; groups are numbered as they appear."""
    cost, rack_of = racks(sizes, seed)
    groups = nearest_tier(cost)
    assert np.array_equal(groups[:, None] == groups, rack_of[:, None] == rack_of)
    assert list(dict.fromkeys(groups.tolist())) == list(range(len(sizes)))


def test_identical_distances_are_one_group() -> None:
    for n in (1, 2, 3, 8):
        assert nearest_tier(50.0 * ~np.eye(n, dtype=bool)).tolist() == [0] * n
    for n in (1, 2):
        assert tiers(np.ones((n, n)) - np.eye(n)) == []


def test_a_step_within_the_noise_is_no_tier() -> None:
    cost, _ = racks([4, 4], seed=1, near=50.0, far=55.0)
    assert set(nearest_tier(cost).tolist()) == {0}


@pytest.mark.parametrize(("far", "stands_out"), [(13.0, True), (12.99, False)])
def test_a_step_of_thirteen_tenths_is_a_tier(far: float, stands_out: bool) -> None:
    cost = nested([4, 12], [10.0, far])
    assert nearest_tier(cost).tolist() == (row(12, 4) if stands_out else [0] * 12)
    assert [tier.label.tolist() for tier in tiers(cost)] == ([row(12, 4)] if stands_out else [])
    assert [label.tolist() for label in groupings(cost)] == ([row(12, 4)] if stands_out else [])


def test_a_single_outlier_pair_is_no_tier_but_a_far_host_is() -> None:
    """All are 10 apart; two hosts a million apart are a rate limit or a queue, a host far from all is far."""
    cost = nested([12], [10.0])
    cost[0, 1] = cost[1, 0] = 1e6
    assert set(nearest_tier(cost).tolist()) == {0}
    assert groupings(cost) == []
    cost[0, 1:] = cost[1:, 0] = 500.0
    assert nearest_tier(cost).tolist() == [0] + [1] * 11


def test_at_most_four_most_distinct_tiers() -> None:
    """Of five steps the least one, from 1000 to 1400, is left out, then of four."""
    cost = nested([2, 4, 8, 16, 32, 64], [10.0, 20.0, 60.0, 300.0, 1000.0, 1400.0])
    assert [tier.label.tolist() for tier in tiers(cost, [cost, cost])] == [row(64, size) for size in (2, 4, 8, 16)]
    assert [label.tolist() for label in groupings(cost)] == [row(64, size) for size in (4, 8, 16)]


def test_all_levels_of_a_hierarchy_are_found_from_the_innermost_out() -> None:
    """Two hosts a machine, two machines a rack, two racks a zone, two zones: 5, 20, 60 and 200 us."""
    cost = nested([2, 4, 8, 16], [5.0, 20.0, 60.0, 200.0])
    result = tiers(measured(cost, 0.05, 0), [measured(cost, 0.07, 1), measured(cost, 0.07, 2)])
    assert [tier.label.tolist() for tier in result] == [row(16, size) for size in (2, 4, 8)]
    assert [tier.within_us for tier in result] == pytest.approx([5, 20, 60], rel=0.1)
    assert [tier.next_us for tier in result] == pytest.approx([20, 60, 200], rel=0.1)
    assert [tier.ratio for tier in result] == pytest.approx([4, 3, 10 / 3], rel=0.2)
    assert all(tier.confidence > 0.9 for tier in result)
    assert result[0].groups[0] == [0, 1]


def test_unmeasured_pairs_split_no_rack() -> None:
    cost = measured(nested([20, 60, 120], [25.0, 80.0, 900.0]), 0.1, 3)
    rng = np.random.default_rng(3)
    holes = np.triu(rng.random(cost.shape) < 0.02, 1)
    result = tiers(completed_by_detours(np.where(holes | holes.T, np.nan, cost)))
    assert [tier.label.max() + 1 for tier in result] == [tier.label.max() + 1 for tier in tiers(cost)]


def test_noise_has_no_tier() -> None:
    """Small groups do by chance, but the halves of the samples do not confirm them."""
    chance = 0
    for seed in range(0, 30, 3):
        whole, *halves = (measured(nested([16], [50.0]), 0.85, seed + k) for k in range(3))
        chance += len(set(nearest_tier(whole).tolist())) > 1
        assert set(nearest_tier(whole, halves=halves).tolist()) == {0}
        assert tiers(whole, halves) == []
    assert chance > 5


@pytest.mark.parametrize(("middle", "innermost"), [(40.0, True), (41.0, False)])
def test_with_halves_the_innermost_of_similar_tiers_is_the_nearest(middle: float, innermost: bool) -> None:
    """By the logarithm of the ratio: steps of 2 and 4, and of 2.0 and 4.1 or so: the root of 4 is 2."""
    cost = nested([3, 12, 48], [20.0, 40.0, 4 * middle])
    assert nearest_tier(cost).tolist() == row(48, 12)
    assert nearest_tier(cost, halves=[cost, cost]).tolist() == row(48, 3 if innermost else 12)


def test_halves_of_another_network_confirm_nothing() -> None:
    cost, other = nested([4, 16], [10.0, 40.0]), nested([16], [40.0])
    order = np.random.default_rng(0).permutation(16)
    for half in (other, cost[np.ix_(order, order)]):
        assert set(nearest_tier(cost, halves=[half, half]).tolist()) == {0}
        assert tiers(cost, [half, half]) == []
    # One half that tells the same and one that does not: half of it is confirmed, which is enough.
    assert nearest_tier(cost, halves=[cost, other]).tolist() == row(16, 4)


def test_two_hosts_that_came_out_near_each_other_are_no_tier() -> None:
    """Unless they are so every time."""
    rng = np.random.default_rng(4)
    true, rack = racks([8] * 4, 3, near=25.0, far=70.0)
    together = [np.flatnonzero(rack == number)[:2] for number in (0, 1)]

    def sampled(near: int) -> Matrix:
        rtt = true * np.exp(0.05 * rng.standard_normal(true.shape))
        rtt = np.sqrt(rtt * rtt.T)
        for a, b in together[:near]:
            rtt[a, b] = rtt[b, a] = 4.0
        return rtt

    def largest(cost: Matrix, halves: list[Matrix]) -> list[int]:
        return [int(np.bincount(tier.label).max()) for tier in tiers(cost, halves)]

    assert largest(sampled(2), [sampled(1), sampled(1)]) == [8]
    assert largest(sampled(2), [sampled(2), sampled(2)]) == [2, 8]


@settings(max_examples=50)
@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 10**6))
def test_agreement_of_groupings_is_that_of_a_library(n: int, groups: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, groups, n), rng.integers(0, groups, n)
    assert adjusted_rand(a, b) == pytest.approx(adjusted_rand_score(a, b))
