"""The best orders of a search, chosen by simulation."""

from dataclasses import replace

import numpy as np
import pytest

from plink.errors import NoAnswer
from solvers.costs.fabric import Fabric
from solvers.ordering.constraints import PlacementConstraints
from solvers.ordering.cross_validation import ValidatedGain
from solvers.ordering.problem import OrderingProblem, OrderingResult
from solvers.ordering.progress import SearchBudget
from solvers.ordering.simulated_choice import (
    MAX_CANDIDATES,
    candidate_orders,
    choose_by_simulation,
    improved_candidates,
    simulated_gain,
)
from solvers.schedules.catalogue import Options
from solvers.simulation.contention import ContentionCost
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


def test_measured_orders_are_improved_by_the_estimate() -> None:
    task = problem("halving-doubling")
    estimate = ContentionCost.of(task.algo, N, task.options, task.fabric, SIZE)
    orders = improved_candidates(task, [task.baseline], estimate, 0, lambda: True)
    assert estimate(orders[0]) < 0.8 * estimate(task.baseline)
    assert np.array_equal(orders[-1], task.baseline)
    again = improved_candidates(task, [task.baseline], estimate, 0, lambda: True)
    assert all(np.array_equal(*pair) for pair in zip(orders, again, strict=True))
    pinned = replace(task, constraints=PlacementConstraints(pinned_ranks={0: 0, 5: 5}))
    descended = improved_candidates(pinned, [task.baseline], estimate, 0, lambda: True)[0]
    assert (descended[0], descended[5]) == (0, 5)
    assert len(improved_candidates(task, [task.baseline], estimate, 0, lambda: False)) == 1


def test_inferred_order_is_cheapest_on_average() -> None:
    """By the assumed capacities alternating hosts cost as much as racks; a slower uplink of any rack is felt."""
    task = problem("halving-doubling")
    rates = np.full(3, np.inf)
    fabric = replace(task.fabric, capacities="inferred", group_out_gbps=rates, group_in_gbps=rates)
    task = replace(task, fabric=fabric)
    estimate = ContentionCost.of(task.algo, N, task.options, replace(fabric, rtt_us=np.zeros((N, N))), SIZE)
    good = np.argsort(fabric.group_of, kind="stable")
    assert estimate(good) == pytest.approx(estimate(task.baseline))
    orders = improved_candidates(task, [task.baseline, good], estimate, 0, lambda: True)
    drawn = replace(estimate, fabric=fabric.with_drawn_links(np.random.default_rng(7)))
    assert drawn(orders[0]) <= 1.001 * drawn(good)
    assert drawn(orders[0]) < 0.95 * drawn(task.baseline)
    assert np.array_equal(orders[-1], task.baseline)


def test_fastest_simulated_order_wins() -> None:
    """The search's result alternates between racks; another candidate keeps them together."""
    task, cost_of = problem(), simulated(problem())
    good = np.argsort(task.fabric.group_of, kind="stable")
    other = np.random.default_rng(1).permutation(N)
    choice = choose_by_simulation(task, result_of(other), [other, task.baseline, good], cost_of, 1, lambda: True)
    assert np.array_equal(choice.result.order, good)
    assert choice.result.cost == cost_of(good)
    assert choice.result.baseline_cost == cost_of(task.baseline)
    assert good.tobytes() != other.tobytes()
    assert (choice.result.lower_bound, choice.result.bound_by, choice.result.metrics) == (None, None, {})
    assert (choice.simulated, choice.candidates, choice.search_model) == (3, 3, "contention")
    assert choice.result.cost < choice.result.random_median


def test_timeout_still_simulates_result_and_baseline() -> None:
    task, cost_of = problem(), simulated(problem())
    good = np.argsort(task.fabric.group_of, kind="stable")
    choice = choose_by_simulation(task, result_of(task.baseline), [task.baseline, good], cost_of, 1, lambda: False)
    assert np.array_equal(choice.result.order, task.baseline)
    assert choice.result.cost == choice.result.baseline_cost == cost_of(task.baseline)
    assert (choice.simulated, choice.candidates) == (1, 2)


