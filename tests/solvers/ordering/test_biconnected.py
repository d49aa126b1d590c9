"""The threshold at which a ring could exist: against taking hosts out one by one, and never above a ring's own."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from solvers.ordering.one_tree import two_connected_threshold
from tests.solvers.synthetic import Matrix, random_costs

SEED = st.integers(0, 2**32 - 1)


def stays_connected(cost: Matrix, threshold: float) -> bool:
    """Whether the pairs within the threshold connect all hosts, whichever one of them is taken out."""
    within = cost <= threshold
    return all(
        connected_components(within[np.ix_(rest, rest)], directed=False)[0] == 1
        for out in range(-1, len(cost))
        for rest in [[k for k in range(len(cost)) if k != out]]
    )


@settings(max_examples=40)
@given(st.integers(3, 14), SEED, st.sampled_from([1, 2, 5, 1000]))
def test_it_is_the_least_at_which_no_host_is_needed_by_the_others(n: int, seed: int, high: int) -> None:
    cost = random_costs(n, seed, high=high)
    lengths = np.unique(cost[np.triu_indices(n, 1)])
    assert two_connected_threshold(cost) == next(item for item in lengths.tolist() if stays_connected(cost, item))


@settings(max_examples=30)
@given(st.integers(3, 7), SEED, st.sampled_from([1, 3, 1000]))
def test_every_ring_has_a_hop_as_long(n: int, seed: int, high: int) -> None:
    cost = random_costs(n, seed, high=high)
    rings = np.array([(0, *rest) for rest in itertools.permutations(range(1, n))])
    assert two_connected_threshold(cost) <= cost[rings, np.roll(rings, 1, axis=1)].max(axis=1).min()
