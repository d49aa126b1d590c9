"""Questions to Z3 about few units, all their exchanges tried beside it: below each price there is what it finds."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from solvers.costs.by_name import pattern_for
from solvers.costs.closed_forms import closed_form
from solvers.costs.evaluator import MODELS
from solvers.costs.fabric import Fabric
from solvers.costs.patterns import Pattern
from solvers.ordering.smt import Answer, Effort, cheaper
from solvers.schedules.catalogue import Options
from tests.solvers.costs.test_cost_models import fabric
from tests.solvers.ordering.test_smt import neighbours
from tests.solvers.synthetic import Tour, random_costs

SIZE = 1e5


def is_right(one: Pattern, found: Fabric, model: str, order: Tour, units: Sequence[Sequence[int]]) -> None:
    """Below each of a few of the prices there are: a cheaper one of the orders, or the proof that there is none."""
    price = closed_form(one, found, SIZE, model)
    dear = max(neighbours(order, units), key=price)
    made = neighbours(dear, units)
    costs = sorted({price(other) for other in made})
    for below in (costs[0], costs[0] * 1.001, costs[-1]):
        answer = cheaper(one, found, SIZE, model, dear, units, below, Effort())
        if answer.order is None:
            assert answer.proved
            assert costs[0] >= below * (1 - 2e-6)
        else:
            assert not answer.proved
            assert price(answer.order) < below
            assert any(np.array_equal(answer.order, other) for other in made)


@pytest.mark.parametrize(
    ("algo", "model"),
    [
        ("ring", "latency"),
        ("halving-doubling", "latency"),
        ("tree", "latency"),
        ("double-binary-tree", "latency"),
        ("ring", "alpha-beta"),
        ("ring", "contention"),
    ],
)
def test_a_few_ranks_of_an_order_exchange_their_hosts(algo: str, model: str) -> None:
    """Three of six, and two blocks of two: the symmetries of whole orders do not hold for these."""
    one, found, order = pattern_for(algo, 6, Options()), fabric(6, 1), np.random.default_rng(1).permutation(6)
    is_right(one, found, model, order, [[4], [1], [2]])
    is_right(one, found, model, order, [[0, 3], [5, 1]])


@pytest.mark.parametrize("model", MODELS)
def test_blocks_of_hosts_with_several_ranks_do_too(model: str) -> None:
    one, found = pattern_for("ring", 6, Options()), fabric(3, 5)
    is_right(one, found, model, np.array([2, 2, 0, 0, 1, 1]), [[0, 1], [2, 3], [4, 5]])
    is_right(one, found, model, np.array([2, 0, 2, 1, 0, 0]), [[0], [3], [4]])


@pytest.mark.parametrize(("algo", "model"), [("ring", "latency"), ("ring", "contention"), ("tree", "latency")])
def test_whole_orders_of_few_are_answered_in_any_order_of_their_ranks(algo: str, model: str) -> None:
    one = pattern_for(algo, 4, Options())
    for seed in (3, 4):
        found = dataclasses.replace(fabric(4, seed), rtt_us=random_costs(4, seed, 1, 6))
        is_right(one, found, model, np.arange(4), [[2], [0], [3], [1]])


def test_what_needs_no_question() -> None:
    """An order that is below already is given back; there is nothing to exchange; nothing costs less than nothing."""
    ring, flat = pattern_for("ring", 4, Options()), pattern_for("flat", 4, Options())
    found, order, units = fabric(4, 1), np.arange(4), [[rank] for rank in range(4)]
    cost = closed_form(ring, found, SIZE, "latency")(order)
    answer = cheaper(ring, found, SIZE, "latency", order, units, cost * 1.01, Effort(rlimit=1))
    assert answer == Answer(order, False)
    assert cheaper(ring, found, SIZE, "latency", order, units[:1], cost / 2, Effort(rlimit=1)) == Answer(None, True)
    assert cheaper(ring, found, SIZE, "latency", order, units, 0.0, Effort(rlimit=1)) == Answer(None, True)
    everyone = closed_form(flat, found, SIZE, "latency")(order)
    assert cheaper(flat, found, SIZE, "latency", order, units, everyone, Effort(rlimit=1)) == Answer(None, True)


def test_two_units_are_enough_to_exchange() -> None:
    """A line of hosts, two of which stand at each other's place."""
    found = dataclasses.replace(fabric(6), rtt_us=np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0))))
    ring, order = pattern_for("ring", 6, Options()), np.array([0, 3, 2, 1, 4, 5])
    answer = cheaper(ring, found, SIZE, "latency", order, [[3], [1]], 14.0, Effort())
    assert answer.order is not None
    assert answer.order.tolist() == [0, 1, 2, 3, 4, 5]
    assert cheaper(ring, found, SIZE, "latency", order, [[3], [1]], 10.0, Effort()) == Answer(None, True)


@pytest.mark.parametrize("timeout_ms", [None, 60_000])
def test_a_limit_of_time_that_is_not_met_changes_nothing(timeout_ms: int | None) -> None:
    ring, found = pattern_for("ring", 5, Options()), fabric(5, 2)
    units, price = [[rank] for rank in range(5)], closed_form(ring, fabric(5, 2), SIZE, "latency")
    best = min(price(np.array(order)) for order in itertools.permutations(range(5)))
    dear = max((np.array(order) for order in itertools.permutations(range(5))), key=price)
    effort = Effort(timeout_ms=timeout_ms)
    assert cheaper(ring, found, SIZE, "latency", dear, units, best, effort) == Answer(None, True)
    answer = cheaper(ring, found, SIZE, "latency", dear, units, best * 1.001, effort)
    assert answer.order is not None
    assert price(answer.order) == pytest.approx(best)


def test_what_groups_share_alike_is_proven_by_tangents_and_not_by_refusing_order_after_order() -> None:
    """Five racks of two whose ways out and in are all that counts: the 24 * 2^5 rings that leave each rack once cost
    the 16-norm of ten equal loads, a seventh more than the largest of them. More than may be refused one by one."""
    n = 10
    uplinks, rates = np.full(5, 0.1), np.full(n, 1e6)
    found = Fabric(
        tuple(f"h{k}" for k in range(n)), 1.0 * ~np.eye(n, dtype=bool), None, rates, rates, np.arange(n) // 2,
        uplinks, uplinks, "measured",
    )  # fmt: skip
    ring, units = pattern_for("ring", n, Options()), [[rank] for rank in range(n)]
    cost = closed_form(ring, found, SIZE, "contention")(np.arange(n))
    assert cost == pytest.approx(18 * (0.5 + 10 ** (1 / 16) * SIZE / n / (0.1 * 125)))
    answer = cheaper(ring, found, SIZE, "contention", np.arange(n), units, 0.99 * cost, Effort())
    assert answer == Answer(None, True)
