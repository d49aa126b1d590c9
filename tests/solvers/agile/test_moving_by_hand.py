"""Partitions on their way, on states made up by hand: what is begun, called off, and done when something arrives."""

from typing import Any

import pytest

from solvers.agile import actions as act
from solvers.agile.moving import backup_targets, moved, owner_targets, settle
from solvers.agile.partitions import Move, Partition
from solvers.agile.stages import Stage, Thresholds
from solvers.agile.state import Cluster, Step
from tests.solvers.agile.world import hosts, of

ONE, TWO = Stage.PARAMETER_SERVERS, Stage.ACTIVE_AND_BACKUP


def step(*partitions: Partition, stage: Stage = TWO, **more: Any) -> Step:
    """Two reliable hosts (0 and 1), four transient ones (2 to 5, of which 2 and 3 serve); number 20 was the last, clock
    4 is what all backups have."""
    state = Cluster(
        hosts(2, 4), (1e6,) * len(partitions), Thresholds(), stage, partitions, (), number=20, consistent=4, **more
    )
    return Step(state, "why")


QUIET = (Partition(2, 5, 0, 6), Partition(3, 5, 1, 6))


def settled(*partitions: Partition, **more: Any) -> tuple[tuple[Partition, ...], list[act.Action]]:
    one = step(*partitions, **more)
    settle(one)
    return one.state.partitions, one.actions


def test_what_is_as_it_should_be_is_left_alone() -> None:
    assert settled(*QUIET) == (QUIET, [])
    waits = (Partition(9, 5, 0, 6, waiting=True), QUIET[1])
    assert settled(*waits)[0][0] == waits[0], "what waits is seen to when it has arrived"


# Arrivals


def arrived(partition: Partition, epoch: int, **more: Any) -> tuple[bool, Partition, list[act.Action]]:
    one = step(QUIET[1], partition, **more)
    known = moved(one, 1, epoch)
    assert one.state.partitions[0] is QUIET[1]
    return known, one.state.partitions[1], one.actions


def test_a_transient_heir_serves_from_now_on_and_is_told_its_backup() -> None:
    known, found, (push,) = arrived(Partition(2, 5, 0, 6, heir=Move(4, 9)), 9)
    assert (known, found) == (True, Partition(4, 9, 0, 6))
    assert isinstance(push, act.PushTo)
    assert (push.host, push.partition, push.backup) == (4, 1, 0)


def test_a_transient_heir_sends_the_copy_anew_that_the_old_owner_was_to_send() -> None:
    for safe in (True, False):
        _, found, actions = arrived(Partition(2, 5, 0, 6, safe=safe, heir=Move(4, 9), copy=Move(1, 8)), 9)
        assert found == Partition(4, 9, 0, 6, safe=safe, copy=Move(1, 21))
        assert [type(action) for action in actions] == [act.PushTo] * safe + [act.Cancel, act.BackUp]
        (cancelled,), (copy,) = of(act.Cancel, actions), of(act.BackUp, actions)
        assert (cancelled.hosts, cancelled.partition, cancelled.epoch) == ((4, 1), 1, 8)
        assert (copy.host, copy.partition, copy.epoch, copy.source) == (1, 1, 21, 4)


@pytest.mark.parametrize(("to", "safe", "clock"), [(0, True, 6), (0, False, 4), (1, True, 4)])
def test_a_reliable_heir_is_its_own_backup_at_the_clock_it_can_be_relied_on_for(
    to: int, safe: bool, clock: int
) -> None:
    """What it drained into it had all of; a new one has what everybody goes back to."""
    drained = Partition(2, 5, 0, 6, safe=safe, heir=Move(to, 9, drain=to == 0), copy=Move(1, 8))
    _, found, actions = arrived(drained, 9)
    assert found == Partition(to, 9, to, clock)
    (cancelled,), (promoted,) = of(act.Cancel, actions), of(act.Promote, actions)
    assert (cancelled.hosts, cancelled.epoch) == ((2, 1), 8)
    assert (promoted.host, promoted.partitions, promoted.epoch) == (to, (1,), 9)


