"""Rings at the limits of their searches: few hosts, no distances, one threshold, as many disturbances as allowed."""

import itertools

import numpy as np
import pytest

from solvers.ordering.circuit import CircuitEffort, prove_ring
from solvers.ordering.progress import Progress
from solvers.ordering.ring import canonical, least_sum, longest_hop, search_bottleneck, search_ring
from tests.solvers.ordering.test_ring_search import always, best_of_all, plus, until
from tests.solvers.synthetic import Matrix, Tour, loop_cost, random_costs

FAR = random_costs(30, seed=0, low=500)  # whose bound no ring meets


def rings(n: int) -> list[Tour]:
    return [np.array((0, *rest)) for rest in itertools.permutations(range(1, n))]


def test_up_to_eight_hosts_every_ring_is_tried_and_of_nine_it_is_searched() -> None:
    every, cost = np.array(rings(8)), random_costs(8, 1)
    hops = cost[every, np.roll(every, 1, axis=1)]
    longest, sums = hops.max(axis=1), hops.sum(axis=1)
    found = search_ring(cost, 1, until(0), 500)
    assert (found.cost, found.lower_bound, found.kicks) == (sums.min(), sums.min(), 0)
    shortest = search_bottleneck(cost, 1, until(0), 500)
    assert (shortest.longest, shortest.kicks) == (longest.min(), 0)
    assert shortest.cost == shortest.lower_bound == sums[longest == longest.min()].min()
    for n, asked in ((8, False), (9, True)):  # trying all is not a matter of time
        told: list[Progress] = []

        def watch(progress: Progress, told: list[Progress] = told) -> bool:
            told.append(progress)
            return True

        search_ring(random_costs(n, 1), 1, watch, 500)
        assert bool(told) is asked


@pytest.mark.parametrize("search", [search_ring, search_bottleneck])
@pytest.mark.parametrize("n", [4, 8, 12])
def test_where_no_ring_is_cheaper_hosts_stay_as_they_are_numbered(search: object, n: int) -> None:
    assert callable(search)
    for apart in (0.0, 25.0):
        found = search(apart * ~np.eye(n, dtype=bool), 3, always, 300)
        assert found.order.tolist() == list(range(n))
        assert (found.cost, found.longest) == (n * apart, apart)
        assert found.longest_bound == apart
        assert found.lower_bound == pytest.approx(n * apart)
        assert found.kicks == 0


@pytest.mark.parametrize(("n", "most"), [(30, 0), (30, 1), (30, 599), (30, 600), (30, 601), (30, 30_000)])
def test_who_is_patient_disturbs_as_often_as_is_allowed(n: int, most: int) -> None:
    """Where the bound is not met: series of twenty a host, the last one cut."""
    found = search_ring(FAR, 3, always, most)
    assert found.kicks == most
    assert found.cost > found.lower_bound * (1 + 1e-9)


def test_who_is_not_ends_after_forty_series_in_vain() -> None:
    """Of twenty disturbances for each host."""
    series = 20 * len(FAR)
    told: list[Progress] = []

    def watch(progress: Progress) -> bool:
        told.append(progress)
        return True

    found = search_ring(FAR, 3, watch, 10**9, patient=False)
    gained = min(one.moves for one in told if one.cost <= found.cost * (1 + 1e-12))
    assert found.kicks == gained + 40 * series


def test_more_time_is_never_worse_and_disturbances_help() -> None:
    cost = random_costs(60, 5, low=500)
    costs = [search_ring(cost, 5, until(calls), 10**9).cost for calls in (2, 3, 5)]
    assert costs == sorted(costs, reverse=True)
    assert search_ring(cost, 5, always, 3000).cost < search_ring(cost, 5, always, 0).cost


@pytest.mark.parametrize("seed", range(4))
def test_the_least_sum_has_no_longer_hop_than_it_is_told(seed: int) -> None:
    """From the best ring by its longest hop to the cheapest of all rings of such hops."""
    cost = random_costs(10, seed)
    start = search_bottleneck(cost, 1, until(0), 500).order
    longest = longest_hop(cost, start)
    order = least_sum(cost, start, longest, 1, always, 3000)
    assert longest_hop(cost, order) <= longest
    assert loop_cost(cost, order) == pytest.approx(best_of_all(np.where(cost > longest, 1e6, cost), plus))
    free = least_sum(cost, start, float(cost.max()), 1, always, 3000)
    assert loop_cost(cost, free) == pytest.approx(best_of_all(cost, plus))


