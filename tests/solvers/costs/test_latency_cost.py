"""The thesis's ring cost against plain loops, its lower bound against all rings, and what is refused."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plink.errors import NoAnswer
from solvers.latency import require_complete, ring_cost
from solvers.ordering.one_tree import ring_bound
from tests.solvers.synthetic import brute_force, loop_cost, random_costs

SEED = st.integers(0, 2**32 - 1)


@given(st.integers(1, 12), SEED)
def test_the_cost_is_the_sum_of_the_hops(n: int, seed: int) -> None:
    cost = random_costs(n, seed)
    order = np.random.default_rng(seed).permutation(n)
    assert ring_cost(cost, order) == loop_cost(cost, order)


@given(st.integers(3, 12), SEED, st.integers(0, 11))
def test_ring_cost_is_invariant_under_rotation_and_mirroring(n: int, seed: int, turn: int) -> None:
    cost = random_costs(n, seed)
    order = np.random.default_rng(seed).permutation(n)
    assert ring_cost(cost, np.roll(order, turn)) == ring_cost(cost, order)
    assert ring_cost(cost, order[::-1]) == ring_cost(cost, order)


@settings(max_examples=40)
@given(st.integers(1, 7), SEED, st.sampled_from([3, 1000]))
@example(6, 1408138, 3)  # a ring of cost 0: penalties that should cancel leave 3e-18
def test_no_ring_costs_less_than_the_bound(n: int, seed: int, high: int) -> None:
    cost = random_costs(n, seed, high=high)
    assert ring_bound(cost) <= brute_force(cost)


def test_a_missing_pair_is_named_once() -> None:
    nan = np.nan
    cost = np.array([[0, 1, nan], [1, 0, nan], [nan, nan, 0]])
    with pytest.raises(NoAnswer, match=r"^2 pairs were not measured, the first ada - cem; .*`plink probe`$") as caught:
        require_complete(cost, ["ada", "bob", "cem"])
    assert caught.value.exit_code == 4
