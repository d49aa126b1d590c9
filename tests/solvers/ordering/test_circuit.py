"""Proven rings: the cheapest of all by trying each, bounds that hold, directions, and a start that is never lost."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.latency import ring_cost
from solvers.ordering.circuit import CircuitLimits, _bound_and_useful_arcs, solve_circuit
from tests.solvers.synthetic import Matrix, Tour, random_costs


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
@given(st.integers(2, 7), st.integers(0, 999), st.sampled_from([3, 1000]), st.booleans(), st.booleans())
def test_the_proven_ring_is_the_cheapest_of_all(n: int, seed: int, high: int, directed: bool, bottleneck: bool) -> None:
    """Whole numbers, many ties and hops that cost nothing among them: the bound is met exactly."""
    rng = np.random.default_rng(seed)
    cost = rng.integers(0, high, (n, n)).astype(float) if directed else random_costs(n, seed, 0, high)
    start = rng.permutation(n)
    result = solve_circuit(cost, start, CircuitLimits(), bottleneck)
    assert sorted(result.order.tolist()) == list(range(n))
    assert result.optimal
    assert result.cost == cost_of(cost, result.order, bottleneck)
    assert result.cost == cheapest(cost, bottleneck)
    assert result.cost * (1 - 1e-6) <= result.lower_bound <= result.cost


@settings(max_examples=25)
@given(st.integers(4, 7), st.integers(0, 999), st.booleans(), st.booleans())
def test_bounds_hold_for_fractional_costs_and_few_steps(n: int, seed: int, directed: bool, bottleneck: bool) -> None:
    cost = np.random.default_rng(seed).lognormal(3, 2, (n, n))
    cost = cost if directed else np.maximum(cost, cost.T)
    start, best = np.arange(n), cheapest(cost, bottleneck)
    for deterministic_s in (1e-9, 10.0):
        result = solve_circuit(cost, start, CircuitLimits(deterministic_s), bottleneck)
        assert result.lower_bound <= best * (1 + 1e-12)
        assert best <= result.cost * (1 + 1e-12)
        assert result.cost <= cost_of(cost, start, bottleneck)
        assert not result.optimal or result.cost <= best * (1 + 1e-5)
    assert result.optimal


def test_where_the_way_matters_each_host_has_to_reach_each() -> None:
    """Thresholds that only the way back rules out are ruled out before CP-SAT is asked: it needs long for them."""
    cost = tiers(64, 1) * np.random.default_rng(9).lognormal(0, 0.2, (64, 64))
    assert solve_circuit(cost, nearest_first(cost), CircuitLimits(2.0), bottleneck=True).optimal


@settings(max_examples=30)
@given(st.integers(4, 7), st.integers(0, 999), st.sampled_from([4, 1000]))
def test_edges_that_are_left_out_are_in_no_ring_as_cheap(n: int, seed: int, high: int) -> None:
    """Proofs rest on this: the penalties come from doubles, the bound must not."""
    cost = random_costs(n, seed, 0, high)
    whole = cost.astype(np.int64)
    rings = [np.array((0, *rest)) for rest in itertools.permutations(range(1, n))]
    costs = [int(ring_cost(cost, ring)) for ring in rings]
    for most in (min(costs), sorted(costs)[len(costs) // 10]):
        bound, needed = _bound_and_useful_arcs(whole, most)
        assert bound <= min(costs)
        for ring, paid in zip(rings, costs, strict=True):
            assert paid > most or needed[ring, np.roll(ring, -1)].all()


@settings(max_examples=30)
@given(st.integers(3, 7), st.integers(0, 999), st.booleans(), st.booleans())
def test_a_longest_hop_is_kept_to_and_the_proof_is_of_such_rings(n: int, seed: int, directed: bool, near: bool) -> None:
    """The longest hop first, the sum second; or any ring's longest hop as the limit."""
    cost = np.random.default_rng(seed).integers(0, 20, (n, n)).astype(float)
    cost = cost if directed else np.maximum(cost, cost.T)
    start = solve_circuit(cost, np.arange(n), CircuitLimits(), bottleneck=True).order if near else np.arange(n)
    longest = cost_of(cost, start, True)
    result = solve_circuit(cost, start, CircuitLimits(), longest=longest)
    rings = [np.array((0, *rest)) for rest in itertools.permutations(range(1, n))]
    best = min(cost_of(cost, ring, False) for ring in rings if cost_of(cost, ring, True) <= longest)
    assert result.optimal
    assert cost_of(cost, result.order, True) <= longest
    assert result.cost == best
    assert best * (1 - 1e-6) <= result.lower_bound <= best


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
    result = solve_circuit(cost + constant * apart, start, CircuitLimits(20.0))
    assert result.optimal
    assert apart[result.order, np.roll(result.order, -1)].sum() == 8
    assert ring_cost(cost, result.order) == pytest.approx(ring_cost(cost, round_it), rel=1e-9)
    # What rounding takes from the bound is small even beside the sum without the constants.
    assert result.lower_bound - 8 * constant == pytest.approx(ring_cost(cost, round_it), rel=1e-5)


