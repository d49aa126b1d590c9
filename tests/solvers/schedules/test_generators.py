"""The generators: what they make is right by a simulator that knows only the definition of a schedule, and it is the
algorithm of that name."""

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.errors import UsageError
from plink.model.schedule import Schedule, forward_and_reverse
from solvers.costs.by_name import pattern_for
from solvers.schedules.bcube import bcube_reduce_scatter, bml_reduce_scatter
from solvers.schedules.catalogue import ALGORITHMS, Options, schedule_for
from solvers.schedules.halving_doubling import halving_doubling, lightgbm_reduce_scatter, recursive_doubling
from solvers.schedules.hierarchical import (
    flat_reduce_scatter,
    hub_reduce_scatter,
    two_level_masters,
    two_level_reduce_scatter,
)
from solvers.schedules.hubs import hubs
from solvers.schedules.masters import Groups
from solvers.schedules.multi_ring import multi_ring, ring_tours
from solvers.schedules.parameter_server import push
from solvers.schedules.ring import ring, ring_chunked
from solvers.schedules.trees import all_reduce_along, double_binary_tree, heap_parents, nccl_tree
from solvers.spanning.tier_tree import star
from tests.solvers.requests import RANKS, partitions, requests
from tests.solvers.schedules.transfers import moves, sent
from tests.solvers.simulator import simulate

CALM = settings(max_examples=30, deadline=None)


def two_level(groups: Groups) -> Schedule:
    """The all-reduce with balanced masters."""
    return forward_and_reverse(two_level_reduce_scatter(groups, *two_level_masters(groups)))


def parameter_server(ranks: int, sharded: bool = True, colocated: bool = True, servers: int | None = None) -> Schedule:
    """The all-reduce to servers and back; a centralised one that is colocated is rank 2."""
    return forward_and_reverse(push(ranks, sharded, colocated, servers, 0 if sharded else 2))


PARTS = [(algo, part) for algo, entry in ALGORITHMS.items() for part in entry.parts]


@pytest.mark.parametrize("algo", ALGORITHMS)
@CALM
@given(st.data())
def test_everyone_ends_with_the_sum(algo: str, data: st.DataObject) -> None:
    ranks, options = data.draw(requests(algo))
    schedule = schedule_for(algo, ranks, options)
    assert (schedule.algo, schedule.collective, schedule.ranks) == (algo, "all-reduce", ranks)
    assert set(schedule.round.tolist()) == set(range(schedule.rounds)), "a round in which nothing happens"
    simulate(schedule)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(PARTS), st.data())
def test_the_other_collectives_do_their_part(part: tuple[str, str], data: st.DataObject) -> None:
    algo, collective = part
    ranks, options = data.draw(requests(algo))
    if algo == "ps" and options.sharded != (collective in ("reduce-scatter", "all-gather")):
        with pytest.raises(UsageError, match=f"ps has no {collective} in this form"):
            schedule_for(algo, ranks, options, collective)
        return
    schedule = schedule_for(algo, ranks, options, collective)
    assert (schedule.algo, schedule.collective) == (algo, collective)
    assert set(schedule.round.tolist()) == set(range(schedule.rounds)), "a round in which nothing happens"
    simulate(schedule)


def test_the_catalogue_refuses_what_it_does_not_have() -> None:
    for algo in ALGORITHMS:
        with pytest.raises(UsageError, match="two ranks or more, not 1"):
            schedule_for(algo, 1)
    with pytest.raises(UsageError, match=r"butterfly.* ring, ring-chunked, .*openmpi-rab"):
        schedule_for("butterfly", 4)
    with pytest.raises(UsageError, match="gloo has no broadcast; it has all-reduce"):
        schedule_for("gloo", 4, collective="broadcast")
    with pytest.raises(UsageError, match="tree has no all-to-all; it has all-reduce, broadcast, reduce"):
        schedule_for("tree", 4, collective="all-to-all")
    with pytest.raises(UsageError, match="2lha needs groups"):
        schedule_for("2lha", 4)
    with pytest.raises(UsageError, match="3 ranks stand in groups, not 4"):
        schedule_for("2lha", 4, Options(groups=[[0, 1], [2]]))


