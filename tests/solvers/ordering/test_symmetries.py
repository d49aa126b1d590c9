"""Symmetries of patterns: all expected ones are found, none changes a cost, and redundant choices are never needed."""

import itertools

import numpy as np
import pytest

from solvers.costs.by_name import pattern_for
from solvers.costs.closed_forms import closed_form
from solvers.ordering.smt import redundant_choices, symmetries
from solvers.schedules.catalogue import Options
from tests.solvers.ordering.instances import tied

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


def test_hosts_that_are_not_symmetric_make_nothing_superfluous() -> None:
    item, result = pattern_for("ring", 6, Options()), tied(6, 4, False)
    result.rtt_us[0, 1] += 1.0
    assert not list(redundant_choices(item, "latency", result.rtt_us))
