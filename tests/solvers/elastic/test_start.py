"""Jobs that start, and what is refused at the start."""

import pytest

from plink.errors import UsageError
from solvers.elastic.events import (
    HostsGone,
    PartitionReplicated,
)
from solvers.elastic.member import Member
from solvers.elastic.placement.partitions import PartitionPlacement
from solvers.elastic.placement.stages import Stage
from solvers.elastic.start import start
from tests.solvers.elastic.jobs import running
from tests.solvers.elastic.world import hosts, of, seen, unchanged

STAGE_1 = Stage.PARAMETER_SERVERS


def test_a_job_without_reliable_hosts_is_refused() -> None:
    with pytest.raises(UsageError, match="tier=reliable"):
        start(hosts(0, 3), [1.0], 4)


@pytest.mark.parametrize(
    ("members", "partitions", "shards"), [(2 * hosts(1, 0), 1, 1), (hosts(1, 0), 0, 1), (hosts(1, 0), 1, 0)]
)
def test_a_job_that_cannot_be_is_refused(members: tuple[Member, ...], partitions: int, shards: int) -> None:
    with pytest.raises(UsageError):
        start(members, [1.0] * partitions, shards)


def test_resumed_job_ignores_stale_state() -> None:
    old = running(2, 1, partitions=4)
    old.tell(HostsGone((1,)))
    decision = start(old.state.hosts, [1e6] * 4, 24, clock=30, number=old.state.number)
    state, actions = decision.cluster, seen(decision)
    assert min(action.term for action in of("Serve", actions)) > old.state.number
    assert (state.consistent, state.generation) == (30, old.state.number)
    assert unchanged(state, PartitionReplicated(0, 99, 0))


def test_in_stage_one_reliable_hosts_serve_what_they_back_up() -> None:
    decision = start(hosts(2, 1), [1.0] * 3, 1)
    state, actions = decision.cluster, seen(decision)
    assert state.stage is STAGE_1
    assert [(partition.primary, partition.replica) for partition in state.partitions] == [(0, 0), (0, 0), (1, 1)]
    assert of("PointWorkers", actions)[0].primaries == (0, 0, 1)


def test_duplicate_hosts_are_refused_and_the_smallest_job_is_not() -> None:
    for other in (Member(0, "b", "transient"), Member(1, "a", "transient")):
        with pytest.raises(UsageError, match="two hosts of one name or number"):
            start((Member(0, "a", "reliable"), other), [1.0], 1)
    state = start((Member(0, "a", "reliable"),), [1.0], 1).cluster
    (partition,) = state.partitions
    assert partition == PartitionPlacement(0, partition.term, 0, -1)
