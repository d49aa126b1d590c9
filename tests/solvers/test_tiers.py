"""Groups found in latencies: the racks where there are any, one group where none stands out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.grouping.tiers import nearest_tier
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