def test_of_few_hosts_the_ring_is_left_which_all_were_tried_for() -> None:
    for n, same in ((8, True), (9, False)):
        cost = random_costs(n, 3)
        start = np.random.default_rng(1).permutation(n)
        order = least_sum(cost, start, float(cost.max()), 1, always, 3000)
        assert (order.tolist() == start.tolist()) is same


@pytest.mark.parametrize("bottleneck", [False, True])
def test_two_hosts_and_three_that_are_alike_both_ways_make_one_ring(bottleneck: bool) -> None:
    """It is the bound as well; where the way matters three make two."""
    for n in (1, 2, 3):
        cost, order = random_costs(n, 4, 5), np.arange(n)[::-1].copy()
        found = prove_ring(cost, order, CircuitEffort(1e-9), bottleneck)
        hops = [float(cost[order[k], order[(k + 1) % n]]) for k in range(n)]
        paid = max(hops) if bottleneck else sum(hops)
        assert (found.order.tolist(), found.cost, found.lower_bound) == (order.tolist(), paid, paid)
        assert found.optimal
    one_way = np.array([[0.0, 9.0, 1.0], [1.0, 0.0, 9.0], [9.0, 1.0, 0.0]])
    found = prove_ring(one_way, np.array([0, 1, 2]), CircuitEffort(), bottleneck)
    assert canonical_one_way(found.order) == [0, 2, 1]
    assert found.cost == found.lower_bound == (1.0 if bottleneck else 3.0)


def canonical_one_way(order: Tour) -> list[int]:
    found: list[int] = np.roll(order, -int(np.flatnonzero(order == 0)[0])).tolist()
    return found


@pytest.mark.parametrize("bottleneck", [False, True])
def test_nothing_is_cheaper_than_nothing(bottleneck: bool) -> None:
    cost = np.full((5, 5), 7.0)
    cost[np.arange(5), (np.arange(5) + 1) % 5] = 0.0
    found = prove_ring(cost, np.arange(5), CircuitEffort(1e-9), bottleneck)
    assert (found.order.tolist(), found.cost, found.lower_bound, found.optimal) == (list(range(5)), 0.0, 0.0, True)


def priced(cost: Matrix, order: Tour) -> float:
    return float(cost[order, np.roll(order, -1)].sum())


@pytest.mark.parametrize("diagonal", [0.0, 1e9, np.nan, np.inf])
@pytest.mark.parametrize("bottleneck", [False, True])
def test_what_a_host_costs_to_itself_plays_no_part(diagonal: float, bottleneck: bool) -> None:
    cost = random_costs(6, 3, 5)
    plain = prove_ring(cost, np.arange(6), CircuitEffort(), bottleneck)
    np.fill_diagonal(cost, diagonal)
    found = prove_ring(cost, np.arange(6), CircuitEffort(), bottleneck)
    assert (found.cost, found.optimal) == (plain.cost, True)
    assert found.lower_bound == pytest.approx(plain.cost, rel=1e-6)


@pytest.mark.parametrize("times", [1e-6, 1.0, 1e9])
def test_a_start_a_million_times_as_dear_is_no_worse_a_start(times: float) -> None:
    """What is rounded down is a share of what the order costs that is found, not of the one it began with."""
    n = 7
    cost = random_costs(n, 2, 1, 50) + 0.25
    np.fill_diagonal(cost, 0.0)
    best = min(rings(n), key=lambda ring: loop_cost(cost, ring))
    far = np.full((n, n), 1e6)
    for a, b in zip(best.tolist(), np.roll(best, -1).tolist(), strict=True):
        far[a, b] = far[b, a] = cost[a, b]
    start = next(ring for ring in rings(n) if priced(far, ring) > 6e6)
    found = prove_ring(far * times, start, CircuitEffort())
    assert canonical(found.order).tolist() == canonical(best).tolist()
    assert found.optimal
    assert found.cost == pytest.approx(loop_cost(cost, best) * times)
    assert found.cost * (1 - 1e-6) <= found.lower_bound <= found.cost
