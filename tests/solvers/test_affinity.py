"""Physical affinity inference accuracy, held against its definition written as three loops."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.affinity import paia, triplets
from tests.solvers.synthetic import Matrix, racks, random_costs


def by_loops(measured: Matrix, truth: Matrix) -> tuple[float, int]:
    """Over (a, b; c), a < b, with different true distances to c, both measured: the share whose measured ones differ
    the same way, and how many they are."""
    agree = total = 0
    for c in range(len(truth)):
        for a, b in itertools.combinations([host for host in range(len(truth)) if host != c], 2):
            if truth[a, c] != truth[b, c] and not np.isnan([measured[a, c], measured[b, c]]).any():
                total += 1
                if truth[a, c] < truth[b, c]:
                    agree += bool(measured[a, c] < measured[b, c])
                else:
                    agree += bool(measured[a, c] > measured[b, c])
    return agree / total if total else math.nan, total


@given(st.integers(1, 7), st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(2, 20), st.floats(0, 0.5))
def test_paia_is_the_three_loops(n: int, seed: int, true_values: int, values: int, holes: float) -> None:
    """With ties on both sides and holes among the measured ones; neither need be symmetric."""
    rng = np.random.default_rng(seed)
    measured = random_costs(n, seed, high=values) + np.triu(random_costs(n, seed + 1, high=3))
    measured[rng.random((n, n)) < holes] = np.nan
    truth = random_costs(n, seed + 2, high=true_values)
    result, (expected, total) = paia(measured, truth), by_loops(measured, truth)
    assert triplets(truth, measured) == total
    assert (math.isnan(result) and math.isnan(expected)) or result == pytest.approx(expected)


@given(st.lists(st.integers(1, 5), min_size=2, max_size=4), st.integers(0, 99))
def test_distances_that_rank_as_the_truth_does_are_right(sizes: list[int], seed: int) -> None:
    truth, _ = racks(sizes, seed, near=0.0, far=3.0)
    rtt, _ = racks(sizes, seed)
    noise = np.random.default_rng(seed).uniform(0.9, 1.1, rtt.shape)
    result = paia(rtt * noise, truth)
    assert math.isnan(result) if max(sizes) == 1 else result == 1.0
    if not math.isnan(result):
        assert paia(-rtt, truth) == 0.0


def test_chance_is_a_half_and_a_constant_is_wrong() -> None:
    truth, _ = racks([8] * 4, seed=1)
    assert paia(random_costs(32, 5, high=10**6), truth) == pytest.approx(0.5, abs=0.1)
    assert paia(np.ones((32, 32)), truth) == 0.0
    assert math.isnan(paia(np.full((32, 32), np.nan), truth))


def test_without_a_triplet_there_is_no_answer() -> None:
    assert math.isnan(paia(np.ones((2, 2)), np.ones((2, 2))))
    assert math.isnan(paia(np.ones((5, 5)), np.ones((5, 5))))