def test_gain_is_simulated_on_held_out_round_trips() -> None:
    """At almost no bytes the gain is that of latencies, which are turned around in the held-out half."""
    task = problem()
    cost_of = replace(simulated(task), size_bytes=1.0)
    good = np.argsort(task.fabric.group_of, kind="stable")
    result = replace(result_of(good), cost=cost_of(good), baseline_cost=cost_of(task.baseline))
    searched = ValidatedGain(0.1, 0.05, 0.15, 0.1, 20)
    far = replace(task.fabric, rtt_us=2 * task.fabric.rtt_us)
    gain = simulated_gain(result, task.baseline, cost_of, far, searched)
    validated = replace(cost_of, fabric=far)
    assert gain.gain == pytest.approx(1 - validated(good) / validated(task.baseline))
    assert gain.high - gain.gain == pytest.approx(0.05)
    assert gain.gain - gain.low == pytest.approx(0.05)
    assert simulated_gain(result, task.baseline, cost_of, far, replace(searched, pairs=0)).low <= 0
    assert simulated_gain(result, good, cost_of, far, searched) is searched


def test_pipelined_tree_is_improved_by_its_first_segments() -> None:
    """Descents price few segments; what they find is better by all of them."""
    task = replace(problem("tree"), options=Options(segments=96))
    estimate = ContentionCost.of(task.algo, N, task.options, task.fabric, SIZE)
    orders = improved_candidates(task, [task.baseline], estimate, 0, lambda: True)
    assert estimate(orders[0]) < 0.8 * estimate(task.baseline)


def uneven(seed: int) -> tuple[OrderingProblem, list[np.ndarray]]:
    """Return a problem of uneven rates and uplinks with the best orders of a search, the baseline the first of them.

    The baseline is the cheapest of them by the estimate, and not the fastest.
    """
    task, rng = problem("halving-doubling"), np.random.default_rng(seed)
    uplinks, rates = rng.uniform(3, 40, 3), rng.uniform(5, 20, N)
    fabric = replace(
        task.fabric, host_out_gbps=rates, host_in_gbps=rates, group_out_gbps=uplinks, group_in_gbps=uplinks
    )
    task = replace(task, fabric=fabric)
    starts = [rng.permutation(N) for _ in range(4)]
    candidates = improved_candidates(task, starts, simulated(task), 0, lambda: True)
    baseline = min(candidates, key=estimated(task))
    task = replace(task, baseline=baseline)
    orders = improved_candidates(task, [baseline, *starts], estimated(task), 0, lambda: True)
    fastest = min(orders, key=simulated(task))
    assert estimated(task)(baseline) < estimated(task)(fastest)
    assert simulated(task)(baseline) > 1.01 * simulated(task)(fastest)
    return task, orders


def estimated(task: OrderingProblem) -> ContentionCost:
    return ContentionCost.of(task.algo, N, task.options, task.fabric, SIZE)


@pytest.mark.extended
@pytest.mark.parametrize("seed", [11, 24])
@pytest.mark.parametrize("is_first", [True, False])
def test_simulation_decides_against_the_estimate(seed: int, is_first: bool) -> None:
    """Wherever the baseline is among the candidates, the fastest wins; its costs are still those asked for."""
    task, orders = uneven(seed)
    if not is_first:
        orders = [order for order in orders if not np.array_equal(order, task.baseline)] + [task.baseline]
    fastest = min(orders, key=simulated(task))
    choice = choose_by_simulation(task, result_of(task.baseline), orders, estimated(task), 0, lambda: True)
    assert np.array_equal(choice.result.order, fastest)
    assert choice.result.cost == estimated(task)(fastest)
    assert choice.result.baseline_cost == estimated(task)(task.baseline)
    assert choice.is_against_estimate
    assert choice.decided.cost == pytest.approx(simulated(task)(fastest))
    assert choice.decided.baseline_cost == pytest.approx(simulated(task)(task.baseline))
    same = ValidatedGain(0.1, 0.1, 0.1, 0.1, 20)
    gain = simulated_gain(choice.decided, task.baseline, choice.decided_by, task.fabric, same)
    assert gain.gain == pytest.approx(gain.predicted)
    assert gain.gain > 0


