"""Runs of annealing: how many moves, how long each, when they end, and what does not depend on units."""

import dataclasses
import itertools

import numpy as np
import pytest

from solvers.costs.by_name import pattern_for
from solvers.costs.fabric import Fabric
from solvers.ordering.annealing import Annealed, Annealer, _looked_at, _nearest
from solvers.ordering.moves import Moves, moves_of
from solvers.ordering.progress import Progress
from solvers.ordering.seats import Seats, Wishes
from solvers.schedules.catalogue import Options
from tests.solvers.costs.test_cost_models import fabric
from tests.solvers.ordering.test_ring_search import always, until
from tests.solvers.synthetic import Tour, random_costs

ALGO = "halving-doubling"


def annealer_of(found: Fabric, n: int) -> tuple[Annealer, Moves]:
    moves = moves_of(Seats(np.arange(n), found.names, Wishes()).classes(np.arange(n)), n)
    assert moves is not None
    return Annealer(pattern_for(ALGO, n, Options()), found, 1e6, "latency"), moves


def told_of(starts: list[Tour], found: Fabric, most: int, patient: bool = True) -> tuple[Annealed, list[Progress]]:
    told: list[Progress] = []

    def watch(progress: Progress) -> bool:
        told.append(progress)
        return True

    annealer, moves = annealer_of(found, len(starts[0]))
    return annealer.search(starts, moves, 3, most, watch, None, patient), told


@pytest.mark.parametrize("most", [0, 1, 2, 3, 7, 1001, 40_001, 40_003])
def test_just_so_many_moves_are_tried_as_are_allowed(most: int) -> None:
    """Two at a time, and the last one alone."""
    found = fabric(6, 2)
    result, told = told_of([np.arange(6)], found, most)
    assert result.moves == most
    counts = [one.moves for one in told]
    assert counts == sorted(counts)
    assert not told or (counts[0] == 0 and counts[-1] == most)


def test_runs_from_each_start_are_alike_and_those_that_follow_each_twice_as_long() -> None:
    found = fabric(6, 2)
    for number in (1, 3):
        starts = [np.roll(np.arange(6), k) for k in range(number)]
        _, told = told_of(starts, found, 360_000)
        ends = sorted({one.moves for one in told})
        lengths = [end - begin for begin, end in itertools.pairwise(ends)]
        first = lengths[0]
        assert lengths[:number] == [first] * number
        assert lengths[number : number + 2] == [first * 2, first * 4]
        assert first % 2 == 0


def test_what_is_told_is_the_best_cost_so_far() -> None:
    found = fabric(12, 4)
    result, told = told_of([np.arange(12), np.random.default_rng(1).permutation(12)], found, 100_000)
    annealer, _ = annealer_of(found, 12)
    costs = [one.cost for one in told]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] == min(annealer.price(one) for one in (np.arange(12), np.random.default_rng(1).permutation(12)))
    assert costs[-1] == pytest.approx(result.cost)
    assert result.cost == annealer.price(result.order)


def test_the_cheapest_start_is_kept_where_nothing_is_tried() -> None:
    found = fabric(8, 4)
    annealer, moves = annealer_of(found, 8)
    starts = [np.random.default_rng(seed).permutation(8) for seed in range(5)]
    best = min(starts, key=annealer.price)
    for most, exchanged in ((0, moves), (1000, None)):
        result = annealer.search(starts, exchanged, 1, most, always)
        assert (result.order.tolist(), result.cost, result.moves) == (best.tolist(), annealer.price(best), 0)


def test_where_all_hosts_are_in_one_place_there_is_nothing_to_try() -> None:
    found = dataclasses.replace(fabric(6), rtt_us=np.zeros((6, 6)))
    annealer, moves = annealer_of(found, 6)
    assert annealer.search([np.arange(6)], moves, 1, 5000, always).moves == 0


