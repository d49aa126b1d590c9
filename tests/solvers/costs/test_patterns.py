"""Patterns: what is made directly is what the schedule says, round by round; and what a schedule says, by hand."""

import dataclasses
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.errors import UsageError
from plink.model.schedule import Schedule, dependencies, make_schedule
from solvers.costs.by_name import pattern_for
from solvers.costs.closed_forms import closed_form
from solvers.costs.evaluator import reduce_phase
from solvers.costs.patterns import Pattern, masters_pattern, pattern_of, servers_pattern, steady_state
from solvers.schedules.catalogue import ALGORITHMS, Options, schedule_for
from tests.solvers.costs.test_cost_models import fabric
from tests.solvers.requests import requests

Round = tuple[tuple[tuple[int, int, float], ...], float, float]


def distinct_rounds(pattern: Pattern) -> list[Round]:
    """The distinct rounds, in a fixed order: ((source, target, share), ...), how often there are, and on the way
    there."""
    assert (np.diff(pattern.round) >= 0).all()
    result = []
    for number, (repeat, there) in enumerate(zip(pattern.repeat.tolist(), pattern.reduce_repeat.tolist(), strict=True)):
        inside = np.flatnonzero(pattern.round == number)
        hops = [
            (int(pattern.source[k]), int(pattern.target[k]), round(float(pattern.share[k]), 12))
            for k in inside.tolist()
        ]
        if pattern.all_to_all_share:
            ranks = range(pattern.ranks)
            hops = [(a, b, round(pattern.all_to_all_share, 12)) for a, b in product(ranks, ranks) if a != b]
        else:
            assert pattern.starts[number] == inside[0]
        assert len({hop[:2] for hop in hops}) == len(hops)
        result.append((tuple(sorted(hops)), repeat, there))
    return sorted(result)


def merged(rounds: list[Round]) -> list[Round]:
    """Rounds alike put together: a pattern made directly may list one twice."""
    kinds = {hops for hops, _, _ in rounds}
    return sorted(
        (kind, sum(r for hops, r, _ in rounds if hops == kind), sum(t for hops, _, t in rounds if hops == kind))
        for kind in kinds
    )


def counted(schedule: Schedule) -> list[Round]:
    """The same, of a schedule, transfer by transfer."""
    last = int(schedule.round[reduce_phase(schedule)].max())
    rounds: list[Round] = []
    for number in range(schedule.rounds):
        hops: dict[tuple[int, int], int] = {}
        for m in np.flatnonzero(schedule.round == number).tolist():
            pair = int(schedule.source[m]), int(schedule.target[m])
            hops[pair] = hops.get(pair, 0) + int(schedule.count[m])
        shares = tuple(sorted((a, b, round(count / schedule.chunks, 12)) for (a, b), count in hops.items()))
        rounds.append((shares, 1.0, float(number <= last)))
    return merged(rounds)


def same(pattern: Pattern, schedule: Schedule) -> None:
    """What is made directly, what is derived, and what is counted."""
    assert pattern.ranks == schedule.ranks
    assert pattern.timing == pattern_of(schedule).timing
    assert merged(distinct_rounds(pattern)) == distinct_rounds(pattern_of(schedule)) == counted(schedule)


@pytest.mark.parametrize("algo", ALGORITHMS)
@settings(max_examples=25)
@given(data=st.data())
def test_pattern_is_that_of_the_schedule(algo: str, data: st.DataObject) -> None:
    """Whether it is made directly or derived; options of other algorithms make no difference."""
    ranks, options = data.draw(requests(algo, 13))
    if options.groups is None:
        options = dataclasses.replace(options, groups=tuple((rank,) for rank in range(ranks)))
    same(pattern_for(algo, ranks, options), schedule_for(algo, ranks, options))


def test_servers_by_hand() -> None:
    """Two workers push a third to each of three servers; the servers hand it out again."""
    pattern = servers_pattern(np.arange(2), np.arange(2, 5), 5)
    pushed = [(a, b, round(1 / 3, 12)) for a in (0, 1) for b in (2, 3, 4)]
    pulled = sorted((b, a, share) for a, b, share in pushed)
    assert distinct_rounds(pattern) == [(tuple(pushed), 1.0, 1.0), (tuple(pulled), 1.0, 0.0)]


def test_masters_of_uneven_shares_by_hand() -> None:
    """Groups 0-1 and 2; rank 0 is local master of one chunk in four, and rank 1 of the others; rank 2 of all, and
    global master of these."""
    local, final = np.array([[0, 2], *[[1, 2]] * 3], dtype=np.int32), np.array([0, 1, 1, 1], dtype=np.int32)
    inside = ((0, 1, 0.75), (1, 0, 0.25))
    across = ((1, 2, 0.75), (2, 0, 0.25))
    back = ((0, 2, 0.25), (2, 1, 0.75))
    again = ((0, 1, 0.25), (1, 0, 0.75))
    pattern = masters_pattern([[0, 1], [2]], local, final)
    assert distinct_rounds(pattern) == sorted(
        [(inside, 1.0, 1.0), (across, 1.0, 1.0), (back, 1.0, 0.0), (again, 1.0, 0.0)]
    )


