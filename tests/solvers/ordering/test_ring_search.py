"""The search for a ring: never worse than what it was given, optimal where that can be checked, the same every time."""

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.latency import ring_cost
from solvers.ordering.problem import SearchBudget, SearchProgress
from solvers.ordering.ring import Ring, canonical, least_sum, longest_hop, search_bottleneck, search_ring
from tests.solvers.ordering.instances import until
from tests.solvers.synthetic import Matrix, Tour, blocks, brute_force, loop_cost, racks, random_costs

SEED = st.integers(0, 2**32 - 1)
KICKS = 3000


def best_of_all(cost: Matrix, join: Callable[[float, float], float]) -> float:
    """The best ring by dynamic programming over subsets (Held and Karp 1962), hops joined by a sum or a maximum."""
    n = len(cost)
    best = {(1 << k, k): float(cost[0, k]) for k in range(1, n)}
    for size in range(2, n):
        larger: dict[tuple[int, int], float] = {}
        for (done, last), value in best.items():
            if done.bit_count() == size - 1:
                for k in range(1, n):
                    if not done >> k & 1:
                        key = (done | 1 << k, k)
                        larger[key] = min(larger.get(key, np.inf), join(value, float(cost[last, k])))
        best = larger
    return min(join(value, float(cost[last, 0])) for (_, last), value in best.items())


def plus(item: float, other: float) -> float:
    return item + other


def is_sound(result: Ring, cost: Matrix) -> None:
    """The cost of a ring as it is, and bounds that are not above it."""
    assert sorted(result.order.tolist()) == list(range(len(cost)))
    assert result.cost == pytest.approx(loop_cost(cost, result.order), rel=1e-12)
    assert result.longest == longest_hop(cost, result.order)
    assert result.lower_bound <= result.cost
    assert result.longest_bound <= result.longest


@settings(max_examples=40)
@given(st.integers(1, 7), SEED, st.sampled_from([1, 3, 1000]))
def test_small_rings_are_optimal(n: int, seed: int, high: int) -> None:
    """Every ring is tried: the bound is the cost."""
    cost = random_costs(n, seed, high=high)
    result = search_ring(cost, seed, SearchBudget(KICKS))
    is_sound(result, cost)
    assert result.cost == pytest.approx(brute_force(cost))
    assert result.lower_bound == result.cost
    assert result.perturbations == 0


@settings(max_examples=20, derandomize=True)
@given(st.integers(9, 11), SEED, st.sampled_from([1, 3, 1000]))
def test_rings_beyond_those_are_optimal_too(n: int, seed: int, high: int) -> None:
    """Local search promises no optimum; the same examples every time, so that a failure is a change of the search."""
    cost = random_costs(n, seed, high=high)
    result = search_ring(cost, seed, SearchBudget(KICKS))
    is_sound(result, cost)
    best = best_of_all(cost, plus)
    assert result.cost == pytest.approx(best)
    assert result.lower_bound <= best


@settings(max_examples=40)
@given(st.integers(2, 7), SEED, st.sampled_from([1, 3, 1000]))
def test_of_small_rings_with_the_shortest_longest_hop_the_cheapest_is_found(n: int, seed: int, high: int) -> None:
    cost = random_costs(n, seed, high=high)
    result = search_bottleneck(cost, seed, SearchBudget(KICKS))
    is_sound(result, cost)
    least = best_of_all(cost, max)
    assert result.longest == result.longest_bound == least
    # Of the rings of such hops the cheapest: longer ones are made dearer than all of it.
    assert result.cost == pytest.approx(brute_force(np.where(cost > least, 1e6, cost)))
    assert result.lower_bound == result.cost


@settings(max_examples=20, derandomize=True)
@given(st.integers(9, 11), SEED, st.sampled_from([3, 1000]))
def test_the_longest_hop_beyond_those_is_the_shortest_too(n: int, seed: int, high: int) -> None:
    cost = random_costs(n, seed, high=high)
    result = search_bottleneck(cost, seed, SearchBudget(KICKS))
    is_sound(result, cost)
    least = best_of_all(cost, max)
    cheapest = best_of_all(np.where(cost > least, 1e6, cost), plus)
    assert result.longest_bound <= least == result.longest
    assert result.lower_bound <= cheapest * (1 + 1e-12)
    assert result.cost == pytest.approx(cheapest)


