"""The search for orders: small ones are optimal, racks are found, bounds are told, a seed is a seed."""

import dataclasses
import itertools

import numpy as np
import pytest

from benchmarks.clouds import three_tier
from plink.errors import NoAnswer, UsageError
from solvers.costs.by_name import cost_function_for
from solvers.costs.fabric import Fabric
from solvers.ordering.constraints import PlacementConstraints
from solvers.ordering.one_tree import ring_bound
from solvers.ordering.problem import OrderingProblem, OrderingResult, SearchBudget, expand_slots
from solvers.ordering.ring import longest_hop
from solvers.ordering.search import median_of_random, or_cheaper, search
from solvers.schedules.catalogue import Options
from tests.solvers.costs.test_cost_models import fabric
from tests.solvers.ordering.instances import alike, never, until
from tests.solvers.synthetic import Matrix, Tour, loop_cost, racks


def found_by(result: Fabric, order: Tour, algo: str, model: str, seed: int = 1, moves: int = 30_000) -> OrderingResult:
    """A search that ends by its moves."""
    return search(OrderingProblem(result, order, algo, Options(), 1e6, model), seed, SearchBudget(moves))


def untried(
    result: Fabric,
    values: list[int],
    algo: str,
    constraints: PlacementConstraints | None = None,
    model: str = "latency",
) -> OrderingResult:
    """A search without any time: what is known without one."""
    return search(
        OrderingProblem(
            result, np.array(values), algo, Options(), 1e6, model, constraints=constraints or PlacementConstraints()
        ),
        1,
        SearchBudget(0, never),
    )


def with_rtt(rtt_us: Matrix) -> Fabric:
    return dataclasses.replace(fabric(len(rtt_us)), rtt_us=rtt_us)


def cheapest(result: Fabric, algo: str, model: str, n: int) -> float:
    """Over all orders."""
    cost_of = cost_function_for(algo, n, Options(), result, 1e6, model)
    return min(cost_of(np.array(order)) for order in itertools.permutations(range(n)))


def test_a_search_that_was_cut_short_keeps_a_cheaper_order() -> None:
    """One that another search of the same hosts had."""
    result, order = with_rtt(racks([8, 8, 8], 1)[0]), np.random.default_rng(0).permutation(24)
    problem = OrderingProblem(result, order, "ring", Options(), 1e6, "latency", objective="sum")
    cut, whole = search(problem, 1, SearchBudget(0, never)), search(problem, 1, SearchBudget(30_000))
    bad = dataclasses.replace(cut, order=order, cost=cut.baseline_cost, metrics={"bottleneck": 1e9})
    better = or_cheaper(problem, bad, whole.order)
    assert better.metrics["bottleneck"] == longest_hop(result.rtt_us, whole.order)
    assert better.cost == pytest.approx(whole.cost)
    assert np.array_equal(better.order, whole.order)
    assert or_cheaper(problem, whole, order) == whole


@pytest.mark.parametrize(
    ("algo", "sizes"), [("halving-doubling", [16, 8, 8]), ("recursive-doubling", [8, 8]), ("bcube", [4, 4, 4, 4])]
)
def test_racks_of_powers_of_two_without_noise_are_solved_and_proven(algo: str, sizes: list[int]) -> None:
    """The known optimum: rounds inside racks first; the bound is met exactly."""
    rtt, _ = racks(sizes, 3)
    n = len(rtt)
    result = found_by(alike(rtt), np.arange(n), algo, "latency", moves=200_000)
    inside = int(np.log2(min(sizes)))
    assert result.cost == inside * 40.0 + (int(np.log2(n)) - inside) * 90.0
    assert result.lower_bound == result.cost
    assert result.gap == 0


