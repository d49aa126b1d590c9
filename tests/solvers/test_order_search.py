"""The search for orders: bounds hold over all orders, small ones are optimal, racks are found, a seed is a seed."""

import dataclasses
import itertools
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.errors import NoAnswer, UsageError
from solvers.costs.by_name import pattern_for, pricing_for
from solvers.costs.evaluator import MODELS
from solvers.costs.fabric import Fabric
from solvers.ordering.annealing import Annealer
from solvers.ordering.bounds import hypercube_bound
from solvers.ordering.initial import initial_orders
from solvers.ordering.search import Found, search
from solvers.schedules.catalogue import Options
from tests.solvers.synthetic import Tour, racks, random_costs
from tests.solvers.test_cost_models import fabric

ALGORITHMS = [
    "ring",
    "halving-doubling",
    "recursive-doubling",
    "tree",
    "double-binary-tree",
    "nccl-tree",
    "bml",
    "flat",
]


def found_by(
    found: Fabric,
    order: Tour,
    algo: str,
    model: str,
    seed: int = 1,
    moves: int = 30_000,
    options: Options | None = None,
) -> Found:
    """A search that ends by its moves."""
    return search(found, order, algo, options or Options(), 1e6, model, seed, lambda: True, moves)


def cheapest(found: Fabric, algo: str, model: str, n: int) -> float:
    """Over all orders."""
    price = pricing_for(algo, n, Options(), found, 1e6, model)
    return min(price(np.array(order)) for order in itertools.permutations(range(n)))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_small_orders_are_optimal_and_the_bound_holds(algo: str, model: str) -> None:
    for n, seed in ((3, 1), (4, 2), (6, 3)):
        n = 4 if algo == "bml" else n
        given_fabric = fabric(n, seed)
        result = found_by(given_fabric, np.random.default_rng(seed).permutation(n), algo, model)
        best = cheapest(given_fabric, algo, model, n)
        assert sorted(result.order.tolist()) == list(range(n))
        assert result.cost == pytest.approx(best)
        assert result.lower_bound is not None
        assert result.lower_bound <= best * (1 + 1e-12)
        price = pricing_for(algo, n, Options(), given_fabric, 1e6, model)
        assert result.cost == pytest.approx(price(result.order))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 999), st.sampled_from([(2, 1), (2, 2), (2, 3), (3, 1), (4, 1)]))
def test_no_hypercube_costs_less_than_its_bound(seed: int, shape: tuple[int, int]) -> None:
    """All orders of up to eight hosts, with many ties."""
    base, rounds = shape
    n = base**rounds
    rtt = random_costs(n, seed, 1, 6)
    whole = dataclasses.replace(fabric(n), rtt_us=rtt)
    price = pricing_for("bcube", n, Options(base=base), whole, 1e6, "latency")
    # Rank 0 may stand anywhere: hosts fixed there lose nothing by symmetry.
    best = min(price(np.array((0, *order))) for order in itertools.permutations(range(1, n)))
    assert hypercube_bound(rtt, base, rounds) <= best + 1e-9


@pytest.mark.parametrize("algo", ["halving-doubling", "recursive-doubling", "bcube"])
@pytest.mark.parametrize("sizes", [[8, 8], [4, 4, 4, 4], [16, 8, 8]])
def test_racks_of_powers_of_two_without_noise_are_solved_and_proven(algo: str, sizes: list[int]) -> None:
    """The known optimum: rounds inside racks first; the bound is met exactly."""
    rtt, _ = racks(sizes, 3)
    n = len(rtt)
    alike = np.full(n, 10.0)
    one = np.array([np.inf])
    found = Fabric(tuple(map(str, range(n))), rtt, None, alike, alike, np.zeros(n, dtype=np.intp), one, one, "measured")
    result = found_by(found, np.arange(n), algo, "latency", moves=200_000)
    inside = int(np.log2(min(sizes)))
    assert result.cost == inside * 40.0 + (int(np.log2(n)) - inside) * 90.0
    assert result.lower_bound == result.cost
    assert result.gap == 0


@pytest.mark.parametrize("model", MODELS)
def test_the_same_seed_and_moves_give_the_same_order(model: str) -> None:
    found, order = fabric(24, 5), np.random.default_rng(5).permutation(24)
    first, second = (found_by(found, order, "halving-doubling", model, seed=7) for _ in range(2))
    assert first.order.tolist() == second.order.tolist()
    assert (first.cost, first.moves) == (second.cost, second.moves)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("algo", ["ring", "halving-doubling", "recursive-doubling", "tree", "nccl-tree", "bml"])
