"""Jobs that start, and what is refused at the start."""

import pytest

from plink.errors import UsageError
from solvers.elastic.placement import actions as act
from solvers.elastic.placement.cluster import apply
from solvers.elastic.placement.events import (
    HostsFailed,
    Replicated,
)
from solvers.elastic.placement.hosts import JobHost, Tier
from solvers.elastic.placement.partitions import PartitionPlacement
from solvers.elastic.placement.stages import Stage
from solvers.elastic.placement.start import start
from tests.solvers.elastic.placement.jobs import running
from tests.solvers.elastic.placement.world import hosts, of

STAGE_1 = Stage.PARAMETER_SERVERS


def test_a_job_without_reliable_hosts_is_refused() -> None:
    with pytest.raises(UsageError, match="tier=reliable"):
        start(hosts(0, 3), [1.0], 4)


@pytest.mark.parametrize(
    ("members", "partitions", "shards"), [(2 * hosts(1, 0), 1, 1), (hosts(1, 0), 0, 1), (hosts(1, 0), 1, 0)]
)
def test_a_job_that_cannot_be_is_refused(members: tuple[JobHost, ...], partitions: int, shards: int) -> None:
    with pytest.raises(UsageError):
        start(members, [1.0] * partitions, shards)


def test_resumed_job_ignores_stale_state() -> None:
    old = running(2, 1, partitions=4)
    old.tell(HostsFailed((1,)))
    state, actions = start(old.state.hosts, [1e6] * 4, 24, clock=30, number=old.state.number)
    assert min(action.term for action in of(act.Serve, actions)) > old.state.number
    assert (state.consistent, state.generation) == (30, old.state.number)
    assert apply(state, Replicated(0, 99, 0)) == (state, ())


@pytest.mark.parametrize("wrong", [{"slots": 0}, {"bytes_per_s": 0.0}, {"bytes_per_s": float("inf")}, {"number": -1}])
def test_hosts_with_numbers_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="host a"):
        JobHost(**{"number": 1, "name": "a", "tier": Tier.RELIABLE, **wrong})  # type: ignore[arg-type]


def test_in_stage_one_reliable_hosts_serve_what_they_back_up() -> None:
    state, actions = start(hosts(2, 1), [1.0] * 3, 1)
    assert state.stage is STAGE_1
    assert [(partition.primary, partition.replica) for partition in state.partitions] == [(0, 0), (0, 0), (1, 1)]
    assert of(act.PointWorkers, actions)[0].primaries == (0, 0, 1)


def test_duplicate_hosts_are_refused_and_the_smallest_job_is_not() -> None:
    for other in (JobHost(0, "b", Tier.TRANSIENT), JobHost(1, "a", Tier.TRANSIENT)):
        with pytest.raises(UsageError, match="two hosts of one name or number"):
            start((JobHost(0, "a", Tier.RELIABLE), other), [1.0], 1)
    state, _ = start((JobHost(0, "a", Tier.RELIABLE),), [1.0], 1)
    (partition,) = state.partitions
    assert partition == PartitionPlacement(0, partition.term, 0, 0)