WRONG = [
    ("2lha", 4, Options(groups=[[0, 1], [1, 2]])),
    ("2lha", 4, Options(groups=[[0, 1], [2]])),
    ("2lha", 4, Options(groups=[[0, 1, 2, 3], []])),
    ("2lha", 4, Options()),
    ("ps", 4, Options(servers=2)),
    ("ps", 4, Options(sharded=False, root=4)),
    ("ps", 4, Options(colocated=False, servers=4)),
    ("ps", 4, Options(colocated=False, sharded=False, servers=2)),
    *((algo, 1, Options(groups=[[0]])) for algo in ("ring", "gloo", "ring-chunked", "flat", "ps", "2lha", "tree")),
]


@pytest.mark.parametrize(("algo", "ranks", "options"), WRONG)
def test_what_has_no_schedule_has_no_pattern(algo: str, ranks: int, options: Options) -> None:
    """For the same reason."""
    errors = []
    for make in (pattern_for, schedule_for):
        with pytest.raises(UsageError) as caught:
            make(algo, ranks, options)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


def waits(pattern: Pattern) -> Iterator[tuple[int, int, frozenset[int]]]:
    """(place, edge, what it waits for) of a chain."""
    for level in pattern.chain:
        if len(level.waits):
            ends = [*level.starts.tolist()[1:], len(level.waits)]
            for place, edge, a, b in zip(level.places, level.edges, level.starts, ends, strict=True):
                yield int(place), int(edge), frozenset(level.waits[a:b].tolist())
        else:
            for place, edge in zip(level.places, level.edges, strict=True):
                yield int(place), int(edge), frozenset()


@settings(max_examples=30)
@given(st.sampled_from(["tree", "double-binary-tree", "nccl-tree"]), st.integers(2, 16))
def test_a_chain_waits_for_what_its_transfers_wait_for(algo: str, ranks: int) -> None:
    """On the way there; and nothing comes before what it waits for."""
    schedule = schedule_for(algo, ranks)
    offsets, needed = dependencies(schedule)
    used = range(reduce_phase(schedule).stop)
    result = list(waits(pattern_of(schedule)))
    assert sorted(place for place, _, _ in result) == list(used)
    done: set[int] = set()
    for level in pattern_of(schedule).chain:
        assert set(level.waits.tolist()) <= done
        done |= set(level.places.tolist())
    for place, edge, needs in result:
        assert edge == schedule.source[place] * ranks + schedule.target[place]
        assert needs == set(needed[offsets[place] : offsets[place + 1]].tolist())


def test_a_round_of_a_chain_may_hold_what_waits_and_what_does_not() -> None:
    """0 to 1, then 1 on to 2 beside 3 to 2, then 2 to 4, which waits for both; the way back is none of the chain's."""
    rows = [(0, 0, 1, 0, 1, 0), (1, 1, 2, 0, 1, 0), (1, 3, 2, 0, 1, 0), (2, 2, 4, 0, 1, 0), (3, 4, 0, 0, 1, 1)]
    schedule = make_schedule("mine", 5, 1, rows, timing="chain")
    assert sorted(waits(pattern_of(schedule))) == [
        (0, 0 * 5 + 1, frozenset()),
        (1, 1 * 5 + 2, frozenset({0})),
        (2, 3 * 5 + 2, frozenset()),
        (3, 2 * 5 + 4, frozenset({1, 2})),
    ]
    hosts = fabric(5, seed=2)
    hosts.rtt_us[:] = 10.0
    hosts.rtt_us[3, 2] = hosts.rtt_us[2, 3] = 25.0
    assert closed_form(pattern_of(schedule), hosts, 1.0, "latency")(np.arange(5)) == 35.0
    hosts.rtt_us[0, 1] = hosts.rtt_us[1, 0] = 20.0
    assert closed_form(pattern_of(schedule), hosts, 1.0, "latency")(np.arange(5)) == 40.0


@pytest.mark.parametrize("algo", ["tree", "double-binary-tree", "nccl-tree"])
def test_steady_state_of_a_pipeline_has_every_hop(algo: str) -> None:
    """Its cost is near that of all rounds, of which it has two."""
    n, segments, size = 12, 200, 1e9
    pattern, single = (pattern_for(algo, n, Options(segments=number)) for number in (segments, 1))
    steady = steady_state(pattern)
    hops, all_hops = ({*zip(p.source.tolist(), p.target.tolist(), strict=True)} for p in (steady, single))
    assert hops == all_hops
    assert len(steady.repeat) == 2
    assert steady.repeat.sum() == pattern.repeat.sum()
    rng, network = np.random.default_rng(0), fabric(n, 0)
    whole, shorter = (closed_form(p, network, size, "contention") for p in (pattern, steady))
    costs = [(whole(order), shorter(order)) for order in (rng.permutation(n) for _ in range(20))]
    assert all(0.95 * cost <= steady_cost <= 1.05 * cost for cost, steady_cost in costs)


@pytest.mark.parametrize("algo", ["tree", "double-binary-tree", "nccl-tree"])
@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_steady_state_of_few_ranks_has_all_rounds(algo: str, n: int) -> None:
    """Also where the longest round is the first."""
    for segments in (1, 2, 4, 12, 40):
        pattern = pattern_for(algo, n, Options(segments=segments))
        steady = steady_state(pattern)
        assert steady.repeat.sum() == pattern.repeat.sum()
        assert steady.reduce_repeat.sum() == pattern.reduce_repeat.sum()
        assert len(np.unique(steady.round)) == len(steady.repeat)