def test_it_ends_where_the_bound_is_met_and_not_before() -> None:
    """A cost that is by a billionth above the bound is the bound's, but for rounding."""
    found = fabric(6, 2)
    annealer, moves = annealer_of(found, 6)
    best = min(annealer.price(np.array(order)) for order in itertools.permutations(range(6)))
    dear = max((np.array(order) for order in itertools.permutations(range(6))), key=annealer.price)
    met = annealer.search([dear], moves, 3, 10**7, always, best)
    assert met.cost == pytest.approx(best)
    assert 0 < met.moves < 10**7
    assert annealer.search([dear], moves, 3, 500, always, annealer.price(dear) * (1 - 1e-6)).moves > 0
    assert annealer.search([dear], moves, 3, 500, always, annealer.price(dear) * (1 - 1e-10)).moves == 0
    assert annealer.search([dear], moves, 3, 500, always, 0.0).moves == 500


def test_who_is_not_patient_goes_on_for_a_while_and_for_as_long_again_as_a_gain_took_three_times() -> None:
    """The best of so few is found in the first run: the next end after the least that is tried is the last."""
    result, told = told_of([np.arange(6)], fabric(6, 2), 10**12, patient=False)
    assert 300_000 < result.moves < 4 * 300_000
    assert told[-1].cost == result.cost
    ends = sorted({one.moves for one in told})
    assert ends[-2] <= 300_000


def test_a_run_ends_when_it_is_told() -> None:
    """Before the first move, after the first slice of a run, before the next one."""
    annealer, moves = annealer_of(fabric(6, 2), 6)
    ends = [annealer.search([np.arange(6)], moves, 3, 10**9, until(calls)).moves for calls in range(5)]
    assert ends[0] == 0 < ends[1] == ends[2] < ends[3] == ends[4]


def test_units_of_time_play_no_part() -> None:
    """Everything takes a thousand and twenty-four times as long: the same order."""
    found = fabric(9, 5)
    slower = dataclasses.replace(found, rtt_us=found.rtt_us * 1024)
    results = []
    for one in (found, slower):
        annealer, moves = annealer_of(one, 9)
        results.append(annealer.search([np.arange(9)], moves, 4, 3000, always))
    assert results[0].order.tolist() == results[1].order.tolist()
    assert results[1].cost == pytest.approx(1024 * results[0].cost, rel=1e-12)


@pytest.mark.parametrize(("n", "number"), [(2, 1), (5, 4), (8, 7), (9, 8), (30, 8)])
def test_moves_are_aimed_at_the_eight_nearest_hosts(n: int, number: int) -> None:
    rtt = random_costs(n, n, 1, 10**6)
    near = _nearest(rtt)
    assert near.shape == (n, number)
    for host in range(n):
        others = sorted((k for k in range(n) if k != host), key=lambda k: rtt[host, k])
        assert set(near[host].tolist()) == set(others[:number])


def test_a_typical_change_is_the_median_of_those_that_swaps_make() -> None:
    """A star of one far host: a swap changes a ring's price by what the far host's hops do, or not at all."""
    n = 6
    found = fabric(n, 2)
    annealer, moves = annealer_of(found, n)
    start = np.arange(n)
    swaps = []
    for a, b in itertools.combinations(range(n), 2):
        other = start.copy()
        other[[a, b]] = other[[b, a]]
        swaps.append(abs(annealer.price(other) - annealer.price(start)))
    changes = sorted(one for one in swaps if one > 0)
    typical = annealer._change([start], moves, np.random.default_rng(1))
    assert changes[len(changes) // 4] <= typical <= changes[3 * len(changes) // 4]
    alike = dataclasses.replace(found, rtt_us=50.0 * ~np.eye(n, dtype=bool))
    annealer, moves = annealer_of(alike, n)
    assert annealer._change([start, start[::-1].copy()], moves, np.random.default_rng(1)) == 50.0


def test_a_swap_of_more_hops_looks_at_more() -> None:
    """In chains at those that wait for them as well, eight in a row; with loads at what groups and hosts have."""
    found = fabric(16, 1)
    one, many = (pattern_for(algo, 16, Options()) for algo in ("ring", "bml"))
    per_hop = _looked_at(one, found, "hops")
    assert _looked_at(one, found, "chain") == 8 * per_hop
    assert _looked_at(many, found, "hops") == pytest.approx(per_hop * len(many.source) / len(one.source))
    assert _looked_at(one, found, "loads") > per_hop + 2 * 16
    more = dataclasses.replace(found, group_out_gbps=np.ones(30), group_in_gbps=np.ones(30))
    assert _looked_at(one, more, "loads") == _looked_at(one, found, "loads") + 16 * 27