def test_baseline_that_is_fastest_by_simulation_stays() -> None:
    task, orders = uneven(24)
    task = replace(task, baseline=min(orders, key=simulated(task)))
    choice = choose_by_simulation(task, result_of(orders[0]), orders, estimated(task), 0, lambda: True)
    assert np.array_equal(choice.result.order, task.baseline)
    assert not choice.is_against_estimate


def test_timeout_leaves_the_better_of_first_order_and_baseline() -> None:
    task, orders = uneven(24)
    fastest = min(orders, key=simulated(task))
    task = replace(task, baseline=fastest)
    answers = iter([True])
    choice = choose_by_simulation(
        task, result_of(orders[0]), [orders[0], fastest], estimated(task), 0, lambda: next(answers, False)
    )
    assert np.array_equal(choice.result.order, fastest)


def test_estimates_decide_where_an_order_takes_days() -> None:
    """Only who asks for simulations is told that they do not end."""
    task, orders = uneven(24)
    task = replace(task, size_bytes=1e16)
    cost_of = ContentionCost.of(task.algo, N, task.options, task.fabric, task.size_bytes)
    choice = choose_by_simulation(task, result_of(orders[0]), orders, cost_of, 0, lambda: True)
    assert choice.decided_by is cost_of
    assert (choice.simulated, choice.candidates) == (len(orders), len(orders))
    assert choice.result.cost == choice.decided.cost == cost_of(choice.result.order) == min(map(cost_of, orders))
    simulation = SimulatedCost.of(task.algo, N, task.options, task.fabric, task.size_bytes)
    with pytest.raises(NoAnswer, match="simulation stopped"):
        choose_by_simulation(task, result_of(orders[0]), orders, simulation, 0, lambda: True)


def test_gain_by_the_search_where_a_held_out_order_takes_days() -> None:
    task, orders = uneven(24)
    result, searched = result_of(orders[0]), ValidatedGain(0.1, 0.05, 0.15, 0.1, 20)
    baseline, far = orders[1], replace(task.fabric, rtt_us=1e12 * task.fabric.rtt_us)
    assert simulated_gain(result, baseline, simulated(task), far, searched) is searched


def test_inferred_capacities_are_not_simulated() -> None:
    """They are assumptions, and the candidates were chosen by several of them."""
    task, orders = uneven(24)
    task = replace(task, fabric=replace(task.fabric, capacities="inferred"))
    choice = choose_by_simulation(task, result_of(task.baseline), orders, estimated(task), 0, lambda: True)
    assert isinstance(choice.decided_by, ContentionCost)
    assert choice.result.cost == min(map(estimated(task), orders))


def test_fastest_measured_order_is_exchanged_again() -> None:
    """Of 32 hosts, for which the exchanges before the simulations are too few."""
    hosts, rack, rates = 32, np.repeat(np.arange(5), [11, 9, 7, 4, 1]), np.full(32, 10.0)
    rtt = np.where(rack[:, None] == rack, 20.0, 80.0) * np.random.default_rng(0).lognormal(0, 0.2, (hosts, hosts))
    rtt, uplinks = np.sqrt(rtt * rtt.T) * (1 - np.eye(hosts)), np.array([40.0, 20.0, 30.0, 10.0, 10.0])
    fabric = Fabric(tuple(map(str, range(hosts))), rtt, None, rates, rates, rack, uplinks, uplinks, "measured")
    task = OrderingProblem(fabric, np.arange(hosts), "halving-doubling", Options(), SIZE, "contention")
    args = task.algo, hosts, task.options, fabric, SIZE
    start, simulated_us = np.random.default_rng(3).permutation(hosts), SimulatedCost.of(*args)
    candidates = improved_candidates(task, [start], ContentionCost.of(*args), 0, lambda: True)
    choice = choose_by_simulation(task, result_of(start), candidates, ContentionCost.of(*args), 0, lambda: True)
    assert simulated_us(choice.result.order) < min(map(simulated_us, candidates))