@pytest.mark.parametrize(
    ("ranks", "options", "message"),
    [
        (12, Options(base=4), "of base 4 needs a power of 4 ranks, not 12; nearest: 4 or 16"),
        (3, Options(base=4), "needs a power of 4 ranks, not 3; nearest: 4$"),
        (4, Options(base=1), "needs a base of two or more, not 1"),
        (12, Options(levels=2), "2 levels needs .* not 12; nearest: 9 or 16"),
        (3, Options(levels=2), "not 3; nearest: 4$"),
        (3, Options(levels=0), "one level or more, not 0"),
        (4, Options(levels=999_999_999), r"with 999999999 levels needs 2\^999999999 ranks"),
    ],
)
def test_numbers_that_are_no_power_are_refused(ranks: int, options: Options, message: str) -> None:
    for algo in ("bcube", "bml", "multi-ring"):
        with pytest.raises(UsageError, match=f"^{algo} .*{message}"):
            schedule_for(algo, ranks, options)


def test_impossible_segment_count_is_refused() -> None:
    """As a schedule and as a pattern for costs; a file of recorded runs may name them."""
    for make, segments in product((schedule_for, pattern_for), (0, 4097, 999_999_999)):
        with pytest.raises(UsageError, match=f"cut into {segments} segments: 1 to 4096"):
            make("ring-chunked", 4, Options(segments=segments))


# The ring.


@given(RANKS, st.integers(1, 5))
def test_segmented_ring_rounds_and_bytes(ranks: int, segments: int) -> None:
    schedule = ring_chunked(ranks, segments)
    assert schedule.rounds == 2 * (ranks - 1) + segments - 1
    assert sent(schedule) == pytest.approx([2 * (ranks - 1) / ranks] * ranks)


def test_ring_of_one_segment_is_the_ring() -> None:
    assert moves(ring_chunked(7, 1)) == moves(ring(7))
    with pytest.raises(UsageError, match="0 segments"):
        ring_chunked(4, 0)


def test_the_rings_of_the_libraries() -> None:
    """What rank r sends first, to whom, and which finished chunk it passes on first."""
    libraries = [("gloo", 1, -1, 0), ("nccl-ring", -1, 1, 0), ("openmpi-ring", 0, 1, 1)]
    for (algo, first_chunk, target, own), rank in product(libraries, range(5)):
        by_round = {(t, a): (b, first) for t, a, b, first, _, _ in moves(schedule_for(algo, 5))}
        assert by_round[0, rank] == ((rank + target) % 5, (rank + first_chunk) % 5)
        assert by_round[4, rank] == ((rank + target) % 5, (rank + own) % 5)


# Halving and doubling.


def test_rabenseifner_on_six_ranks() -> None:
    """r = 2: ranks 0 and 2 stand for 0-1 and 2-3, 4 and 5 for themselves; four chunks."""
    fold = {(0, 0, 1, 2, 2, 0), (0, 1, 0, 0, 2, 0), (0, 2, 3, 2, 2, 0), (0, 3, 2, 0, 2, 0)}
    fold |= {(1, 1, 0, 2, 2, 1), (1, 3, 2, 2, 2, 1)}
    halves = {(2, 0, 2, 2, 2, 0), (2, 2, 0, 0, 2, 0), (2, 4, 5, 2, 2, 0), (2, 5, 4, 0, 2, 0)}
    quarters = {(3, 0, 4, 1, 1, 0), (3, 4, 0, 0, 1, 0), (3, 2, 5, 3, 1, 0), (3, 5, 2, 2, 1, 0)}
    back = {(4, 0, 4, 0, 1, 1), (4, 4, 0, 1, 1, 1), (4, 2, 5, 2, 1, 1), (4, 5, 2, 3, 1, 1)}
    back |= {(5, 0, 2, 0, 2, 1), (5, 2, 0, 2, 2, 1), (5, 4, 5, 0, 2, 1), (5, 5, 4, 2, 2, 1)}
    unfold = {(6, 0, 1, 0, 4, 1), (6, 2, 3, 0, 4, 1)}
    assert moves(halving_doubling(6)) == fold | halves | quarters | back | unfold


