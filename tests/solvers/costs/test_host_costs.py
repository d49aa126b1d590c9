"""What hosts take for messages and bytes in every cost model, by hand and against each other."""

from dataclasses import replace

import numpy as np
import pytest

from solvers.costs.by_name import cost_function_for
from solvers.costs.evaluator import evaluate, with_host_costs
from solvers.costs.fabric import Fabric
from solvers.ordering.exact import ExactBudget, solve_exactly
from solvers.ordering.problem import OrderingProblem, SearchBudget
from solvers.ordering.search import search
from solvers.schedules.catalogue import Options, schedule_for
from solvers.simulation.cost import cost_by_model
from tests.solvers.costs.test_cost_models import SIZE, fabric, options_for

HOSTS, OVERHEAD_US = 8, 50.0
# The most messages that a host sends or receives, added up over the rounds, of 8 ranks.
MESSAGES = {"ring": 14, "halving-doubling": 6, "recursive-doubling": 3, "flat": 14, "bcube": 6}


def plain(links_gbps: float = 8.0) -> Fabric:
    """Equal hosts and no shared links."""
    rtt = np.full((HOSTS, HOSTS), 20.0)
    np.fill_diagonal(rtt, 0.0)
    rates, item = np.full(HOSTS, links_gbps), np.full(1, np.inf)
    names = tuple(f"h{host}" for host in range(HOSTS))
    return Fabric(names, rtt, None, rates, rates, np.zeros(HOSTS, dtype=np.intp), item, item, "measured")


@pytest.mark.parametrize(("algo", "messages"), MESSAGES.items())
@pytest.mark.parametrize("model", ["alpha-beta", "contention", "simulated"])
def test_every_message_of_a_round_takes_its_turn(algo: str, messages: int, model: str) -> None:
    """An all-to-all exchange has seven messages a host in each of two rounds, a ring one in each of 14 rounds."""
    order, tiny = np.arange(HOSTS), 1e-3
    options = Options(base=2) if algo == "bcube" else Options()
    without = cost_by_model(algo, HOSTS, options, plain(), tiny, model)(order)
    with_costs = cost_by_model(algo, HOSTS, options, with_host_costs(plain(), OVERHEAD_US, 0.0), tiny, model)(order)
    assert with_costs - without == pytest.approx(messages * OVERHEAD_US, rel=1e-6)


@pytest.mark.parametrize("model", ["alpha-beta", "contention", "simulated"])
def test_a_byte_takes_the_time_of_its_host_besides_that_of_its_link(model: str) -> None:
    """A link of 8 Gbit/s takes 1 ns for a byte, the host 0.5 ns."""
    size, latency_us = 8e6, 14 * 10.0
    (without, with_costs) = (
        cost_by_model("nccl-ring", HOSTS, Options(), item, size, model)(np.arange(HOSTS)) - latency_us
        for item in (plain(), with_host_costs(plain(), 0.0, 0.5))
    )
    assert with_costs / without == pytest.approx(1.5, rel=1e-9)


@pytest.mark.parametrize("algo", ["ring", "ring-chunked", "halving-doubling", "tree", "2lha", "flat", "ps"])
@pytest.mark.parametrize("model", ["latency", "alpha-beta", "contention"])
def test_fast_costs_equal_those_of_the_schedule(algo: str, model: str) -> None:
    item = with_host_costs(fabric(HOSTS, pairs=True), OVERHEAD_US, 0.3)
    options, order = options_for(algo, HOSTS, 3), np.random.default_rng(0).permutation(HOSTS)
    cost = cost_function_for(algo, HOSTS, options, item, SIZE, model)(order)
    assert cost == pytest.approx(
        evaluate(schedule_for(algo, HOSTS, options), item, order, SIZE, model).cost_us, rel=1e-9
    )


def test_latency_is_without_them() -> None:
    item, order = fabric(HOSTS), np.arange(HOSTS)
    costs = [
        cost_function_for("tree", HOSTS, Options(), item_, SIZE, "latency")(order)
        for item_ in (item, with_host_costs(item, OVERHEAD_US, 0.3))
    ]
    assert costs[0] == costs[1]


@pytest.mark.parametrize("algo", ["halving-doubling", "ring", "nccl"])
def test_searches_find_the_order_they_find_without(algo: str) -> None:
    """Messages cost the same in every order: costs and bounds rise by that."""
    item, size = fabric(12), 4e6
    problem = OrderingProblem(item, np.arange(12), algo, Options(), size, "contention")
    costly = replace(problem, fabric=replace(item, overhead_us=OVERHEAD_US))
    budget = SearchBudget(2000, lambda progress: True)
    without, with_costs = (search(task, 0, budget) for task in (problem, costly))
    assert with_costs.order.tolist() == without.order.tolist()
    assert with_costs.cost - without.cost == pytest.approx(costly.overhead_us)
    assert costly.overhead_us > 0
    cost_of = cost_function_for(algo, 12, Options(), costly.fabric, size, "contention")
    assert with_costs.cost == pytest.approx(cost_of(with_costs.order))
    assert with_costs.baseline_cost == pytest.approx(cost_of(costly.baseline))
    if without.lower_bound is not None:
        assert with_costs.lower_bound == pytest.approx(without.lower_bound + costly.overhead_us)


def test_proofs_hold_with_them() -> None:
    item = fabric(8)
    problem = OrderingProblem(
        replace(item, overhead_us=OVERHEAD_US), np.arange(8), "halving-doubling", Options(), 1e6, "contention"
    )
    result = search(problem, 0, SearchBudget(5000, lambda progress: True))
    solved = solve_exactly(problem, result, 0, ExactBudget(None, lambda: True))
    assert solved.is_optimal
    cost_of = cost_function_for("halving-doubling", 8, Options(), problem.fabric, 1e6, "contention")
    assert solved.cost == pytest.approx(cost_of(solved.order))
