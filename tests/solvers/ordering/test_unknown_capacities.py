"""Orders for hypercube algorithms where the capacities of groups' links are unknown."""

from dataclasses import replace

import numpy as np
import pytest

from solvers.costs.by_name import cost_function_for
from solvers.costs.fabric import Fabric
from solvers.ordering.constraints import PlacementConstraints
from solvers.ordering.problem import OrderingProblem
from solvers.ordering.unknown_capacities import aligned_order, cheapest_on_average
from solvers.schedules.catalogue import Options
from solvers.simulation.cost import SimulatedCost

N, SIZE = 16, 16e6


def problem(algo: str, base: int = 2) -> OrderingProblem:
    """Hosts of four racks in turns; nobody knows what the uplinks carry."""
    rack = np.arange(N) % 4
    rtt = np.where(rack[:, None] == rack, 20.0, 80.0)
    np.fill_diagonal(rtt, 0.0)
    rates, uplinks = np.full(N, 10.0), np.full(4, 16.0)
    fabric = Fabric(tuple(map(str, range(N))), rtt, None, rates, rates, rack, uplinks, uplinks, "inferred")
    return OrderingProblem(fabric, np.arange(N), algo, Options(base=base), SIZE, "contention")


def cost_of(task: OrderingProblem, fabric: Fabric | None = None) -> SimulatedCost:
    return SimulatedCost.of(task.algo, N, task.options, fabric or task.fabric, task.size_bytes)


@pytest.mark.parametrize(("base", "sizes"), [(2, [8, 4, 2, 2]), (2, [16, 8, 8]), (4, [4, 16, 4, 4, 4])])
def test_groups_that_fit_are_whole_blocks(base: int, sizes: list[int]) -> None:
    rng = np.random.default_rng(3)
    label = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    for _ in range(5):
        order = aligned_order(range(len(label)), [label], base, rng)
        assert sorted(order) == list(range(len(label)))
        for group, size in enumerate(sizes):
            ranks = np.flatnonzero(label[order] == group)
            assert ranks[0] % size == 0
            assert np.ptp(ranks) == size - 1


def test_odd_groups_share_as_few_pairs_as_possible() -> None:
    """Two racks of odd size make one pair across racks; the pods are of even size and need none across pods."""
    rack, pod = np.repeat([0, 1, 2, 3], [5, 3, 6, 2]), np.repeat([0, 1], [8, 8])
    orders = [aligned_order(range(16), [rack, pod], 2, np.random.default_rng(seed)) for seed in range(9)]
    for order in orders:
        pairs = np.array(order).reshape(-1, 2)
        assert (rack[pairs[:, 0]] != rack[pairs[:, 1]]).sum() == 1
        assert (pod[order[:8]] == pod[order[0]]).all()
    assert len(set(map(tuple, orders))) > 1


@pytest.mark.extended
@pytest.mark.parametrize(("algo", "base"), [("halving-doubling", 2), ("bcube", 4)])
def test_hypercube_orders_keep_racks_together(algo: str, base: int) -> None:
    """From the worst order alone: on average over other draws of the capacities than those that chose."""
    task = problem(algo, base)
    order = cheapest_on_average(task, [task.baseline], 0, lambda: True)
    draws = [cost_of(task, task.fabric.with_drawn_links(np.random.default_rng(99 + k))) for k in range(9)]
    mean, baseline, by_racks = (
        sum(by_draw(hosts) for by_draw in draws)
        for hosts in (order, task.baseline, np.argsort(task.fabric.group_of, kind="stable"))
    )
    assert mean < 0.8 * baseline
    assert mean <= 1.01 * by_racks
    assert np.array_equal(order, cheapest_on_average(task, [task.baseline], 0, lambda: True))


@pytest.mark.extended
def test_exchanges_improve_uneven_racks() -> None:
    """Lower than any of many aligned orders, whose pairs across racks are random."""
    rack = np.repeat([0, 1, 2, 3], [7, 5, 3, 1])
    task = problem("halving-doubling")
    rtt = np.random.default_rng(0).lognormal(0, 0.3, (N, N)) * np.where(rack[:, None] == rack, 20.0, 80.0)
    fabric = replace(task.fabric, rtt_us=np.sqrt(rtt * rtt.T) * (1 - np.eye(N)), group_of=rack)
    task = replace(task, fabric=replace(fabric, group_out_gbps=np.full(4, 10.0), group_in_gbps=np.full(4, 10.0)))
    task = replace(task, size_bytes=1e3)  # latencies count
    rng = np.random.default_rng(1)
    aligned = [np.array(aligned_order(range(N), [rack], 2, rng)) for _ in range(100)]
    order = cheapest_on_average(task, aligned[:2], 0, lambda: True)
    by_rounds = cost_function_for(task.algo, N, task.options, task.fabric, task.size_bytes, "contention")
    assert by_rounds(order) < min(map(by_rounds, aligned))


def test_constraints_hold_where_capacities_are_unknown() -> None:
    task = replace(problem("halving-doubling"), constraints=PlacementConstraints(pinned_ranks={0: 0, 6: 9}))
    order = cheapest_on_average(task, [task.baseline[::-1]], 0, lambda: True)
    assert (order[0], order[9]) == (0, 6)
    assert sorted(order.tolist()) == list(range(N))


def test_timeout_leaves_the_first_order() -> None:
    task = problem("halving-doubling")
    orders = [task.baseline[::-1].copy(), task.baseline]
    order = cheapest_on_average(task, orders, 0, lambda: False)
    assert np.array_equal(order, orders[0])
