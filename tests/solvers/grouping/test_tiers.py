"""Groups found in latencies: the racks where there are any, one group where none stands out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.network import Matrix
from solvers.grouping.tiers import Labels, adjusted_rand, completed_far, nearest_tier, tiers
from tests.solvers.synthetic import racks


@settings(deadline=None)
@given(st.lists(st.integers(2, 5), min_size=2, max_size=5), st.integers(0, 2**32 - 1))
def test_racks_are_found_exactly(sizes: list[int], seed: int) -> None:
    cost, rack_of = racks(sizes, seed)
    groups = nearest_tier(cost)
    assert len({(int(group), int(rack)) for group, rack in zip(groups, rack_of, strict=True)}) == len(sizes)
    assert len(set(groups.tolist())) == len(sizes)


def test_racks_are_found_in_noise() -> None:
    cost, rack_of = racks([4, 4, 4, 4], seed=3)
    noise = np.random.default_rng(3).uniform(0.95, 1.05, size=cost.shape)
    groups = nearest_tier(np.maximum(cost * noise, (cost * noise).T))
    together = groups[:, None] == groups
    assert np.array_equal(together, rack_of[:, None] == rack_of)


def test_groups_are_numbered_as_they_appear() -> None:
    cost, _ = racks([3, 3, 3], seed=11)
    groups = nearest_tier(cost).tolist()
    assert list(dict.fromkeys(groups)) == [0, 1, 2]


def test_the_nearest_tier_is_the_one_that_stands_out_most() -> None:
    """Racks in pods: the step from 20 to 80 is the larger ratio, so racks are told apart and pods are not."""
    rack_of = np.repeat(np.arange(4), 3)
    pod_of = rack_of // 2
    cost = np.where(rack_of[:, None] == rack_of, 20.0, np.where(pod_of[:, None] == pod_of, 80.0, 100.0))
    np.fill_diagonal(cost, 0.0)
    assert nearest_tier(cost).tolist() == rack_of.tolist()


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_where_all_are_alike_there_is_one_group(n: int) -> None:
    cost = np.full((n, n), 50.0)
    np.fill_diagonal(cost, 0.0)
    assert nearest_tier(cost).tolist() == [0] * n


def test_a_step_within_the_noise_is_no_tier() -> None:
    cost, _ = racks([4, 4], seed=1, near=50.0, far=55.0)
    assert set(nearest_tier(cost).tolist()) == {0}
    assert len(set(nearest_tier(cost, least_ratio=1.05).tolist())) == 2


def nested() -> tuple[Matrix, list[Labels]]:
    """Two hosts a machine, two machines a rack, two racks a zone, two zones: 5, 20, 60 and 200 us."""
    levels = [np.arange(16) // members for members in (2, 4, 8)]
    cost = np.full((16, 16), 200.0)
    for label, us in zip(reversed(levels), (60.0, 20.0, 5.0), strict=True):
        cost[label[:, None] == label] = us
    np.fill_diagonal(cost, 0.0)
    return cost, levels


def measured(cost: Matrix, sigma: float, seed: int) -> Matrix:
    drawn = cost * np.random.default_rng(seed).lognormal(0, sigma, cost.shape)
    return np.maximum(drawn, drawn.T)


def test_all_levels_of_a_hierarchy_are_found_from_the_innermost_out() -> None:
    cost, levels = nested()
    found = tiers(measured(cost, 0.05, 0), [measured(cost, 0.07, 1), measured(cost, 0.07, 2)])
    assert [tier.label.tolist() for tier in found] == [label.tolist() for label in levels]
    assert [tier.within_us for tier in found] == pytest.approx([5, 20, 60], rel=0.1)
    assert [tier.next_us for tier in found] == pytest.approx([20, 60, 200], rel=0.1)
    assert all(tier.confidence > 0.9 for tier in found)
    assert found[0].groups[0] == [0, 1]


def test_in_noise_no_tier_stands_out() -> None:
    """Small groups do by chance, but the halves of the samples do not confirm them."""
    alike = np.full((16, 16), 50.0)
    np.fill_diagonal(alike, 0.0)
    chance = 0
    for seed in range(0, 30, 3):
        whole, *halves = (measured(alike, 0.85, seed + k) for k in range(3))
        chance += len(set(nearest_tier(whole).tolist())) > 1
        assert set(nearest_tier(whole, halves=halves).tolist()) == {0}
        assert tiers(whole, halves) == []
    assert chance > 5


def test_the_innermost_of_tiers_that_both_stand_out_is_the_nearest() -> None:
    cost, levels = nested()
    cost = np.where(cost == 60, 20, np.where(cost == 5, 8, cost))  # 8, 20, 200: racks of 8 stand out more
    halves = [measured(cost, 0.02, 1), measured(cost, 0.02, 2)]
    assert nearest_tier(cost).tolist() == levels[2].tolist()
    assert nearest_tier(cost, halves=halves).tolist() == levels[2].tolist()
    cost = np.where(cost == 200, 70, cost)  # a step of 2.5, then one of 3.5
    halves = [measured(cost, 0.02, 1), measured(cost, 0.02, 2)]
    assert nearest_tier(cost).tolist() == levels[2].tolist()
    assert nearest_tier(cost, halves=halves).tolist() == levels[0].tolist()


@pytest.mark.parametrize("n", [1, 2])
def test_of_two_hosts_there_are_no_tiers(n: int) -> None:
    assert tiers(np.ones((n, n)) - np.eye(n)) == []


def test_what_was_not_measured_is_far() -> None:
    found = completed_far(np.array([[0, np.nan, 9], [np.nan, 0, 3], [9, 3, 0.0]]))
    assert found[0, 1] == found[1, 0] == 9
    assert completed_far(np.array([[0, np.nan], [np.nan, 0]]))[0, 1] == 1


@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 10**6))
def test_agreement_of_groupings_is_that_of_a_library(n: int, groups: int, seed: int) -> None:
    from sklearn.metrics import adjusted_rand_score

    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, groups, n), rng.integers(0, groups, n)
    assert adjusted_rand(a, b) == pytest.approx(adjusted_rand_score(a, b))


def test_two_hosts_that_came_out_near_each_other_are_no_tier() -> None:
    """Unless they are so every time."""
    rng = np.random.default_rng(4)
    true, rack = racks([8] * 4, 3, near=25.0, far=70.0)
    together = [np.flatnonzero(rack == number)[:2] for number in (0, 1)]

    def measured(near: int) -> Matrix:
        rtt = true * np.exp(0.05 * rng.standard_normal(true.shape))
        rtt = np.sqrt(rtt * rtt.T)
        for a, b in together[:near]:
            rtt[a, b] = rtt[b, a] = 4.0
        return rtt

    def largest(cost: Matrix, halves: list[Matrix]) -> list[int]:
        return [int(np.bincount(tier.label).max()) for tier in tiers(cost, halves)]

    assert largest(measured(2), [measured(1), measured(1)]) == [8]
    assert largest(measured(2), [measured(2), measured(2)]) == [2, 8]