def test_a_time_limit_ends_it_with_what_there_is() -> None:
    cost = tiers(32, 4)
    result = solve_circuit(cost, np.arange(32), CircuitLimits(time_limit_s=1.0))
    assert result.lower_bound <= result.cost <= ring_cost(cost, np.arange(32))


@pytest.mark.parametrize("bottleneck", [False, True])
def test_smallest_rings_are_proven_without_a_search(bottleneck: bool) -> None:
    """Two hosts, and three that are alike both ways, make one ring; where the way matters three make two; and nothing
    is cheaper than nothing."""
    for n in (1, 2, 3):
        cost, order = random_costs(n, 4, 5), np.arange(n)[::-1].copy()
        result = solve_circuit(cost, order, CircuitLimits(1e-9), bottleneck)
        paid = cost_of(cost, order, bottleneck)
        assert (result.order.tolist(), result.cost, result.lower_bound) == (order.tolist(), paid, paid)
        assert result.optimal
    one_way = np.array([[0.0, 9.0, 1.0], [1.0, 0.0, 9.0], [9.0, 1.0, 0.0]])
    result = solve_circuit(one_way, np.array([0, 1, 2]), CircuitLimits(), bottleneck)
    assert np.roll(result.order, -int(np.flatnonzero(result.order == 0)[0])).tolist() == [0, 2, 1]
    assert result.cost == result.lower_bound == (1.0 if bottleneck else 3.0)
    free = np.full((5, 5), 7.0)
    free[np.arange(5), (np.arange(5) + 1) % 5] = 0.0
    result = solve_circuit(free, np.arange(5), CircuitLimits(1e-9), bottleneck)
    assert (result.order.tolist(), result.cost, result.lower_bound, result.optimal) == (list(range(5)), 0.0, 0.0, True)


@pytest.mark.parametrize("bottleneck", [False, True])
def test_what_a_host_costs_to_itself_plays_no_part(bottleneck: bool) -> None:
    cost = random_costs(6, 3, 5)
    plain = solve_circuit(cost, np.arange(6), CircuitLimits(), bottleneck)
    for diagonal in (1e9, np.nan, np.inf):
        np.fill_diagonal(cost, diagonal)
        result = solve_circuit(cost, np.arange(6), CircuitLimits(), bottleneck)
        assert (result.cost, result.optimal) == (plain.cost, True)
        assert result.lower_bound == pytest.approx(plain.cost, rel=1e-6)


@pytest.mark.parametrize("times", [1e-6, 1e9])
def test_a_start_of_a_million_times_the_cost_is_solved(times: float) -> None:
    """What is rounded down is a share of what the order costs that is found, not of the one it began with."""
    n = 7
    cost = random_costs(n, 2, 1, 50) + 0.25
    rings = [np.array((0, *rest)) for rest in itertools.permutations(range(1, n))]
    best = min(rings, key=lambda ring: cost_of(cost, ring, False))
    far = np.full((n, n), 1e6)
    for a, b in zip(best.tolist(), np.roll(best, -1).tolist(), strict=True):
        far[a, b] = far[b, a] = cost[a, b]
    start = next(ring for ring in rings if cost_of(far, ring, False) > 6e6)
    result = solve_circuit(far * times, start, CircuitLimits())
    assert result.optimal
    assert result.cost == pytest.approx(cost_of(cost, best, False) * times)
    assert result.cost * (1 - 1e-6) <= result.lower_bound <= result.cost
