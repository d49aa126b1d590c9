"""Balanced groups: everyone in one, sizes within bounds, racks found, the same by the same seed."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_mutual_info_score

from plink.errors import UsageError
from plink.model.network import Matrix
from solvers.grouping.balanced import (
    Labels,
    agreement,
    balanced_groups,
    by_appearance,
    clustering,
    k_means,
    random_groups,
)
from solvers.grouping.exchanges import refined
from solvers.grouping.sizes import Sizes, sizes_for
from tests.solvers.synthetic import racks, random_costs


def cloud(n: int, dimension: int, seed: int) -> tuple[Matrix, Matrix]:
    """Points, shape (n, dimension), and their squared distances."""
    place = np.random.default_rng(seed).normal(size=(n, dimension))
    return place, ((place[:, None] - place) ** 2).sum(axis=2)


def objective(distances: Matrix, label: Labels) -> float:
    """As it is defined: of each group the sum over its pairs by its size."""
    groups = [np.flatnonzero(label == group) for group in range(int(label.max()) + 1)]
    return sum(float(np.triu(distances[np.ix_(group, group)]).sum()) / len(group) for group in groups)


def fits(label: Labels, sizes: Sizes) -> bool:
    result = np.bincount(label, minlength=sizes.number)
    return len(result) == sizes.number and sizes.least <= result.min() and result.max() <= sizes.most


@settings(max_examples=50)
@given(st.integers(1, 5000), st.floats(1, 2), st.data())
def test_groups_of_allowed_sizes_can_always_be_made(n: int, elasticity: float, data: st.DataObject) -> None:
    sizes = sizes_for(n, data.draw(st.none() | st.integers(1, n)), elasticity)
    assert 1 <= sizes.least <= sizes.most <= n
    assert sizes.number * sizes.least <= n <= sizes.number * sizes.most
    if elasticity == 1:
        assert sizes.most - sizes.least <= 1


def test_sizes_as_the_thesis_chooses_them() -> None:
    for n, number, elasticity, expected in (
        (64, None, 1.0, (8, 8, 8)),
        (64, None, 2.0, (8, 4, 16)),  # sqrt(n) / 2 at least, as in the thesis
        (64, 4, 2.0, (4, 8, 32)),
        (10, None, 1.0, (3, 3, 4)),
        (3, None, 1.0, (2, 1, 2)),
        (1, None, 2.0, (1, 1, 1)),
        (6, 6, 2.0, (6, 1, 1)),
        (30, None, 1.1, (5, 5, 7)),
    ):
        sizes = sizes_for(n, number, elasticity)
        assert (sizes.number, sizes.least, sizes.most) == expected, (n, number, elasticity)


@pytest.mark.parametrize(
    ("number", "elasticity", "option"),
    [
        (0, 1.0, "--groups 0"),
        (9, 1.0, "--groups 9"),
        (-1, 1.0, "--groups -1"),
        (2, 0.99, "--elasticity 0.99"),
        (2, 2.01, "--elasticity 2.01"),
        (2, float("nan"), "--elasticity nan"),
    ],
)
def test_what_cannot_be_is_refused(number: int, elasticity: float, option: str) -> None:
    with pytest.raises(UsageError, match=option.replace("-", "[-]")):
        sizes_for(8, number, elasticity)


@settings(max_examples=30)
@given(st.integers(2, 24), st.sampled_from([1.0, 1.3, 2.0]), st.integers(0, 2**32 - 1), st.data())
def test_a_clustering_keeps_to_the_sizes_and_no_exchange_makes_it_better(
    n: int, elasticity: float, seed: int, data: st.DataObject
) -> None:
    sizes = sizes_for(n, data.draw(st.integers(1, n)), elasticity)
    place, distances = cloud(n, 3, seed)
    label, cost = clustering(place, distances, sizes, seed, 1)
    assert fits(label, sizes)
    assert label.tolist() == by_appearance(label).tolist()
    assert cost == pytest.approx(objective(distances, label))
    for i, j in itertools.combinations(range(n), 2):
        other = label.copy()
        other[[i, j]] = other[[j, i]]
        assert objective(distances, other) >= cost - 1e-6
    for i, group in itertools.product(range(n), range(sizes.number)):
        other = label.copy()
        other[i] = group
        if fits(other, sizes):
            assert objective(distances, other) >= cost - 1e-6


@settings(max_examples=50)
@given(st.integers(2, 20), st.integers(0, 999), st.sampled_from([1, 3, 1000]), st.data())
def test_exchanges_never_make_it_worse(n: int, seed: int, high: int, data: st.DataObject) -> None:
    """Also where distances are zero, or alike, or no distances at all."""
    sizes = sizes_for(n, data.draw(st.integers(1, n)), data.draw(st.floats(1, 2)))
    distances = random_costs(n, seed, high=high)
    begun = random_groups(sizes, np.random.default_rng(seed))
    label, cost = refined(begun, distances, sizes)
    assert fits(label, sizes)
    assert cost == pytest.approx(objective(distances, label))
    assert cost <= objective(distances, begun) + 1e-9


@pytest.mark.parametrize("factor", [1e-6, 1e7])
def test_k_means_does_not_depend_on_units_nor_on_the_origin(factor: float) -> None:
    rng = np.random.default_rng(2)
    rack = np.repeat(np.arange(4), 4)
    place = np.array([[0, 0], [9, 0], [0, 9], [9, 9.0]])[rack] + rng.normal(0, 0.2, (16, 2))
    for shift in (0.0, 30.0):
        label = k_means(factor * (place + shift), sizes_for(16, 4), 0)
        assert by_appearance(label).tolist() == rack.tolist()


def test_k_means_keeps_to_the_sizes_where_all_are_in_one_place() -> None:
    sizes = sizes_for(9, 4, 1.5)
    for place in (np.zeros((9, 2)), np.full((9, 3), 1e12), np.eye(9) * 1e-12):
        assert fits(k_means(place, sizes, 0), sizes)


@pytest.mark.parametrize("elasticity", [1.0, 2.0])
def test_the_same_seed_gives_the_same_groups(elasticity: float) -> None:
    """And progress is reported, one clustering after the other."""
    place, distances = cloud(30, 4, 7)
    sizes = sizes_for(30, None, elasticity)
    progress: list[tuple[int, int]] = []
    first = balanced_groups(place, distances, sizes, 3, lambda done, total: progress.append((done, total)))
    second = balanced_groups(place, distances, sizes, seed=3)
    assert first.label.tolist() == second.label.tolist()
    assert first.agreement == second.agreement
    assert 0.2 < first.agreement <= 1.0
    assert progress == [(done, first.runs) for done in range(1, first.runs + 1)]


@pytest.mark.parametrize("elasticity", [1.0, 2.0])
def test_racks_well_apart_are_recovered(elasticity: float) -> None:
    for seed in range(5):
        rtt, rack_of = racks([5, 5, 5, 5, 5], seed)
        place = np.eye(5)[rack_of] * 90
        result = balanced_groups(place, rtt, sizes_for(25, None, elasticity), seed)
        assert result.label.tolist() == by_appearance(rack_of).tolist()
        assert result.agreement == 1.0


def test_elasticity_lets_uneven_racks_be_groups() -> None:
    """Racks of 6 and 3: even groups have to split the larger one."""
    rtt, rack_of = racks([6, 3, 6, 3], seed=1)
    place = np.eye(4)[rack_of] * 90
    even = balanced_groups(place, rtt, sizes_for(18, 4, 1.0), seed=0).label
    loose = balanced_groups(place, rtt, sizes_for(18, 4, 1.5), seed=0).label
    assert sorted(np.bincount(even).tolist()) == [4, 4, 5, 5]
    assert loose.tolist() == by_appearance(rack_of).tolist()


def test_agreement_is_the_mean_over_any_two() -> None:
    """Also where some are the same but numbered otherwise."""
    rng = np.random.default_rng(1)
    result = [rng.integers(0, 3, 20) for _ in range(3)]
    result += [(result[0] + 1) % 3, result[1]]
    pairs = itertools.combinations(result, 2)
    assert agreement(result) == pytest.approx(np.mean([adjusted_mutual_info_score(a, b) for a, b in pairs]))
    assert agreement(result) < 1


@settings(max_examples=50)
@given(st.integers(1, 200), st.integers(0, 999), st.data())
def test_random_groups_are_balanced(n: int, seed: int, data: st.DataObject) -> None:
    sizes = sizes_for(n, data.draw(st.integers(1, n)))
    assert fits(random_groups(sizes, np.random.default_rng(seed)), sizes)
