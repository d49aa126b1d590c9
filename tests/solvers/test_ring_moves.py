"""The moves of the local search: the gain that is priced is the gain that is had, and none better was missed."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.ordering.ring import _best_or_opt, _best_two_opt
from tests.solvers.synthetic import Matrix, Tour, loop_cost, random_costs

N = st.integers(4, 11)
SEED = st.integers(0, 2**32 - 1)


def shuffled(n: int, seed: int) -> Tour:
    """A tour to start from."""
    return np.random.default_rng(seed).permutation(n)


@given(N, SEED)
def test_two_opt_gains_what_it_says(n: int, seed: int) -> None:
    cost, tour = random_costs(n, seed), shuffled(n, seed)
    gain, move = _best_two_opt(cost, tour)
    moved = move()
    assert sorted(moved.tolist()) == list(range(n))
    assert loop_cost(cost, tour) - loop_cost(cost, moved) == pytest.approx(gain)


@given(N, SEED)
def test_or_opt_gains_what_it_says(n: int, seed: int) -> None:
    cost, tour = random_costs(n, seed), shuffled(n, seed)
    gain, move = _best_or_opt(cost, tour)
    moved = move()
    assert sorted(moved.tolist()) == list(range(n))
    assert loop_cost(cost, tour) - loop_cost(cost, moved) == pytest.approx(gain)


@given(st.integers(4, 8), SEED)
def test_two_opt_misses_no_reversal(n: int, seed: int) -> None:
    cost, tour = random_costs(n, seed), shuffled(n, seed)
    assert _best_two_opt(cost, tour)[0] == pytest.approx(_every_reversal(cost, tour))


def _every_reversal(cost: Matrix, tour: Tour) -> float:
    """The best gain of reversing any stretch."""
    found = []
    for i, j in itertools.combinations(range(len(tour) + 1), 2):
        if j - i >= 2:
            found.append(loop_cost(cost, np.concatenate([tour[:i], tour[i:j][::-1], tour[j:]])))
    return loop_cost(cost, tour) - min(found)


@given(st.integers(4, 8), SEED)
def test_or_opt_misses_no_transfer(n: int, seed: int) -> None:
    """Up to three hosts (and at least three left) taken out anywhere, put back anywhere else, either way round."""
    cost, tour = random_costs(n, seed), shuffled(n, seed)
    found = []
    for start, length in itertools.product(range(n), range(1, min(3, n - 3) + 1)):
        turned = np.roll(tour, -start)
        segment, rest = turned[:length], turned[length:]
        for at in range(1, len(rest)):  # at either end it stands where it stood
            for piece in (segment, segment[::-1]):
                found.append(loop_cost(cost, np.concatenate([rest[:at], piece, rest[at:]])))
    assert _best_or_opt(cost, tour)[0] == pytest.approx(loop_cost(cost, tour) - min(found))
