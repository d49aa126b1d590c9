"""Solvers that ask nobody whether to go on are ended by whoever called them."""

import threading

import numpy as np

from solvers.ordering.circuit import CircuitLimits, solve_circuit
from solvers.ordering.interruptible import interruptible
from tests.solvers.synthetic import random_costs


def test_work_is_stopped_once_nobody_wants_it() -> None:
    stopped = threading.Event()
    assert interruptible(lambda: stopped.wait(60), stopped.set, lambda: False)


def test_stopped_proof_is_no_worse_than_its_start() -> None:
    cost, order = random_costs(200, 1), np.arange(200)
    proved = solve_circuit(cost, order, CircuitLimits(deterministic_s=1e6, keep_going=lambda: False))
    assert proved.cost <= float(cost[order, np.roll(order, -1)].sum())
    assert proved.lower_bound <= proved.cost