@pytest.mark.parametrize(
    ("algo", "model"),
    [("ring", "latency"), ("ring", "contention"), ("halving-doubling", "alpha-beta"), ("tree", "latency"),
     ("nccl", "latency")],
)  # fmt: skip
def test_the_same_seed_and_moves_give_the_same_order(algo: str, model: str) -> None:
    result, order = fabric(24, 5), np.random.default_rng(5).permutation(24)
    first, second = (found_by(result, order, algo, model, seed=7, moves=5000) for _ in range(2))
    assert first.order.tolist() == second.order.tolist()
    assert dataclasses.asdict(first) | {"order": 0} == dataclasses.asdict(second) | {"order": 0}


def test_it_stops_on_request_and_is_never_worse_than_the_baseline() -> None:
    order = np.arange(16)
    for algo, calls in itertools.product(("ring", "tree", "nccl"), range(4)):
        result = search(
            OrderingProblem(fabric(16, 2), order, algo, Options(), 1e6, "latency"), 0, SearchBudget(10**9, until(calls))
        )
        assert result.cost <= result.baseline_cost


def test_baseline_is_kept_where_none_is_better() -> None:
    order = np.random.default_rng(2).permutation(16)
    for algo in ("ring", "halving-doubling", "nccl"):
        result = found_by(alike(racks([16], 0)[0]), order, algo, "latency")
        assert result.order.tolist() == order.tolist()
    # Also where every order is tried; an order that is not allowed is not kept.
    values = [3, 1, 4, 0, 2]
    few = with_rtt(30.0 * ~np.eye(5, dtype=bool))
    assert untried(few, values, "tree").order.tolist() == values
    pinned = untried(few, values, "tree", PlacementConstraints({1: 0}))
    assert pinned.order.tolist() == [1, 3, 4, 0, 2]
    assert pinned.lower_bound == pinned.cost == pinned.baseline_cost


def test_contention_keeps_racks_together_on_a_ring() -> None:
    """Four racks behind narrow uplinks: each is left and entered once."""
    rtt, rack_of = racks([4, 4, 4, 4], 2)
    rates, uplinks = np.full(16, 0.2), np.full(4, 0.2)
    results = Fabric(tuple(map(str, range(16))), rtt, None, rates, rates, rack_of, uplinks, uplinks, "measured")
    result = found_by(results, np.arange(16), "ring", "contention", moves=100_000)
    crossings = int((rack_of[result.order] != rack_of[np.roll(result.order, 1)]).sum())
    assert crossings == 4


def test_an_unknown_pair_is_named() -> None:
    result = fabric(5)
    result.rtt_us[1, 3] = result.rtt_us[3, 1] = np.nan
    with pytest.raises(NoAnswer, match="h1 - h3"):
        found_by(result, np.arange(5), "halving-doubling", "latency")
    with pytest.raises(UsageError, match="halving-doubling"):
        found_by(fabric(5), np.arange(5), "rong", "latency")


