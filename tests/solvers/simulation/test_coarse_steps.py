"""The estimate in coarse steps: what can be worked out by hand, and what is refused."""

import numpy as np
import pytest

from plink.errors import NoAnswer, UsageError
from solvers.simulation.coarse_steps import estimate_us
from solvers.simulation.engine import simulate
from solvers.simulation.job import Resources, dependents_of
from tests.solvers.simulation.jobs import Task, resources, tasks


def estimate(network: Resources, rows: list[Task], rounds: int = 1) -> float:
    job = tasks(*rows)
    return estimate_us(network, job, dependents_of(job.after), rounds)


def test_chain_takes_its_transfers_and_latencies() -> None:
    network = resources([2.0], [[0]])
    rows = [Task(amount=10, lag_us=3), Task(amount=20, lag_us=4, lead_us=1, after=[0])]
    assert estimate(network, rows) == pytest.approx(5 + 3 + 1 + 10 + 4, rel=1e-9)


def test_flows_of_one_link_share_it() -> None:
    """Two flows at half the rate until the short one ends at 10; the long one has 5 more to move at full rate."""
    network = resources([2.0], [[0], [0]])
    assert estimate(network, [Task(0, 10), Task(1, 15)]) == pytest.approx(12.5, rel=1e-9)


def test_flow_held_elsewhere_leaves_its_share_to_others() -> None:
    """Link 0 is shared; the second flow is held to 1 by link 1, so the first gets 9 of 10."""
    network = resources([10.0, 1.0], [[0], [0, 1]])
    assert estimate(network, [Task(0, 90), Task(1, 10)]) == pytest.approx(10.0, rel=1e-9)


def test_queue_goes_by_priority_and_one_after_the_other() -> None:
    network = resources([1.0], [[0]])
    rows = [Task(amount=5, queue=0, priority=1), Task(amount=2, queue=0, priority=0, lag_us=100)]
    assert estimate(network, rows) == pytest.approx(102.0, rel=1e-9)


def test_own_limit_of_a_route_and_empty_transfers() -> None:
    network = resources([10.0], [[0], [0]], [2.0, np.inf])
    assert estimate(network, [Task(0, 20), Task(1, 0, after=[0])]) == pytest.approx(10.0, rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_many_transfers_in_steps_take_about_what_is_simulated(seed: int) -> None:
    """800 transfers over ten links, each after two earlier ones; ends within one step share its rates."""
    rng = np.random.default_rng(seed)
    network = resources(rng.uniform(1, 3, 10).tolist(), [rng.choice(10, 2, replace=False).tolist() for _ in range(30)])
    rows = [
        Task(
            int(rng.integers(30)), float(rng.uniform(1, 2)), lag_us=0.1, after=[k - 57, k - 40] if k >= 60 else []
        )
        for k in range(800)
    ]  # fmt: skip
    assert estimate(network, rows, rounds=14) == pytest.approx(simulate(network, tasks(*rows)).makespan_us, rel=0.05)


def test_circle_and_dead_link_are_refused() -> None:
    with pytest.raises(NoAnswer, match="circle"):
        estimate(resources([1.0], [[0]]), [Task(amount=1, after=[1]), Task(amount=1, after=[0])])
    with pytest.raises(UsageError, match="no capacity"):
        estimate(resources([0.0], [[0]]), [Task(amount=1)])


def test_nothing_takes_no_time() -> None:
    assert estimate(resources([1.0], [[0]]), []) == 0.0