@given(RANKS)
def test_halving_and_doubling_take_logarithmically_many_rounds(ranks: int) -> None:
    log, power = ranks.bit_length() - 1, ranks.bit_count() == 1
    assert halving_doubling(ranks).rounds == 2 * log + (0 if power else 3)
    assert recursive_doubling(ranks).rounds == log + (0 if power else 2)
    if power:
        assert sent(halving_doubling(ranks)) == pytest.approx([2 * (ranks - 1) / ranks] * ranks)
        assert sent(recursive_doubling(ranks)) == [log] * ranks


def test_recursive_doubling_on_seven_ranks() -> None:
    """The example in Open MPI's source: 1, 3, 5 and 6 stay and are 0 to 3."""
    pairs = {(t, a, b) for t, a, b, *_ in moves(recursive_doubling(7))}
    assert pairs == (
        {(0, 0, 1), (0, 2, 3), (0, 4, 5)}
        | {(1, 1, 3), (1, 3, 1), (1, 5, 6), (1, 6, 5)}
        | {(2, 1, 5), (2, 5, 1), (2, 3, 6), (2, 6, 3)}
        | {(3, 1, 0), (3, 3, 2), (3, 5, 4)}
    )


# Masters and servers.


@CALM
@given(RANKS.flatmap(partitions))
def test_masters_are_spread_evenly(groups: list[list[int]]) -> None:
    local_masters, global_group = two_level_masters(groups)
    ranks = sum(len(group) for group in groups)
    masters = Counter(local_masters[np.arange(ranks), global_group].tolist())
    assert masters == dict.fromkeys(range(ranks), 1)
    for g, group in enumerate(groups):
        local = Counter(local_masters[:, g].tolist())
        assert set(local) <= set(group)
        assert max(local[rank] for rank in group) - min(local[rank] for rank in group) <= 1


@CALM
@given(RANKS.flatmap(partitions))
def test_two_levels_cross_groups_as_rarely_as_can_be(groups: list[list[int]]) -> None:
    schedule = two_level(groups)
    ranks = schedule.ranks
    group_of = np.empty(ranks, dtype=int)
    for g, group in enumerate(groups):
        group_of[group] = g
    crossing = group_of[schedule.source] != group_of[schedule.target]
    assert schedule.count.sum() == 2 * (ranks - 1) * schedule.chunks
    assert schedule.count[crossing].sum() == 2 * (len(groups) - 1) * schedule.chunks
    one_level = len(groups) == 1 or len(groups) == ranks
    assert schedule.rounds == (2 if one_level else 4)
    inner = (schedule.round == 0) | (schedule.round == schedule.rounds - 1)
    assert one_level or not (crossing & inner).any()


def test_explicit_masters() -> None:
    local_masters = np.array([[1, 2], [0, 3]], dtype=np.int32)
    schedule = two_level_reduce_scatter([[0, 1], [2, 3, 4]], local_masters, np.array([1, 0], dtype=np.int32))
    assert schedule.owners is not None
    assert schedule.owners.tolist() == [2, 0]
    simulate(schedule)
    simulate(forward_and_reverse(schedule))
    for wrong, at, message in (
        (np.array([[1, 0], [0, 3]]), [1, 0], "rank 0 is not in group 1"),
        (local_masters, [1, 2], "groups 0 to 1"),
        (local_masters[:1], [1, 0], "2 chunks and 2 groups"),
    ):
        with pytest.raises(UsageError, match=message):
            two_level_reduce_scatter([[0, 1], [2, 3, 4]], wrong, np.array(at))


def test_groups_that_are_none_are_refused() -> None:
    for groups in ([[0, 1], [1, 2]], [[0, 2]], [[0, 1], []], [[1, 2]]):
        with pytest.raises(UsageError, match="groups: every rank"):
            two_level(groups)


def test_flat_aggregation_is_one_group_and_the_sharded_server() -> None:
    assert moves(schedule_for("flat", 9)) == moves(two_level([list(range(9))])) == moves(parameter_server(9))
    assert sent(schedule_for("flat", 9)) == pytest.approx([16 / 9] * 9)


