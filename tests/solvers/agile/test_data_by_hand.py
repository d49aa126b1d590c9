"""Pieces of the input data, case by case: who is due how many, who takes what over, and who loads it."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.agile import data
from solvers.agile.data import Loading, Piece

SOON, AHEAD = Loading(1, ahead=False), Loading(2, ahead=True)
Slots = st.dictionaries(st.integers(0, 9), st.integers(1, 8), min_size=1, max_size=6)


def has(owner: int, *previous: int, loaded: tuple[int, ...] = (), **more: int) -> Piece:
    """A piece that its owner and all previous ones have in memory, and some others."""
    return Piece(owner, previous, frozenset((owner, *previous, *loaded)), **more)  # type: ignore[arg-type]


def heirs(pieces: data.Pieces) -> list[int | None]:
    return [piece.heir for piece in pieces]


# Shares


@settings(max_examples=40)
@given(st.integers(0, 60), Slots, st.dictionaries(st.integers(0, 9), st.integers(0, 9)))
def test_shares_go_by_slots_and_odd_pieces_by_what_is_due_and_then_by_what_is_held(
    number: int, slots: dict[int, int], held: dict[int, int]
) -> None:
    exact = {host: Fraction(number * count, sum(slots.values())) for host, count in slots.items()}
    due = {host: math.floor(share) for host, share in exact.items()}
    order = sorted(slots, key=lambda host: (due[host] - exact[host], -held.get(host, 0), host))
    for host in order[: number - sum(due.values())]:
        due[host] += 1
    assert data.shares(number, slots, held) == due


def test_odd_pieces_by_hand() -> None:
    """Of ten for slots of 1, 1 and 2: 2.5, 2.5 and 5."""
    slots = {1: 1, 4: 1, 7: 2}
    assert data.shares(10, slots, {}) == {1: 3, 4: 2, 7: 5}
    assert data.shares(10, slots, {4: 1}) == {1: 2, 4: 3, 7: 5}
    assert data.shares(11, slots, {1: 9}) == {1: 3, 4: 3, 7: 5}  # 2.75, 2.75, 5.5


def test_pieces_are_dealt_in_runs_by_number() -> None:
    assert [piece.owner for piece in data.dealt(7, {5: 1, 2: 2})] == [2, 2, 2, 2, 2, 5, 5]
    assert data.dealt(1, {3: 1}) == (Piece(3),)


def test_how_far_the_worst_host_is_off_its_share() -> None:
    pieces = (has(1), has(1), has(1), has(2), has(9))
    assert data.imbalance(pieces, {1: 1, 2: 1}) == 1.5  # 3 and 1 of 2.5 each
    assert data.imbalance(pieces, {1: 4, 2: 1}) == 1.0  # of 4 and 1
    assert data.imbalance(pieces, {2: 1, 3: 4}) == 4.0
    assert data.imbalance(pieces, {}) == math.inf


# Going


def test_everything_of_a_host_that_is_gone_is_forgotten_and_other_pieces_stay_as_they_are() -> None:
    touched = Piece(1, (2, 3), frozenset({1, 2, 3}), {4: SOON, 2: AHEAD}, heir=2)
    alone = Piece(1, (3,), frozenset({1, 3}), {4: SOON}, heir=4)
    found = data.without((touched, alone), {2}, {1: 1, 3: 1, 4: 1})
    assert found == (Piece(1, (3,), frozenset({1, 3}), {4: SOON}), alone)
    assert data.without((alone,), {4}, {1: 1}) == (Piece(1, (3,), frozenset({1, 3})),)


def test_who_takes_over_has_it_or_else_loads_it_or_else_has_the_least_to_do_for_its_slots() -> None:
    slots = {1: 1, 2: 1, 3: 2, 4: 4}
    piece = Piece(9, (), frozenset({9, 3, 2}), {1: SOON})
    (found,) = data.without((piece,), {9}, slots)
    assert found.owner == 2
    (found,) = data.without((Piece(9, (), frozenset({9, 8}), {3: SOON, 4: AHEAD}),), {9}, slots)
    assert found.owner == 3
    busy = (has(1), has(2), has(3), has(4), has(4), Piece(9), Piece(9), Piece(9), Piece(9))
    # For each slot hosts 1 and 2 have one, 3 and 4 a half; then 3 has one; then 4 three quarters; then all have one.
    assert [piece.owner for piece in data.without(busy, {9}, slots)[5:]] == [3, 4, 4, 1]
    assert [piece.owner for piece in data.without(busy[4:], {9}, slots)[1:4]] == [1, 2, 3]


def test_who_takes_a_piece_over_is_no_previous_owner_and_not_somebody_s_heir() -> None:
    (piece,) = data.without((Piece(3, (0, 1), frozenset({0, 1, 3, 5}), {}, heir=5),), {3}, {0: 1, 1: 1, 5: 1})
    assert (piece.owner, piece.previous, piece.heir) == (1, (0,), None)


def test_a_previous_owner_that_does_not_work_is_passed_over() -> None:
    (piece,) = data.without((has(3, 0, 1, 2),), {3}, {0: 1})
    assert (piece.owner, piece.previous) == (0, (1, 2))


# Evening out


def test_of_a_host_that_has_too_many_the_last_go_first_but_those_not_loaded_before_these() -> None:
    assert heirs(data.rebalanced((has(1),) * 4, {1: 3, 2: 1})) == [None, None, None, 2]
    pieces = (has(1), Piece(1, loading={1: SOON}), Piece(1), has(1))
    assert heirs(data.rebalanced(pieces, {1: 3, 2: 1})) == [None, None, 2, None]
    assert heirs(data.rebalanced(pieces, {1: 2, 2: 2})) == [None, 2, 2, None]


def test_nobody_s_pieces_are_given_before_any_that_somebody_may_keep() -> None:
    """Hosts 2 and 3 are due two each; 9 works no more; 2 gives up nothing, though it has its room."""
    pieces = (has(2, loaded=(3,)), has(9), has(9), has(2))
    assert heirs(data.rebalanced(pieces, {2: 1, 3: 1})) == [None, 3, 3, None]
    # Hosts 3 and 4 lack one each, 2 has one too many: nobody's goes to the lower number, that of 2 to the other.
    six = (has(2), has(2), has(2), has(3), has(4), has(9))
    assert heirs(data.rebalanced(six, {2: 1, 3: 1, 4: 1})) == [None, None, 4, None, None, 3]


def test_a_piece_goes_to_the_latest_previous_owner_that_has_it_then_to_who_lacks_most() -> None:
    slots = {1: 1, 2: 1, 3: 2}
    assert heirs(data.rebalanced((has(9, 3, 2, 1), has(9, 3), has(9), has(9)), slots)) == [1, 3, 3, 2]
    assert heirs(data.rebalanced((has(9, 3, loaded=(1,)), has(9)), {1: 1, 3: 1})) == [3, 1], "any previous one first"
    # The last piece first: to 3, which lacks two; then each lacks one.
    assert heirs(data.rebalanced((has(9, loaded=(1, 2, 3)),) * 4, slots)) == [3, 2, 1, 3]


def test_a_piece_goes_to_who_has_it_before_who_loads_it_before_any_other() -> None:
    """Hosts 1 to 3 lack one each; every piece is nobody's."""
    loads = Piece(9, loading={2: SOON})
    assert heirs(data.rebalanced((Piece(9), loads, has(9, loaded=(1,))), {1: 1, 2: 1, 3: 1})) == [3, 2, 1]
    assert heirs(data.rebalanced((loads, loads, has(9, loaded=(2,))), {1: 1, 2: 1, 3: 1})) == [3, 1, 2]


