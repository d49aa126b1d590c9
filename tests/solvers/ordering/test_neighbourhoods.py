"""Orders improved window by window: never worse, proofs that hold, only what may be exchanged is, a seed is a seed."""

import itertools

import numpy as np
import pytest

from solvers.costs.closed_forms import CostProblem, closed_form
from solvers.ordering.exact import ImprovedOrder, improve
from solvers.ordering.smt import SmtLimits
from solvers.ordering.smt_windows import EPSILON
from tests.solvers.ordering.instances import neighbours, pattern_of, tied

SIZE = 1e5


@pytest.mark.parametrize(
    ("algo", "n", "model"),
    [
        ("ring", 7, "latency"),
        ("ring", 6, "alpha-beta"),
        ("ring", 6, "contention"),
        ("halving-doubling", 6, "contention"),
        ("halving-doubling", 6, "latency"),
        ("tree", 6, "alpha-beta"),
    ],
)
def test_small_orders_are_improved_until_proven(algo: str, n: int, model: str) -> None:
    item, results = pattern_of(algo, n), tied(n, 6, False)
    cost_of = closed_form(item, results, SIZE, model)
    best = min(cost_of(np.array(other)) for other in itertools.permutations(range(n)))
    whole = [[[rank] for rank in range(n)]]
    result = improve(CostProblem(item, results, SIZE, model), np.arange(n), whole, SmtLimits(), 1, 60)
    assert result.proved_optimal
    assert sorted(result.order.tolist()) == list(range(n))
    assert result.cost == cost_of(result.order)
    assert best <= result.cost <= best * (1 + 2 * EPSILON)
    assert result.queries >= 1


@pytest.mark.parametrize(("algo", "model"), [("tree", "latency"), ("ring", "contention")])
def test_windows_and_blocks_improve_a_larger_order_and_a_seed_is_a_seed(algo: str, model: str) -> None:
    n = 16
    item, result, order = pattern_of(algo, n), tied(n, 3, False), np.random.default_rng(1).permutation(n)
    classes = [[[rank] for rank in range(n)], [list(range(k, k + 4)) for k in range(0, n, 4)]]
    cost_of = closed_form(item, result, SIZE, model)

    def improved() -> ImprovedOrder:
        return improve(CostProblem(item, result, SIZE, model), order, classes, SmtLimits(1_000_000), 5, 8)

    first, second = improved(), improved()
    assert first.order.tolist() == second.order.tolist()
    assert (first.cost, first.proved_optimal, first.queries) == (second.cost, second.proved_optimal, second.queries)
    assert sorted(first.order.tolist()) == list(range(n))
    assert first.cost == cost_of(first.order) < cost_of(order)
    assert not first.proved_optimal
    assert first.queries == 8


def test_only_what_the_classes_allow_is_exchanged() -> None:
    item, results, order = pattern_of("ring", 12), tied(12, 3, False), np.random.default_rng(2).permutation(12)
    blocks = [[[0, 1, 2], [3, 4, 5], [9, 10, 11]]]
    result = improve(CostProblem(item, results, SIZE, "latency"), order, blocks, SmtLimits(), 0, 20)
    cost_of = closed_form(item, results, SIZE, "latency")
    assert result.proved_optimal
    assert result.order[6:9].tolist() == order[6:9].tolist()
    assert result.cost == pytest.approx(min(cost_of(other) for other in neighbours(order, blocks[0])), rel=1e-5)


def test_without_effort_or_time_nothing_is_claimed() -> None:
    item, results, order = pattern_of("ring", 10), tied(10, 3, False), np.arange(10)
    units = [[rank] for rank in range(10)]
    cost = closed_form(item, results, SIZE, "latency")(order)
    result = improve(CostProblem(item, results, SIZE, "latency"), order, [units], SmtLimits(rlimit=1000), 0, 3)
    assert (result.cost, result.proved_optimal) == (cost, False)
    calls = iter([True, False])
    effort = SmtLimits(keep_going=lambda: next(calls, False))
    assert improve(CostProblem(item, results, SIZE, "latency"), order, [units], effort, 0, 99).queries == 1
