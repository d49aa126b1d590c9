"""The best orders of a search, chosen by simulation."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from plink.errors import NoAnswer
from solvers.costs.fabric import Fabric
from solvers.ordering.constraints import PlacementConstraints
from solvers.ordering.cross_validation import ValidatedGain
from solvers.ordering.problem import (
    Order,
    OrderingProblem,
    OrderingResult,
    SearchBudget,
    affordable_orders,
    random_orders,
)
from solvers.ordering.simulated_choice import (
    MAX_CANDIDATES,
    SimulatedChoice,
    candidate_orders,
    choose_by_simulation,
    improved_candidates,
    simulated_gain,
)
from solvers.schedules.catalogue import Options
from solvers.simulation.cost import SimulatedCost

N, SIZE = 12, 4e6


def problem(algo: str = "ring") -> OrderingProblem:
    """Hosts of three racks in turns."""
    rack = np.arange(N) % 3
    rtt = np.where(rack[:, None] == rack, 20.0, 80.0)
    np.fill_diagonal(rtt, 0.0)
    rates, uplinks = np.full(N, 10.0), np.full(3, 10.0)
    fabric = Fabric(tuple(map(str, range(N))), rtt, None, rates, rates, rack, uplinks, uplinks, "measured")
    return OrderingProblem(fabric, np.arange(N), algo, Options(), SIZE, "contention")


def simulated(task: OrderingProblem) -> SimulatedCost:
    return SimulatedCost.of(task.algo, N, task.options, task.fabric, SIZE)


def result_of(order: np.ndarray) -> OrderingResult:
    return OrderingResult(order, 1.0, 0.5, "rounds", 2.0, 3.0, 7, metrics={"sum": 1.0})


@pytest.mark.parametrize("algo", ["ring", "halving-doubling", "flat", "nccl"])
def test_candidates_are_distinct(algo: str) -> None:
    task = problem(algo)
    best = np.argsort(task.fabric.group_of, kind="stable")
    orders = candidate_orders(task, result_of(best), 3, SearchBudget(400))
    assert 2 <= len(orders) <= MAX_CANDIDATES
    assert len({order.tobytes() for order in orders}) == len(orders)
    assert np.array_equal(orders[0], best)
    assert any(np.array_equal(order, task.baseline) for order in orders)
    assert all(sorted(order.tolist()) == list(range(N)) for order in orders)


def test_measured_orders_are_improved_by_exchanges() -> None:
    task = problem("halving-doubling")
    simulate = simulated(task)
    orders = improved_candidates(task, [task.baseline], simulate, 0, lambda: True)
    assert simulate(orders[0]) < 0.8 * simulate(task.baseline)
    assert np.array_equal(orders[-1], task.baseline)
    again = improved_candidates(task, [task.baseline], simulate, 0, lambda: True)
    assert all(np.array_equal(*pair) for pair in zip(orders, again, strict=True))
    pinned = replace(task, constraints=PlacementConstraints(pinned_ranks={0: 0, 5: 5}))
    descended = improved_candidates(pinned, [task.baseline], simulate, 0, lambda: True)[0]
    assert (descended[0], descended[5]) == (0, 5)
    assert len(improved_candidates(task, [task.baseline], simulate, 0, lambda: False)) == 1


def test_inferred_order_is_cheapest_on_average() -> None:
    """By the assumed capacities alternating hosts cost as much as racks; a slower uplink of any rack is felt."""
    task = problem("halving-doubling")
    rates = np.full(3, np.inf)
    fabric = replace(task.fabric, capacities="inferred", group_out_gbps=rates, group_in_gbps=rates)
    task = replace(task, fabric=fabric)
    simulate = replace(simulated(task), fabric=replace(fabric, rtt_us=np.zeros((N, N))))
    good = np.argsort(fabric.group_of, kind="stable")
    assert simulate(good) == pytest.approx(simulate(task.baseline))
    orders = improved_candidates(task, [task.baseline, good], simulate, 0, lambda: True)
    drawn = replace(simulate, fabric=fabric.with_drawn_links(np.random.default_rng(7)))
    assert drawn(orders[0]) <= 1.001 * drawn(good)
    assert drawn(orders[0]) < 0.95 * drawn(task.baseline)
    assert np.array_equal(orders[-1], task.baseline)


def test_fastest_simulated_order_wins() -> None:
    """The search's result alternates between racks; another candidate keeps them together."""
    task, cost_of = problem(), simulated(problem())
    good = np.argsort(task.fabric.group_of, kind="stable")
    other = np.random.default_rng(1).permutation(N)
    choice = choose_by_simulation(
        task, result_of(other), [other, task.baseline, good], (cost_of, cost_of), 1, lambda: True
    )
    assert np.array_equal(choice.result.order, good)
    assert choice.result.cost == cost_of(good)
    assert choice.result.baseline_cost == cost_of(task.baseline)
    assert good.tobytes() != other.tobytes()
    assert (choice.result.lower_bound, choice.result.bound_by, choice.result.metrics) == (None, None, {})
    assert (choice.simulated, choice.candidates, choice.search_model) == (3, 3, "contention")
    assert choice.result.cost < choice.result.random_median


