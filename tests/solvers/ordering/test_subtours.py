"""The subtour relaxation: no ring costs less, 1-trees say no more, and branching finds the cheapest ring."""

import itertools
import time
from collections.abc import Callable

import numpy as np
import pytest

from plink.model.network import Matrix
from solvers.latency import ring_cost
from solvers.ordering.one_tree import one_tree
from solvers.ordering.problem import SearchBudget
from solvers.ordering.ring import search_ring
from solvers.ordering.subtours import BranchLimits, branch, subtour_bound
from tests.solvers.synthetic import random_costs


def clustered(hosts: int, seed: int) -> Matrix:
    """Points of a plane in clusters, some in one place."""
    rng = np.random.default_rng(seed)
    centres = rng.uniform(0, 1000, (max(2, hosts // 6), 2))
    points = centres[rng.integers(len(centres), size=hosts)] + rng.integers(-9, 10, (hosts, 2))
    return np.asarray(np.rint(np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))))


def unlimited(nodes: int = 10_000) -> BranchLimits:
    return BranchLimits(nodes, None, lambda: True)


@pytest.mark.parametrize("seed", range(6))
def test_no_ring_costs_less_and_edges_cost_what_they_add(seed: int) -> None:
    cost = clustered(8, seed) if seed % 2 else random_costs(8, seed, 1, 50)
    rings = np.array([(0, *rest) for rest in itertools.permutations(range(1, 8))])
    costs = cost[rings, np.roll(rings, -1, axis=1)].sum(axis=1)
    relaxation = subtour_bound(cost, np.arange(8), lambda: True)
    best = float(costs.min())
    assert relaxation.bound <= best * (1 + 1e-9)
    for a, b in itertools.combinations(range(8), 2):
        places = np.argwhere(rings == a)[:, 1], np.argwhere(rings == b)[:, 1]
        with_edge = np.isin((places[0] - places[1]) % 8, (1, 7))
        assert costs[with_edge].min() >= relaxation.bound + relaxation.reduced[a, b] - 1e-6
    tour, bound = branch(cost, ring_cost(cost, np.arange(8)), np.ones((8, 8), dtype=bool), relaxation, unlimited())
    assert tour is not None
    assert sorted(tour.tolist()) == list(range(8))
    assert ring_cost(cost, tour) == pytest.approx(best)
    assert bound == pytest.approx(best, rel=1e-6)


def scattered(hosts: int, seed: int) -> Matrix:
    points = np.random.default_rng(seed).uniform(0, 1000, (hosts, 2))
    return np.asarray(np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1)))


def test_blossoms_bring_the_bound_near_the_cheapest_ring() -> None:
    """Subtours alone end 0.57 % below these."""
    gaps = []
    for seed in range(4):
        cost = scattered(60, seed)
        ring = search_ring(cost, 0, SearchBudget(10**6, exhaustive=False))
        bound = subtour_bound(cost, ring.order, lambda: True).bound
        assert bound <= ring.cost * (1 + 1e-9)
        gaps.append(1 - bound / ring.cost)
    assert np.mean(gaps) < 0.003


class IdleEngine:
    """An engine that finds nothing."""

    def __init__(self, cost: Matrix, deadline: float) -> None:
        pass

    def tour(self, keep_going: Callable[[], bool]) -> None:
        return None

    def end(self) -> None:
        pass


@pytest.mark.extended
def test_many_hosts_have_a_bound_by_cuts_where_an_engine_searches() -> None:
    cost = clustered(320, 1)
    budget = SearchBudget(10**5, exhaustive=False, deadline=time.monotonic() + 600.0, ring_engine=IdleEngine)
    ring = search_ring(cost, 0, budget)
    assert ring.bound_by == "subtours"
    assert ring.lower_bound <= ring.cost
    assert ring.lower_bound > one_tree(cost, lambda: True).bound


def test_bound_holds_whenever_the_time_is_up() -> None:
    cost = clustered(60, 1)
    best = search_ring(cost, 0, SearchBudget(200_000)).cost
    for calls in range(6):
        answers = iter([True] * calls)
        relaxation = subtour_bound(cost, np.arange(60), lambda answers=answers: next(answers, False))  # type: ignore[misc]
        assert relaxation.bound <= best * (1 + 1e-9)
        everywhere = np.ones(cost.shape, dtype=bool)
        tour, bound = branch(cost, best, everywhere, relaxation, BranchLimits(1, None, lambda: False))
        assert tour is None
        assert bound == relaxation.bound


def test_past_deadline_ends_branching() -> None:
    cost = clustered(30, 2)
    relaxation = subtour_bound(cost, np.arange(30), lambda: True)
    limits = BranchLimits(10, time.monotonic() - 1, lambda: True)
    everywhere = np.ones(cost.shape, dtype=bool)
    assert branch(cost, ring_cost(cost, np.arange(30)), everywhere, relaxation, limits) == (None, relaxation.bound)


def test_rings_of_clustered_hosts_are_proven_in_the_search() -> None:
    """Where 1-trees stay far below."""
    cost = clustered(64, 3)
    ring = search_ring(cost, 1, SearchBudget(10**7, exhaustive=False))
    assert ring.bound_by == "subtours"
    assert ring.lower_bound >= ring.cost * (1 - 1e-6)
