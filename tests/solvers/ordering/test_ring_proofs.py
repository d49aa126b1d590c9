"""Proven rings: the cheapest of all by trying each, bounds that hold, and a start that is never lost."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.latency import ring_cost
from solvers.ordering.exact import ExactBudget, ProvenRing, least_bottleneck_ring, least_ring
from tests.solvers.synthetic import Matrix, Tour, random_costs

UNLIMITED = ExactBudget(None, lambda: True)


def solve(cost: Matrix, start: Tour, bottleneck: bool, budget: ExactBudget = UNLIMITED) -> ProvenRing:
    return (least_bottleneck_ring if bottleneck else least_ring)(cost, start, budget)


def cost_of(cost: Matrix, order: Tour, bottleneck: bool) -> float:
    """One hop after the other, from each rank to the next."""
    hops = [float(cost[order[i], order[(i + 1) % len(order)]]) for i in range(len(order))]
    return max(hops) if bottleneck else sum(hops)


def cheapest(cost: Matrix, bottleneck: bool) -> float:
    """Of all rings, in both directions."""
    return min(cost_of(cost, np.array((0, *rest)), bottleneck) for rest in itertools.permutations(range(1, len(cost))))


def tiers(n: int, seed: int) -> Matrix:
    """Racks of eight, zones of four racks, 25, 60 and 120 us with noise."""
    rng = np.random.default_rng(seed)
    rack = rng.permutation(n) // 8
    levels = np.where(rack[:, None] // 4 == rack // 4, 60.0, 120.0)
    drawn = np.where(rack[:, None] == rack, 25.0, levels) * np.exp(rng.normal(0, 0.15, (n, n)))
    cost: Matrix = np.maximum(drawn, drawn.T)
    np.fill_diagonal(cost, 0.0)
    return cost


def nearest_first(cost: Matrix) -> Tour:
    """From host 0 always to the nearest host that is left."""
    order, left = [0], set(range(1, len(cost)))
    while left:
        order.append(min(left, key=lambda host: (float(cost[order[-1], host]), host)))
        left.remove(order[-1])
    return np.array(order, dtype=np.intp)


@settings(max_examples=50)
@given(st.integers(2, 7), st.integers(0, 999), st.sampled_from([3, 1000]), st.booleans())
def test_the_proven_ring_is_the_cheapest_of_all(n: int, seed: int, high: int, bottleneck: bool) -> None:
    """Whole numbers, many ties and hops that cost nothing among them: the bound is met exactly."""
    cost = random_costs(n, seed, 0, high)
    result = solve(cost, np.random.default_rng(seed).permutation(n), bottleneck)
    assert sorted(result.order.tolist()) == list(range(n))
    assert result.is_optimal
    assert result.cost == pytest.approx(cost_of(cost, result.order, bottleneck), rel=1e-12)
    assert result.cost == pytest.approx(cheapest(cost, bottleneck), rel=1e-9)
    assert result.cost * (1 - 1e-6) <= result.lower_bound <= result.cost


@settings(max_examples=25)
@given(st.integers(4, 7), st.integers(0, 999), st.booleans())
def test_bounds_hold_for_fractional_costs_and_no_time(n: int, seed: int, bottleneck: bool) -> None:
    cost = np.random.default_rng(seed).lognormal(3, 2, (n, n))
    cost = np.maximum(cost, cost.T)
    start, best = np.arange(n), cheapest(cost, bottleneck)
    for budget in (ExactBudget(1e-9, lambda: True), ExactBudget(None, lambda: False), UNLIMITED):
        result = solve(cost, start, bottleneck, budget)
        assert result.lower_bound <= best * (1 + 1e-9)
        assert best <= result.cost * (1 + 1e-12)
        assert result.cost <= cost_of(cost, start, bottleneck) * (1 + 1e-12)
        assert not result.is_optimal or result.cost <= best * (1 + 1e-5)
    assert result.is_optimal


@pytest.mark.parametrize("n", [24, 40])
def test_rings_of_tiers_are_proven(n: int) -> None:
    cost = tiers(n, n)
    start = nearest_first(cost)
    result = solve(cost, start, False)
    assert result.is_optimal
    assert result.cost == pytest.approx(ring_cost(cost, result.order))
    assert result.cost < ring_cost(cost, start)
    longest = solve(cost, start, True)
    assert longest.is_optimal
    assert longest.cost <= cost_of(cost, result.order, True)


@settings(max_examples=30)
@given(st.integers(3, 7), st.integers(0, 999), st.booleans())
def test_a_longest_hop_is_kept_to_and_the_proof_is_of_such_rings(n: int, seed: int, near: bool) -> None:
    """The longest hop first, the sum second; or any ring's longest hop as the limit."""
    cost = np.random.default_rng(seed).integers(0, 20, (n, n)).astype(float)
    cost = np.maximum(cost, cost.T)
    np.fill_diagonal(cost, 0.0)
    start = solve(cost, np.arange(n), True).order if near else np.arange(n)
    longest = cost_of(cost, start, True)
    result = least_ring(cost, start, UNLIMITED, longest)
    rings = [np.array((0, *rest)) for rest in itertools.permutations(range(1, n))]
    best = min(cost_of(cost, ring, False) for ring in rings if cost_of(cost, ring, True) <= longest)
    assert result.is_optimal
    assert cost_of(cost, result.order, True) <= longest
    assert result.cost == pytest.approx(best, rel=1e-9)
    assert best * (1 - 1e-6) <= result.lower_bound <= best * (1 + 1e-9)