@settings(max_examples=30)
@given(st.integers(1, 24), SEED, st.integers(0, 4), st.booleans())
def test_time_limit_is_never_worse_than_the_baseline(n: int, seed: int, calls: int, bottleneck: bool) -> None:
    cost = random_costs(n, seed)
    result = (search_bottleneck if bottleneck else search_ring)(cost, seed, SearchBudget(10**9, until(calls)))
    is_sound(result, cost)
    if bottleneck:
        assert result.longest <= longest_hop(cost, np.arange(n))
    else:
        assert result.cost <= loop_cost(cost, np.arange(n)) * (1 + 1e-12)


@pytest.mark.parametrize("search", [search_ring, search_bottleneck])
def test_disturbances_are_counted_and_no_more_than_allowed(search: Callable[..., Ring]) -> None:
    cost = random_costs(40, 3)
    for most in (0, 1, 500):
        messages: list[SearchProgress] = []

        def watch(progress: SearchProgress, messages: list[SearchProgress] = messages) -> bool:
            messages.append(progress)
            return True

        result = search(cost, 1, SearchBudget(most, watch))
        assert result.perturbations <= most
        assert all(item.moves <= most for item in messages)
        assert all(item.lower_bound is None or item.lower_bound <= item.cost for item in messages)
        costs = [item.cost for item in messages]
        assert costs == sorted(costs, reverse=True)


@pytest.mark.parametrize("search", [search_ring, search_bottleneck])
def test_the_same_seed_gives_the_same_result(search: Callable[..., Ring]) -> None:
    cost = random_costs(60, seed=5)
    first, second = (search(cost, 9, SearchBudget(2000)) for _ in range(2))
    assert first.order.tolist() == second.order.tolist()
    assert (first.cost, first.longest, first.lower_bound, first.longest_bound, first.perturbations) == (
        second.cost, second.longest, second.lower_bound, second.longest_bound, second.perturbations,
    )  # fmt: skip


@pytest.mark.parametrize("sizes", [[4, 4, 4, 4], [1, 2, 5, 8], [16], [1] * 6, [20] * 5])
def test_each_rack_is_one_block(sizes: list[int]) -> None:
    """Noise-free: the cheapest ring leaves every rack once, whatever the shuffle."""
    for seed in range(3):
        cost, rack_of = racks(sizes, seed)
        result = search_ring(cost, seed, SearchBudget(KICKS))
        assert blocks(rack_of[result.order]) == len(sizes)
        hops = len(sizes) if len(sizes) > 1 else 0
        assert result.cost == hops * 90.0 + (len(cost) - hops) * 40.0
        is_sound(result, cost)
        assert result.longest == result.longest_bound


@settings(max_examples=40)
@given(st.permutations(list(range(7))), st.integers(0, 6), st.booleans())
def test_one_ring_has_one_way_to_write_it(order: list[int], turn: int, mirrored: bool) -> None:
    ring = np.array(order)
    same = np.roll(ring[::-1] if mirrored else ring, turn)
    written = canonical(same)
    assert written.tolist() == canonical(ring).tolist()
    assert written[0] == 0
    assert written[1] < written[-1]
    assert _edges(written) == _edges(ring)
    assert canonical(np.array([1, 0])).tolist() == [0, 1]


def _edges(ring: Tour) -> set[frozenset[int]]:
    return {frozenset((a, b)) for a, b in zip(ring.tolist(), np.roll(ring, 1).tolist(), strict=True)}


@pytest.mark.parametrize("unit", [1e-9, 1e12])
def test_units_of_the_costs_play_no_part(unit: float) -> None:
    """The same ring in nanoseconds of nanoseconds and in days: nothing is absolute, and it ends."""
    cost = random_costs(30, 3)
    result = search_ring(cost * unit, 3, SearchBudget(KICKS))
    assert result.order.tolist() == search_ring(cost, 3, SearchBudget(KICKS)).order.tolist()
    shortest = search_bottleneck(cost * unit, 3, SearchBudget(KICKS))
    assert shortest.longest == pytest.approx(search_bottleneck(cost, 3, SearchBudget(KICKS)).longest * unit)


