"""Whose the shards of the input data are."""

import math
from collections import Counter
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.elastic.placement import data
from solvers.elastic.placement.data import Loading, Shard
from tests.solvers.elastic.world import imbalance

SOON, AHEAD = Loading(1, ahead=False), Loading(2, ahead=True)
Slots = st.dictionaries(st.integers(0, 9), st.integers(1, 8), min_size=1, max_size=6)


def has(owner: int, *previous: int, loaded: tuple[int, ...] = (), next_owner: int | None = None) -> Shard:
    """A shard that its owner and all previous ones have in memory, and some others."""
    return Shard(owner, previous, frozenset((owner, *previous, *loaded)), next_owner=next_owner)


@given(st.integers(1, 60), Slots)
def test_first_shares_go_by_slots(number: int, slots: dict[int, int]) -> None:
    shards = data.first_assignment(number, slots)
    assert len(shards) == number
    assert imbalance(shards, slots) < 1


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), Slots)
def test_shares_are_restored_with_the_fewest_shards_changing_hands(owners: list[int], slots: dict[int, int]) -> None:
    shards = data.rebalanced(tuple(has(owner) for owner in owners), slots)
    held, due = (
        Counter(owners),
        Counter(shard.next_owner if shard.next_owner is not None else shard.owner for shard in shards),
    )
    for host, count in slots.items():
        assert abs(due[host] - len(owners) * count / sum(slots.values())) < 1
    # What any host is short of has to come from somewhere, and nothing else moves; the odd shards stay where they are.
    least = sum(max(0, len(owners) * count // sum(slots.values()) - held[host]) for host, count in slots.items())
    moved = sum(shard.next_owner is not None for shard in shards)
    assert moved == sum(max(0, due[host] - held[host]) for host in slots) >= least
    assert sum(due.values()) == len(owners)


@given(st.lists(st.integers(0, 3), min_size=4, max_size=60))
def test_equal_hosts_get_no_more_than_they_are_short_of(owners: list[int]) -> None:
    shards = data.rebalanced(tuple(has(owner) for owner in owners), dict.fromkeys(range(4), 1))
    least, odd = divmod(len(owners), 4)
    remaining = sorted(Counter(owners)[host] for host in range(4))
    stay = sum(min(count, least + (place >= 4 - odd)) for place, count in enumerate(remaining))
    assert sum(shard.next_owner is None for shard in shards) == stay


def test_latest_previous_owner_takes_over_without_loading() -> None:
    (shard,) = data.without((has(3, 0, 1, 2, loaded=(4,)),), {3, 2}, {0: 1, 1: 1, 4: 1})
    assert (shard.owner, shard.previous) == (1, (0,))
    assert shard.loaded == {0, 1, 4}


def test_next_owner_works_once_the_shard_is_loaded() -> None:
    shards = data.rebalanced((has(1), has(1)), {1: 1, 2: 1})
    assert data.worked_on(data.taken_over(shards, {1, 2})) == {1: (0, 1)}
    ((host, ahead), which), *_ = data.to_load(shards).items()
    shards = data.ordered(shards, host, which, data.Loading(7, ahead))
    assert data.arrived(shards, host, 6) == shards
    shards = data.arrived(shards, host, 7)
    assert data.worked_on(data.taken_over(shards, {1})) == {1: (0, 1)}
    assert data.worked_on(data.taken_over(shards, {1, 2})) == {1: (0,), 2: (1,)}


def test_loaded_previous_owner_comes_first() -> None:
    home = data.Loading(1, ahead=True)
    (shard,) = data.without((Shard(3, (0,), frozenset({3, 2}), {0: home}),), {3}, {0: 1, 1: 1, 2: 1})
    assert shard.owner == 2


@settings(max_examples=40)
@given(st.integers(0, 60), Slots, st.dictionaries(st.integers(0, 9), st.integers(0, 9)))
def test_shares_are_proportional_to_slots(number: int, slots: dict[int, int], held: dict[int, int]) -> None:
    exact = {host: Fraction(number * count, sum(slots.values())) for host, count in slots.items()}
    due = {host: math.floor(share) for host, share in exact.items()}
    order = sorted(slots, key=lambda host: (due[host] - exact[host], -held.get(host, 0), host))
    for host in order[: number - sum(due.values())]:
        due[host] += 1
    assert data.proportions(number, slots, held) == due


def test_a_home_is_the_reliable_host_that_keeps_the_fewest() -> None:
    """What is being loaded counts as kept; shards that a reliable host has, owns or is to own have one."""
    shards = (
        Shard(5, loading={0: AHEAD}), Shard(5, (7,), frozenset({5, 7})), Shard(5, next_owner=1), Shard(0), Shard(5),
        Shard(5),
    )  # fmt: skip
    result = data.with_homes(shards, [1, 0])
    assert [shard.previous for shard in result] == [(), (1, 7), (), (), (0,), (1,)]
    assert result[0] is shards[0]


def test_spares_are_the_rarest_shards() -> None:
    transient = {2, 3, 4}
    shards = (
        has(2, 0), has(3, 0), has(2, loaded=(3,)), has(0), has(2, next_owner=4), has(0, loaded=(4,)),
        has(3, next_owner=2),
        Shard(0, loading={3: AHEAD}),
    )  # fmt: skip
    # Host 4 takes one over from 2. One transient host has 0, 1 and 7, two 2 and 6, none 3; 5 it has, 4 it will.
    assert data.spares(shards, 4, 9, transient) == (3, 0, 1, 7, 2, 6)
    assert data.spares(shards, 4, 2, transient) == (3, 0)
    assert data.spares(shards, 4, 0, transient) == ()
