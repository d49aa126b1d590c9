"""Collectives in AggEngine's slices: their price beside simulations of all slices, as AggEngine sends them."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.lab_clock import in_segments
from solvers.costs.by_name import engine_slices, pattern_for, time_in_slices
from solvers.costs.closed_forms import closed_form
from solvers.costs.fabric import Fabric
from solvers.costs.patterns import in_slices
from solvers.ordering.problem import OrderingProblem, SearchBudget
from solvers.ordering.search import search
from solvers.schedules.catalogue import Options, schedule_for
from solvers.simulation.collective import PreparedCollective
from solvers.simulation.cost import SimulatedCost

RACKS = [[0, 1, 2, 3, 4], [5, 6], [7, 8, 9]]
SIZE = 25e6


def uneven(seed: int) -> tuple[Fabric, np.ndarray]:
    """Ten hosts of 5, 10 and 20 Gbit/s in three racks, of which two share an uplink of their fastest host's rate."""
    rng = np.random.default_rng(seed)
    rack = np.repeat(np.arange(3), [len(rack) for rack in RACKS])
    rates, uplinks = rng.choice([5.0, 10.0, 20.0], 10), np.array([20.0, 20.0, np.inf])
    rtt = np.where(rack[:, None] == rack, 40.0, 90.0)
    np.fill_diagonal(rtt, 0.0)
    names = tuple(f"h{host}" for host in range(10))
    return Fabric(names, rtt, None, rates, rates, rack, uplinks, uplinks, "measured", True), rng.permutation(10)


@pytest.mark.parametrize("algo", ["2lha", "tree", "bcube", "flat", "ring", "ps"])
def test_price_in_slices_is_near_the_simulation_of_all_slices(algo: str) -> None:
    options = Options(groups=RACKS if algo == "2lha" else None, base=10, sharded=algo != "ps")
    for seed in range(5):
        fabric, order = uneven(seed)
        schedule = schedule_for(algo, 10, options)
        slices = engine_slices(algo, options, fabric, SIZE)
        every_slice = PreparedCollective.of(in_segments(schedule, slices), lockstep=False)
        expected = every_slice.run(fabric, order, SIZE).makespan_us
        price = SimulatedCost.of(algo, 10, options, fabric, SIZE)(order)
        assert price == pytest.approx(expected, rel=0.12)


def test_a_tree_in_slices_is_far_from_the_vector_whole() -> None:
    """The root receives while it sends: without slices it would do one after the other."""
    fabric, order = uneven(0)
    prepared = PreparedCollective.of(schedule_for("tree", 10))
    whole, sliced = (prepared.run(fabric, order, SIZE, slices=slices).makespan_us for slices in (1, 8))
    assert sliced < 0.7 * whole


@pytest.mark.parametrize("algo", ["2lha", "halving-doubling", "double-binary-tree", "ring", "flat"])
def test_pattern_in_slices_costs_what_rounds_do_in_slices(algo: str) -> None:
    """Where latency is nothing; a ring is one round, which slices leave as it is, as is a vector whole."""
    options = Options(groups=RACKS if algo == "2lha" else None)
    pattern = pattern_for(algo, 10, options)
    for seed in range(5):
        fabric, order = uneven(seed)
        fabric = replace(fabric, rtt_us=np.zeros((10, 10)))
        whole_us = closed_form(pattern, fabric, SIZE, "contention")(order)
        assert in_slices(pattern, 1) is pattern
        busiest_us = SimulatedCost.of(algo, 10, options, fabric, SIZE).busiest_us(order)
        for slices in (2, 8):
            cost_us = closed_form(in_slices(pattern, slices), fabric, SIZE, "contention")(order)
            expected_us = time_in_slices(whole_us, busiest_us, 0.0, slices)
            assert expected_us * (1 - 1e-9) <= cost_us <= 1.06 * expected_us  # several links are late now and then


def test_orders_are_searched_as_they_are_priced() -> None:
    """The same moves find orders that cost less in slices, in the mean."""
    algo, ratios = "double-binary-tree", []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        rack = np.arange(24) // 6
        rates, uplinks = rng.choice([5.0, 10.0, 20.0], 24), rng.uniform(10, 40, 4)
        rtt = np.where(rack[:, None] == rack, 40.0, 90.0) * ~np.eye(24, dtype=bool)
        names = tuple(f"h{host}" for host in range(24))
        fabric = Fabric(names, rtt, None, rates, rates, rack, uplinks, uplinks, "measured", True)
        problem = OrderingProblem(fabric, rng.permutation(24), algo, Options(), SIZE, "contention")
        price = SimulatedCost.of(algo, 24, Options(), fabric, SIZE)
        whole, sliced = (search(replace(problem, slices=slices), 0, SearchBudget(2000)) for slices in (1, 8))
        ratios.append(price(sliced.order) / price(whole.order))
    assert np.mean(ratios) < 0.95


def test_neither_the_busiest_link_nor_latency_is_divided() -> None:
    assert time_in_slices(100.0, 60.0, 10.0, 1) == 100.0
    assert time_in_slices(100.0, 60.0, 10.0, 4) == 70.0
    assert time_in_slices(100.0, 10.0, 80.0, 4) == 85.0
    assert time_in_slices(100.0, 100.0, 0.0, 8) == 100.0


@pytest.mark.parametrize("algo", ["nccl-tree", "gloo", "openmpi-rabenseifner", "mesh"])
def test_libraries_have_no_such_slices(algo: str) -> None:
    assert engine_slices(algo, Options(), uneven(0)[0], 100e6) == 1


def test_slices_are_those_of_the_engine() -> None:
    """Small vectors are whole; at 10 Gbit/s a slice has 4 MiB at most."""
    fabric, _ = uneven(0)
    at_10, at_200m = (
        replace(fabric, host_out_gbps=np.full(10, rate), host_in_gbps=np.full(10, rate)) for rate in (10.0, 0.2)
    )
    sizes = (64e3, 1e6, 25e6, 200e6)
    assert [engine_slices("2lha", Options(), at_10, size) for size in sizes] == [1, 3, 8, 47]
    assert engine_slices("2lha", Options(), at_200m, 200e6) > 47


def test_set_segments_are_the_only_ones() -> None:
    fabric, order = uneven(1)
    by_four = SimulatedCost.of("tree", 10, Options(segments=4), fabric, SIZE)
    prepared = PreparedCollective.of(schedule_for("tree", 10, Options(segments=4)))
    assert by_four(order) == prepared.run(fabric, order, SIZE).makespan_us