def test_a_copy_makes_its_host_the_backup_at_the_common_clock() -> None:
    known, found, (push,) = arrived(Partition(2, 5, 0, 6, safe=False, copy=Move(1, 8)), 8)
    assert (known, found) == (True, Partition(2, 5, 1, 4))
    assert isinstance(push, act.PushTo)
    assert (push.host, push.partition, push.backup) == (2, 1, 1)


def test_what_an_owner_waited_for_is_there() -> None:
    assert arrived(Partition(2, 5, 0, 6, waiting=True), 5) == (True, Partition(2, 5, 0, 6), [])


@pytest.mark.parametrize("partition", [
    Partition(2, 5, 0, 6), Partition(2, 5, 0, 6, waiting=True, heir=Move(4, 9), copy=Move(1, 8)),
])  # fmt: skip
@pytest.mark.parametrize("epoch", [4, 6, 7, 10])
def test_what_nobody_waits_for_changes_nothing(partition: Partition, epoch: int) -> None:
    assert arrived(partition, epoch) == (False, partition, [])


def test_the_epoch_of_an_owner_that_has_its_state_is_no_arrival() -> None:
    assert arrived(Partition(2, 5, 0, 6), 5) == (False, Partition(2, 5, 0, 6), [])


# What is begun


def test_owners_that_are_to_serve_no_longer_hand_over_and_drain_to_their_own_backup() -> None:
    found, actions = settled(Partition(5, 5, 0, 6), Partition(3, 5, 1, 6))
    assert found[0] == Partition(5, 5, 0, 6, heir=Move(2, 21))
    (move,) = actions
    assert isinstance(move, act.HandOver)
    assert (move.source, move.to, move.partition, move.epoch) == (5, 2, 0, 21)
    found, actions = settled(*QUIET, stage=ONE)
    assert [one.heir for one in found] == [Move(0, 21, drain=True), Move(1, 22, drain=True)]
    assert [(one.source, one.to, one.partition) for one in of(act.Drain, actions)] == [(2, 0, 0), (3, 1, 1)]


def test_a_partition_that_moves_takes_no_copy_along_but_the_only_one() -> None:
    moving = Partition(5, 5, 0, 6, copy=Move(1, 8))
    found, actions = settled(moving, QUIET[1])
    assert found[0] == Partition(5, 5, 0, 6, heir=Move(2, 21))
    assert [(one.hosts, one.epoch) for one in of(act.Cancel, actions) if one.partition == 0] == [((5, 1), 8)]
    found, actions = settled(Partition(5, 5, 0, 6, safe=False, copy=Move(1, 8)), QUIET[1])
    assert found[0] == Partition(5, 5, 0, 6, safe=False, heir=Move(2, 21), copy=Move(1, 8))
    assert not of(act.Cancel, actions)


def test_a_move_that_leads_elsewhere_is_called_off_and_another_one_begun() -> None:
    found, actions = settled(Partition(5, 5, 0, 6, heir=Move(4, 9)), QUIET[1])
    assert found[0].heir == Move(2, 21)
    assert [type(action) for action in actions] == [act.Cancel, act.HandOver]
    assert settled(Partition(5, 5, 0, 6, heir=Move(2, 9)), QUIET[1])[1] == [], "one that leads there is not"


def test_a_drain_of_an_owner_that_leaves_goes_on_and_of_one_that_stays_it_does_not() -> None:
    drains = Partition(5, 5, 0, 6, heir=Move(0, 9, drain=True))
    assert settled(drains, QUIET[1], leaving={5: 9.0}) == ((drains, QUIET[1]), [])
    assert settled(drains, QUIET[1])[0][0].heir == Move(2, 21)
    moves = Partition(5, 5, 0, 6, heir=Move(4, 9))
    assert settled(moves, QUIET[1], leaving={5: 9.0})[0][0].heir == Move(2, 21)


def test_backups_are_evened_out_and_one_that_is_on_its_way_is_not_sent_twice() -> None:
    found, (copy,) = settled(Partition(2, 5, 0, 6), Partition(3, 5, 0, 6))
    assert found == (Partition(2, 5, 0, 6), Partition(3, 5, 0, 6, copy=Move(1, 21)))
    assert isinstance(copy, act.BackUp)
    assert (copy.host, copy.partition, copy.epoch, copy.source) == (1, 1, 21, 3)
    assert settled(*found) == (found, [])


