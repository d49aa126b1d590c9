"""Z3 on orders, windows and blocks: what it finds is cheaper, what it calls proven is so, by trying every order."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.errors import NoAnswer
from solvers.costs.by_name import pattern_for
from solvers.costs.closed_forms import closed_form
from solvers.costs.evaluator import MODELS
from solvers.costs.fabric import Fabric
from solvers.costs.patterns import Pattern
from solvers.ordering.smt import Answer, Effort, cheaper
from solvers.ordering.smt_windows import EPSILON
from tests.solvers.costs.test_cost_models import fabric, options_for
from tests.solvers.synthetic import Tour, random_costs

ALGORITHMS = ["ring", "ring-chunked", "halving-doubling", "bcube", "bml", "double-binary-tree", "tree", "2lha", "flat"]
SIZE = 1e5


def made(n: int, seed: int, ties: bool) -> Fabric:
    """Random round trips and rates; small whole numbers for ties, rates of pairs for odd seeds."""
    found = fabric(n, seed, pairs=seed % 2 == 1)
    return dataclasses.replace(found, rtt_us=random_costs(n, seed, 1, 5)) if ties else found


def pattern(algo: str, n: int, seed: int = 1) -> Pattern:
    return pattern_for(algo, n, options_for(algo, n, seed))


def neighbours(order: Tour, units: Sequence[Sequence[int]]) -> list[Tour]:
    """All orders that exchanging the contents of units makes."""
    found = []
    for contents in itertools.permutations(units):
        changed = order.copy()
        for unit, content in zip(units, contents, strict=True):
            changed[list(unit)] = order[list(content)]
        found.append(changed)
    return found


def agrees(answer: Answer, one: Pattern, found: Fabric, model: str, orders: list[Tour], below: float) -> None:
    """The answer is one of the orders and cheaper, or a proof that holds."""
    price = closed_form(one, found, SIZE, model)
    if answer.order is not None:
        assert price(answer.order) < below
        assert any(np.array_equal(answer.order, order) for order in orders)
    else:
        assert answer.proved
        assert min(price(order) for order in orders) >= below * (1 - 2 * EPSILON)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_answers_about_whole_orders_are_right(algo: str, model: str) -> None:
    """Just below the best, just above it, and below the second best."""
    for n, seed, ties in ((4, 1, True), (4, 2, False), (5, 3, True), (6, 4, False)):
        if algo in ("bcube", "bml") and n != 4:
            continue
        one, found = pattern(algo, n, seed), made(n, seed, ties)
        price = closed_form(one, found, SIZE, model)
        orders = [np.array(order) for order in itertools.permutations(range(n))]
        costs = sorted(price(order) for order in orders)
        given_order = max(orders, key=price)
        for below in (costs[0], costs[0] * (1 + 1e-5), costs[len(costs) // 8]):
            if below <= price(given_order):
                units = [[rank] for rank in np.random.default_rng(seed).permutation(n).tolist()]
                answer = cheaper(one, found, SIZE, model, given_order, units, below, Effort())
                agrees(answer, one, found, model, orders, below)


@settings(max_examples=35, deadline=None)
@given(st.data())
def test_answers_about_windows_and_blocks_are_right(data: st.DataObject) -> None:
    """Only the units move; blocks keep what is inside them; hosts may have several ranks."""
    algo, model = data.draw(st.sampled_from(ALGORITHMS)), data.draw(st.sampled_from(MODELS))
    n, seed = (8 if algo in ("bcube", "bml") else data.draw(st.integers(5, 9))), data.draw(st.integers(0, 99))
    rng = np.random.default_rng(seed)
    one, found = pattern(algo, n, seed), made(n, seed, data.draw(st.booleans()))
    order = rng.integers(0, n, n) if data.draw(st.booleans()) else rng.permutation(n)
    length = data.draw(st.integers(1, 2))
    count = data.draw(st.integers(2, min(4, n // length)))
    units = rng.permutation(n)[: count * length].reshape(count, length).tolist()
    orders = neighbours(order, units)
    price = closed_form(one, found, SIZE, model)
    best = min(price(other) for other in orders)
    for below in (price(order), best * (1 + 1e-5), best):
        if 0 < below <= price(order):
            answer = cheaper(one, found, SIZE, model, order, units, below, Effort())
            agrees(answer, one, found, model, orders, below)


def test_without_effort_nothing_is_claimed() -> None:
    one, found, order = pattern("ring", 10), made(10, 3, False), np.arange(10)
    units = [[rank] for rank in range(10)]
    price = closed_form(one, found, SIZE, "latency")(order)
    assert cheaper(one, found, SIZE, "latency", order, units, price / 3, Effort(rlimit=1000)) == Answer(None, False)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("algo", ["tree", "halving-doubling"])
def test_where_all_hosts_are_alike_that_nothing_is_cheaper_is_seen_at_once(algo: str, model: str) -> None:
    """Without trying thousands of orders that cost the same."""
    n = 8
    one, found = pattern(algo, n), fabric(n, 2)
    rates, free = np.full(n, 5.0), np.full(len(found.group_out_gbps), np.inf)
    found = dataclasses.replace(
        found,
        rtt_us=100.0 * ~np.eye(n, dtype=bool),
        host_out_gbps=rates,
        host_in_gbps=rates,
        group_out_gbps=free,
        group_in_gbps=free,
    )
    cost = closed_form(one, found, SIZE, model)(np.arange(n))
    for below in (cost, 0.6 * cost):
        answer = cheaper(one, found, SIZE, model, np.arange(n), [[rank] for rank in range(n)], below, Effort())
        assert answer == Answer(None, True)


def test_what_was_not_measured_has_no_price() -> None:
    one, found = pattern("ring", 5), made(5, 2, False)
    found.rtt_us[0, 1] = found.rtt_us[1, 0] = np.nan
    with pytest.raises(NoAnswer, match="h0 - h1"):
        cheaper(one, found, SIZE, "latency", np.arange(5), [[rank] for rank in range(5)], 1.0, Effort())