def test_no_order_is_simulated_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where candidates were improved before, nor to state what was chosen; on another fabric all are anew."""
    seen: list[bytes] = []
    part_costs = SimulatedCost.part_costs

    def counted(self: SimulatedCost, order: Order) -> list[tuple[float, str, float]]:
        seen.append(order.tobytes())
        return part_costs(self, order)

    monkeypatch.setattr(SimulatedCost, "part_costs", counted)
    task = problem("halving-doubling")
    cost_of = simulated(task)
    orders = improved_candidates(task, [task.baseline, np.arange(N)], cost_of, 0, lambda: True)
    choice = choose_by_simulation(task, result_of(task.baseline), orders, (cost_of, cost_of), 0, lambda: True)
    assert len(seen) == len(set(seen)) > len(orders)
    slower = replace(cost_of, fabric=replace(task.fabric, rtt_us=3 * task.fabric.rtt_us))
    assert slower(choice.result.order) > cost_of(choice.result.order)


def test_timeout_still_simulates_result_and_baseline() -> None:
    task, cost_of = problem(), simulated(problem())
    good = np.argsort(task.fabric.group_of, kind="stable")
    choice = choose_by_simulation(
        task, result_of(task.baseline), [task.baseline, good], (cost_of, cost_of), 1, lambda: False
    )
    assert np.array_equal(choice.result.order, task.baseline)
    assert choice.result.cost == choice.result.baseline_cost == cost_of(task.baseline)
    assert (choice.simulated, choice.candidates) == (1, 2)

    assert choice.result.random_median is None


@pytest.mark.parametrize("pins", [{}, {0: 0}])
def test_no_simulated_random_order_costs_less_than_the_chosen_one(pins: dict[int, int]) -> None:
    """The given order, which alternates between racks, is the only candidate; those that break a pin do not count."""
    task = replace(problem("tree"), constraints=PlacementConstraints(pins))
    cost_of = simulated(task)
    choice = choose_by_simulation(task, result_of(task.baseline), [task.baseline], (cost_of, cost_of), 1, lambda: True)
    drawn = itertools.islice(random_orders(np.arange(N), np.ones(N, dtype=np.intp), 1), 201)
    feasible = [order for order in drawn if all(order[rank] == host for host, rank in pins.items())]
    assert choice.result.cost == min(map(cost_of, [task.baseline, *feasible])) < cost_of(task.baseline)
    assert choice.result.cost == cost_of(choice.result.order)
    assert all(choice.result.order[rank] == host for host, rank in pins.items())


def test_of_rings_that_a_slow_host_holds_up_the_shortest_is_taken() -> None:
    """260 hosts of 13 racks; whatever the order, all wait for the slow host's blocks."""
    hosts = 260
    rack = np.arange(hosts) % 13
    rtt = np.where(rack[:, None] == rack, 20.0, 80.0)
    np.fill_diagonal(rtt, 0.0)
    rates, uplinks = np.full(hosts, 10.0), np.full(13, 100.0)
    rates[7] = 0.5
    fabric = Fabric(tuple(map(str, range(hosts))), rtt, None, rates, rates, rack, uplinks, uplinks, "measured")
    task = OrderingProblem(fabric, np.arange(hosts), "ring", Options(), 1e8, "contention")
    cost_of = SimulatedCost.of("ring", hosts, Options(), fabric, 1e8)
    far, near = np.random.default_rng(0).permutation(hosts), np.argsort(rack, kind="stable")
    assert cost_of(far) == pytest.approx(cost_of(near), rel=1e-12)
    for orders in ([far, near], [near, far]):
        choice = choose_by_simulation(task, result_of(orders[0]), orders, (cost_of, cost_of), 0, lambda: True)
        assert np.array_equal(choice.result.order, near)


