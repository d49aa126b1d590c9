"""Collectives in AggEngine's slices: their price beside simulations of all slices, as AggEngine sends them."""

import heapq
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.lab_clock import in_segments
from plink.model.schedule import Schedule, dependencies
from solvers.costs.by_name import closed_form_in_slices, engine_slices, pattern_for, time_in_slices
from solvers.costs.closed_forms import closed_form
from solvers.costs.evaluator import Messages, with_host_costs
from solvers.costs.fabric import Fabric, alike_hosts
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
    # Half of what is not messages, messages of all rounds, and those of a rank once more for the second slice.
    assert time_in_slices(100.0, 60.0, 10.0, 2, Messages(40.0, 30.0)) == 30.0 + 40.0 + 30.0


def queued_us(schedule: Schedule, message_us: float) -> float:
    """When the last message has arrived if each waits for its data, and takes so long of its source, which sends one
    after the other, and of its target, which receives one after the other; those of earlier rounds go first."""
    offsets, needed = dependencies(schedule)
    free_us = np.zeros((2, schedule.ranks))
    end_us, missing = np.zeros(len(schedule)), np.diff(offsets)
    later: list[list[int]] = [[] for _ in range(len(schedule))]
    for transfer in range(len(schedule)):
        for k in needed[offsets[transfer] : offsets[transfer + 1]].tolist():
            later[k].append(transfer)
    ready = [(0.0, int(schedule.round[k]), k) for k in np.flatnonzero(missing == 0).tolist()]
    heapq.heapify(ready)
    while ready:
        at_us, number, k = heapq.heappop(ready)
        places = (0, 1), (int(schedule.source[k]), int(schedule.target[k]))
        begin_us = max(at_us, float(free_us[places].max()))
        if begin_us > at_us:
            heapq.heappush(ready, (begin_us, number, k))
            continue
        free_us[places] = end_us[k] = begin_us + message_us
        for other in later[k]:
            missing[other] -= 1
            if not missing[other]:
                begins = needed[offsets[other] : offsets[other + 1]]
                heapq.heappush(ready, (float(end_us[begins].max()), int(schedule.round[other]), other))
    return float(end_us.max())


@pytest.mark.parametrize(("hosts", "slices"), [(5, 2), (6, 2), (8, 24), (12, 2), (16, 4)])
@pytest.mark.parametrize(
    "algo",
    ["2lha", "tree", "double-binary-tree", "bcube", "flat", "ring", "ps", "halving-doubling", "recursive-doubling"],
)
def test_hosts_work_on_the_messages_of_every_slice(algo: str, hosts: int, slices: int) -> None:
    """Where links take no time; docs/cost-models.md has the range of what queues of messages take."""
    groups = [list(range(hosts // 2)), list(range(hosts // 2, hosts))]
    options = Options(groups=groups if algo == "2lha" else None, base=hosts, sharded=algo != "ps")
    fabric = with_host_costs(alike_hosts([f"h{k}" for k in range(hosts)], 1e6), 100.0, 0.0)
    order, schedule = np.arange(hosts), schedule_for(algo, hosts, options)
    expected_us = queued_us(in_segments(schedule, slices), 100.0)
    simulated_us = PreparedCollective.of(schedule).run(fabric, order, 1.0, slices=slices).makespan_us
    by_rounds_us = closed_form_in_slices(pattern_for(algo, hosts, options), slices, fabric, 1.0, "contention")(order)
    for price_us in (simulated_us, by_rounds_us):
        assert 0.72 * expected_us < price_us < 1.23 * expected_us


@pytest.mark.parametrize("algo", ["2lha", "tree", "bcube", "flat", "ring", "ps"])
def test_few_messages_change_no_price_in_slices(algo: str) -> None:
    """A large vector: messages of a microsecond add no more than the first slice waits for them."""
    options = Options(groups=RACKS if algo == "2lha" else None, base=10, sharded=algo != "ps")
    fabric, order = uneven(2)
    without_us, with_us = (
        SimulatedCost.of(algo, 10, options, it, SIZE)(order) for it in (fabric, with_host_costs(fabric, 1.0, 0.0))
    )
    assert without_us <= with_us < without_us + 40


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
