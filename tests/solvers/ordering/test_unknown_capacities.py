"""Orders where the capacities of groups' links are unknown."""

import numpy as np

from solvers.costs.fabric import Fabric
from solvers.ordering.problem import OrderingProblem
from solvers.ordering.simulated_choice import cheapest_on_average
from solvers.schedules.catalogue import Options

N, SIZE = 16, 16e6


def problem(algo: str, base: int = 2) -> OrderingProblem:
    """Hosts of four racks in turns; nobody knows what the uplinks carry."""
    rack = np.arange(N) % 4
    rtt = np.where(rack[:, None] == rack, 20.0, 80.0)
    np.fill_diagonal(rtt, 0.0)
    rates, uplinks = np.full(N, 10.0), np.full(4, 16.0)
    fabric = Fabric(tuple(map(str, range(N))), rtt, None, rates, rates, rack, uplinks, uplinks, "inferred")
    return OrderingProblem(fabric, np.arange(N), algo, Options(base=base), SIZE, "contention")


def test_timeout_leaves_the_first_order() -> None:
    task = problem("halving-doubling")
    orders = [task.baseline[::-1].copy(), task.baseline]
    order = cheapest_on_average(task, orders, 0, lambda: False)
    assert np.array_equal(order, orders[0])


def test_other_algorithms_choose_among_the_orders() -> None:
    task = problem("tree")
    orders = [task.baseline, np.argsort(task.fabric.group_of, kind="stable")]
    order = cheapest_on_average(task, orders, 0, lambda: True)
    assert any(np.array_equal(order, candidate) for candidate in orders)
