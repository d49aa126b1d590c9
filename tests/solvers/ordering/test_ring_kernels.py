"""The compiled local search: tours stay tours, what is said to be saved is saved, and no move was missed."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.ordering.ring_kernels import Neighbours, Perturbations, perturb
from tests.solvers.synthetic import Matrix, loop_cost, random_costs

SEED = st.integers(0, 2**32 - 1)
HIGH = st.sampled_from([3, 1000])
Hosts = npt.NDArray[np.int64]


def descend(cost: Matrix, near: npt.NDArray[np.int64], tour: npt.NDArray[np.int64]) -> float:
    """Improve a tour in place until no move does; what was saved."""
    start = Perturbations(0, 0.0, 0.0, to_local_optimum=True)
    saved: float = perturb(Neighbours(cost, near), tour, tour.copy(), start, np.array([1], dtype=np.uint64))
    return saved


def nearest(cost: Matrix, width: int) -> Hosts:
    """For each host so many others, the nearest first; shape (N, width)."""
    others = cost + np.diag(np.full(len(cost), np.inf))
    return np.argsort(others, axis=1, kind="stable")[:, :width].astype(np.int64)


def shuffled(n: int, seed: int) -> Hosts:
    """A tour to start from."""
    return np.random.default_rng(seed).permutation(n).astype(np.int64)


@settings(max_examples=50)
@given(st.integers(8, 60), SEED, HIGH, st.integers(1, 7))
def test_a_descent_saves_what_it_says(n: int, seed: int, high: int, width: int) -> None:
    cost, tour = random_costs(n, seed, high=high), shuffled(n, seed)
    before = loop_cost(cost, tour)
    saved = descend(cost, nearest(cost, width), tour)
    assert sorted(tour.tolist()) == list(range(n))
    assert before - loop_cost(cost, tour) == pytest.approx(saved, abs=1e-6)


@settings(max_examples=40)
@given(st.integers(8, 40), SEED, HIGH, st.integers(1, 7))
def test_no_exchange_with_a_candidate_is_left_after_a_descent(n: int, seed: int, high: int, width: int) -> None:
    """2-opt: for every host, either way round, the edge after it, and a shorter one from there to a candidate."""
    cost, tour = random_costs(n, seed, high=high), shuffled(n, seed)
    near = nearest(cost, width)
    descend(cost, near, tour)
    for way in (tour, tour[::-1]):
        before = dict(zip(way.tolist(), np.roll(way, 1).tolist(), strict=True))
        for t2, t1 in before.items():
            for t3 in near[t2].tolist():
                t4 = before[t3]
                if t3 != t1 and t4 != t2 and cost[t2, t3] < cost[t1, t2]:
                    assert cost[t1, t2] - cost[t2, t3] + cost[t3, t4] - cost[t4, t1] <= 1e-6


@settings(max_examples=30)
@given(st.integers(8, 10), SEED, HIGH)
def test_with_all_hosts_as_candidates_no_3_opt_move_is_left(n: int, seed: int, high: int) -> None:
    """Any three edges left, the pieces put together in any other way."""
    cost, tour = random_costs(n, seed, high=high), shuffled(n, seed)
    descend(cost, nearest(cost, n - 1), tour)
    now = loop_cost(cost, tour)
    for i, j, k in itertools.combinations(range(n), 3):
        item, two, rest = tour[i:j], tour[j:k], np.concatenate([tour[k:], tour[:i]])
        for first, second in ((item, two), (two, item)):
            for a, b in itertools.product((first, first[::-1]), (second, second[::-1])):
                assert loop_cost(cost, np.concatenate([a, b, rest])) >= now - 1e-6


@settings(max_examples=40)
@given(st.integers(8, 60), SEED, HIGH, st.sampled_from([0.0, 0.3, 30.0]), st.integers(0, 200))
def test_kicks_gain_what_they_say_and_never_lose_the_best(
    n: int, seed: int, high: int, warm: float, kicks: int
) -> None:
    cost, tour = random_costs(n, seed, high=high), shuffled(n, seed)
    near = nearest(cost, 5)
    descend(cost, near, tour)
    before, best = loop_cost(cost, tour), np.zeros_like(tour)
    gained = perturb(
        Neighbours(cost, near), tour, best, Perturbations(kicks, warm, 0.0), np.array([seed], dtype=np.uint64)
    )
    assert sorted(tour.tolist()) == sorted(best.tolist()) == list(range(n))
    assert gained >= 0
    assert before - loop_cost(cost, best) == pytest.approx(gained, abs=1e-6)
    assert loop_cost(cost, best) <= loop_cost(cost, tour) + 1e-6
    if warm == 0:
        assert loop_cost(cost, tour) <= before + 1e-6


def test_kicks_do_help() -> None:
    """Two hundred hosts in a square, costs their distances: kicks take a percent off what a descent leaves."""
    n = 200
    x, y = np.random.default_rng(4).uniform(0, 1000, (2, n))
    cost = np.hypot(x[:, None] - x, y[:, None] - y)
    tour, near = shuffled(n, 1), nearest(cost, 5)
    descend(cost, near, tour)
    before, best = loop_cost(cost, tour), np.zeros_like(tour)
    gained = perturb(Neighbours(cost, near), tour, best, Perturbations(5000, 0.0, 0.0), np.array([7], dtype=np.uint64))
    assert gained > 0.01 * before
