"""The flow-level simulator against hand-worked cases and against a plain simulator."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.errors import NoAnswer
from solvers.simulation.engine import simulate
from solvers.simulation.job import CapacityChanges
from tests.solvers.simulation.jobs import Task, plain_ends, resources, tasks


def test_flows_of_two_links_are_max_min_fair() -> None:
    """Bertsekas and Gallager's example: the flow over both links is held by the slow one, and the fast link's other
    flow takes the rest."""
    result = simulate(resources([10, 5], [[0], [0, 1], [1]]), tasks(Task(0, 100), Task(1, 100), Task(2, 100)))
    assert result.end_us == pytest.approx([100 / 7.5, 40, 40], rel=1e-12)
    assert result.moved == pytest.approx([200, 200])
    assert result.makespan_us == pytest.approx(40, rel=1e-12)


def test_pipeline_of_equal_stages_ends_when_the_bottleneck_has_served_all() -> None:
    """A tandem of queues (as Jackson's): m jobs through stages of 1, 3 and 2 take 1 + 3m + 2."""
    jobs, work = 7, [1.0, 3.0, 2.0]
    rows = [
        Task(stage, work[stage], after=[3 * job + stage - 1] if stage else [], queue=stage, priority=job)
        for job in range(jobs) for stage in range(3)
    ]  # fmt: skip
    network = resources([1, 1, 1], [[0], [1], [2]])
    assert simulate(network, tasks(*rows)).makespan_us == pytest.approx(1 + 3 * jobs + 2, rel=1e-12)


def test_tasks_in_a_circle_and_on_a_link_without_capacity_are_named() -> None:
    for rows, names in (
        ([Task(after=[1]), Task(after=[0])], r"task 0 waits for others \(task 1\); task 1 waits for others"),
        ([Task(route=1, amount=1)], "task 0 is under way over resource 1"),
    ):
        with pytest.raises(NoAnswer, match=names):
            simulate(resources([1, 0], [[0], [1]]), tasks(*rows))


def test_simulated_time_is_limited_and_says_what_was_waiting() -> None:
    with pytest.raises(NoAnswer, match=r"task 1 waits for others \(task 0\)"):
        simulate(resources([1], [[0]]), tasks(Task(0, 1000), Task(0, 1, after=[0])), limit_us=10)


def test_flow_that_stalls_for_ever_is_named() -> None:
    changes = CapacityChanges(np.array([5.0]), np.array([0]), np.array([0.0]))
    with pytest.raises(NoAnswer, match="task 0 is under way over resource 0"):
        simulate(resources([1], [[0]]), tasks(Task(0, 10)), changes)


@st.composite
def jobs(
    draw: st.DrawFn,
) -> tuple[list[float], list[list[int]], list[float], list[Task], list[tuple[float, int, float]]]:
    """Up to 14 tasks with dependencies, queues and priorities on up to 5 links that change. All take time: who of a
    queue is first at an instant in which others begin and end is left open."""
    links = draw(st.integers(1, 5))
    amounts = st.sampled_from([0.0, 1.0, 2.0, 3.5, 10.0, 0.125])
    capacity = draw(st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0, np.inf]), min_size=links, max_size=links))
    routes = draw(st.lists(st.lists(st.integers(0, links - 1), max_size=3, unique=True), min_size=1, max_size=5))
    limits = draw(st.lists(st.sampled_from([0.25, 1.0, np.inf]), min_size=len(routes), max_size=len(routes)))
    rows = [
        Task(
            draw(st.integers(0, len(routes) - 1)), draw(amounts), draw(amounts.filter(bool)), draw(amounts),
            sorted(draw(st.sets(st.integers(0, k - 1), max_size=3))) if k else [],
            draw(st.integers(-1, 2)), draw(st.integers(0, 2)),
        )
        for k in range(draw(st.integers(1, 14)))
    ]  # fmt: skip
    times = sorted(draw(st.lists(st.sampled_from([0.5, 1.0, 4.0, 9.0]), max_size=3)))
    changes = [(at, draw(st.integers(0, links - 1)), draw(st.sampled_from([0.25, 1.0, 5.0]))) for at in times]
    return capacity, routes, limits, rows, changes


@settings(max_examples=150, deadline=None)
@given(jobs())
def test_any_job_ends_as_in_a_plain_simulator(
    job: tuple[list[float], list[list[int]], list[float], list[Task], list[tuple[float, int, float]]],
) -> None:
    capacity, routes, limits, rows, rates = job
    network = resources(capacity, routes if any(routes) else [[0]], limits if any(routes) else [limits[0]])
    rows = rows if any(routes) else [Task(0, row.amount) for row in rows]
    changes = CapacityChanges(
        np.array([at for at, _, _ in rates]), np.array([link for _, link, _ in rates], dtype=np.int64),
        np.array([rate for _, _, rate in rates]),
    )  # fmt: skip
    result = simulate(network, tasks(*rows), changes)
    assert result.end_us == pytest.approx(plain_ends(network, rows, changes), rel=1e-9, abs=1e-9)
