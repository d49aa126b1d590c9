"""Who works on what from one membership to the next, on states made up by hand."""

from typing import Any

from solvers.agile import actions as act
from solvers.agile import working
from solvers.agile.data import Loading, Piece
from solvers.agile.hosts import Host
from solvers.agile.partitions import Partition
from solvers.agile.stages import Stage, Thresholds
from solvers.agile.state import Cluster, Step
from tests.solvers.agile.world import hosts, of

ONE, TWO, THREE = Stage.PARAMETER_SERVERS, Stage.ACTIVE_AND_BACKUP, Stage.BACKUP_ONLY


def has(owner: int, *loaded: int, **more: Any) -> Piece:
    return Piece(owner, more.pop("previous", ()), frozenset((owner, *loaded)), **more)


def step(*pieces: Piece, members: tuple[Host, ...] = hosts(1, 3), stage: Stage = TWO, **more: Any) -> Step:
    """One reliable host (0) and three transient ones, unless others are given; number 20 was the last."""
    partitions = (Partition(1, 5, 0, 6),)
    return Step(Cluster(members, (1e6,), Thresholds(), stage, partitions, pieces, number=20, **more), "why")


def told(before: Step) -> list[tuple[int, tuple[int, ...]]]:
    """Whom, and what to work on; nothing for those that stop."""
    said = [one for one in before.actions if isinstance(one, act.Work | act.StopWork)]
    return [(one.host, one.pieces if isinstance(one, act.Work) else ()) for one in said]


# Telling


def test_those_whose_work_is_another_one_are_told_and_first_who_gives_up_most() -> None:
    one = step(has(0), has(1), has(1), has(1), has(2), Piece(3))
    one.change(pieces=(has(0), has(0), has(3), has(2), Piece(2), Piece(3)))
    working.tell(one)
    # 1 had three and has none, 2 has one as before but another, 0 and 3 have one more; nobody has what is not loaded.
    assert told(one) == [(1, ()), (2, (3,)), (0, (0, 1)), (3, (2,))]
    assert [type(action) for action in one.actions] == [act.StopWork, act.Work, act.Work, act.Work]
    assert {action.version for action in one.actions} == {21}  # type: ignore[union-attr]
    assert one.actions[2].reason == "why: h0 works on 2 pieces, 1 before"


def test_where_nothing_is_another_one_nobody_is_told_but_on_demand_everybody_is() -> None:
    quiet = step(has(0), has(1), has(1))
    working.tell(quiet)
    assert (quiet.actions, quiet.state.number) == ([], 20)
    working.tell(quiet, everybody=True)
    assert told(quiet) == [(0, (0,)), (1, (1, 2)), (2, ()), (3, ())]


# Going


def test_members_that_are_gone_are_forgotten_and_their_work_goes_back() -> None:
    one = step(has(0), has(1, 0, previous=(0,)), joining={2: 2, 3: 2}, leaving={1: 9.0, 3: 8.0})
    working.without(one, {1, 3})
    assert [host.number for host in one.state.hosts] == [0, 2]
    assert (one.state.joining, one.state.leaving) == ({2: 2}, {})
    assert [piece.owner for piece in one.state.pieces] == [0, 0]
    assert one.state.stage is ONE


def test_without_a_reliable_host_there_is_nothing_to_go_on_with() -> None:
    one = step(has(0), has(1))
    working.without(one, {0})
    assert [piece.owner for piece in one.state.pieces] == [0, 1]
    assert one.state.stage is TWO


# Coming


def test_a_group_takes_over_together_when_all_of_it_that_stays_has_loaded() -> None:
    """Hosts 2 and 3 came together, and have or have not what they are to work on; 4 came alone, and has it."""
    members = hosts(1, 4)
    ready = (has(0), has(1, 0), has(1, 0, 2, heir=2), has(1, 0, 3, heir=3), has(0, 4, heir=4))
    waits = (*ready[:3], has(1, 0, heir=3), ready[4])
    one = step(*ready, members=members, joining={2: 2, 3: 2, 4: 4})
    working.settle(one)
    assert (one.state.joining, [piece.owner for piece in one.state.pieces]) == ({}, [0, 1, 2, 3, 4])
    one = step(*waits, members=members, joining={2: 2, 3: 2, 4: 4})
    working.settle(one)
    assert (one.state.joining, [piece.owner for piece in one.state.pieces]) == ({2: 2, 3: 2}, [0, 1, 1, 1, 4])
    one = step(*waits, members=members, joining={2: 2, 3: 2, 4: 4}, leaving={3: 9.0})
    working.settle(one)
    assert 2 not in one.state.joining, "it does not wait for who leaves"
    assert one.state.pieces[2].owner == 2


def test_the_stage_is_settled_with_who_works() -> None:
    one = step(has(0), has(1, 0), has(2, 0), stage=ONE, members=hosts(1, 2))
    working.settle(one)
    assert one.state.stage is TWO
    one = step(has(0), has(0), members=hosts(1, 1), stage=ONE)
    working.settle(one)
    assert (one.state.stage, [piece.heir for piece in one.state.pieces]) == (ONE, [None, 1])


def test_every_piece_gets_a_home_on_a_host_that_stays() -> None:
    one = step(has(2), has(3), members=hosts(2, 2), leaving={0: 9.0})
    working.settle(one)
    assert [piece.previous for piece in one.state.pieces] == [(1,), (1,)]


# Loading


def test_orders_to_load_have_numbers_of_their_own_and_say_what_for() -> None:
    one = step(Piece(1, (0,), heir=2), Piece(1, (0,), frozenset({1})), has(0))
    working.load(one)
    assert [(load.host, load.pieces, load.ticket, load.ahead) for load in of(act.Load, one.actions)] == [
        (0, (0, 1), 21, True), (1, (0,), 22, False), (2, (0,), 23, False),
    ]  # fmt: skip
    assert one.actions[0].reason == "why: h0 keeps a copy for those that may leave 2 pieces"
    assert one.actions[1].reason == "why: h1 is to work on 1 pieces"
    assert one.state.pieces[0].loading == {0: Loading(21, True), 1: Loading(22, False), 2: Loading(23, False)}
    again = len(one.actions)
    working.load(one)
    assert len(one.actions) == again, "what is under way is not ordered twice"


def test_newcomers_among_transient_hosts_load_spares_as_many_as_they_own_or_will() -> None:
    one = step(has(0), has(1, heir=3), has(3), has(1), has(1), has(2))
    working.load_spares(one, [3, 0])
    (load,) = of(act.Load, one.actions)
    assert (load.host, load.pieces, load.ticket, load.ahead) == (3, (0, 3), 21, True)
    nothing = step(has(0), has(1))
    working.load_spares(nothing, [3])
    assert nothing.actions == []
