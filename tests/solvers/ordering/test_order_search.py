"""The search for orders: bounds hold over all orders, small ones are optimal, racks are found, a seed is a seed."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.errors import NoAnswer, UsageError
from solvers.costs.by_name import pattern_for, pricing_for
from solvers.costs.evaluator import MODELS, way_there
from solvers.costs.fabric import Fabric
from solvers.ordering.annealing import Annealer
from solvers.ordering.bounds import hypercube_bound, pattern_bound
from solvers.ordering.initial import _seriated, initial_orders
from solvers.ordering.moves import moves_of
from solvers.ordering.ring import longest_hop
from solvers.ordering.search import search
from solvers.ordering.seats import Seats, Wishes
from solvers.ordering.task import Found, Task
from solvers.schedules.catalogue import Options, schedule_for
from tests.solvers.costs.test_cost_models import fabric
from tests.solvers.ordering.test_ring_search import always, until
from tests.solvers.synthetic import Tour, loop_cost, racks, random_costs

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


def found_by(found: Fabric, order: Tour, algo: str, model: str, seed: int = 1, moves: int = 30_000) -> Found:
    """A search that ends by its moves."""
    return search(Task(found, order, algo, Options(), 1e6, model), seed, always, moves)


def alike(rtt_us: np.ndarray) -> Fabric:
    """Nothing is known but the round trips; no group shares anything."""
    n = len(rtt_us)
    rates, one = np.full(n, 10.0), np.array([np.inf])
    names = tuple(f"h{k}" for k in range(n))
    return Fabric(names, rtt_us, None, rates, rates, np.zeros(n, dtype=np.intp), one, one, "measured")


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
    result = found_by(alike(rtt), np.arange(n), algo, "latency", moves=200_000)
    inside = int(np.log2(min(sizes)))
    assert result.cost == inside * 40.0 + (int(np.log2(n)) - inside) * 90.0
    assert result.lower_bound == result.cost
    assert result.gap == 0


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("algo", ["ring", "halving-doubling", "tree", "nccl"])
def test_the_same_seed_and_moves_give_the_same_order(algo: str, model: str) -> None:
    found, order = fabric(24, 5), np.random.default_rng(5).permutation(24)
    first, second = (found_by(found, order, algo, model, seed=7, moves=5000) for _ in range(2))
    assert first.order.tolist() == second.order.tolist()
    assert dataclasses.replace(first, order=order) == dataclasses.replace(second, order=order)


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("algo", ["ring", "halving-doubling", "recursive-doubling", "tree", "nccl-tree", "bml"])
def test_after_thousands_of_moves_the_books_still_agree_with_the_price(algo: str, model: str, slots: int) -> None:
    """What the compiled loop keeps up move by move, blocks too, is what the whole order costs."""
    n = 16 // slots
    found, order = fabric(n, 8), np.repeat(np.random.default_rng(8).permutation(n), slots)
    annealer = Annealer(pattern_for(algo, len(order), Options()), found, 1e6, model)
    groups = [list(range(k, n, 4)) for k in range(4)]
    for wishes in (Wishes(), Wishes({3: 6}), Wishes({}, groups)):
        seats = Seats(order, found.names, wishes)
        start = seats.arrange(seats.hosts)
        moves = moves_of(seats.classes(start), len(order))
        assert moves is not None
        for count in (0, 1, 3000):
            best, cost, last = annealer.run(start, moves, count, 1e3, 1.0, 5)
            assert seats.arrange(list(dict.fromkeys(best.tolist()))).tolist() == best.tolist()
            assert cost == pytest.approx(annealer.price(best), rel=1e-9)
            assert seats.arrange(list(dict.fromkeys(last.tolist()))).tolist() == last.tolist()
            assert annealer.price(last) >= cost * (1 - 1e-9)


@pytest.mark.parametrize("algo", ["ring", "tree", "nccl"])
def test_it_ends_when_it_is_told_and_is_never_worse_than_the_given_order(algo: str) -> None:
    order = np.arange(16)
    for calls in range(4):
        result = search(Task(fabric(16, 2), order, algo, Options(), 1e6, "latency"), 0, until(calls), 10**9)
        assert result.cost <= result.given


@pytest.mark.parametrize("algo", ["ring", "halving-doubling", "nccl"])
def test_the_given_order_is_kept_where_none_is_better(algo: str) -> None:
    order = np.random.default_rng(2).permutation(16)
    result = found_by(alike(racks([16], 0)[0]), order, algo, "latency")
    assert result.order.tolist() == order.tolist()


def test_who_is_not_patient_ends_when_nothing_comes_of_it() -> None:
    """Without a clock, and with hardly a limit."""
    for algo in ("ring", "halving-doubling"):
        result = search(Task(fabric(9, 2), np.arange(9), algo, Options(), 1e6, "latency"), 0, always, 10**15, False)
        assert result.cost <= result.given


def test_contention_keeps_racks_together_on_a_ring() -> None:
    """Four racks behind narrow uplinks: each is left and entered once."""
    rtt, rack_of = racks([4, 4, 4, 4], 2)
    rates, uplinks = np.full(16, 0.2), np.full(4, 0.2)
    found = Fabric(tuple(map(str, range(16))), rtt, None, rates, rates, rack_of, uplinks, uplinks, "measured")
    result = found_by(found, np.arange(16), "ring", "contention", moves=100_000)
    crossings = int((rack_of[result.order] != rack_of[np.roll(result.order, 1)]).sum())
    assert crossings == 4


def test_an_unknown_pair_is_named() -> None:
    found = fabric(5)
    found.rtt_us[1, 3] = found.rtt_us[3, 1] = np.nan
    with pytest.raises(NoAnswer, match="h1 - h3"):
        found_by(found, np.arange(5), "halving-doubling", "latency")
    with pytest.raises(UsageError, match="halving-doubling"):
        found_by(fabric(5), np.arange(5), "rong", "latency")


@pytest.mark.parametrize(
    ("algo", "model", "objective", "message"),
    [
        ("ring", "latency", "least", "--objective least: there are auto, time, sum, bottleneck"),
        ("tree", "latency", "sum", "--objective sum is for rings"),
        ("nccl", "latency", "bottleneck", "--objective bottleneck is for rings"),
        ("ring", "contention", "bottleneck", "--objective bottleneck knows round trips only"),
    ],
)
def test_objectives_that_do_not_fit_are_refused(algo: str, model: str, objective: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        search(Task(fabric(4), np.arange(4), algo, Options(), 1e6, model, objective), 0, always, 10)


@pytest.mark.parametrize("algo", ["ring", "gloo", "nccl-ring", "openmpi-ring", "ring-chunked"])
def test_a_ring_has_two_objectives(algo: str) -> None:
    """Each result says what it is by the other."""
    for n, seed in ((2, 1), (5, 2), (7, 3), (10, 4)):
        found, order = fabric(n, seed), np.random.default_rng(seed).permutation(n)
        by = {
            one: search(Task(found, order, algo, Options(), 1e6, "latency", one), 1, always, 3000)
            for one in ("auto", "sum", "time", "bottleneck")
        }
        rtt = found.rtt_us
        assert [one.objective for one in by.values()] == ["sum", "sum", "time", "bottleneck"]
        for one in ("auto", "sum", "time"):
            assert by[one].cost == pytest.approx(loop_cost(rtt, by[one].order))
            assert by[one].also["bottleneck"] == longest_hop(rtt, by[one].order)
            assert by[one].given == pytest.approx(loop_cost(rtt, order))
        shortest = by["bottleneck"]
        assert shortest.cost == longest_hop(rtt, shortest.order)
        assert shortest.also["sum"] == pytest.approx(loop_cost(rtt, shortest.order))
        assert shortest.given == longest_hop(rtt, order)
        assert shortest.cost <= by["sum"].also["bottleneck"]
        assert shortest.lower_bound is not None
        assert by["sum"].also["bottleneck_lower_bound"] <= shortest.cost
        assert by["sum"].cost <= shortest.also["sum"] * (1 + 1e-12)
        if n <= 8:
            assert {one.bound_by for one in by.values()} == {"all rings"}
            assert {one.gap for one in by.values()} == {0.0}


@pytest.mark.parametrize("model", MODELS)
def test_one_order_for_nccls_tree_and_ring(model: str) -> None:
    """Among the turns of the best ring the one whose mix is cheapest; at the ring's sizes just the best ring."""
    found, order = fabric(9, 4), np.random.default_rng(4).permutation(9)
    for size in (1e5, 4e6, 1e8):
        mixed = search(Task(found, order, "nccl", Options(), size, model), 1, always, 20_000)
        price = pricing_for("nccl", 9, Options(), found, size, model)
        ring = search(Task(found, order, "nccl-ring", Options(), size, model), 1, always, 20_000)
        assert mixed.cost == pytest.approx(price(mixed.order))
        assert mixed.cost <= min(mixed.given, price(ring.order), price(np.roll(ring.order[::-1], 3))) * (1 + 1e-12)
        if size == 1e8:
            assert mixed.cost == pytest.approx(ring.cost)


