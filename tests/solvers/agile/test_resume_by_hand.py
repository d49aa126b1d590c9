"""What reports of members are taken for, by hand: of two reliable hosts and four transient ones, with six pieces."""

from dataclasses import replace
from typing import Any

import pytest

from solvers.agile import actions as act
from solvers.agile.partitions import Partition
from solvers.agile.resume import Report, resume
from solvers.agile.stages import Stage, Thresholds
from solvers.agile.state import Cluster
from tests.solvers.agile.world import hosts, of


def reports(**changes: Any) -> list[Report]:
    """In a quiet moment: hosts 2 and 3 serve, 0 and 1 have the backups, each works on a piece, 0 has all of them.
    ``h3={...}``: what another report of that host says; None: it does not report."""
    quiet = [
        Report(host, 20, 4, loaded=frozenset(range(6)) if k == 0 else frozenset({k}), works=frozenset({k}))
        for k, host in enumerate(hosts(2, 4))
    ]
    for k, more in enumerate(({"backs": {0: 8}}, {"backs": {1: 7}}, {"serves": {0: 5}}, {"serves": {1: 6}})):
        quiet[k] = replace(quiet[k], **more)  # type: ignore[arg-type]
    return [
        replace(one, **(changes.get(f"h{k}") or {}))
        for k, one in enumerate(quiet)
        if changes.get(f"h{k}", {}) is not None
    ]


def resumed(some: list[Report], **more: Any) -> tuple[Cluster, tuple[act.Action, ...]]:
    return resume(some, [1e6, 1e6], 6, **more)


def test_a_quiet_moment_is_taken_for_what_it_is() -> None:
    state, actions = resumed(reports()[::-1])
    assert [host.number for host in state.hosts] == list(range(6))
    assert state.partitions == (Partition(2, 5, 0, 8), Partition(3, 6, 1, 7))
    assert (state.consistent, state.era, state.newest, state.stage) == (7, 4, 5, Stage.ACTIVE_AND_BACKUP)
    assert (state.joining, state.leaving, state.thresholds) == ({}, {}, Thresholds())
    assert [piece.owner for piece in state.pieces] == list(range(6))
    assert [piece.previous for piece in state.pieces] == [(), *[(0,)] * 5]
    (forget,) = of(act.Forget, actions)
    assert forget.epoch == 21
    assert [(push.host, push.partition, push.backup) for push in of(act.PushTo, actions)] == [(2, 0, 0), (3, 1, 1)]
    (owners,) = of(act.PointWorkers, actions)
    assert (owners.owners, owners.version) == ((2, 3), state.version)
    assert owners.version > 21
    assert {work.host: work.pieces for work in of(act.Work, actions)} == {k: (k,) for k in range(6)}
    assert not of(act.RollBack, actions)
    assert not of(act.Load, actions)


def test_numbers_go_on_from_the_largest_that_anybody_was_told() -> None:
    state, actions = resumed(reports(h4={"number": 77}))
    assert of(act.Forget, actions)[0].epoch == 78
    assert state.number > 78
    assert resumed(reports(), thresholds=Thresholds(0.5, 1.5))[0].stage is Stage.BACKUP_ONLY


def test_of_two_servers_the_later_one_is_right_and_of_two_backups_the_one_that_has_more() -> None:
    state, _ = resumed(reports(h3={"serves": {1: 6, 0: 9}}))
    assert (state.partitions[0].owner, state.partitions[0].epoch) == (3, 9)
    state, _ = resumed(reports(h1={"backs": {1: 7, 0: 9}}))
    assert (state.partitions[0].backup, state.partitions[0].clock, state.consistent) == (1, 9, 7)
    state, _ = resumed(reports(h1={"backs": {1: 7, 0: 8}}))
    assert (state.partitions[0].backup, state.partitions[0].clock) == (0, 8)


def test_a_transient_server_s_copy_is_no_backup() -> None:
    state, _ = resumed(reports(h2={"serves": {0: 5}, "backs": {0: 99}}))
    assert (state.partitions[0].backup, state.partitions[0].clock) == (0, 8)


def test_a_reliable_server_is_its_own_backup_at_its_own_clock() -> None:
    some = reports(h0={"serves": {0: 5}, "backs": {0: 3}}, h1={"serves": {1: 6}, "backs": {0: 9, 1: 4}},
                   h2={"serves": {}}, h3={"serves": {}}, h4=None, h5=None)  # fmt: skip
    state, actions = resumed(some)
    assert state.stage is Stage.PARAMETER_SERVERS
    assert state.partitions == (Partition(0, 5, 0, 3), Partition(1, 6, 1, 4))
    assert state.consistent == 3
    assert not of(act.PushTo, actions)
    some[0] = replace(some[0], backs={})
    assert resumed(some)[0].partitions[0].clock == 0


def test_a_partition_that_nobody_backs_up_gets_a_backup_and_nobody_goes_back() -> None:
    state, actions = resumed(reports(h1={"backs": {}}))
    assert not of(act.RollBack, actions)
    (copy,) = of(act.BackUp, actions)
    assert (copy.partition, copy.source, copy.host) == (1, 3, 1)
    assert (state.partitions[1].safe, state.partitions[1].clock) == (False, 0)
    assert state.consistent == 8, "which is that of the other"
    assert [push.partition for push in of(act.PushTo, actions)] == [0]


