"""Groups of even size: everyone in one, sizes one apart, racks found."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.grouping.even import even_groups, leaves
from tests.solvers.synthetic import Matrix, blocks, racks, random_costs


@settings(max_examples=40)
@given(st.integers(1, 30), st.integers(0, 999), st.sampled_from([1, 3, 1000]), st.data())
def test_everyone_is_in_one_group_and_sizes_are_one_apart(n: int, seed: int, high: int, data: st.DataObject) -> None:
    number = data.draw(st.integers(1, n))
    groups = even_groups(random_costs(n, seed, high=high), number)
    assert len(groups) == number
    assert sorted(host for group in groups for host in group) == list(range(n))
    sizes = [len(group) for group in groups]
    assert max(sizes) - min(sizes) <= 1
    assert all(group == sorted(group) for group in groups)


@pytest.mark.parametrize("sizes", [[4, 4, 4, 4], [7, 7, 7], [2] * 10, [5]])
def test_racks_of_one_size_are_the_groups(sizes: list[int]) -> None:
    for seed in range(3):
        rtt, rack_of = racks(sizes, seed)
        groups = even_groups(rtt, len(sizes))
        assert all(len(set(rack_of[group].tolist())) == 1 for group in groups)


def test_no_exchange_of_two_hosts_improves_even_groups() -> None:
    """The sum over groups of their pairs' times by their size."""

    def objective(cost: Matrix, groups: list[list[int]]) -> float:
        return sum(float(cost[np.ix_(group, group)].sum()) / 2 / len(group) for group in groups)

    for seed in range(3):
        cost = random_costs(9, seed)
        groups = even_groups(cost, 3)
        best = objective(cost, groups)
        for item, other in itertools.combinations(range(3), 2):
            for i, j in itertools.product(groups[item], groups[other]):
                swapped = [[{i: j, j: i}.get(host, host) for host in group] for group in groups]
                assert objective(cost, swapped) >= best - 1e-9


@pytest.mark.parametrize("n", [24, 608])
def test_racks_and_pods_follow_each_other(n: int) -> None:
    """Also with more hosts than leaves are turned for."""
    rack_of = np.random.default_rng(n).permutation(n) // 4
    pod_of = rack_of // 3
    rtt = np.where(rack_of[:, None] == rack_of, 20.0, np.where(pod_of[:, None] == pod_of, 50.0, 90.0))
    np.fill_diagonal(rtt, 0.0)
    order = leaves(rtt)
    assert sorted(order.tolist()) == list(range(n))
    assert blocks(rack_of[order]) == n // 4
    assert blocks(pod_of[order]) == -(-n // 12)
