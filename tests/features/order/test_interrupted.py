"""A search that is stopped ends with the best order so far, at its cost."""

from collections.abc import Callable

import pytest

from benchmarks.clouds import network_of_cloud, three_tier
from plink.features.cost.request import CostRequest
from plink.features.cost.run import cost
from plink.features.order.request import OrderRequest
from plink.features.order.run import reorder
from plink.model.network import Network
from solvers.ordering.problem import Order
from solvers.simulation.cost import SimulatedCost

SIZE = 16e6
NETWORK = network_of_cloud(three_tier(32, 3), 3, shared_links=True)


def stopping_after(answers: int) -> Callable[[], bool]:
    """Return what says so many times that nobody stopped the search."""
    remaining = iter([False] * answers)
    return lambda: next(remaining, True)


@pytest.mark.parametrize("algo", ["ring", "halving-doubling", "2lha", "nccl", "tree"])
@pytest.mark.parametrize("answers", [0, 3, 300])
def test_stopped_search_states_the_cost_of_its_order(algo: str, answers: int) -> None:
    order = reorder(NETWORK, OrderRequest(algo=algo, size_bytes=SIZE), stopped=stopping_after(answers))
    assert order.interrupted or answers > 3
    assert order.cost == pytest.approx(cost(NETWORK, order, CostRequest(algo, size_bytes=SIZE, random=0)).cost_us)
    assert order.cost <= (order.baseline["given"] or 0)


@pytest.mark.parametrize("algo", ["halving-doubling", "double-binary-tree", "tree"])
@pytest.mark.parametrize("answers", [2, 30])
def test_stopped_search_costs_no_more_than_the_given_order(algo: str, answers: int) -> None:
    """Also where no rates were measured, and no halves of samples that put the given order back."""
    network = network_of_cloud(three_tier(20, 5), 5, shared_links=False)
    network = Network(network.hosts, network.latency_us)
    order = reorder(network, OrderRequest(algo=algo), stopped=stopping_after(answers))
    assert order.interrupted
    assert order.cost <= (order.baseline["given"] or 0)


def test_stopped_search_simulates_no_more_than_given_and_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By all samples and by the held-out ones; one simulation takes a second where there are 1,000 hosts."""
    simulated = list[bytes]()
    part_costs = SimulatedCost.part_costs

    def counted(self: SimulatedCost, order: Order) -> list[tuple[float, str, float]]:
        simulated.append(order.tobytes())
        return part_costs(self, order)

    monkeypatch.setattr(SimulatedCost, "part_costs", counted)
    order = reorder(NETWORK, OrderRequest(algo="halving-doubling", size_bytes=SIZE), stopped=stopping_after(3))
    assert order.interrupted
    assert len(simulated) <= 4
    assert order.baseline["random_median"] is None