def test_who_was_to_take_a_piece_over_keeps_it_unless_it_has_too_many() -> None:
    bound = has(1, heir=2)
    assert heirs(data.rebalanced((bound, has(1)), {1: 1, 2: 1})) == [2, None]
    assert heirs(data.rebalanced((bound, bound), {1: 1, 2: 1})) == [2, None], "back to its owner"
    assert heirs(data.rebalanced((bound, has(1)), {1: 1})) == [None, None], "who takes nothing over any more"
    assert heirs(data.rebalanced((bound, has(1)), {2: 1})) == [2, 2]
    assert data.rebalanced((bound,), {2: 1})[0] is bound


# Taking over


def test_an_heir_takes_over_what_it_has_loaded_or_its_owner_has_not_begun_to_load() -> None:
    waits = has(1, heir=2)
    has_it = has(1, 3, loaded=(2,), heir=2)
    nobody = Piece(1, (3,), frozenset({3}), heir=2)
    begun = Piece(1, (), frozenset(), {1: AHEAD}, heir=2)
    assert data.taken_over((waits, has_it, nobody, begun), {2}) == (
        waits,
        Piece(2, (3, 1), frozenset({1, 2, 3})),
        Piece(2, (3,), frozenset({3})),
        begun,
    )
    assert data.taken_over((has_it,), {1}) == (has_it,)
    assert data.taken_over((has(1),), {1}) == (has(1),)


