"""Annealing: how many moves, when it ends, what it keeps up move by move agrees with the cost, constraints hold."""

import dataclasses
import itertools

import numpy as np
import pytest

from solvers.costs.by_name import pattern_for
from solvers.costs.fabric import Fabric, TierLinks
from solvers.ordering.annealing import Annealer, AnnealingResult
from solvers.ordering.constraints import FeasibleOrders, Moves, PlacementConstraints, moves_of
from solvers.ordering.objectives import CoolingSchedule
from solvers.ordering.problem import SearchBudget, SearchProgress
from solvers.schedules.catalogue import Options
from tests.solvers.costs.test_cost_models import fabric
from tests.solvers.ordering.instances import until
from tests.solvers.synthetic import Tour

ALGO = "halving-doubling"


def annealer_of(result: Fabric, n: int) -> tuple[Annealer, Moves]:
    moves = moves_of(
        FeasibleOrders(np.arange(n), result.names, PlacementConstraints()).exchange_classes(np.arange(n)), n
    )
    assert moves is not None
    return Annealer(pattern_for(ALGO, n, Options()), result, 1e6, "latency"), moves


def search_with_progress(starts: list[Tour], result: Fabric, most: int) -> tuple[AnnealingResult, list[SearchProgress]]:
    messages: list[SearchProgress] = []

    def watch(progress: SearchProgress) -> bool:
        messages.append(progress)
        return True

    annealer, moves = annealer_of(result, len(starts[0]))
    return annealer.search(starts, moves, 3, SearchBudget(most, watch)), messages


def test_just_so_many_moves_are_tried_as_are_allowed() -> None:
    """Two at a time, and the last one alone."""
    results = fabric(6, 2)
    for most in (0, 1, 2, 1001, 40_003):
        result, messages = search_with_progress([np.arange(6)], results, most)
        assert result.moves == most
        counts = [item.moves for item in messages]
        assert counts == sorted(counts)
        assert not messages or (counts[0] == 0 and counts[-1] == most)


def test_progress_reports_the_best_cost_so_far() -> None:
    results = fabric(12, 4)
    result, messages = search_with_progress([np.arange(12), np.random.default_rng(1).permutation(12)], results, 100_000)
    annealer, _ = annealer_of(results, 12)
    costs = [item.cost for item in messages]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] == min(annealer.cost_of(item) for item in (np.arange(12), np.random.default_rng(1).permutation(12)))
    assert costs[-1] == pytest.approx(result.cost)
    assert result.cost == annealer.cost_of(result.order)


def test_the_cheapest_start_is_kept_where_nothing_is_tried() -> None:
    results = fabric(8, 4)
    annealer, moves = annealer_of(results, 8)
    starts = [np.random.default_rng(seed).permutation(8) for seed in range(5)]
    best = min(starts, key=annealer.cost_of)
    for most, exchanged in ((0, moves), (1000, None)):
        result = annealer.search(starts, exchanged, 1, SearchBudget(most))
        assert (result.order.tolist(), result.cost, result.moves) == (best.tolist(), annealer.cost_of(best), 0)


def test_it_ends_where_the_bound_is_met_and_not_before() -> None:
    """A cost that is by a billionth above the bound is the bound's, but for rounding."""
    result = fabric(6, 2)
    annealer, moves = annealer_of(result, 6)
    best = min(annealer.cost_of(np.array(order)) for order in itertools.permutations(range(6)))
    dear = max((np.array(order) for order in itertools.permutations(range(6))), key=annealer.cost_of)
    met = annealer.search([dear], moves, 3, SearchBudget(10**7), best)
    assert met.cost == pytest.approx(best)
    assert 0 < met.moves < 10**7
    assert annealer.search([dear], moves, 3, SearchBudget(500), annealer.cost_of(dear) * (1 - 1e-6)).moves > 0
    assert annealer.search([dear], moves, 3, SearchBudget(500), annealer.cost_of(dear) * (1 - 1e-10)).moves == 0
    assert annealer.search([dear], moves, 3, SearchBudget(500), 0.0).moves == 500