def test_the_turns_are_looked_at_though_the_ring_took_all_the_time() -> None:
    found, order = fabric(40, 4), np.random.default_rng(4).permutation(40)
    mixed = search(Task(found, order, "nccl", Options(), 1e5, "latency"), 1, until(3), 10**9)
    price = pricing_for("nccl", 40, Options(), found, 1e5, "latency")
    turns = [np.roll(way, k) for way in (mixed.order, mixed.order[::-1]) for k in range(40)]
    assert mixed.cost == pytest.approx(min(price(turn) for turn in turns))
    assert mixed.cost < mixed.given


def test_the_baseline_is_the_median_of_random_orders() -> None:
    """Where all hops cost the same, every random order does."""
    result = found_by(alike(racks([9], 0, near=7.0)[0]), np.arange(9), "ring", "latency")
    assert result.random_median == result.given == 63.0
    result = found_by(fabric(8, 3), np.arange(8), "tree", "latency")
    price = pricing_for("tree", 8, Options(), fabric(8, 3), 1e6, "latency")
    drawn = [price(np.random.default_rng(seed).permutation(8)) for seed in range(2000)]
    low, high = np.quantile(drawn, [0.4, 0.6])
    assert low <= result.random_median <= high


@pytest.mark.parametrize("algo", ["ring", "tree", "flat", "nccl"])
def test_a_host_alone_has_one_order(algo: str) -> None:
    result = found_by(fabric(1), np.array([0, 0]), algo, "contention")
    assert (result.order.tolist(), result.cost) == ([0, 0], result.given)