def test_an_owner_that_takes_its_place_again_is_the_latest_of_the_previous_ones() -> None:
    piece = Piece(1, (1, 2, 3), frozenset({1, 2, 3}), heir=2)
    assert data.taken_over((piece,), {2})[0].previous == (3, 1)


# Homes


def test_a_home_is_the_reliable_host_that_keeps_the_fewest() -> None:
    """What is being loaded counts as kept; pieces that a reliable host has, owns or is to own have one."""
    pieces = (
        Piece(5, loading={0: AHEAD}), Piece(5, (7,), frozenset({5, 7})), Piece(5, heir=1), Piece(0), Piece(5), Piece(5),
    )  # fmt: skip
    found = data.with_homes(pieces, [1, 0])
    assert [piece.previous for piece in found] == [(), (1, 7), (), (), (0,), (1,)]
    assert found[0] is pieces[0]


# Loading


def test_spares_are_what_the_fewest_transient_hosts_have_and_then_what_the_givers_have() -> None:
    transient = {2, 3, 4}
    pieces = (
        has(2, 0), has(3, 0), has(2, loaded=(3,)), has(0), has(2, heir=4), has(0, loaded=(4,)), has(3, heir=2),
        Piece(0, loading={3: AHEAD}),
    )  # fmt: skip
    # Host 4 takes one over from 2. One transient host has 0, 1 and 7, two 2 and 6, none 3; 5 it has, 4 it will.
    assert data.spares(pieces, 4, 9, transient) == (3, 0, 1, 7, 2, 6)
    assert data.spares(pieces, 4, 2, transient) == (3, 0)
    assert data.spares(pieces, 4, 0, transient) == ()


def test_what_to_load_is_what_one_owns_or_will_and_ahead_of_need_what_one_owned() -> None:
    pieces = (
        Piece(1, (0,), frozenset({1, 0})),
        Piece(1, (0,), frozenset(), heir=2),
        Piece(1, (0, 2), frozenset({1}), {0: AHEAD}, heir=2),
        Piece(1, (3,), frozenset(), {1: AHEAD, 3: SOON}),
        Piece(1, (), frozenset(), {1: SOON}),
    )
    assert data.to_load(pieces) == {(0, True): (1,), (1, False): (1, 3), (2, False): (1, 2)}
    assert list(data.to_load(pieces)) == sorted(data.to_load(pieces))


def test_what_was_ordered_is_under_way_until_that_order_has_arrived() -> None:
    pieces = data.ordered((Piece(1), Piece(1, (), frozenset(), {3: AHEAD}), Piece(1)), 2, [1, 2], SOON)
    assert [piece.loading for piece in pieces] == [{}, {3: AHEAD, 2: SOON}, {2: SOON}]
    pieces = data.ordered(pieces, 2, [2], Loading(5, ahead=False))
    assert data.arrived(pieces, 3, 1) == pieces, "of another order"
    pieces = data.arrived(pieces, 2, 1)
    assert [set(piece.loaded) for piece in pieces] == [set(), {2}, set()]
    assert [piece.loading for piece in pieces] == [{}, {3: AHEAD}, {2: Loading(5, ahead=False)}]


def test_what_is_worked_on_is_owned_and_in_memory() -> None:
    pieces = (has(5), has(2), Piece(2), has(5), Piece(7, loading={7: SOON}))
    assert data.worked_on(pieces) == {2: (1,), 5: (0, 3)}
    assert list(data.worked_on(pieces)) == [2, 5]


@pytest.mark.parametrize(("host", "waits"), [(1, False), (2, True), (3, True), (4, False), (5, False)])
def test_a_host_is_ready_when_it_has_what_it_owns_and_will(host: int, waits: bool) -> None:
    pieces = (has(1), has(1, heir=2), Piece(3, loading={3: SOON}), has(1, 4), Piece(1, (5,), frozenset({1, 4}), heir=4))
    assert data.unready(pieces, host) is waits
