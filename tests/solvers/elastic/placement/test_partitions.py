"""Assignments of partitions: balanced, and with the fewest moves."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.elastic.placement.partitions import balanced, partition_count, serving
from solvers.elastic.placement.stages import Stage
from tests.solvers.elastic.world import hosts


@given(
    st.lists(st.none() | st.integers(0, 4), min_size=1, max_size=6), st.sets(st.integers(0, 4), min_size=1, max_size=4)
)
def test_an_assignment_is_balanced_and_none_that_is_moves_less(current: list[int | None], servers: set[int]) -> None:
    def moves(assigned: tuple[int, ...]) -> int:
        return sum(first != other for first, other in zip(current, assigned, strict=True))

    def even(assigned: tuple[int, ...]) -> bool:
        counts = [assigned.count(server) for server in servers]
        return max(counts) - min(counts) <= 1

    result = balanced(current, sorted(servers))
    assert set(result) <= servers
    assert even(result)
    assert moves(result) == min(moves(a) for a in itertools.product(servers, repeat=len(current)) if even(a))


def test_active_servers_are_on_half_of_the_transient_hosts_that_run_longest() -> None:
    members = [*hosts(1, 4), *hosts(1, 3, first=5)]
    assert serving(Stage.ACTIVE_AND_BACKUP, reversed(members), 16) == (1, 2, 3, 4)
    assert serving(Stage.BACKUP_ONLY, members, 2) == (1, 2)
    assert serving(Stage.PARAMETER_SERVERS, members, 16) == (0, 5)


@pytest.mark.parametrize(("most", "partitions"), [(1, 1), (2, 1), (3, 1), (64, 32)])
def test_there_are_half_as_many_partitions_as_hosts_at_most(most: int, partitions: int) -> None:
    assert partition_count(most) == partitions
