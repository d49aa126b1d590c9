"""What is saved of the hosts that leave, against every other choice."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from solvers.elastic.evacuation import AtRiskPartition, Evacuation, plan_evacuation

REPLICA, TARGET = 90, 91
Jobs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6)


def at_risk(jobs: list[tuple[int, int, int]], target: int | None = TARGET) -> list[AtRiskPartition]:
    """(host, what the replica lacks, what it has already) of each partition."""
    return [AtRiskPartition(i, host, REPLICA, target, lacks + has, lacks) for i, (host, lacks, has) in enumerate(jobs)]


def most(sizes: list[tuple[float, float]], rate: float) -> int:
    """By trying all: how many transfers of (deadline, bytes) one line gets through in time."""

    def fits(some: tuple[tuple[float, float], ...]) -> bool:
        return all(sum(size for d, size in some if d <= deadline) <= rate * deadline for deadline, _ in some)

    subsets = (some for k in range(len(sizes) + 1) for some in itertools.combinations(sizes, k))
    return max(len(some) for some in subsets if fits(some))


def saved(plan: tuple[Evacuation, ...]) -> int:
    return sum(evacuated.to is not None for evacuated in plan)


@given(Jobs, st.lists(st.integers(1, 9), min_size=4, max_size=4), st.integers(1, 3))
def test_as_many_get_through_a_replicas_line_as_any_choice_brings_through(
    jobs: list[tuple[int, int, int]], deadlines: list[int], rate: int
) -> None:
    plan = plan_evacuation(at_risk(jobs, target=None), dict(enumerate(deadlines)), {REPLICA: rate})
    assert saved(plan) == most([(deadlines[host], lacks) for host, lacks, _ in jobs], rate)
    assert {evacuated.to for evacuated in plan} <= {REPLICA, None}


@given(Jobs, st.integers(1, 9), st.integers(1, 3))
def test_as_many_get_out_of_one_host_as_any_choice_brings_out(
    jobs: list[tuple[int, int, int]], deadline: int, rate: int
) -> None:
    jobs = [(0, lacks, has) for _, lacks, has in jobs]
    plan = plan_evacuation(at_risk(jobs), {0: deadline}, {0: rate})
    assert saved(plan) == most([(deadline, lacks) for _, lacks, _ in jobs], rate)
    sent = 0
    for evacuated in plan:
        _, lacks, has = jobs[evacuated.partition]
        sent += {TARGET: lacks + has, REPLICA: lacks, None: 0}[evacuated.to]
    assert sent <= rate * deadline


@given(Jobs, st.lists(st.integers(0, 9), min_size=4, max_size=4), st.integers(1, 5), st.integers(1, 5))
def test_no_link_is_overcommitted_before_any_deadline(
    jobs: list[tuple[int, int, int]], deadlines: list[int], narrow: int, wide: int
) -> None:
    rates = {0: narrow, 1: wide, 3: wide, REPLICA: wide, TARGET: narrow}
    partitions = at_risk(jobs)
    sent = [
        (partitions[evacuated.partition], evacuated)
        for evacuated in plan_evacuation(partitions, dict(enumerate(deadlines)), rates)
    ]
    for line in (0, 1, 2, 3, REPLICA, TARGET):
        for deadline in deadlines:
            load = sum(
                what.move_bytes if evacuated.to == TARGET else what.drain_bytes
                for what, evacuated in sent
                if line in (what.host, evacuated.to) and evacuated.to is not None and deadlines[what.host] <= deadline
            )
            assert load <= rates.get(line, math.inf) * deadline or not load


def test_evacuation_order_is_deadline_size_then_failures() -> None:
    jobs = [(0, 5, 0), (1, 3, 0), (0, 2, 0), (1, 9, 0)]
    plan = plan_evacuation(at_risk(jobs), {0: 60.0, 1: 4.0}, {1: 1.0})
    assert [evacuated.partition for evacuated in plan] == [1, 2, 0, 3]
    assert [evacuated.to for evacuated in plan] == [
        TARGET,
        TARGET,
        TARGET,
        None,
    ]


def test_what_cannot_move_as_a_whole_drains_to_its_replica() -> None:
    (evacuated_partition,) = plan_evacuation(at_risk([(0, 2, 8)]), {0: 3.0}, {0: 1.0})
    assert evacuated_partition.to == REPLICA
    assert "not enough to move" in evacuated_partition.reason