@pytest.mark.parametrize(
    ("cost", "bound", "gap"),
    [
        (102.0, 100.0, pytest.approx(0.02)),
        (0.75, 0.5, 0.5),
        (100.0, 100.0, 0.0),
        (100.0, 100.0 * (1 + 1e-12), 0.0),  # a bound that is above by rounding
        (100.0, None, None),
        (100.0, 0.0, None),  # no multiple of nothing
        (0.0, 0.0, 0.0),
        (0.0, None, None),
    ],
)
def test_the_gap_is_what_could_still_be_saved(cost: float, bound: float | None, gap: float | None) -> None:
    assert Found(np.arange(2), cost, bound, None, cost, cost, 0).gap == gap


@given(st.integers(2, 20), st.integers(0, 99))
def test_orders_to_begin_with_are_orders(n: int, seed: int) -> None:
    found = fabric(n, seed)
    order = np.random.default_rng(seed).permutation(n)
    orders = initial_orders(found, order)
    assert orders[0].tolist() == order.tolist()
    assert all(sorted(one.tolist()) == list(range(n)) for one in orders)


@pytest.mark.parametrize("algo", ["halving-doubling", "tree", "double-binary-tree"])
def test_a_plateau_is_left(algo: str) -> None:
    """Without noise most swaps change no longest hop; uneven racks, so that no start is the answer already."""
    rtt, _ = racks([9, 5, 11, 3, 7, 13], 4)
    n = len(rtt)
    alike, one = np.full(n, 10.0), np.array([np.inf])
    found = Fabric(tuple(map(str, range(n))), rtt, None, alike, alike, np.zeros(n, dtype=np.intp), one, one, "measured")
    result = found_by(found, np.arange(n), algo, "latency", moves=60_000)
    assert result.moves >= 60_000
    assert result.cost < result.given


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("algo", ["halving-doubling", "tree", "double-binary-tree", "nccl-tree", "recursive-doubling"])
def test_no_order_costs_less_than_the_bound_of_its_pattern(algo: str, model: str) -> None:
    """All orders of four to six hosts, with many ties."""
    for n, seed in ((4, 1), (5, 2), (6, 3), (4, 4)):
        options = Options(base=2)
        whole = dataclasses.replace(fabric(n, seed), rtt_us=random_costs(n, seed, 1, 6))
        pattern, price = pattern_for(algo, n, options), pricing_for(algo, n, options, whole, 1e4, model)
        best = min(price(np.array(order)) for order in itertools.permutations(range(n)))
        assert pattern_bound(pattern, whole, 1e4, model, np.arange(n)) <= best * (1 + 1e-12)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("algo", ["halving-doubling", "bcube", "tree", "double-binary-tree", "nccl-tree", "bml"])