def test_a_longest_hop_costs_the_sum_something() -> None:
    cost = tiers(40, 2)
    start = nearest_first(cost)
    free = solve(cost, start, False)
    longest = solve(cost, start, True)
    both = least_ring(cost, longest.order, UNLIMITED, longest.cost)
    assert free.is_optimal
    assert both.is_optimal
    assert cost_of(cost, both.order, True) == longest.cost < cost_of(cost, free.order, True)
    assert free.cost <= both.lower_bound <= both.cost < cost_of(cost, longest.order, False)


@pytest.mark.parametrize(("times", "near"), [(10.0, True), (100.0, False)])
def test_hosts_kept_together_by_a_constant_are_ordered_as_well_as_without_it(times: float, near: bool) -> None:
    """On a circle the best ring goes round it, whatever is added between its eighths; the last start costs seven times
    as much."""
    n, rng = 64, np.random.default_rng(7)
    angle = np.sort(rng.uniform(0, 2 * np.pi, n))
    shuffled = rng.permutation(n)
    there = np.exp(1j * angle)[shuffled]
    cost = 100 * np.abs(there[:, None] - there[None, :])
    apart = shuffled[:, None] // 8 != shuffled[None, :] // 8
    constant = times * float(cost.sum()) / (n * (n - 1))
    round_it = np.argsort(shuffled)
    start = nearest_first(cost + constant * apart) if near else np.arange(n)
    result = solve(cost + constant * apart, start, False)
    assert result.is_optimal
    assert apart[result.order, np.roll(result.order, -1)].sum() == 8
    assert ring_cost(cost, result.order) == pytest.approx(ring_cost(cost, round_it), rel=1e-9)
    # What rounding takes from the bound is small even beside the sum without the constants.
    assert result.lower_bound - 8 * constant == pytest.approx(ring_cost(cost, round_it), rel=1e-5)


def test_a_time_limit_ends_it_with_what_there_is() -> None:
    cost = tiers(32, 4)
    result = solve(cost, np.arange(32), False, ExactBudget(1.0, lambda: True))
    assert result.lower_bound <= result.cost <= ring_cost(cost, np.arange(32))


@pytest.mark.parametrize("bottleneck", [False, True])
def test_smallest_rings_are_proven_without_a_search(bottleneck: bool) -> None:
    """Up to three hosts make one ring."""
    for n in (1, 2, 3):
        cost, order = random_costs(n, 4, 5), np.arange(n)[::-1].copy()
        result = solve(cost, order, bottleneck, ExactBudget(1e-9, lambda: True))
        paid = cost_of(cost, order, bottleneck)
        assert result.order.tolist() == order.tolist()
        assert result.cost == result.lower_bound == pytest.approx(paid)
        assert result.is_optimal


def test_stopped_proof_is_no_worse_than_its_start() -> None:
    cost, order = random_costs(200, 1), np.arange(200)
    proved = least_ring(cost, order, ExactBudget(None, lambda: False))
    assert proved.cost <= cost_of(cost, order, False) * (1 + 1e-12)
    assert proved.lower_bound <= proved.cost