def test_a_copy_to_another_host_than_is_wanted_is_called_off_unless_it_is_the_only_one() -> None:
    found, actions = settled(Partition(2, 5, 0, 6), Partition(3, 5, 1, 6, copy=Move(0, 8)))
    assert {one.backup if one.copy is None else one.copy.to for one in found} == {0, 1}
    unsafe = (Partition(2, 5, 0, 6), Partition(3, 5, 0, 6, safe=False, copy=Move(0, 8)))
    found, actions = settled(*unsafe)
    assert found[1] == unsafe[1]
    assert [copy.partition for copy in of(act.BackUp, actions)] in ([0], [])


def test_who_serves_as_its_own_backup_needs_no_other() -> None:
    served = (Partition(0, 5, 0, 6), Partition(1, 5, 1, 6))
    assert settled(*served, stage=ONE) == (served, [])
    found, actions = settled(Partition(0, 5, 0, 6), Partition(0, 5, 0, 6), stage=ONE)
    assert not of(act.BackUp, actions)
    assert found[1].heir == Move(1, 21)


# Targets


def test_in_stage_one_backups_are_bound_to_serve_and_else_who_is_bound_stays() -> None:
    state = step(Partition(2, 5, 1, 6), Partition(3, 5, 1, 6), stage=ONE).state
    assert owner_targets(state) == (1, 1), "what drains costs least"
    assert backup_targets(state) == (1, 0)
    state = step(Partition(1, 5, 1, 6), Partition(1, 5, 1, 6), stage=ONE).state
    assert owner_targets(state) == (1, 0)
    state = step(Partition(2, 5, 1, 6), Partition(3, 5, 1, 6), stage=ONE, leaving={1: 9.0}).state
    assert owner_targets(state) == (0, 0)


def test_what_is_under_way_counts_where_it_is_bound_for_if_that_is_to_serve() -> None:
    to_server, elsewhere = Partition(2, 5, 0, 6, heir=Move(3, 9)), Partition(3, 5, 0, 6, heir=Move(5, 9))
    assert owner_targets(step(to_server, Partition(2, 5, 0, 6)).state) == (3, 2)
    assert owner_targets(step(Partition(2, 5, 0, 6), to_server).state) == (2, 3)
    assert owner_targets(step(elsewhere, Partition(3, 5, 0, 6)).state) == (3, 2)
    copied = Partition(2, 5, 0, 6, copy=Move(1, 9))
    assert backup_targets(step(copied, Partition(3, 5, 0, 6)).state) == (1, 0)
    drained = Partition(2, 5, 0, 6, heir=Move(1, 9), copy=Move(0, 8))
    assert backup_targets(step(drained, Partition(3, 5, 1, 6)).state) == (1, 0)
    handed = Partition(2, 5, 1, 6, heir=Move(3, 9))
    assert backup_targets(step(handed, Partition(3, 5, 1, 6)).state) == (1, 0)


@pytest.mark.parametrize("first", [
    Partition(2, 5, 0, 6, waiting=True), Partition(4, 5, 0, 6, heir=Move(0, 9, drain=True)),
    Partition(4, 5, 0, 6, heir=Move(2, 9)),
])  # fmt: skip
def test_a_partition_that_has_to_wait_holds_no_other_up(first: Partition) -> None:
    found, actions = settled(first, Partition(5, 5, 1, 6), leaving={4: 9.0})
    assert found == (first, Partition(5, 5, 1, 6, heir=found[1].heir))
    assert [type(action) for action in actions] == [act.HandOver]


def test_what_a_copy_called_off_leaves_uneven_is_seen_to_at_once() -> None:
    """The first partition's copy was bound for host 1, so that the second one's would have to go to 0; it moves, and
    the copy with it is off, so that all is even as it is."""
    found, _ = settled(Partition(5, 5, 0, 6, copy=Move(1, 8)), QUIET[1])
    assert found == (Partition(5, 5, 0, 6, heir=Move(2, 21)), QUIET[1])
