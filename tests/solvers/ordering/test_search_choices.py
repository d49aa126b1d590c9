"""What a search does with a task: when all orders are tried, which bound it gives, what it prices besides."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from plink.errors import UsageError
from solvers.costs.by_name import pattern_for, pricing_for
from solvers.costs.fabric import Fabric
from solvers.ordering.bounds import hypercube_bound, pattern_bound
from solvers.ordering.one_tree import ring_bound
from solvers.ordering.progress import Progress
from solvers.ordering.search import _objective, _slowness, median_of_random, search
from solvers.ordering.seats import Wishes
from solvers.ordering.task import RINGS, Task, with_slots
from solvers.schedules.catalogue import Options
from tests.solvers.costs.test_cost_models import fabric
from tests.solvers.synthetic import Matrix, Tour, racks

SIZE = 1e6
NO_TIME = 0  # moves


def never(_: Progress) -> bool:
    return False


def of(found: Fabric, given: list[int], algo: str, model: str, wishes: Wishes | None = None, **more: str) -> Task:
    return Task(found, np.array(given), algo, Options(), SIZE, model, wishes=wishes or Wishes(), **more)


def with_rtt(rtt_us: Matrix) -> Fabric:
    return dataclasses.replace(fabric(len(rtt_us)), rtt_us=rtt_us)


@pytest.mark.parametrize(
    ("hosts", "slots", "every"), [(1, 3, True), (2, 1, True), (5, 1, True), (4, 16, True), (4, 17, False)]
)
def test_every_order_of_few_hosts_with_few_ranks_is_tried(hosts: int, slots: int, every: bool) -> None:
    """64 ranks are few."""
    result = search(of(fabric(hosts, 2), np.repeat(np.arange(hosts), slots).tolist(), "tree", "latency"), 1, never, 0)
    assert (result.bound_by == "all orders") is every
    assert result.moves == (math.factorial(hosts) if every else 0)


@pytest.mark.parametrize(("hosts", "every"), [(7, True), (8, False)])
def test_seven_hosts_are_few(hosts: int, every: bool) -> None:
    result = search(of(fabric(hosts, 2), list(range(hosts)), "halving-doubling", "latency"), 1, never, 0)
    assert (result.bound_by == "all orders") is every


def test_of_several_orders_that_cost_the_same_the_given_one_is_kept() -> None:
    """Also where it is a billionth of a billionth dearer by rounding; one that is not allowed is not."""
    alike = with_rtt(30.0 * ~np.eye(5, dtype=bool))
    given = [3, 1, 4, 0, 2]
    assert search(of(alike, given, "tree", "latency"), 1, never, 0).order.tolist() == given
    pinned = search(of(alike, given, "tree", "latency", Wishes({1: 0})), 1, never, 0)
    assert pinned.order.tolist() == [1, 3, 4, 0, 2]
    assert pinned.lower_bound == pinned.cost == pinned.given


def test_groups_of_other_sizes_leave_orders_untried() -> None:
    even = of(fabric(4, 2), [0, 1, 2, 3], "tree", "latency", Wishes({}, [[0, 1], [2, 3]]))
    uneven = of(fabric(4, 2), [0, 1, 2, 3], "tree", "latency", Wishes({}, [[0], [1, 2, 3]]))
    assert search(even, 1, never, 0).bound_by == "all orders"
    found = search(uneven, 1, never, 0)
    assert (found.lower_bound, found.bound_by, found.moves) == (None, None, math.factorial(3))


@pytest.mark.parametrize("model", ["latency", "alpha-beta", "contention"])
def test_where_everyone_sends_to_everyone_all_orders_cost_the_same(model: str) -> None:
    """With one rank a host; where hosts have several it is not claimed. A wish is kept."""
    for n in (3, 9):
        task = of(fabric(n, 2), list(range(n)), "flat", model)
        result = search(task, 1, never, 0)
        assert result.order.tolist() == list(range(n))
        assert result.cost == result.lower_bound == result.given
    nine = search(of(fabric(9, 2), list(range(9)), "flat", model), 1, never, 0)
    assert nine.bound_by == "all orders cost the same"
    several = search(of(fabric(9, 2), np.repeat(np.arange(9), 2).tolist(), "flat", model), 1, never, 0)
    assert (several.lower_bound, several.bound_by) == (None, None)
    wished = search(of(fabric(9, 2), list(range(9)), "flat", model, Wishes({5: 0})), 1, never, 0)
    assert wished.order.tolist() == [5, 0, 1, 2, 3, 4, 6, 7, 8]
    assert wished.cost == wished.lower_bound == wished.given


def test_a_host_alone_has_one_order() -> None:
    """Tried where it has few ranks; and the hosts that have none play no part."""
    for ranks, bound in ((64, 0.0), (65, None)):
        found = search(of(fabric(3), [1] * ranks, "tree", "contention"), 1, never, 0)
        assert (found.order.tolist(), found.cost, found.lower_bound) == ([1] * ranks, 0.0, bound)


@pytest.mark.parametrize("model", ["latency", "alpha-beta", "contention"])
@pytest.mark.parametrize(("algo", "base", "n"), [("halving-doubling", 2, 8), ("recursive-doubling", 2, 12),
                                                 ("bcube", 3, 9), ("halving-doubling", 2, 10)])  # fmt: skip
def test_rounds_are_bounded_by_their_pattern_and_cubes_by_their_blocks_too(
    algo: str, base: int, n: int, model: str
) -> None:
    """The larger of the two, for the hosts that have ranks; blocks only under latency and with a power of the base."""
    given = np.random.default_rng(n).permutation(n + 2)[:n]
    found = with_rtt(racks([n // 2 + 1, n + 1 - n // 2], 3)[0])
    task = Task(found, given, algo, Options(base=base), SIZE, model)
    pattern = pattern_for(algo, n, task.options)
    bound = pattern_bound(pattern, found, SIZE, model, given)
    rounds = next((k for k in range(1, 5) if base**k == n), None)
    if model == "latency" and rounds is not None:
        bound = max(bound, hypercube_bound(found.rtt_us[np.ix_(given, given)], base, rounds))
    result = search(task, 1, never, 0)
    assert (result.lower_bound, result.bound_by) == (bound, "rounds")


def test_two_racks_of_four_are_crossed_in_one_round_of_three() -> None:
    """What the bound of blocks is for: by partners alone all three rounds could stay inside."""
    task = of(with_rtt(racks([4, 4], 3)[0]), list(range(8)), "halving-doubling", "latency")
    assert search(task, 1, never, 0).lower_bound == 40 + 40 + 90


def test_hosts_with_several_ranks_have_no_bound_of_rounds_but_rings_have_theirs() -> None:
    twice = np.repeat(np.arange(9), 2).tolist()
    result = search(of(fabric(9, 2), twice, "tree", "latency"), 1, never, 0)
    assert (result.lower_bound, result.bound_by) == (None, None)
    pins = Wishes({0: 0, 1: 2})
    ring = search(of(fabric(9, 2), twice, "ring", "latency", pins), 1, never, 0)
    assert (ring.lower_bound, ring.bound_by) == (ring_bound(fabric(9, 2).rtt_us), "1-tree")


def test_the_median_is_of_201_random_orders_of_hosts_with_all_their_ranks() -> None:
    given, priced = np.array([2, 2, 0, 4, 4, 4]), []

    def price(order: Tour) -> float:
        priced.append(order.tolist())
        return float(len(priced) ** 2)

    task = Task(fabric(5), given, "tree", Options(), SIZE, "latency")
    assert median_of_random(task, price, 3) == 101.0**2
    assert len(priced) == 201
    allowed = [
        with_slots(np.array(hosts), np.array([1, 0, 2, 0, 3])).tolist() for hosts in itertools.permutations([0, 2, 4])
    ]
    assert {tuple(order) for order in priced} == {tuple(order) for order in allowed}


@pytest.mark.parametrize("algo", ["ring", "gloo", "tree", "nccl"])
@pytest.mark.parametrize("model", ["latency", "contention"])
@pytest.mark.parametrize("objective", ["auto", "time", "sum", "bottleneck"])
def test_the_sum_of_hops_and_the_longest_are_for_rings_under_latency(algo: str, model: str, objective: str) -> None:
    task = of(fabric(4), [0, 1, 2, 3], algo, model, objective=objective)
    by_hops = algo in RINGS and model == "latency"
    assert task.by_hops is by_hops
    if objective in ("sum", "bottleneck") and not by_hops:
        with pytest.raises(UsageError, match=f"--objective {objective} "):
            _objective(task)
        return
    expected = {"auto": "sum" if by_hops else "time"}
    assert _objective(task) == expected.get(objective, objective)


def test_hosts_are_those_that_have_ranks_as_they_first_come() -> None:
    task = of(fabric(6), [4, 4, 1, 5, 5, 0], "tree", "latency")
    assert task.hosts.tolist() == [4, 1, 5, 0]


def test_slowness_is_the_time_of_a_byte_there_and_back_where_all_rates_were_measured() -> None:
    found = fabric(5, 2, pairs=True)
    assert found.pair_gbps is not None
    task = of(found, [3, 0, 4], "ring", "alpha-beta")
    slow = _slowness(task)
    assert slow is not None
    for (i, a), (k, b) in itertools.product(enumerate([3, 0, 4]), repeat=2):
        there_and_back = 1 / found.pair_gbps[a, b] + 1 / found.pair_gbps[b, a]
        assert slow[i, k] == pytest.approx(0.0 if i == k else there_and_back)
    assert _slowness(of(found, [3, 0, 4], "ring", "contention")) is None
    assert _slowness(of(fabric(5, 2), [3, 0, 4], "ring", "alpha-beta")) is None
    for unknown in (np.nan, 0.0):
        rates = found.pair_gbps.copy()
        rates[0, 4] = unknown
        less = dataclasses.replace(found, pair_gbps=rates)
        assert _slowness(of(less, [3, 0, 4], "ring", "alpha-beta")) is None
        assert _slowness(of(less, [3, 0, 1], "ring", "alpha-beta")) is not None


def test_the_mix_of_a_tree_and_a_ring_is_the_best_of_all_turns_of_the_ring() -> None:
    """Both ways round, from every host; or the order that is given, where that is cheaper."""
    for seed in range(3):
        found, given = fabric(9, seed), np.random.default_rng(seed).permutation(9)
        task = Task(found, given, "nccl", Options(), 4e6, "latency")
        price = pricing_for("nccl", 9, Options(), found, 4e6, "latency")
        mixed = search(task, 1, never, 0)
        ring = search(dataclasses.replace(task, algo="nccl-ring"), 1, never, 0).order
        turns = [np.roll(way, k) for way in (ring, ring[::-1]) for k in range(9)]
        assert mixed.cost == pytest.approx(min(price(given), *(price(turn) for turn in turns)))
        assert mixed.cost == price(mixed.order)
        assert (mixed.lower_bound, mixed.bound_by) == (None, None)
