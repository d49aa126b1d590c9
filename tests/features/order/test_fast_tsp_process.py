"""fast-tsp in a process of its own: its tours, and when it ends."""

import os
import select
import subprocess
import sys
import time

import numpy as np
import pytest

from plink.features.order.fast_tsp_process import FastTsp, whole_numbers
from plink.features.order.request import OrderRequest
from plink.features.order.search import solve
from plink.model.hosts import Host, Hosts
from plink.model.network import Matrix, Network
from solvers.ordering.problem import SearchBudget
from solvers.ordering.ring import search_ring


def distances(hosts: int, seed: int) -> Matrix:
    points = np.random.default_rng(seed).random((hosts, 2)) * 50.0
    return np.linalg.norm(points[:, None] - points, axis=2)


def test_deadline_adds_fast_tsp() -> None:
    """Plink's own search is ended at once by its number of moves, so that what is better is the other engine's."""
    cost = distances(300, 4)
    alone = search_ring(cost, 0, SearchBudget(1))
    together = search_ring(cost, 0, SearchBudget(1, deadline=time.monotonic() + 6.0, ring_engine=FastTsp))
    assert sorted(together.order.tolist()) == list(range(300))
    assert together.cost < 0.99 * alone.cost


@pytest.mark.parametrize(("max_moves", "takes_part"), [(None, True), (1000, False)])
def test_fast_tsp_takes_part_unless_moves_are_the_limit(
    monkeypatch: pytest.MonkeyPatch, max_moves: int | None, takes_part: bool
) -> None:
    started: list[int] = []

    class Recorded(FastTsp):
        def __init__(self, cost: Matrix, deadline: float) -> None:
            started.append(len(cost))
            super().__init__(cost, deadline)

    monkeypatch.setattr("plink.features.order.search.FastTsp", Recorded)
    members = tuple(Host(f"h{k}", f"10.0.0.{k}") for k in range(120))
    network = Network(Hosts(members), distances(120, 3))
    solve(network, OrderRequest(model="latency", max_moves=max_moves))
    assert started == [120] * takes_part


def test_interrupted_ring_does_not_wait_for_the_deadline() -> None:
    cost, began = distances(150, 5), time.monotonic()
    budget = SearchBudget(10**12, lambda _: False, deadline=began + 600.0, ring_engine=FastTsp)
    assert sorted(search_ring(cost, 0, budget).order.tolist()) == list(range(150))
    assert time.monotonic() - began < 300.0


_MAX_WAIT_S = 120
_STARTER = """
import time
import numpy as np
from plink.features.order.fast_tsp_process import FastTsp
engine = FastTsp(np.ones((100, 100)) - np.eye(100), time.monotonic() + 600.0)
print(engine._process.pid, flush=True)
time.sleep(600)
"""


def test_killed_parent_ends_the_search() -> None:
    with subprocess.Popen([sys.executable, "-c", _STARTER], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        search = os.pidfd_open(int(starter.stdout.readline()))
        starter.kill()
    waiting = select.poll()
    waiting.register(search, select.POLLIN)
    assert waiting.poll(_MAX_WAIT_S * 1000), "the search outlives plink"
    os.close(search)


@pytest.mark.parametrize("largest", [60_000.0, 1e6, 3.7])
def test_costs_as_whole_numbers(largest: float) -> None:
    cost = np.array([[0.0, largest], [largest, 0.0]])
    assert whole_numbers(cost)[0, 1] == (60_000 if largest == 60_000.0 else 65_535)
