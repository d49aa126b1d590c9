"""Symmetries of patterns: as many as are known, none changes a price, what they make superfluous is never missed."""

import itertools

import numpy as np
import pytest

from solvers.costs.by_name import pattern_for
from solvers.costs.closed_forms import closed_form
from solvers.costs.evaluator import MODELS
from solvers.ordering.symmetries import superfluous, symmetries
from solvers.schedules.catalogue import Options
from tests.solvers.test_smt import SIZE, made


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("algo", "n", "number"),
    [("ring", 6, 12), ("ring", 7, 14), ("halving-doubling", 8, 8), ("bcube", 9, 9), ("halving-doubling", 6, 1)],
)
def test_symmetries_are_found_and_change_no_price(algo: str, n: int, number: int, model: str) -> None:
    """A ring has its shifts, and mirrors under ``latency``; halving-doubling ``xor``; with a fold there is less."""
    one, found = pattern_for(algo, n, Options(base=3)), made(n, 4, False)
    moves = {tuple(move.tolist()) for move in symmetries(one, model)}
    if algo != "ring" or model == "latency":
        assert len(moves) >= number
    assert len(moves) <= 2 * n
    price = closed_form(one, found, SIZE, model)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(n)
        for move in moves:
            assert price(order[list(move)]) == pytest.approx(price(order), rel=1e-12)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("algo", "n", "left"), [("ring", 6, 60), ("halving-doubling", 4, 6), ("tree", 5, 120)])
def test_what_is_superfluous_has_an_equal_that_is_left(algo: str, n: int, left: int, model: str) -> None:
    """A ring of 6 has 5! / 2 orders under ``latency``; every price of any order is the price of one that is left."""
    one, found = pattern_for(algo, n, Options()), made(n, 4, False)
    forbidden = list(superfluous(one, model, found.rtt_us))
    price = closed_form(one, found, SIZE, model)
    orders = list(itertools.permutations(range(n)))
    kept = [order for order in orders if not any(all(order[u] == v for u, v in choices) for choices in forbidden)]
    prices = np.array([price(np.array(order)) for order in kept])
    for order in orders:
        assert np.isclose(prices, price(np.array(order)), rtol=1e-12, atol=0).any()
    if model == "latency":
        assert len(kept) == left


def test_a_pair_that_was_not_measured_is_the_same_both_ways() -> None:
    one, found = pattern_for("ring", 6, Options()), made(6, 4, False)
    whole = list(superfluous(one, "latency", found.rtt_us))
    found.rtt_us[0, 1] = found.rtt_us[1, 0] = np.nan
    assert list(superfluous(one, "latency", found.rtt_us)) == whole
    assert whole


def test_hosts_that_are_not_symmetric_make_nothing_superfluous() -> None:
    one, found = pattern_for("ring", 6, Options()), made(6, 4, False)
    found.rtt_us[0, 1] += 1.0
    assert not list(superfluous(one, "latency", found.rtt_us))