@given(st.integers(3, 40))
def test_server_load(ranks: int) -> None:
    central = sent(parameter_server(ranks, sharded=False))
    assert central == [ranks - 1 if rank == 2 else 1 for rank in range(ranks)]
    apart = parameter_server(ranks, sharded=False, colocated=False)
    assert sent(apart) == [1] * (ranks - 1) + [ranks - 1]
    assert apart.contributors == list(range(ranks - 1))
    shards = parameter_server(ranks, colocated=False, servers=2)
    assert sent(shards) == [1] * (ranks - 2) + [(ranks - 2) / 2] * 2


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        ({"servers": 2}, "colocated=False"),
        ({"sharded": False, "root": 4}, "no rank 4"),
        ({"sharded": False, "root": -1}, "no rank -1"),
        ({"colocated": False, "servers": 4}, "4 servers of 4 ranks .* 1 to 3"),
        ({"colocated": False, "servers": 0}, "0 servers of 4 ranks"),
        ({"colocated": False, "sharded": False, "servers": 2}, "one, not 2"),
    ],
)
def test_servers_that_do_not_fit(options: dict[str, int], culprit: str) -> None:
    with pytest.raises(UsageError, match=culprit):
        push(4, **options)  # type: ignore[arg-type]


@CALM
@given(st.integers(1, 40), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_hub_load(workers: int, weights: list[int]) -> None:
    """Workers send the vector once; hubs share it in proportion to their weights, to one of their chunks."""
    schedule = schedule_for("phub", workers + len(weights), Options(servers=len(weights), weights=weights))
    load = np.array(sent(schedule))
    assert load[:workers] == pytest.approx(np.ones(workers))
    shares = np.array(weights) / sum(weights)
    assert np.abs(load[workers:] / workers - shares).max() < 1 / schedule.chunks + 1e-9
    assert schedule.contributors == list(range(workers))


def test_racks_with_hubs_cross_once() -> None:
    """Between racks of four workers and a hub only the hubs' sums travel, whatever the hubs' weights."""
    racks = [[0, 1, 2, 3, 8], [4, 5, 6, 7, 9]]
    for weights in (None, [1.0, 3.0]):
        schedule = schedule_for("phub-2l", 10, Options(servers=2, groups=racks, weights=weights))
        load = np.array(sent(schedule))
        assert load[:8] == pytest.approx(np.ones(8))
        assert load[8:].sum() == pytest.approx(8 + 2)


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        (Options(servers=4), "4 hubs of 4 ranks leave no worker"),
        (Options(servers=2, weights=[1.0]), "2 hubs need a weight each"),
        (Options(servers=1, groups=[[0, 1], [2, 3]]), "needs a hub in each group"),
        (Options(servers=1), "phub-2l needs groups"),
    ],
)
def test_hubs_that_do_not_fit(options: Options, culprit: str) -> None:
    with pytest.raises(UsageError, match=culprit):
        schedule_for("phub-2l" if "group" in culprit else "phub", 4, options)


RACKS = [[32 * g + i for i in range(32)] for g in range(32)]


@pytest.mark.parametrize(
    ("algo", "options", "transfers"),
    [
        ("ring", Options(), 2 * 1023 * 1024),
        ("halving-doubling", Options(), 2 * 10 * 1024),
        ("nccl-tree", Options(), 4 * 1023),
        ("bcube", Options(base=4), 2 * 5 * 3 * 1024),
        ("bml", Options(base=32), 2 * 2 * 2 * 31 * 1024),
        ("2lha", Options(groups=RACKS), 4 * 31 * 1024),
        ("flat", Options(), 2 * 1023 * 1024),
        ("ps", Options(colocated=False), 2 * 512 * 512),
    ],
)
def test_a_thousand_ranks(algo: str, options: Options, transfers: int) -> None:
    assert len(schedule_for(algo, 1024, options)) == transfers


# What names stand for.


