"""Z3 on orders, windows and blocks: what it finds is cheaper, what it calls proven is so, by trying every order."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.costs.by_name import pattern_for
from solvers.costs.closed_forms import CostProblem, closed_form
from solvers.costs.evaluator import MODELS
from solvers.costs.fabric import Fabric
from solvers.costs.patterns import Pattern
from solvers.ordering.smt import SmtAnswer, SmtLimits, find_cheaper
from solvers.ordering.smt_windows import EPSILON
from solvers.schedules.catalogue import Options
from tests.solvers.costs.test_cost_models import fabric
from tests.solvers.ordering.instances import neighbours, pattern_of, tied
from tests.solvers.synthetic import Tour

ALGORITHMS = ["ring", "ring-chunked", "halving-doubling", "bcube", "bml", "double-binary-tree", "tree", "2lha", "flat"]
SIZE = 1e5


def agrees(answer: SmtAnswer, item: Pattern, result: Fabric, model: str, orders: list[Tour], below: float) -> None:
    """The answer is one of the orders and cheaper, or a proof that holds."""
    cost_of = closed_form(item, result, SIZE, model)
    if answer.order is not None:
        assert cost_of(answer.order) < below
        assert any(np.array_equal(answer.order, order) for order in orders)
    else:
        assert answer.proved_none
        assert min(cost_of(order) for order in orders) >= below * (1 - 2 * EPSILON)


@pytest.mark.parametrize(
    ("algo", "model"),
    [
        ("ring", "latency"),
        ("ring", "contention"),
        ("ring-chunked", "alpha-beta"),
        ("halving-doubling", "latency"),
        ("halving-doubling", "alpha-beta"),
        ("bml", "contention"),
        ("double-binary-tree", "latency"),
        ("tree", "latency"),
        ("tree", "contention"),
        ("2lha", "alpha-beta"),
    ],
)
def test_answers_about_whole_orders_are_right(algo: str, model: str) -> None:
    """Just below the best, just above it, and below the second best."""
    for n, seed, ties in ((4, 1, True), (4, 2, False), (5, 3, True)):
        if algo == "bml" and n != 4:
            continue
        item, result = pattern_of(algo, n, seed), tied(n, seed, ties)
        cost_of = closed_form(item, result, SIZE, model)
        orders = [np.array(order) for order in itertools.permutations(range(n))]
        costs = sorted(cost_of(order) for order in orders)
        given_order = max(orders, key=cost_of)
        for below in (costs[0], costs[0] * (1 + 1e-5), costs[len(costs) // 8]):
            if below <= cost_of(given_order):
                units = [[rank] for rank in np.random.default_rng(seed).permutation(n).tolist()]
                answer = find_cheaper(CostProblem(item, result, SIZE, model), given_order, units, below, SmtLimits())
                agrees(answer, item, result, model, orders, below)


@pytest.mark.extended
@settings(max_examples=25)
@given(st.data())
def test_answers_about_windows_and_blocks_are_right(data: st.DataObject) -> None:
    """Only the units move; blocks keep what is inside them; hosts may have several ranks."""
    algo, model = data.draw(st.sampled_from(ALGORITHMS)), data.draw(st.sampled_from(MODELS))
    n, seed = (8 if algo in ("bcube", "bml") else data.draw(st.integers(5, 8))), data.draw(st.integers(0, 99))
    rng = np.random.default_rng(seed)
    item, result = pattern_of(algo, n, seed), tied(n, seed, data.draw(st.booleans()))
    order = rng.integers(0, n, n) if data.draw(st.booleans()) else rng.permutation(n)
    length = data.draw(st.integers(1, 2))
    count = data.draw(st.integers(2, min(4, n // length)))
    units = rng.permutation(n)[: count * length].reshape(count, length).tolist()
    orders = neighbours(order, units)
    cost_of = closed_form(item, result, SIZE, model)
    best = min(cost_of(other) for other in orders)
    for below in (cost_of(order), best * (1 + 1e-5), best):
        if 0 < below <= cost_of(order):
            answer = find_cheaper(CostProblem(item, result, SIZE, model), order, units, below, SmtLimits())
            agrees(answer, item, result, model, orders, below)


def test_candidates_that_are_not_cheaper_are_refused() -> None:
    """Where groups share bytes, the tables know the largest load and not the norm: a candidate's cost is computed, and
    a candidate that is not cheaper is refused."""
    item, result = pattern_of("bml", 8, 58), tied(8, 58, False)
    order, units = np.array([4, 2, 4, 7, 7, 1, 5, 1]), [[4], [7], [1]]
    orders = neighbours(order, units)
    cost_of = closed_form(item, result, SIZE, "contention")
    for below in (cost_of(order), min(map(cost_of, orders))):
        answer = find_cheaper(CostProblem(item, result, SIZE, "contention"), order, units, below, SmtLimits())
        agrees(answer, item, result, "contention", orders, below)


@pytest.mark.parametrize(
    ("algo", "model"), [("tree", "latency"), ("halving-doubling", "alpha-beta"), ("halving-doubling", "contention")]
)
def test_where_all_hosts_are_alike_that_nothing_is_cheaper_is_seen_at_once(algo: str, model: str) -> None:
    """Without trying thousands of orders that cost the same."""
    n = 8
    item, result = pattern_of(algo, n), fabric(n, 2)
    rates, free = np.full(n, 5.0), np.full(len(result.group_out_gbps), np.inf)
    result = dataclasses.replace(
        result,
        rtt_us=100.0 * ~np.eye(n, dtype=bool),
        host_out_gbps=rates,
        host_in_gbps=rates,
        group_out_gbps=free,
        group_in_gbps=free,
    )
    cost = closed_form(item, result, SIZE, model)(np.arange(n))
    for below in (cost, 0.6 * cost):
        answer = find_cheaper(
            CostProblem(item, result, SIZE, model), np.arange(n), [[rank] for rank in range(n)], below, SmtLimits()
        )
        assert answer == SmtAnswer(None, True)


def test_what_needs_no_question() -> None:
    """An order that is below already is given back; there is nothing to exchange; nothing costs less than nothing."""
    ring, flat = pattern_of("ring", 4), pattern_of("flat", 4)
    result, order, units = fabric(4, 1), np.arange(4), [[rank] for rank in range(4)]
    cost = closed_form(ring, result, SIZE, "latency")(order)
    answer = find_cheaper(CostProblem(ring, result, SIZE, "latency"), order, units, cost * 1.01, SmtLimits(rlimit=1))
    assert (answer.order is order, answer.proved_none) == (True, False)
    assert find_cheaper(
        CostProblem(ring, result, SIZE, "latency"), order, units[:1], cost / 2, SmtLimits(rlimit=1)
    ) == SmtAnswer(None, True)
    assert find_cheaper(
        CostProblem(ring, result, SIZE, "latency"), order, units, 0.0, SmtLimits(rlimit=1)
    ) == SmtAnswer(None, True)
    everyone = closed_form(flat, result, SIZE, "latency")(order)
    assert find_cheaper(
        CostProblem(flat, result, SIZE, "latency"), order, units, everyone, SmtLimits(rlimit=1)
    ) == SmtAnswer(None, True)


def test_two_units_are_enough_to_exchange() -> None:
    """A line of hosts, two of which stand at each other's place; a limit of time that is not met changes nothing."""
    result = dataclasses.replace(fabric(6), rtt_us=np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0))))
    ring, order = pattern_of("ring", 6), np.array([0, 3, 2, 1, 4, 5])
    for effort in (SmtLimits(), SmtLimits(timeout_ms=60_000)):
        answer = find_cheaper(CostProblem(ring, result, SIZE, "latency"), order, [[3], [1]], 14.0, effort)
        assert answer.order is not None
        assert answer.order.tolist() == [0, 1, 2, 3, 4, 5]
        assert find_cheaper(CostProblem(ring, result, SIZE, "latency"), order, [[3], [1]], 10.0, effort) == SmtAnswer(
            None, True
        )


def test_shared_loads_are_proven_by_tangents() -> None:
    """Five racks of two whose ways out and in are all that counts: the 24 * 2^5 rings that leave each rack once cost
    the 16-norm of ten equal loads, a seventh more than the largest of them. More than may be refused one by one."""
    n = 10
    uplinks, rates = np.full(5, 0.1), np.full(n, 1e6)
    result = Fabric(
        tuple(f"h{k}" for k in range(n)), 1.0 * ~np.eye(n, dtype=bool), None, rates, rates, np.arange(n) // 2,
        uplinks, uplinks, "measured",
    )  # fmt: skip
    ring, units = pattern_for("ring", n, Options()), [[rank] for rank in range(n)]
    cost = closed_form(ring, result, SIZE, "contention")(np.arange(n))
    assert cost == pytest.approx(18 * (0.5 + 10 ** (1 / 16) * SIZE / n / (0.1 * 125)))
    answer = find_cheaper(CostProblem(ring, result, SIZE, "contention"), np.arange(n), units, 0.99 * cost, SmtLimits())
    assert answer == SmtAnswer(None, True)
