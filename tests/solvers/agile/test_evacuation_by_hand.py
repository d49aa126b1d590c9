"""What of the partitions of hosts that leave is begun at once, on states made up by hand."""

from typing import Any

import pytest

from solvers.agile import actions as act
from solvers.agile.partitions import Move, Partition
from solvers.agile.stages import Stage, Thresholds
from solvers.agile.state import Cluster, Step
from solvers.agile.warning import evacuate
from tests.solvers.agile.world import hosts, of

TWO = Stage.ACTIVE_AND_BACKUP


def evacuated(
    *partitions: Partition, unpushed: dict[int, float] | None = None, seconds: float = 4.0, rate: float | None = 1e6,
    size: float = 2e6, **more: Any,
) -> tuple[tuple[Partition, ...], list[act.Action]]:  # fmt: skip
    """Two reliable hosts (0 and 1), six transient ones; 2 leaves, 3 and 4 serve then. A partition of 2 MB takes two
    seconds, and three quarters of the four that are left are planned with."""
    speed: dict[str, Any] = {} if rate is None else {"bytes_per_s": rate}
    state = Cluster(
        hosts(2, 6, **speed), (size,) * len(partitions), Thresholds(), more.pop("stage", TWO), partitions, (),
        **({"leaving": {2: seconds}} | more), number=20, consistent=4,
    )  # fmt: skip
    step = Step(state, "h2 leaves")
    evacuate(step, unpushed or {})
    return step.state.partitions, step.actions


OTHER = Partition(3, 5, 1, 6)


def test_a_partition_moves_to_a_survivor_where_there_is_time_for_all_of_it() -> None:
    found, (move,) = evacuated(Partition(2, 5, 0, 6), OTHER)
    assert isinstance(move, act.HandOver)
    assert (move.source, move.to, move.partition, move.epoch) == (2, 4, 0, 21)
    assert found == (Partition(2, 5, 0, 6, heir=Move(4, 21)), OTHER)
    assert move.reason.startswith("h2 leaves: 3 s are enough")


@pytest.mark.parametrize(("seconds", "moves"), [(2.6, False), (2.7, True)])
def test_three_quarters_of_a_warning_are_planned_with(seconds: float, moves: bool) -> None:
    """Two seconds are that of 2.67."""
    found, _ = evacuated(Partition(2, 5, 0, 6), OTHER, unpushed={0: 1.0}, seconds=seconds)
    assert found[0].heir == (Move(4, 21) if moves else Move(0, 21, drain=True))


def test_where_nobody_knows_a_rate_there_is_time() -> None:
    assert evacuated(Partition(2, 5, 0, 6), OTHER, seconds=1e-6, rate=None)[0][0].heir == Move(4, 21)


def test_what_a_backup_lacks_is_at_most_the_partition_and_all_of_it_where_nobody_knows_or_it_has_no_copy() -> None:
    """A second of time and so a megabyte of two; 8e5 of it can be drained, and 2 MB of 1 MB are no more than that."""
    assert evacuated(Partition(2, 5, 0, 6), OTHER, unpushed={0: 7e5}, seconds=1.0)[0][0].heir == Move(0, 21, drain=True)
    small = evacuated(Partition(2, 5, 0, 6), OTHER, unpushed={0: 9e9}, seconds=1.0, size=7e5)
    assert small[0][0].heir == Move(4, 21)
    for unpushed in ({}, {1: 7e5}, {0: 8e5}):
        _, actions = evacuated(Partition(2, 5, 0, 6), OTHER, unpushed=unpushed, seconds=1.0)
        assert [type(one) for one in actions] == [act.RollBack, act.Restore]
        assert "partition 0 cannot be saved" in actions[0].reason
    found, actions = evacuated(Partition(2, 5, 0, 6, safe=False), OTHER, unpushed={0: 7e5}, seconds=1.0)
    assert (found[0].heir, actions) == (None, []), "going back would save nothing: it is sent as far as it gets"


def test_what_is_safe_goes_back_though_something_else_that_is_late_is_not() -> None:
    _, actions = evacuated(Partition(2, 5, 0, 6, safe=False, copy=Move(1, 9)), Partition(2, 5, 1, 6), seconds=0.1)
    assert "partition 1 cannot be saved" in of(act.RollBack, actions)[0].reason


@pytest.mark.parametrize("one", [
    Partition(3, 5, 0, 6), Partition(2, 5, 0, 6, waiting=True), Partition(2, 5, 0, 6, heir=Move(4, 9)),
    Partition(2, 5, 2, 6),
])  # fmt: skip
def test_what_is_not_on_a_host_that_leaves_or_on_its_way_already_is_not_touched(one: Partition) -> None:
    assert evacuated(one, OTHER, seconds=0.1) == ((one, OTHER), [])


def test_a_move_to_a_host_that_leaves_too_is_called_off_unless_it_still_serves_or_drains() -> None:
    leaving = {2: 4.0, 7: 9.0}
    found, actions = evacuated(Partition(3, 5, 0, 6, heir=Move(7, 9)), OTHER, leaving=leaving)
    assert found[0].heir is None
    assert [(one.hosts, one.epoch) for one in of(act.Cancel, actions)] == [((3, 7), 9)]
    for heir in (Move(4, 9), Move(5, 9), Move(7, 9, drain=True)):
        one = Partition(3, 5, 0, 6, heir=heir)
        assert evacuated(one, OTHER, leaving=leaving) == ((one, OTHER), [])


def test_where_reliable_hosts_are_to_serve_partitions_drain_to_their_backups() -> None:
    found, actions = evacuated(Partition(2, 5, 0, 6), OTHER, stage=Stage.PARAMETER_SERVERS)
    assert found[0].heir == Move(0, 21, drain=True)
    assert [type(one) for one in actions] == [act.Drain]


def test_what_leaves_first_goes_first() -> None:
    partitions = (Partition(2, 5, 0, 6), Partition(3, 5, 1, 6), Partition(2, 5, 1, 6))
    _, actions = evacuated(*partitions, leaving={2: 20.0, 3: 9.0}, size=1e6)
    assert [one.partition for one in of(act.HandOver, actions)] == [1, 0, 2]