def test_run_stops_on_request() -> None:
    """Before the first move, after the first slice of a run, before the next one."""
    annealer, moves = annealer_of(fabric(6, 2), 6)
    ends = [annealer.search([np.arange(6)], moves, 3, SearchBudget(10**9, until(calls))).moves for calls in range(5)]
    assert ends[0] == 0 < ends[1] == ends[2] < ends[3] == ends[4]


@pytest.mark.parametrize(
    ("algo", "model", "slots"),
    [
        ("ring", "latency", 2),
        ("ring", "alpha-beta", 1),
        ("halving-doubling", "latency", 1),
        ("halving-doubling", "contention", 2),
        ("recursive-doubling", "alpha-beta", 2),
        ("bml", "latency", 2),
        ("bml", "contention", 1),
        ("tree", "latency", 1),
        ("tree", "contention", 1),
        ("double-binary-tree", "latency", 2),
        ("nccl-tree", "latency", 1),
        ("nccl-tree", "alpha-beta", 2),
    ],
)
def test_cost_updated_by_moves_is_the_cost(algo: str, model: str, slots: int) -> None:
    """After thousands of moves, blocks too, in the compiled loops of all three kinds; orders keep the constraints."""
    n = 16 // slots
    results, order = fabric(n, 8), np.repeat(np.random.default_rng(8).permutation(n), slots)
    annealer = Annealer(pattern_for(algo, len(order), Options()), results, 1e6, model)
    for constraints in (
        PlacementConstraints(),
        PlacementConstraints({3: 6}),
        PlacementConstraints({}, [list(range(k, n, 4)) for k in range(4)]),
    ):
        feasible = FeasibleOrders(order, results.names, constraints)
        start = feasible.materialise(feasible.hosts)
        moves = moves_of(feasible.exchange_classes(start), len(order))
        assert moves is not None
        for count in (0, 1, 3000):
            best, cost, last = annealer.run(start, moves, count, CoolingSchedule(1e3, 1.0), 5)
            assert cost == pytest.approx(annealer.cost_of(best), rel=1e-9)
            assert cost <= min(annealer.cost_of(start), annealer.cost_of(last)) * (1 + 1e-9)
            for result in (best, last):
                assert feasible.materialise(list(dict.fromkeys(result.tolist()))).tolist() == result.tolist()


@pytest.mark.parametrize("host_gbps", [8.0, None])
def test_cost_kept_up_by_moves_has_the_links_of_all_tiers(host_gbps: float | None) -> None:
    """Of hosts with one rate, whose loads do not depend on the order, and with different ones."""
    n, result = 16, fabric(16, 9)
    pods = TierLinks(result.group_of // 2, np.array([0.3, 0.2]), np.array([0.4, 0.3]))
    result = dataclasses.replace(result, outer_tiers=(pods,))
    if host_gbps is not None:
        rates = np.full(n, host_gbps)
        result = dataclasses.replace(result, host_out_gbps=rates, host_in_gbps=rates)
    annealer = Annealer(pattern_for("ring", n, Options()), result, 1e6, "contention")
    _, moves = annealer_of(result, n)
    best, cost, _ = annealer.run(np.arange(n), moves, 3000, CoolingSchedule(1e3, 1.0), 5)
    assert cost == pytest.approx(annealer.cost_of(best), rel=1e-9)
    assert cost < annealer.cost_of(np.arange(n))


@pytest.mark.parametrize(
    ("algo", "model"), [("halving-doubling", "latency"), ("tree", "latency"), ("double-binary-tree", "contention")]
)
def test_annealing_finds_the_best_of_few(algo: str, model: str) -> None:
    """What the search of so few leaves to trying every order."""
    n = 6
    results = fabric(n, 7)
    order, annealer = np.arange(n), Annealer(pattern_for(algo, n, Options()), results, 1e6, model)
    moves = moves_of(FeasibleOrders(order, results.names, PlacementConstraints()).exchange_classes(order), n)
    result = annealer.search([order], moves, 3, SearchBudget(60_000))
    best = min(annealer.cost_of(np.array(other)) for other in itertools.permutations(range(n)))
    assert result.cost == pytest.approx(best)
