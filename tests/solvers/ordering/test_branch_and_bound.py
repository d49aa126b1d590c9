"""Branch and bound over orders: as cheap as the best of all of them, for every algorithm, model and constraint."""

import dataclasses
import itertools

import numpy as np
import pytest

from solvers.costs.by_name import MIXED, NAMES, cost_function_for, pattern_for
from solvers.costs.evaluator import MODELS
from solvers.costs.fabric import Fabric, TierLinks
from solvers.ordering.branch_and_bound import cheapest_order
from solvers.ordering.constraints import PlacementConstraints
from solvers.ordering.problem import OrderingProblem, SearchBudget
from solvers.ordering.search import search
from solvers.schedules.catalogue import Options
from tests.solvers.costs.test_cost_models import fabric, fitting, options_for
from tests.solvers.costs.test_interfaces import bcube
from tests.solvers.ordering.instances import allowed_orders, given_order, is_allowed, never

SIZE = 4e6


def is_one_for_all(algo: str, ranks: int, options: Options) -> bool:
    return algo not in MIXED and bool(pattern_for(algo, ranks, options).all_to_all_share)


def with_outer_tier(result: Fabric) -> Fabric:
    halves = np.arange(len(result.names)) % 2
    return dataclasses.replace(result, outer_tiers=(TierLinks(halves, np.full(2, 3.0), np.full(2, 5.0)),))


def problems_of(algo: str, model: str) -> list[OrderingProblem]:
    """Hosts of one rank, by rates of hosts and of pairs, with and without groups within groups; of several ranks;
    under constraints; with groups of different sizes."""
    n = fitting(algo, 5)
    pins = PlacementConstraints({0: 2, n - 1: 0})
    pairs = PlacementConstraints({1: 0}, [[0, 1], [2, 3]])
    uneven = PlacementConstraints({}, [[0], [1, n - 1], list(range(2, n - 1))])
    results = [
        (fabric(n, 1), [1] * n, PlacementConstraints()),
        (with_outer_tier(fabric(n, 2, pairs=True)), [1] * n, PlacementConstraints()),
        (fabric(n, 3), [1] * n, pins),
        (fabric(4, 4), [1] * 4, pairs),
        (fabric(4, 5), [2] * 4, PlacementConstraints()),
        (fabric(4, 6), [2] * 4, pairs),
    ]
    if fitting(algo, 7) == 7:  # any number of ranks
        results.append((fabric(4, 7), [3, 1, 2, 1], PlacementConstraints({2: 0})))
    if algo != "2lha":
        results.append((fabric(n, 8), [1] * n, uneven))
    return [
        OrderingProblem(
            each, given_order(slots, k), algo, options_for(algo, sum(slots), k), SIZE, model, constraints=constraints
        )
        for k, (each, slots, constraints) in enumerate(results)
    ]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("algo", NAMES)
def test_cheapest_of_all_allowed_orders(algo: str, model: str) -> None:
    for problem in problems_of(algo, model):
        ranks = len(problem.baseline)
        if is_one_for_all(algo, ranks, problem.options):
            continue
        cost_of = cost_function_for(algo, ranks, problem.options, problem.fabric, SIZE, model)
        slots = np.bincount(problem.baseline).tolist()
        orders = allowed_orders(slots, problem.constraints)
        worst = max(orders, key=cost_of)
        result = cheapest_order(problem, worst, cost_of(worst))
        assert is_allowed(result.order, slots, problem.constraints)
        assert result.is_optimal
        assert cost_of(result.order) == pytest.approx(min(map(cost_of, orders)), rel=1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_cheapest_order_of_hosts_with_several_interfaces(model: str) -> None:
    hosts = bcube(2, 2)
    problem = OrderingProblem(hosts, np.arange(4), "halving-doubling", Options(), SIZE, model)
    cost_of = cost_function_for(problem.algo, 4, problem.options, hosts, SIZE, model)
    orders = [np.array(order) for order in itertools.permutations(range(4))]
    worst = max(orders, key=cost_of)
    assert cost_of(cheapest_order(problem, worst, cost_of(worst)).order) == pytest.approx(min(map(cost_of, orders)))


@pytest.mark.parametrize(
    ("algo", "model"), [("halving-doubling", "alpha-beta"), ("nccl", "contention"), ("tree", "latency")]
)
def test_few_hosts_are_solved_without_time(algo: str, model: str) -> None:
    """Eight hosts, no move and no second: the best order all the same, and known as such."""
    hosts, baseline = fabric(8, 5), np.arange(8)
    constraints = PlacementConstraints({3: 0, 5: 6})
    problem = OrderingProblem(hosts, baseline, algo, Options(), SIZE, model, constraints=constraints)
    cost_of = cost_function_for(algo, 8, Options(), hosts, SIZE, model)
    result = search(problem, 0, SearchBudget(1, never))
    assert result.is_optimal
    assert is_allowed(result.order, [1] * 8, constraints)
    assert result.cost == pytest.approx(min(map(cost_of, allowed_orders([1] * 8, constraints))), rel=1e-9)


@pytest.mark.extended
def test_orders_that_take_too_long_are_not_called_the_best() -> None:
    """Ten hosts of 40 ranks each, random rates: too much for trying all, so that nothing is claimed."""
    hosts = fabric(10, 1)
    problem = OrderingProblem(hosts, np.repeat(np.arange(10), 40), "recursive-doubling", Options(), SIZE, "contention")
    cost_of = cost_function_for(problem.algo, 400, Options(), hosts, SIZE, "contention")
    result = cheapest_order(problem, problem.baseline, cost_of(problem.baseline))
    assert not result.is_optimal
    assert is_allowed(result.order, [40] * 10, PlacementConstraints())
