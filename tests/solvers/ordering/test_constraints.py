"""Who may sit where: whatever is preferred or exchanged, hosts, pins and groups stay as they were wished."""

from collections.abc import Mapping, Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.errors import NoAnswer, PlinkError, UsageError
from solvers.ordering.constraints import FeasibleOrders, PlacementConstraints
from tests.solvers.ordering.instances import is_allowed
from tests.solvers.synthetic import Tour

_NAMES = [f"h{k}" for k in range(12)]
_EXCHANGES = 40


def made(slots: Sequence[int], constraints: PlacementConstraints) -> FeasibleOrders:
    """Hosts with so many ranks each, as they are numbered."""
    return FeasibleOrders(np.repeat(np.arange(len(slots)), slots), _NAMES, constraints)


def random_groups(hosts: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """Groups of those sizes, of hosts one after the other."""
    ends = np.cumsum(sizes).tolist()
    return [list(hosts[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


@st.composite
def even_constraints(draw: st.DrawFn) -> tuple[list[int], PlacementConstraints]:
    """Hosts with equally many slots, perhaps in groups of one size, some of them pinned to where an allowed order has
    them."""
    number, size = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    each = draw(st.integers(1, 3))
    hosts = draw(st.permutations(range(number * size)))
    groups = random_groups(hosts, [size] * number) if draw(st.booleans()) else None
    pinned = draw(st.sets(st.sampled_from(hosts)))
    pins = {host: place * each for place, host in enumerate(hosts) if host in pinned}
    return [each] * len(hosts), PlacementConstraints(pins, None if groups is None else draw(st.permutations(groups)))


@st.composite
def uneven_constraints(draw: st.DrawFn) -> tuple[list[int], PlacementConstraints]:
    """Hosts with any slots, perhaps in groups of any sizes, perhaps one pinned to rank 0."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    hosts = draw(st.permutations(range(sum(sizes))))
    slots = draw(st.lists(st.integers(1, 3), min_size=len(hosts), max_size=len(hosts)))
    pins = {draw(st.sampled_from(hosts)): 0} if draw(st.booleans()) else {}
    return slots, PlacementConstraints(pins, random_groups(hosts, sizes) if draw(st.booleans()) else None)


def exchanged(feasible: FeasibleOrders, order: Tour, seed: int) -> list[Tour]:
    """Orders that exchanges of units, one after the other, make."""
    rng, result, classes = np.random.default_rng(seed), [], feasible.exchange_classes(order)
    for _ in range(_EXCHANGES if classes else 0):
        units = classes[int(rng.integers(len(classes)))].units
        item, other = (units[k] for k in rng.choice(len(units), 2, replace=False))
        order = order.copy()
        order[item + other] = order[other + item]
        result.append(order)
    return result


@settings(max_examples=60)
@given(even_constraints() | uneven_constraints(), st.randoms())
def test_any_preference_gives_an_allowed_order(drawn: tuple[list[int], PlacementConstraints], random: Random) -> None:
    slots, constraints = drawn
    preference = list(range(len(slots)))
    random.shuffle(preference)
    assert is_allowed(made(slots, constraints).materialise(preference), slots, constraints)


@settings(max_examples=100)
@given(even_constraints() | uneven_constraints(), st.integers(0, 999))
def test_exchanges_keep_the_constraints(drawn: tuple[list[int], PlacementConstraints], seed: int) -> None:
    """From any order to begin with, not only the given one."""
    slots, constraints = drawn
    feasible = made(slots, constraints)
    start = feasible.materialise(np.random.default_rng(seed).permutation(len(slots)).tolist())
    assert all(is_allowed(order, slots, constraints) for order in exchanged(feasible, start, seed))


@settings(max_examples=50)
@given(even_constraints())
def test_an_allowed_order_is_left_as_it_is(drawn: tuple[list[int], PlacementConstraints]) -> None:
    slots, constraints = drawn
    feasible = made(slots, constraints)
    order = feasible.materialise(feasible.hosts)
    assert feasible.materialise(list(dict.fromkeys(order.tolist()))).tolist() == order.tolist()
    if is_allowed(np.repeat(np.arange(len(slots)), slots), slots, constraints):
        assert order.tolist() == np.repeat(np.arange(len(slots)), slots).tolist()


def test_what_is_free_is_taken_in_the_order_of_preference() -> None:
    assert made([1] * 5, PlacementConstraints({3: 1})).materialise([4, 3, 2, 1, 0]).tolist() == [4, 3, 2, 1, 0]
    assert made([1] * 5, PlacementConstraints({4: 2})).materialise([4, 3, 2, 1, 0]).tolist() == [3, 2, 4, 1, 0]
    assert made([2] * 3, PlacementConstraints({0: 2})).materialise([0, 2, 1]).tolist() == [2, 2, 0, 0, 1, 1]
    groups = PlacementConstraints({}, [[0, 1], [2, 3], [4, 5]])
    assert made([1] * 6, groups).materialise([5, 0, 2, 1, 4, 3]).tolist() == [5, 4, 0, 1, 2, 3]
    pinned = PlacementConstraints({1: 5}, [[0, 1], [2, 3], [4, 5]])
    assert made([1] * 6, pinned).materialise([1, 0, 5, 3, 4, 2]).tolist() == [5, 4, 3, 2, 0, 1]


def test_groups_of_other_sizes_do_not_change_places() -> None:
    """Which ranks make a group stays: 2LHA was told so."""
    feasible = made([1] * 7, PlacementConstraints({}, [[0, 1], [2, 3, 4], [5, 6]]))
    assert feasible.materialise([4, 6, 3, 5, 2, 1, 0]).tolist() == [6, 5, 4, 3, 2, 1, 0]
    assert feasible.materialise([0, 2, 5, 1, 3, 4, 6]).tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_what_may_be_exchanged() -> None:
    """Hosts anywhere; racks' worths of 2 and 4 up to a quarter of the hosts; hosts of a group and groups of one size;
    nothing that is pinned."""

    def firsts(slots: Sequence[int], constraints: PlacementConstraints) -> list[tuple[tuple[int, ...], int, bool]]:
        feasible = made(slots, constraints)
        return [
            (item.first_ranks, item.length, item.single_hosts)
            for item in feasible.exchange_classes(feasible.materialise(feasible.hosts))
        ]

    assert firsts([1] * 3, PlacementConstraints()) == [((0, 1, 2), 1, True)]
    assert firsts([2] * 8, PlacementConstraints()) == [(tuple(range(0, 16, 2)), 2, True), ((0, 4, 8, 12), 4, False)]
    assert firsts([1] * 8, PlacementConstraints({2: 2})) == [((0, 1, 3, 4, 5, 6, 7), 1, True)]
    assert firsts([3, 1, 2, 1], PlacementConstraints()) == [((3, 6), 1, True)]
    assert firsts([1] * 4, PlacementConstraints({}, [[0, 1], [2, 3]])) == [
        ((0, 1), 1, True), ((2, 3), 1, True), ((0, 2), 2, False),
    ]  # fmt: skip
    assert firsts([1] * 4, PlacementConstraints({0: 0}, [[0, 1], [2, 3]])) == [((2, 3), 1, True)]
    assert firsts([1] * 2, PlacementConstraints({0: 0, 1: 1})) == []


def test_problems_without_constraints() -> None:
    assert made([1, 2], PlacementConstraints()).unconstrained
    assert not made([1, 2], PlacementConstraints({0: 0})).unconstrained
    assert not made([1, 2], PlacementConstraints({}, [[0, 1]])).unconstrained


@pytest.mark.parametrize(
    ("slots", "pins", "groups", "error", "message"),
    [
        ([1] * 3, {1: 3}, None, UsageError, "--pin h1=3"),
        ([1] * 3, {1: -1}, None, UsageError, "--pin h1=-1"),
        ([1] * 3, {1: 2, 0: 2}, None, UsageError, "--pin: h1 and h0 .* rank 2"),
        ([2, 1, 1], {0: 0, 1: 2}, None, NoAnswer, "--pin h1=2: .* rank 0"),
        ([2, 1, 1], {0: 0, 1: 0}, None, UsageError, "--pin: h0 and h1 .* rank 0"),
        ([1] * 3, {2: 1}, [[0], [1, 2]], NoAnswer, "--pin h2=1: .* rank 0"),
        ([2] * 3, {1: 3}, None, UsageError, "--pin h1=3: .* multiple of 2"),
        ([1] * 4, {0: 0, 1: 2}, [[0, 1], [2, 3]], UsageError, "--pin: h0=0 and h1=2 .* groups of 2"),
        ([1] * 4, {0: 0, 2: 1}, [[0, 1], [2, 3]], UsageError, "--pin: h0=0 and h2=1 .* groups of 2"),
        ([1] * 3, {}, [[0, 1], [1, 2]], UsageError, "--groups: h1"),
        ([1] * 3, {}, [[0, 1, 1, 2]], UsageError, "--groups: h1"),
        ([1] * 4, {}, [[1]], UsageError, "--groups: h0 and 2 more"),
        ([1] * 2, {}, [[0, 1], []], UsageError, "--groups"),
    ],
)
def test_infeasible_constraint_is_one_line(
    slots: Sequence[int],
    pins: Mapping[int, int],
    groups: Sequence[Sequence[int]] | None,
    error: type[PlinkError],
    message: str,
) -> None:
    with pytest.raises(error, match=f"^{message}") as raised:
        made(slots, PlacementConstraints(pins, groups))
    assert "\n" not in str(raised.value)