@pytest.mark.parametrize("search", [search_ring, search_bottleneck])
def test_where_no_ring_is_cheaper_hosts_stay_as_they_are_numbered(search: Callable[..., Ring]) -> None:
    for n, apart in ((4, 25.0), (8, 0.0), (12, 0.0), (12, 25.0)):
        result = search(apart * ~np.eye(n, dtype=bool), 3, SearchBudget(300))
        assert result.order.tolist() == list(range(n))
        assert (result.cost, result.longest, result.longest_bound) == (n * apart, apart, apart)
        assert result.lower_bound == pytest.approx(n * apart)
        assert result.perturbations == 0


def test_more_time_is_never_worse_and_disturbances_help() -> None:
    cost = random_costs(60, 5, low=500)
    costs = [search_ring(cost, 5, SearchBudget(10**9, until(calls))).cost for calls in (2, 3, 5)]
    assert costs == sorted(costs, reverse=True)
    assert search_ring(cost, 5, SearchBudget(3000)).cost < search_ring(cost, 5, SearchBudget(0)).cost


def test_the_minimum_sum_respects_the_hop_limit() -> None:
    """From the best ring by its longest hop to the cheapest of all rings of such hops."""
    for seed in range(3):
        cost = random_costs(10, seed)
        start = search_bottleneck(cost, 1, SearchBudget(500, until(0))).order
        longest = longest_hop(cost, start)
        order = least_sum(cost, start, longest, 1, SearchBudget(3000))
        assert longest_hop(cost, order) <= longest
        assert loop_cost(cost, order) == pytest.approx(best_of_all(np.where(cost > longest, 1e6, cost), plus))
        free = least_sum(cost, start, float(cost.max()), 1, SearchBudget(3000))
        assert loop_cost(cost, free) == pytest.approx(best_of_all(cost, plus))


class FinishedEngine:
    """A ring engine that has the tour of a long search of plink's own."""

    def __init__(self, cost: Matrix, deadline: float) -> None:
        self.order, self.ended = search_ring(cost, 0, SearchBudget(20_000)).order, False
        self.seconds = deadline - time.monotonic()

    def tour(self, keep_going: Callable[[], bool]) -> npt.NDArray[np.int64] | None:
        return self.order.astype(np.int64)

    def end(self) -> None:
        self.ended = True


@pytest.mark.parametrize(("hosts", "takes_part"), [(120, True), (60, False)])
def test_deadline_adds_the_ring_engine(hosts: int, takes_part: bool) -> None:
    """Plink's own search is ended at once by its number of moves, so that what is better is the other engine's."""
    points = np.random.default_rng(4).random((hosts, 2)) * 50.0
    cost = np.linalg.norm(points[:, None] - points, axis=2)
    engines: list[FinishedEngine] = []

    def start(cost: Matrix, deadline: float) -> FinishedEngine:
        engines.append(FinishedEngine(cost, deadline))
        return engines[-1]

    alone = search_ring(cost, 0, SearchBudget(1, ring_engine=start))
    together = search_ring(cost, 0, SearchBudget(1, deadline=time.monotonic() + 600.0, ring_engine=start))
    assert [engine.ended for engine in engines] == [True] * takes_part
    assert (together.cost < alone.cost) is takes_part
    assert together.cost == pytest.approx(ring_cost(cost, together.order))


def test_ring_engine_has_a_time_by_the_number_of_hosts() -> None:
    """Where the search ends by itself; else it has all of it."""
    cost, engines = random_costs(120, 3), list[FinishedEngine]()

    def start(cost: Matrix, deadline: float) -> FinishedEngine:
        engines.append(FinishedEngine(cost, deadline))
        return engines[-1]

    for exhaustive in (False, True):
        search_ring(cost, 0, SearchBudget(1, until(10**6), exhaustive, time.monotonic() + 6000.0, start))
    assert engines[0].seconds < 60 < 600 < engines[1].seconds