def test_a_random_ring_that_takes_as_long_does_not_replace_the_shortest() -> None:
    """A slow host decides the time; what random orders differ by is a billionth of it."""
    hosts = 16
    rack = np.arange(hosts) // 4
    rtt = np.where(rack[:, None] == rack, 20.0, 60.0)
    np.fill_diagonal(rtt, 0.0)
    rates, uplinks = np.full(hosts, 10.0), np.full(4, 20.0)
    rates[3] = 0.43
    fabric = Fabric(tuple(map(str, range(hosts))), rtt, None, rates, rates, rack, uplinks, uplinks, "measured")
    task = OrderingProblem(fabric, np.arange(hosts), "ring", Options(), 1e8, "contention")
    cost_of = SimulatedCost.of("ring", hosts, Options(), fabric, 1e8)
    near = np.arange(hosts)
    choice = choose_by_simulation(task, result_of(near), [near], (cost_of, cost_of), 1, lambda: True)
    assert np.array_equal(choice.result.order, near)


def test_gain_is_simulated_on_held_out_round_trips() -> None:
    """At almost no bytes the gain is that of latencies, which are turned around in the held-out half."""
    task = problem()
    cost_of = replace(simulated(task), size_bytes=1.0)
    good = np.argsort(task.fabric.group_of, kind="stable")
    result = replace(result_of(good), cost=cost_of(good), baseline_cost=cost_of(task.baseline))
    searched = ValidatedGain(0.1, 0.05, 0.15, 0.1, 20)
    far = replace(task.fabric, rtt_us=2 * task.fabric.rtt_us)
    choice = SimulatedChoice(result, 1, 1, "contention", cost_of)
    gain = simulated_gain(choice, task.baseline, far, searched)
    validated = replace(cost_of, fabric=far)
    assert gain.gain == pytest.approx(1 - validated(good) / validated(task.baseline))
    assert gain.high - gain.gain == pytest.approx(0.05)
    assert gain.gain - gain.low == pytest.approx(0.05)
    assert simulated_gain(choice, task.baseline, far, replace(searched, pairs=0)).low <= 0
    assert simulated_gain(choice, good, far, searched) is searched


def test_gain_by_the_search_where_a_held_out_order_takes_ages() -> None:
    task, rng = problem("halving-doubling"), np.random.default_rng(24)
    searched = ValidatedGain(0.1, 0.05, 0.15, 0.1, 20)
    baseline, far = rng.permutation(N), replace(task.fabric, rtt_us=1e15 * task.fabric.rtt_us)
    choice = SimulatedChoice(result_of(rng.permutation(N)), 1, 1, "contention", simulated(task))
    assert simulated_gain(choice, baseline, far, searched) is searched


@pytest.mark.parametrize("measured", [True, False])
def test_order_that_takes_ages_is_refused(measured: bool) -> None:
    task = replace(problem("halving-doubling"), size_bytes=1e22)
    task = task if measured else replace(task, fabric=replace(task.fabric, capacities="inferred"))
    cost_of = SimulatedCost.of(task.algo, N, task.options, task.fabric, task.size_bytes)
    with pytest.raises(NoAnswer, match="simulation stopped"):
        choose_by_simulation(task, result_of(task.baseline), [task.baseline], (cost_of, cost_of), 0, lambda: True)


@pytest.mark.parametrize(
    ("wanted", "hops", "orders"), [(201, 100, 201), (201, 1_000_000, 20), (201, 10**9, 5), (3, 10**9, 3)]
)
def test_fewer_orders_are_costed_where_one_takes_long(wanted: int, hops: int, orders: int) -> None:
    assert affordable_orders(wanted, hops) == orders