def test_after_thousands_of_moves_the_books_still_agree_with_the_price(algo: str, model: str) -> None:
    """What the compiled loop keeps up swap by swap, blocks too, is what the whole order costs."""
    if (algo, model) == ("ring", "latency"):
        return  # has a search of its own
    n = 16
    found, order = fabric(n, 8), np.random.default_rng(8).permutation(n)
    annealer = Annealer(pattern_for(algo, n, Options()), found, 1e6, model)
    for moves, blocks in ((0, [1]), (1, [1]), (3000, [1]), (3000, [1, 2, 4])):
        best, cost = annealer.run(order, moves, 1e3, 1.0, 5, np.arange(n), blocks)
        assert sorted(best.tolist()) == list(range(n))
        assert cost == pytest.approx(annealer.price(best), rel=1e-9)


def test_it_ends_when_it_is_told_and_is_never_worse_than_the_given_order() -> None:
    found, order = fabric(16, 2), np.arange(16)
    for calls in range(4):
        left = iter([True] * calls)
        result = search(found, order, "tree", Options(), 1e6, "latency", 0, partial(next, left, False), 10**9)
        assert result.cost <= result.given
    alike = fabric(16, 2)
    alike.rtt_us[:] = 50.0
    np.fill_diagonal(alike.rtt_us, 0.0)
    result = found_by(alike, order, "halving-doubling", "latency")
    assert result.order.tolist() == order.tolist()  # nothing is better: the given one is kept


def test_contention_keeps_racks_together_on_a_ring() -> None:
    """Four racks behind narrow uplinks: each is left and entered once."""
    rtt, rack_of = racks([4, 4, 4, 4], 2)
    alike, uplinks = np.full(16, 0.2), np.full(4, 0.2)
    found = Fabric(tuple(map(str, range(16))), rtt, None, alike, alike, rack_of, uplinks, uplinks, "measured")
    result = found_by(found, np.arange(16), "ring", "contention", moves=100_000)
    crossings = int((rack_of[result.order] != rack_of[np.roll(result.order, 1)]).sum())
    assert crossings == 4


def test_hosts_with_several_ranks_keep_what_they_have() -> None:
    found = fabric(6, 1)
    for slots in ([2] * 6, [3, 1, 2, 2, 1, 1]):
        given_order = np.repeat(np.arange(6), slots)
        for algo, model in (("ring", "latency"), ("ring", "contention"), ("tree", "latency"), ("tree", "alpha-beta")):
            result = found_by(found, given_order, algo, model, moves=5000)
            assert sorted(result.order.tolist()) == given_order.tolist()
            assert (np.diff(result.order) != 0).sum() == 5  # each host's ranks follow each other
            assert result.cost <= result.given
            assert result.lower_bound is None or result.lower_bound <= result.cost


def test_an_unknown_pair_is_named() -> None:
    found = fabric(5)
    found.rtt_us[1, 3] = found.rtt_us[3, 1] = np.nan
    with pytest.raises(NoAnswer, match="h1 - h3"):
        found_by(found, np.arange(5), "halving-doubling", "latency")
    with pytest.raises(UsageError, match="halving-doubling"):
        found_by(fabric(5), np.arange(5), "rong", "latency")


@pytest.mark.parametrize("model", MODELS)
def test_one_order_for_nccls_tree_and_ring(model: str) -> None:
    """Among the turns of the best ring the one whose mix is cheapest; at the ring's sizes just the best ring."""
    found, order = fabric(9, 4), np.random.default_rng(4).permutation(9)
    for size in (1e5, 4e6, 1e8):
        mixed = search(found, order, "nccl", Options(), size, model, 1, lambda: True, 20_000)
        price = pricing_for("nccl", 9, Options(), found, size, model)
        ring = search(found, order, "nccl-ring", Options(), size, model, 1, lambda: True, 20_000)
        assert mixed.cost == pytest.approx(price(mixed.order))
        assert mixed.cost <= min(mixed.given, price(ring.order), price(np.roll(ring.order[::-1], 3))) * (1 + 1e-12)
        if size == 1e8:
            assert mixed.cost == pytest.approx(ring.cost)


@given(st.integers(2, 20), st.integers(0, 99))
def test_orders_to_begin_with_are_orders(n: int, seed: int) -> None:
    found = fabric(n, seed)
    order = np.random.default_rng(seed).permutation(n)
    orders = initial_orders(found, order)
    assert orders[0].tolist() == order.tolist()
    assert all(sorted(one.tolist()) == list(range(n)) for one in orders)