@pytest.mark.parametrize(
    ("algo", "model", "objective", "message"),
    [
        ("ring", "latency", "least", "--objective least"),
        ("tree", "latency", "sum", "--objective sum .* rings"),
        ("nccl", "latency", "bottleneck", "--objective bottleneck .* rings"),
        ("ring", "contention", "bottleneck", "--objective bottleneck .* contention"),
    ],
)
def test_objectives_that_do_not_fit_are_refused(algo: str, model: str, objective: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        search(OrderingProblem(fabric(4), np.arange(4), algo, Options(), 1e6, model, objective), 0, SearchBudget(10))


@pytest.mark.parametrize("algo", ["ring", "gloo"])
def test_a_ring_has_two_objectives(algo: str) -> None:
    """Each result says what it is by the other."""
    for n, seed in ((2, 1), (5, 2), (7, 3), (10, 4)):
        result, order = fabric(n, seed), np.random.default_rng(seed).permutation(n)
        by = {
            item: search(OrderingProblem(result, order, algo, Options(), 1e6, "latency", item), 1, SearchBudget(3000))
            for item in ("auto", "sum", "time", "bottleneck")
        }
        rtt = result.rtt_us
        assert [item.objective for item in by.values()] == ["sum", "sum", "time", "bottleneck"]
        for item in ("auto", "sum", "time"):
            assert by[item].cost == pytest.approx(loop_cost(rtt, by[item].order))
            assert by[item].metrics["bottleneck"] == longest_hop(rtt, by[item].order)
            assert by[item].baseline_cost == pytest.approx(loop_cost(rtt, order))
        shortest = by["bottleneck"]
        assert shortest.cost == longest_hop(rtt, shortest.order)
        assert shortest.metrics["sum"] == pytest.approx(loop_cost(rtt, shortest.order))
        assert shortest.baseline_cost == longest_hop(rtt, order)
        assert shortest.cost <= by["sum"].metrics["bottleneck"]
        assert shortest.lower_bound is not None
        assert by["sum"].metrics["bottleneck_lower_bound"] <= shortest.cost
        assert by["sum"].cost <= shortest.metrics["sum"] * (1 + 1e-12)
        if n <= 8:
            assert {item.bound_by for item in by.values()} == {"all rings"}
            assert {item.gap for item in by.values()} == {0.0}


@pytest.mark.parametrize("model", ["latency", "contention"])
def test_one_order_for_nccls_tree_and_ring(model: str) -> None:
    """Among the turns of the best ring the one whose mix is cheapest; at the ring's sizes just the best ring."""
    result, order = fabric(9, 4), np.random.default_rng(4).permutation(9)
    for size in (1e5, 4e6, 1e8):
        mixed = search(OrderingProblem(result, order, "nccl", Options(), size, model), 1, SearchBudget(20_000))
        cost_of = cost_function_for("nccl", 9, Options(), result, size, model)
        ring = search(OrderingProblem(result, order, "nccl-ring", Options(), size, model), 1, SearchBudget(20_000))
        assert mixed.cost == pytest.approx(cost_of(mixed.order))
        assert mixed.cost <= min(mixed.baseline_cost, cost_of(ring.order), cost_of(np.roll(ring.order[::-1], 3))) * (
            1 + 1e-12
        )
        if size == 1e8:
            assert mixed.cost == pytest.approx(ring.cost)


def test_a_host_alone_has_one_order() -> None:
    """Tried where it has few ranks; and the hosts that have none play no part."""
    for algo in ("ring", "tree", "flat", "nccl"):
        result = found_by(fabric(1), np.array([0, 0]), algo, "contention")
        assert (result.order.tolist(), result.cost) == ([0, 0], result.baseline_cost)
    for ranks in (64, 65):
        results = untried(fabric(3), [1] * ranks, "tree", model="contention")
        assert (results.order.tolist(), results.cost, results.lower_bound) == ([1] * ranks, 0.0, 0.0)


def test_the_gap_is_what_could_still_be_saved() -> None:
    """A bound that is above by rounding is met; there is no multiple of nothing."""
    for cost, bound, gap in (
        (102.0, 100.0, pytest.approx(0.02)),
        (0.75, 0.5, 0.5),
        (100.0, 100.0, 0.0),
        (100.0, 100.0 * (1 + 1e-12), 0.0),
        (100.0, None, None),
        (100.0, 0.0, None),
        (0.0, 0.0, 0.0),
        (0.0, None, None),
    ):
        assert OrderingResult(np.arange(2), cost, bound, None, cost, cost, 0).gap == gap, (cost, bound)


@pytest.mark.parametrize("algo", ["halving-doubling", "tree"])
def test_a_plateau_is_left(algo: str) -> None:
    """Without noise most swaps change no longest hop; uneven racks, so that no start is the answer already."""
    rtt, _ = racks([9, 5, 11, 3, 7, 13], 4)
    n = len(rtt)
    alike, item = np.full(n, 10.0), np.array([np.inf])
    results = Fabric(
        tuple(map(str, range(n))), rtt, None, alike, alike, np.zeros(n, dtype=np.intp), item, item, "measured"
    )
    result = found_by(results, np.arange(n), algo, "latency", moves=60_000)
    assert result.moves >= 60_000
    assert result.cost < result.baseline_cost


def test_direction_matters_where_rates_have_one() -> None:
    """Hosts in a circle, fast one way round: a ring sends that way; Gloo's, which sends to the rank below, too."""
    n = 9
    rates = np.where(np.eye(n, dtype=bool), np.nan, 1.0)
    rates[np.arange(n), (np.arange(n) + 1) % n] = 10.0
    result = dataclasses.replace(fabric(n), rtt_us=50.0 * ~np.eye(n, dtype=bool), pair_gbps=rates)
    shuffled = np.random.default_rng(1).permutation(n)
    for algo, step in (("ring", 1), ("gloo", -1)):
        order = found_by(result, shuffled, algo, "alpha-beta", moves=60_000).order
        assert ((np.roll(order, -step) - order) % n == 1).all(), algo


def test_all_to_all_orders_cost_the_same() -> None:
    """With one rank a host; where hosts have several it is not claimed. A constraint is met."""
    for model, n in (("latency", 3), ("contention", 9)):
        result = untried(fabric(n, 2), list(range(n)), "flat", model=model)
        assert result.order.tolist() == list(range(n))
        assert result.cost == result.lower_bound == result.baseline_cost
    assert untried(fabric(9, 2), list(range(9)), "flat").bound_by == "all orders cost the same"
    several = untried(fabric(9, 2), np.repeat(np.arange(9), 2).tolist(), "flat")
    assert (several.lower_bound, several.bound_by) == (None, None)
    constrained = untried(fabric(9, 2), list(range(9)), "flat", PlacementConstraints({5: 0}))
    assert constrained.order.tolist() == [5, 0, 1, 2, 3, 4, 6, 7, 8]
    assert constrained.cost == constrained.lower_bound == constrained.baseline_cost


def test_several_ranks_a_host_have_a_bound_for_rings_only() -> None:
    twice = np.repeat(np.arange(11), 2).tolist()
    result = untried(fabric(11, 2), twice, "tree")
    assert (result.lower_bound, result.bound_by) == (None, None)
    ring = untried(fabric(11, 2), twice, "ring", PlacementConstraints({0: 0, 1: 2}))
    assert (ring.lower_bound, ring.bound_by) == (ring_bound(fabric(11, 2).rtt_us), "1-tree")


def test_the_median_is_of_201_random_orders_of_hosts_with_all_their_ranks() -> None:
    values, costed = np.array([2, 2, 0, 4, 4, 4]), []

    def cost_of(order: Tour) -> float:
        costed.append(order.tolist())
        return float(len(costed) ** 2)

    task = OrderingProblem(fabric(5), values, "tree", Options(), 1e6, "latency")
    assert median_of_random(task, cost_of, 3) == 101.0**2
    assert len(costed) == 201
    allowed = [
        expand_slots(np.array(hosts), np.array([1, 0, 2, 0, 3])).tolist() for hosts in itertools.permutations([0, 2, 4])
    ]
    assert {tuple(order) for order in costed} == {tuple(order) for order in allowed}


@pytest.mark.parametrize("size", [64e3, 1e6, 4e6, 100e6])
@pytest.mark.parametrize("model", ["latency", "contention"])
def test_a_mix_costs_no_more_than_the_order_of_either_part(size: float, model: str) -> None:
    """NCCL: a tree up to 1 MB, a ring from 16 MB, both in between."""
    cloud, baseline = three_tier(12, 3).fabric(), np.arange(12)
    cost_of = cost_function_for("nccl", 12, Options(), cloud, size, model)
    costs = [
        cost_of(search(OrderingProblem(cloud, baseline, algo, Options(), size, model), 0, SearchBudget(20_000)).order)
        for algo in ("nccl", "nccl-tree", "nccl-ring")
    ]
    assert costs[0] <= min(costs[1:]) * (1 + 1e-9)