def test_a_partition_that_nobody_serves_is_restored_from_its_backup() -> None:
    state, actions = resumed(reports(h3={"serves": {}, "works": frozenset({3})}))
    assert of(act.RollBack, actions)[0].clock == 7
    (one,) = of(act.Restore, actions)
    assert (one.partition, one.source, one.clock) == (1, 1, 7)
    assert state.partitions[1].waiting
    assert [push.partition for push in of(act.PushTo, actions)] == [0], "what is on its way is not pushed yet"


def test_everybody_goes_back_where_it_is_asked_for_or_not_all_heard_of_the_last_time() -> None:
    for some, more in ((reports(), {"again": True}), (reports(h5={"era": 3}), {})):
        state, actions = resumed(some, **more)
        assert of(act.RollBack, actions)[0].clock == 7
        assert state.era > 20


def test_a_transient_host_that_neither_works_nor_serves_is_a_newcomer() -> None:
    state, actions = resumed(reports(h4={"works": frozenset(), "loaded": frozenset()}, h3={"works": frozenset()}))
    assert state.joining == {4: 4}
    assert 4 in {load.host for load in of(act.Load, actions)}
    state, _ = resumed(reports(h1={"works": frozenset()}))
    assert state.joining == {}, "a reliable host is none"


def test_reliable_hosts_count_as_the_earliest_owners_of_what_they_have() -> None:
    """Of the last piece, which 5 works on: 4, 1 and 3 have it too."""
    more = {f"h{k}": {"loaded": frozenset({k, 5})} for k in (1, 3, 4)}
    state, _ = resumed(reports(**more))
    assert state.pieces[5].previous == (0, 1, 3, 4)
    assert state.pieces[5].loaded == {0, 1, 3, 4, 5}


@pytest.mark.parametrize("gone", [4, 5])
def test_what_a_host_worked_on_that_does_not_report_goes_to_who_has_it(gone: int) -> None:
    state, _ = resumed(reports(**{f"h{gone}": None}))
    assert state.pieces[gone].owner == 0
    assert {host.number for host in state.hosts} == set(range(6)) - {gone}


def test_where_no_partition_has_a_backup_all_go_back_to_the_beginning_at_most() -> None:
    state, actions = resumed(reports(h0={"backs": {}}, h1={"backs": {}}))
    assert state.consistent == 0
    assert len(of(act.BackUp, actions)) == 2


def test_reliable_hosts_alone_go_on() -> None:
    serve = {f"h{k}": {"serves": {k: 5}} for k in (0, 1)}
    state, _ = resumed(reports(**serve, h2=None, h3=None, h4=None, h5=None))
    assert (state.stage, state.halted) == (Stage.PARAMETER_SERVERS, False)
    assert [one.owner for one in state.partitions] == [0, 1]


def test_a_job_whose_reliable_hosts_do_no_work_was_in_stage_3_and_its_slack_holds_it_there() -> None:
    """Four to two is at the threshold of 2, and less than one host under that of 2.4."""
    idle = {f"h{k}": {"works": frozenset()} for k in (0, 1)}
    theirs = {f"h{k}": {"serves": {k - 2: k + 3}, "works": frozenset({k, k - 2})} for k in (2, 3)}
    for ratio, stage in ((2.0, Stage.BACKUP_ONLY), (2.4, Stage.BACKUP_ONLY), (2.6, Stage.ACTIVE_AND_BACKUP)):
        assert resumed(reports(**idle, **theirs), thresholds=Thresholds(0.5, ratio))[0].stage is stage
        assert resumed(reports(), thresholds=Thresholds(0.5, ratio))[0].stage is Stage.ACTIVE_AND_BACKUP


def test_one_transient_host_that_serves_is_enough_for_stage_two_to_have_been() -> None:
    """Two to two is not over the threshold, nor one host under it: the stage is what it was."""
    some = reports(h1={"serves": {1: 6}, "backs": {1: 7}}, h3={"serves": {}}, h4=None, h5=None)
    assert resumed(some)[0].stage is Stage.ACTIVE_AND_BACKUP
    some[2] = replace(some[2], serves={})
    some[0] = replace(some[0], serves={0: 5})
    assert resumed(some)[0].stage is Stage.PARAMETER_SERVERS


def test_a_partition_that_was_given_to_who_is_gone_is_where_it_was() -> None:
    """Its old owner did not hear whether the new one had begun, when that one and the controller were lost."""
    gave = {"backs": {}, "gave": {0: 8}}
    state, actions = resumed(reports(h0=gave, h2=None))
    assert not state.halted
    assert state.partitions[0].backup == 0
    assert of(act.RollBack, actions)
    there = resumed(reports(h0=gave))[0].partitions[0]
    assert (there.owner, there.epoch) == (2, 5)  # who serves it is believed
    backed = resumed(reports(h0={"backs": {}, "gave": {0: 9}}, h1={"backs": {0: 8, 1: 7}}, h2=None))[0]
    assert backed.partitions[0].backup == 1  # and a backup before who gave it away
    assert resumed(reports(h0={"backs": {}}, h2=None))[0].halted