def test_where_all_hosts_are_alike_the_bound_is_what_every_order_costs(algo: str, model: str) -> None:
    """Also where ranks idle in some rounds, and where pairs are slower than their hosts."""
    n = {"tree": 7, "bml": 4}.get(algo, 8)
    for pair_gbps in (None, np.full((n, n), 4.0)):
        found = dataclasses.replace(alike(100.0 * ~np.eye(n, dtype=bool)), pair_gbps=pair_gbps)
        pattern, price = pattern_for(algo, n, Options()), pricing_for(algo, n, Options(), found, 1e6, model)
        assert pattern_bound(pattern, found, 1e6, model, np.arange(n)) == pytest.approx(price(np.arange(n)))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("algo", ["halving-doubling", "tree", "double-binary-tree"])
def test_annealing_finds_the_best_of_few(algo: str, model: str) -> None:
    """What the search of so few leaves to trying every order."""
    n = 6
    found = fabric(n, 7)
    order, annealer = np.arange(n), Annealer(pattern_for(algo, n, Options()), found, 1e6, model)
    seats = Seats(order, found.names, Wishes())
    moves = moves_of(seats.classes(order), n)
    result = annealer.search([order], moves, 3, 60_000, always)
    assert result.cost == pytest.approx(cheapest(found, algo, model, n))


def test_annealing_ends_where_nothing_can_be_better() -> None:
    """An order that costs what the lower bound says, but for rounding."""
    n, found = 8, fabric(8, 7)
    order, annealer = np.arange(n), Annealer(pattern_for("halving-doubling", n, Options()), found, 1e6, "latency")
    moves = moves_of(Seats(order, found.names, Wishes()).classes(order), n)
    cost = annealer.price(order)
    for bound in (cost, cost * (1 - 1e-12)):
        result = annealer.search([order], moves, 3, 5000, always, bound)
        assert (result.order.tolist(), result.cost, result.moves) == (order.tolist(), cost, 0)


def test_orders_to_begin_with_do_not_depend_on_the_library_that_finds_eigenvectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A vector and its negative are the same answer, and libraries differ in which one they give."""
    import scipy.linalg

    found, order, eigh = fabric(12, 3), np.random.default_rng(3).permutation(12), scipy.linalg.eigh

    def other_way(*given: Any, **more: Any) -> Any:
        values, vectors = eigh(*given, **more)
        return values, -vectors

    one = [begun.tolist() for begun in initial_orders(found, order)]
    monkeypatch.setattr(scipy.linalg, "eigh", other_way)
    assert [begun.tolist() for begun in initial_orders(found, order)] == one


def test_direction_matters_where_rates_have_one() -> None:
    """Hosts in a circle, fast one way round: a ring sends that way; Gloo's, which sends to the rank below, too."""
    n = 9
    rates = np.where(np.eye(n, dtype=bool), np.nan, 1.0)
    rates[np.arange(n), (np.arange(n) + 1) % n] = 10.0
    found = dataclasses.replace(fabric(n), rtt_us=50.0 * ~np.eye(n, dtype=bool), pair_gbps=rates)
    shuffled = np.random.default_rng(1).permutation(n)
    for algo, step in (("ring", 1), ("gloo", -1)):
        order = found_by(found, shuffled, algo, "alpha-beta", moves=60_000).order
        assert ((np.roll(order, -step) - order) % n == 1).all(), algo


def test_hosts_on_a_line_are_found_in_their_order() -> None:
    """By the second eigenvector of the graph of who is near."""
    places = np.random.default_rng(4).permutation(12)
    order = _seriated(10.0 * np.abs(places[:, None] - places[None, :]))
    assert np.abs(np.diff(places[order])).tolist() == [1] * 11


def test_where_nothing_is_reduced_all_transfers_are_the_way_there() -> None:
    ring = schedule_for("ring", 4, Options())
    gathered = dataclasses.replace(ring, copies=np.ones(len(ring), dtype=bool))
    assert way_there(gathered) == slice(0, len(ring))
    assert way_there(ring) == slice(0, len(ring) // 2)
