"""A controller that starts again in mid-run."""

import pytest

from plink.errors import UsageError
from solvers.agile import actions as act
from solvers.agile.events import Failed
from solvers.agile.resume import Report, resume
from solvers.agile.stages import Stage
from tests.solvers.agile.world import World, hosts, of, warn


def test_in_a_quiet_moment_nothing_moves_and_everybody_is_told_again() -> None:
    world = World.of(hosts(2, 6), 4, 24)
    world.settle()
    before = world.state
    actions = world.restart(())
    assert {type(action) for action in actions} == {act.Forget, act.PushTo, act.PointWorkers, act.Work}
    assert [one.owner for one in world.state.partitions] == [one.owner for one in before.partitions]
    assert [one.backup for one in world.state.partitions] == [one.backup for one in before.partitions]
    assert [one.owner for one in world.state.pieces] == [one.owner for one in before.pieces]
    assert world.state.stage is Stage.ACTIVE_AND_BACKUP


def test_who_died_with_the_controller_has_failed() -> None:
    world = World.of(hosts(1, 4), 4, 24)
    world.settle()
    for index in range(4):
        world.push(index, 5)
    actions = world.restart((1,))
    assert of(act.RollBack, actions)[0].clock == 5
    assert {one.to for one in of(act.Restore, actions)} == {3}
    world.settle()


def test_a_move_that_was_done_before_the_old_controller_knew_counts() -> None:
    world = World.of(hosts(1, 4), 2, 24)
    world.settle()
    warn(world, 1)
    (move,) = world.moves
    world.holds[move.partition][move.to] = move.epoch
    world.restart(())
    assert world.state.partitions[move.partition].owner == move.to
    assert not of(act.RollBack, world.said)


def test_a_roll_back_that_not_everybody_heard_of_is_done_again() -> None:
    world = World.of(hosts(1, 2), 1, 4)
    members = world.state.hosts
    clock = {0: 3}
    reports = [
        Report(members[0], 9, 9, backs=clock, loaded=frozenset(range(4))),
        Report(members[1], 8, 4, serves={0: 2}, loaded=frozenset(range(4)), works=frozenset(range(4))),
        Report(members[2], 9, 9),
    ]
    state, actions = resume(reports, [1.0], 4)
    (back,) = of(act.RollBack, actions)
    assert back.clock == 3
    assert back.era == state.era > 9


def test_state_that_nobody_reports_is_lost() -> None:
    world = World.of(hosts(1, 2), 2, 4)
    world.settle()
    world.tell(Failed((2,)))
    reports = [Report(host, 99, 0) for host in world.state.hosts]
    state, (halt,) = resume(reports, [1.0, 1.0], 4)
    assert isinstance(halt, act.Halt)
    assert halt.lost == (0, 1)
    assert state.halted


def test_without_a_reliable_host_nothing_goes_on() -> None:
    """Whatever the others have: as when the last one fails."""
    serving = Report(hosts(0, 1)[0], 7, 0, serves={0: 5}, loaded=frozenset({0}), works=frozenset({0}))
    state, (halt,) = resume([serving], [1.0], 1)
    assert isinstance(halt, act.Halt)
    assert "the last reliable host is gone" in halt.reason
    assert state.halted
    assert state.number > 7


def test_reports_of_one_host_twice_are_refused() -> None:
    safe = Report(hosts(1, 0)[0], 0, 0)
    with pytest.raises(UsageError, match="two controllers"):
        resume([safe, safe], [1.0], 1)