def test_every_name_maps_to_its_generator() -> None:
    groups = ((0, 1, 5), (2, 6), (3, 4, 7))
    options = Options(fan_out=3, base=2, segments=3, groups=groups, sharded=False, root=5)
    expected = {
        "ring": ring(8),
        "ring-chunked": ring_chunked(8, 3),
        "halving-doubling": halving_doubling(8),
        "recursive-doubling": recursive_doubling(8),
        "tree": all_reduce_along("tree", [heap_parents(8, 3)], 3),
        "double-binary-tree": double_binary_tree(8, 3),
        "bcube": forward_and_reverse(bcube_reduce_scatter(8, 2)),
        "2lha": two_level(groups),
        "flat": forward_and_reverse(flat_reduce_scatter(8)),
        "hubs": forward_and_reverse(*hubs(star(8))),
        "phub": forward_and_reverse(hub_reduce_scatter([range(8)], 3)),
        "phub-2l": forward_and_reverse(hub_reduce_scatter(groups, 3)),
        "ps": forward_and_reverse(push(8, sharded=False, root=5)),
        "bml": forward_and_reverse(bml_reduce_scatter(8, 2)),
        "multi-ring": forward_and_reverse(*multi_ring(8, 2)),
        "gloo": ring(8, -1, 1),
        "nccl-ring": ring(8, 1, -1),
        "nccl-tree": nccl_tree(8, 3),
        "openmpi-ring": ring(8, 1),
        "openmpi-recursive-doubling": recursive_doubling(8),
        "openmpi-rabenseifner": halving_doubling(8),
        "lightgbm": forward_and_reverse(lightgbm_reduce_scatter(8)),
    }
    assert expected.keys() == ALGORITHMS.keys()
    for algo, schedule in expected.items():
        own = replace(options, servers=3, segments=None) if algo in ("phub", "phub-2l") else options
        assert moves(schedule_for(algo, 8, own)) == moves(schedule)


def test_options_left_out_are_the_usual() -> None:
    """A binary tree, digits of two, four pieces, and servers on every worker."""
    assert moves(schedule_for("tree", 9)) == moves(schedule_for("tree", 9, Options(fan_out=2)))
    assert moves(schedule_for("bcube", 16)) == moves(schedule_for("bcube", 16, Options(base=2)))
    assert moves(schedule_for("bml", 16)) == moves(schedule_for("bml", 16, Options(base=2)))
    assert moves(schedule_for("ring-chunked", 5)) == moves(ring_chunked(5, 4))
    assert moves(schedule_for("ps", 5)) == moves(schedule_for("flat", 5))
    assert moves(schedule_for("ps", 5, Options(sharded=False))) == moves(forward_and_reverse(push(5, sharded=False)))
    assert moves(schedule_for("bml", 9, Options(base=77, levels=2))) == moves(schedule_for("bml", 9, Options(base=3)))


@given(st.integers(2, 14))
def test_lightgbm_halves_among_ranks_and_pairs(n: int) -> None:
    """p parties, the last r of which are pairs. Half of what a party is left with goes to the party half of that far
    away, whose own is in it; the chunks of a party are those of its ranks."""
    p = 1 << (n.bit_length() - 1)
    r = n - p
    parties = [[i] for i in range(p - r)] + [[p - r + 2 * i, p - r + 2 * i + 1] for i in range(r)]
    expected = {(0, pair[1], pair[0], 0, n, 0) for pair in parties if len(pair) == 2}
    t = 1 if r else 0
    distance = p // 2
    while distance:
        for i in range(p):
            partner = i ^ distance
            begin = partner // distance * distance
            ranks = [rank for party in parties[begin : begin + distance] for rank in party]
            expected.add((t, parties[i][0], parties[partner][0], ranks[0], len(ranks), 0))
        t, distance = t + 1, distance // 2
    expected |= {(t, pair[0], pair[1], pair[1], 1, 1) for pair in parties if len(pair) == 2}
    schedule = lightgbm_reduce_scatter(n)
    assert moves(schedule) == expected
    assert schedule.owners is not None
    assert schedule.owners.tolist() == list(range(n))


@pytest.mark.parametrize(("base", "levels"), [(2, 2), (3, 2), (7, 2), (2, 3), (3, 3), (5, 1)])
def test_rings_use_the_interfaces_of_a_bcube_at_once(base: int, levels: int) -> None:
    """Every hop is between ranks that differ in one digit. With two levels no two rings of a rank send on one level,
    nor receive on one."""
    ranks = base**levels
    tours = ring_tours(ranks, base)
    used: dict[tuple[str, int, int], int] = {}
    for tour in tours.tolist():
        assert sorted(tour) == list(range(ranks))
        for source, target in zip(tour, [*tour[1:], tour[0]], strict=True):
            (level,) = [k for k in range(levels) if source // base**k % base != target // base**k % base]
            for end in (("out", source, level), ("in", target, level)):
                used[end] = used.get(end, 0) + 1
    assert max(used.values()) == 1 or levels > 2
    assert len(tours) == levels
