"""Symmetries of patterns: all expected ones are found, none changes a cost, and redundant choices are never needed."""

import itertools

import numpy as np
import pytest

from solvers.costs.by_name import pattern_for
from solvers.costs.closed_forms import closed_form
from solvers.costs.evaluator import MODELS
from solvers.costs.patterns import Pattern
from solvers.ordering.smt import redundant_choices, symmetries
from solvers.schedules.catalogue import Options
from tests.solvers.ordering.instances import tied
from tests.solvers.synthetic import random_costs

SIZE = 1e5


@pytest.mark.parametrize(
    ("algo", "n", "number", "model"),
    [
        ("ring", 7, 14, "latency"),
        ("ring", 6, 6, "contention"),
        ("halving-doubling", 8, 8, "alpha-beta"),
        ("bcube", 9, 9, "latency"),
        ("halving-doubling", 6, 1, "latency"),
    ],
)
def test_symmetries_do_not_change_the_cost(algo: str, n: int, number: int, model: str) -> None:
    """A ring has its shifts, and mirrors under ``latency``; halving-doubling ``xor``; with a fold there is less."""
    item, result = pattern_for(algo, n, Options(base=3)), tied(n, 4, False)
    moves = {tuple(move.tolist()) for move in symmetries(item, model)}
    assert number <= len(moves) <= 2 * n
    cost_of = closed_form(item, result, SIZE, model)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(n)
        for move in moves:
            assert cost_of(order[list(move)]) == pytest.approx(cost_of(order), rel=1e-12)


@pytest.mark.parametrize(
    ("algo", "n", "left", "model"),
    [
        ("ring", 6, 60, "latency"),
        ("ring", 6, 120, "contention"),
        ("halving-doubling", 4, 6, "latency"),
        ("tree", 5, 120, "latency"),
    ],
)
def test_what_is_superfluous_has_an_equal_that_is_left(algo: str, n: int, left: int, model: str) -> None:
    """A ring of 6 has 5! / 2 orders under ``latency``; every cost of any order is the cost of one that is left."""
    item, result = pattern_for(algo, n, Options()), tied(n, 4, False)
    forbidden = list(redundant_choices(item, model, result.rtt_us))
    cost_of = closed_form(item, result, SIZE, model)
    orders = list(itertools.permutations(range(n)))
    remaining = [order for order in orders if not any(all(order[u] == v for u, v in choices) for choices in forbidden)]
    costs = np.array([cost_of(np.array(order)) for order in remaining])
    for order in orders:
        assert np.isclose(costs, cost_of(np.array(order)), rtol=1e-12, atol=0).any()
    assert len(remaining) == left


def test_a_pair_that_was_not_measured_is_the_same_both_ways() -> None:
    item, result = pattern_for("ring", 6, Options()), tied(6, 4, False)
    whole = list(redundant_choices(item, "latency", result.rtt_us))
    result.rtt_us[0, 1] = result.rtt_us[1, 0] = np.nan
    assert list(redundant_choices(item, "latency", result.rtt_us)) == whole
    assert whole


def test_hosts_that_are_not_symmetric_make_nothing_superfluous() -> None:
    item, result = pattern_for("ring", 6, Options()), tied(6, 4, False)
    result.rtt_us[0, 1] += 1.0
    assert not list(redundant_choices(item, "latency", result.rtt_us))


def made_of(ranks: int, hops: list[tuple[int, int]], shares: list[float], timing: str = "rounds") -> Pattern:
    """One round of these hops."""
    ends = np.array(hops, dtype=np.intp)
    zeros, once = np.zeros(len(hops), dtype=np.intp), np.ones(1)
    return Pattern(ranks, zeros, ends[:, 0], ends[:, 1], np.array(shares), once, once, timing)


def test_no_symmetries_for_latency_chains_and_all_to_all() -> None:
    tree, flat = pattern_for("tree", 6, Options()), pattern_for("flat", 6, Options())
    assert symmetries(tree, "latency") == []
    assert [move.tolist() for move in symmetries(tree, "contention")] == [list(range(6))]
    for model in MODELS:
        assert symmetries(flat, model) == []


def left_over(item: Pattern, n: int) -> list[tuple[int, ...]]:
    forbidden = list(redundant_choices(item, "latency", random_costs(n, 1, 1)))
    orders = itertools.permutations(range(n))
    return [order for order in orders if not any(all(order[u] == v for u, v in choices) for choices in forbidden)]


def test_of_a_ring_of_so_many_half_of_the_factorial_of_one_fewer_is_left() -> None:
    """Two hosts make one ring as well, and so do three."""
    for n, left in ((2, 1), (3, 1), (4, 3), (5, 12)):
        assert len(left_over(pattern_for("ring", n, Options()), n)) == left


def test_mirrored_path_keeps_a_cheapest_order() -> None:
    """2 - 1 - 0 - 4 - 3, the same from either end: every cost is the cost of one that is left."""
    path = made_of(5, [(2, 1), (1, 0), (0, 4), (4, 3)], [1.0] * 4, "pipeline")
    rtt = random_costs(5, 1, 1)
    cost = {
        order: sum(rtt[order[a], order[b]] for a, b in ((2, 1), (1, 0), (0, 4), (4, 3)))
        for order in itertools.permutations(range(5))
    }
    left = left_over(path, 5)
    assert len(left) < len(cost)
    assert {cost[order] for order in left} == set(cost.values())
