"""How a job starts and what its state says, by hand."""

import pytest

from plink.errors import UsageError
from solvers.agile import actions as act
from solvers.agile.data import Loading, Piece
from solvers.agile.hosts import Host, Tier
from solvers.agile.partitions import Partition
from solvers.agile.stages import Stage, Thresholds
from solvers.agile.start import start
from solvers.agile.state import Cluster, Step
from tests.solvers.agile.world import hosts, of

ONE, TWO, THREE = Stage.PARAMETER_SERVERS, Stage.ACTIVE_AND_BACKUP, Stage.BACKUP_ONLY


def test_one_reliable_and_two_transient_hosts_start_in_stage_two() -> None:
    """Host 1 serves both partitions (half of the transient ones), host 0 backs them up; each works on one piece, and
    host 0 keeps a copy of the others. Numbers: 1 of the partitions, 2 of the map, 3 to 6 of the orders to load."""
    state, actions = start(hosts(1, 2), [1e6, 2e6], 3)
    assert state.partitions == (Partition(1, 1, 0, 0), Partition(1, 1, 0, 0))
    assert state.pieces == (
        Piece(0, (), frozenset(), {0: Loading(3, ahead=False)}),
        Piece(1, (0,), frozenset(), {0: Loading(4, ahead=True), 1: Loading(5, ahead=False)}),
        Piece(2, (0,), frozenset(), {0: Loading(4, ahead=True), 2: Loading(6, ahead=False)}),
    )
    assert (state.stage, state.thresholds, state.partition_bytes) == (TWO, Thresholds(), (1e6, 2e6))
    assert (state.number, state.version, state.newest, state.era, state.consistent) == (6, 2, 2, 0, 0)
    assert (state.joining, state.leaving, state.let_go, state.halted) == ({}, {}, frozenset(), False)
    assert [type(action) for action in actions] == [
        *[act.Welcome] * 3, act.ChangeStage, act.Serve, act.Serve, act.PointWorkers, *[act.Load] * 4,
    ]  # fmt: skip
    assert [welcome.host.number for welcome in of(act.Welcome, actions)] == [0, 1, 2]
    assert [(one.host, one.partition, one.epoch, one.backup) for one in of(act.Serve, actions)] == [
        (1, 0, 1, 0), (1, 1, 1, 0),
    ]  # fmt: skip
    (owners,) = of(act.PointWorkers, actions)
    assert (owners.version, owners.owners) == (2, (1, 1))
    assert [(load.host, load.pieces, load.ticket, load.ahead) for load in of(act.Load, actions)] == [
        (0, (0,), 3, False), (0, (1, 2), 4, True), (1, (1,), 5, False), (2, (2,), 6, False),
    ]  # fmt: skip
    (stage,) = of(act.ChangeStage, actions)
    assert (stage.stage, stage.reason) == (TWO, "start: 2 transient to 1 reliable hosts")


def test_in_stage_one_reliable_hosts_serve_what_they_back_up() -> None:
    state, actions = start(hosts(2, 1), [1.0] * 3, 1)
    assert state.stage is ONE
    assert [(one.owner, one.backup) for one in state.partitions] == [(0, 0), (0, 0), (1, 1)]
    assert of(act.PointWorkers, actions)[0].owners == (0, 0, 1)


def test_a_job_starts_from_a_checkpoint_with_numbers_of_its_own() -> None:
    state, actions = start(hosts(1, 2)[::-1], [1.0], 1, Thresholds(5.0, 9.0), clock=30, number=7)
    assert [host.number for host in state.hosts] == [0, 1, 2]
    assert (state.era, state.consistent, state.partitions) == (7, 30, (Partition(0, 8, 0, 30),))
    assert (state.version, state.stage, state.newest) == (9, ONE, 2)
    assert min(load.ticket for load in of(act.Load, actions)) == 10


def test_hosts_that_are_not_told_apart_are_refused_and_the_least_job_is_not() -> None:
    for other in (Host(0, "b", Tier.TRANSIENT), Host(1, "a", Tier.TRANSIENT)):
        with pytest.raises(UsageError, match="two hosts of one name or number"):
            start((Host(0, "a", Tier.RELIABLE), other), [1.0], 1)
    state, _ = start((Host(0, "a", Tier.RELIABLE),), [1.0], 1)
    assert state.partitions == (Partition(0, 1, 0, 0),)


# What a state says


def cluster(members: tuple[Host, ...], **more: object) -> Cluster:
    partitions = (Partition(3, 1, 1, 0), Partition(4, 1, 1, 0), Partition(3, 1, 0, 0))
    return Cluster(members, (1.0,) * 3, Thresholds(), TWO, partitions, (), **more)  # type: ignore[arg-type]


def numbers(some: tuple[Host, ...]) -> list[int]:
    return [host.number for host in some]


def test_those_who_stay_are_neither_new_nor_warned() -> None:
    state = cluster(hosts(3, 4), joining={6: 6}, leaving={0: 9.0, 4: 9.0})
    assert (numbers(state.staying), numbers(state.reliable), numbers(state.transient)) == ([1, 2, 3, 5], [1, 2], [3, 5])
    assert state.servers == (3,)
    assert state.wanted_stage() is TWO, "two to two: it goes down one host under the edge"


def test_where_no_reliable_host_stays_those_that_are_needed_count_and_else_all() -> None:
    warned = dict.fromkeys(range(3), 9.0)
    assert numbers(cluster(hosts(3, 2), leaving=warned).reliable) == [0, 1]
    assert numbers(cluster(hosts(3, 2)[2:], leaving=warned).reliable) == [2]
    assert numbers(cluster(hosts(3, 2)[3:]).reliable) == []


def test_workers_are_those_of_the_stage_with_their_slots_by_number() -> None:
    members = (*hosts(1, 1, 3, slots=2), *hosts(1, 1, slots=5), *hosts(0, 2, 7))
    state = cluster(members, joining={7: 7, 8: 7}, leaving={8: 1.0})
    assert list(state.workers(newcomers=False).items()) == [(0, 5), (1, 5), (3, 2), (4, 2)]
    assert list(state.workers(newcomers=True).items()) == [(0, 5), (1, 5), (3, 2), (4, 2), (7, 1)]
    three = Step(state, "")
    three.change(stage=THREE)
    assert three.state.workers(newcomers=False) == {1: 5, 4: 2}


def test_a_step_gives_numbers_in_turn_and_knows_what_was_before() -> None:
    step = Step(cluster(hosts(3, 4), number=5), "a cause")
    assert [step.next(), step.next()] == [6, 7]
    step.partition(1, clock=9)
    assert [one.clock for one in step.state.partitions] == [0, 9, 0]
    assert (step.before.number, step.state.number, step.state.name(4)) == (5, 7, "h4")
