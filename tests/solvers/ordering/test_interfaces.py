"""Interfaces of hosts are recognised as a BCube or rails, and a wrong cable is named."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.ordering.interfaces import BCube, Defect, Port, Rails, recognise

SHAPES = [(base, levels) for base in range(2, 23) for levels in range(2, 10) if base**levels <= 512]


def made(base: int, levels: int, rng: random.Random) -> list[list[Port]]:
    """A BCube's switches: hosts, and switches, in random order; the interfaces of each host numbered at random."""
    digits = list(itertools.product(range(base), repeat=levels))
    rng.shuffle(digits)
    switches: dict[tuple[int, tuple[int, ...]], list[Port]] = {}
    for host, own in enumerate(digits):
        interfaces = rng.sample(range(levels), levels)
        for level in range(levels):
            switches.setdefault((level, own[:level] + own[level + 1 :]), []).append((host, interfaces[level]))
    rows = [rng.sample(switch, len(switch)) for switch in switches.values()]
    return rng.sample(rows, len(rows))


@pytest.mark.parametrize(("base", "levels"), SHAPES)
def test_every_bcube_is_recognised(base: int, levels: int) -> None:
    """Up to 512 hosts: digits of hosts on one switch differ in one place, where that switch's interfaces are."""
    switches = made(base, levels, random.Random(base * levels))
    shape = recognise(base**levels, switches)
    assert isinstance(shape, BCube)
    assert (shape.base, shape.levels) == (base, levels)
    assert sorted(map(tuple, shape.digits.tolist())) == list(itertools.product(range(base), repeat=levels))
    for switch in switches:
        rows = [shape.digits[host].tolist() for host, _ in switch]
        (level,) = [level for level in range(levels) if len({row[level] for row in rows}) > 1]
        assert all(shape.interfaces[host, level] == interface for host, interface in switch)


@pytest.mark.parametrize(("base", "levels"), [(2, 2), (2, 4), (3, 2), (3, 3), (4, 2), (8, 2)])
def test_ranks_that_exchange_are_on_one_switch(base: int, levels: int) -> None:
    """Ranks whose numbers differ in one digit of the base: what the bcube and bml schedules pair."""
    switches = made(base, levels, random.Random(3))
    shape = recognise(base**levels, switches)
    assert isinstance(shape, BCube)
    order = shape.rank_order()
    together = [{host for host, _ in switch} for switch in switches]
    for rank, level in itertools.product(range(base**levels), range(levels)):
        partner = rank - rank % base ** (level + 1) + (rank + base**level) % base ** (level + 1)
        assert any({order[rank], order[partner]} <= hosts for hosts in together)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([shape for shape in SHAPES if 9 <= shape[0] ** shape[1] <= 128]), st.integers(0, 2**31))
def test_a_missing_cable_is_named(shape: tuple[int, int], seed: int) -> None:
    base, levels = shape
    rng = random.Random(seed)
    switches = made(base, levels, rng)
    switch = rng.choice(switches)
    port = switch.pop(rng.randrange(base))
    with pytest.raises(Defect) as refused:
        recognise(base**levels, switches)
    assert port[0] in {host for host, _ in refused.value.ports}
    assert len(refused.value.ports) <= 2  # a cable has two ends


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([shape for shape in SHAPES if 9 <= shape[0] ** shape[1] <= 128]), st.integers(0, 2**31))
def test_exchanged_cables_are_named(shape: tuple[int, int], seed: int) -> None:
    base, levels = shape
    rng = random.Random(seed)
    switches = made(base, levels, rng)
    switch, other = rng.sample(switches, 2)
    first, second = rng.randrange(base), rng.randrange(base)
    ports = {switch[first], other[second]}
    others = {*switch, *other} - ports  # whose exchange between switches of two ports is the same one
    switch[first], other[second] = other[second], switch[first]
    blamed: set[Port] | None = None
    try:
        recognise(base**levels, switches)
    except Defect as defect:
        blamed = set(defect.ports)
    # Not blamed: hosts that differed in that digit only, so that there is another BCube; a cable from a host to itself.
    is_named = blamed is None or ports <= blamed or (base == 2 and others <= blamed)
    assert is_named or len({host for host, _ in ports}) == 1


@pytest.mark.parametrize("rails", [2, 3])
def test_all_hosts_on_every_switch_are_rails(rails: int) -> None:
    shape = recognise(5, [[(host, rail) for host in range(5)] for rail in range(rails)])
    assert isinstance(shape, Rails)
    assert shape.interfaces.tolist() == [list(range(rails))] * 5


@pytest.mark.parametrize(
    ("hosts", "switches"),
    [
        (3, []),
        (3, [[(0, 0), (1, 0), (2, 0)]]),
        (3, [[(0, 0)]]),
        (6, [[(0, 0), (1, 0), (2, 0)], [(3, 0), (4, 0), (5, 0)]]),
        (4, [[(0, 0), (1, 0), (2, 0)], [(0, 1), (3, 0)]]),
        (9, [[(0, 0), (1, 0)], [(0, 1), (1, 1)], [(2, 0), (3, 0)]]),
    ],
)
def test_other_hosts_form_neither(hosts: int, switches: list[list[Port]]) -> None:
    with pytest.raises(Defect):
        recognise(hosts, switches)


@pytest.mark.parametrize(("base", "levels"), [(2, 9), (8, 3), (22, 2)])
def test_exchanged_cables_of_very_many_hosts_are_named(base: int, levels: int) -> None:
    """In a moment: the rest of the network is not looked at for most of what might have been exchanged."""
    switches = made(base, levels, random.Random(3))
    for other in range(1, 6):
        wrong = [list(switch) for switch in switches]
        wrong[0][0], wrong[other][-1] = wrong[other][-1], wrong[0][0]
        ports = {wrong[0][0], wrong[other][-1]}
        with pytest.raises(Defect) as raised:
            recognise(base**levels, wrong)
        assert ports <= set(raised.value.ports)
