"""The figures of the PLink thesis (Table 4.1 and 1.1.5) and of the BML paper out of the counter, formula against count.

Table 4.1: an all-reduce of S bytes among NC nodes in C racks of N, ranks in the order of racks. Where the count is not
what the table says, the test asserts the count's own formula and says why. Sizes are in units of S.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.model.schedule_results import ScheduleCount
from solvers.schedules.catalogue import Options, schedule_for
from solvers.schedules.counter import count
from solvers.schedules.trees import heap_parents

SHAPES = [(2, 2), (4, 2), (3, 7), (8, 8)]
POWERS = [(2, 2), (8, 2), (2, 4), (8, 8)]


def counted(algo: str, n: int, c: int, **options: int) -> ScheduleCount:
    """The count of an all-reduce of one vector among c racks of n."""
    racks = [list(range(n * rack, n * rack + n)) for rack in range(c)]
    schedule = schedule_for(algo, n * c, Options(groups=racks, **options))  # type: ignore[arg-type]
    return count(schedule, 1.0, np.repeat(np.arange(c), n))


def columns(algo: str, n: int, c: int, **options: int) -> tuple[float, ...]:
    """Rounds, bytes on the wire, bytes between racks."""
    result = counted(algo, n, c, **options)
    assert result.cross_group_bytes is not None
    return result.rounds, result.bytes_on_wire, result.cross_group_bytes


@pytest.mark.parametrize(("n", "c"), SHAPES)
def test_sharded_servers(n: int, c: int) -> None:
    """As in the table: 2, 2(NC - 1)S, 2N(C - 1)S."""
    assert columns("ps", n, c) == pytest.approx((2, 2 * (n * c - 1), 2 * n * (c - 1)))
    assert columns("flat", n, c) == columns("ps", n, c)


@pytest.mark.parametrize(("n", "c"), SHAPES)
def test_two_levels(n: int, c: int) -> None:
    """As in the table: 4, 2(NC - 1)S, 2(C - 1)S."""
    assert columns("2lha", n, c) == pytest.approx((4, 2 * (n * c - 1), 2 * (c - 1)))


@pytest.mark.parametrize(("n", "c"), POWERS)
def test_halving_doubling(n: int, c: int) -> None:
    """2 log2(NC) rounds, as in the table; 2(NC - 1)S bytes, where the table rounds to 2NCS; 2(C - 1)S between racks.

    The table has 2C(N-1)/N S there. But the halves that are exchanged between racks are those of the last log2(C) steps
    of the reduce-scatter, S/(2N) and smaller: each rank sends S (C-1)/(NC) in them and as much on the way back, and all
    NC ranks together 2(C-1)S, as much as two levels. The table's figure is the same for N = C only.
    """
    assert columns("halving-doubling", n, c) == pytest.approx((2 * math.log2(n * c), 2 * (n * c - 1), 2 * (c - 1)))
    assert (columns("halving-doubling", n, c)[2] == pytest.approx(2 * c * (n - 1) / n)) == (n == c)


@pytest.mark.parametrize(("n", "c"), SHAPES)
def test_the_ring(n: int, c: int) -> None:
    """2(NC - 1) rounds, 2(NC - 1)S bytes, 2(NC - 1)/(NC) S on each of the C links between racks: (2C - 2/N)S.

    The table has 2NC - 1, (2NC - 1)S and (2C - 1)S: it lets a chunk go all the way round twice, of which the last hop
    brings a rank what it has sent itself; without it the first two are 2(NC - 1). Its (2C - 1)S is 2C links less one
    hop, where that last hop crosses; each link is spared two of 2NC chunks instead, 2/N of S for all C of them.
    """
    whole = n * c
    assert columns("ring", n, c) == pytest.approx((2 * (whole - 1), 2 * (whole - 1), 2 * c - 2 / n))
    for segments in (1, 4):
        rounds, *moved = columns("ring-chunked", n, c, segments=segments)
        assert rounds == 2 * (whole - 1) + segments - 1
        assert moved == pytest.approx(columns("ring", n, c)[1:])


@pytest.mark.parametrize(("n", "c"), SHAPES)
def test_the_tree(n: int, c: int) -> None:
    """A tree of fan-out C: each of the NC - 1 others sends all of S up and gets it back, so 2(NC - 1)S; 2h rounds,
    where h is the least height of a tree that holds NC ranks.

    The table has 2(log_C N + 1) rounds, which is 2 log_C(NC): the height of a tree whose leaves are the ranks, and at
    most one level more than h. It has about 2C(CN-1)/(C-1) S bytes, C/(C-1) times as much as the count: a tree with NC
    leaves has about 1/(C-1) more inner nodes, which here are ranks themselves. Between racks go the edges of the tree
    whose ends stand in different racks; the table's 2C(N-1)/(C-1) S is for an order of its own that it does not tell,
    and the least is 2(C-1)S, an edge for each rack but the root's.
    """
    whole = n * c
    rounds, moved, crossing = columns("tree", n, c, fan_out=c)
    height = next(h for h in range(whole) if sum(c**k for k in range(h + 1)) >= whole)
    assert (rounds, moved) == pytest.approx((2 * height, 2 * (whole - 1)))
    assert 2 * height <= 2 * math.ceil(math.log(n, c) + 1 - 1e-9)
    parents = heap_parents(whole, c)
    edges = sum(int(parents[rank]) // n != rank // n for rank in range(1, whole))
    assert crossing == pytest.approx(2 * edges)
    assert crossing >= 2 * (c - 1)


@given(st.integers(2, 6), st.integers(1, 4))
def test_bml_keeps_every_link_busy_for_2_n_minus_1_over_kn(base: int, levels: int) -> None:
    """BML paper, 3.2: step w of a thread moves N/n^(w+1) of the kN pieces to each of n - 1 neighbours on a level of its
    own; so the steps take 2(N-1)/(kN) of the time of the whole vector, and every link is busy all the time.
    """
    ranks = base**levels
    if ranks > 300:
        return
    schedule = schedule_for("bml", ranks, Options(base=base))
    level = np.log(np.abs(schedule.source - schedule.target) + 0.5) // np.log(base)
    share = schedule.count / schedule.chunks
    link = (schedule.round.astype(np.int64) * ranks + schedule.source) * levels + level.astype(np.int64)
    busy = np.bincount(link, share, schedule.rounds * ranks * levels).reshape(schedule.rounds, ranks, levels)
    per_round = busy.max(axis=(1, 2))
    assert per_round.sum() == pytest.approx(2 * (ranks - 1) / (levels * ranks))
    assert busy.sum(axis=0) == pytest.approx(2 * (ranks - 1) / (levels * ranks))  # of each interface of each rank
    assert busy.min(axis=(1, 2)) == pytest.approx(per_round)  # no link waits for another


# Thesis, 1.1.5.


@given(st.integers(2, 40))
def test_colocated_servers_save_one_nth(workers: int) -> None:
    """\"Colocated PSs reduce total data movement on the network by 1/N with N workers\": 2(N-1)S instead of 2NS."""
    apart = count(schedule_for("ps", 2 * workers, Options(colocated=False, servers=workers)), 1.0)
    together = count(schedule_for("ps", workers), 1.0)
    assert apart.bytes_on_wire == pytest.approx(2 * workers)
    assert together.bytes_on_wire == pytest.approx((1 - 1 / workers) * apart.bytes_on_wire)


@given(st.integers(2, 40))
def test_colocated_servers_double_the_traffic_of_an_interface(workers: int) -> None:
    """\"Each network interface must process roughly 2x the network traffic\": exactly 2(N-1)/N, of what a worker or one
    of as many servers of their own processes."""
    apart = count(schedule_for("ps", 2 * workers, Options(colocated=False, servers=workers)), 1.0)
    together = count(schedule_for("ps", workers), 1.0)
    assert np.add(apart.sent_bytes, apart.received_bytes) == pytest.approx(2)
    assert np.add(together.sent_bytes, together.received_bytes) == pytest.approx(4 * (workers - 1) / workers)


@given(st.integers(2, 40))
def test_one_server_carries_what_all_the_others_send(workers: int) -> None:
    """The incast of a centralised server (4.1.1): it gets (N-1)S, or NS when it is no worker."""
    together = count(schedule_for("ps", workers, Options(sharded=False)), 1.0)
    apart = count(schedule_for("ps", workers + 1, Options(sharded=False, colocated=False)), 1.0)
    assert together.received_bytes[0] == together.sent_bytes[0] == workers - 1
    assert apart.received_bytes[-1] == apart.sent_bytes[-1] == workers


@pytest.mark.parametrize("power", [1, 3, 6])
def test_how_rounds_and_bytes_of_collectives_grow(power: int) -> None:
    """O(N) steps for the ring, O(log2 N) for halving-doubling and the two trees, O(NS) bytes for each of them; each of
    the two trees has half of S."""
    ranks = 2**power
    ring, halving, trees = (
        count(schedule_for(a, ranks), 1.0) for a in ("ring", "halving-doubling", "double-binary-tree")
    )
    assert [result.bytes_on_wire for result in (ring, halving, trees)] == pytest.approx([2 * (ranks - 1)] * 3)
    assert (ring.rounds, halving.rounds) == (2 * (ranks - 1), 2 * power)
    assert trees.rounds == 2 * power
    schedule = schedule_for("double-binary-tree", ranks)
    assert np.bincount(schedule.first, schedule.count / schedule.chunks) == pytest.approx(ranks - 1)


@pytest.mark.parametrize(("base", "levels"), [(2, 5), (3, 3), (4, 2), (8, 2)])
def test_bcube_communicates_s_over_b_to_the_i(base: int, levels: int) -> None:
    """log_B N rounds there, as many back; in round i, from 0, S/B^(i+1) to each of B - 1 peers. The thesis's total,
    the sum of S/B^(i+1), is what goes to one peer of each round; to all B - 1 it is (N-1)/N S, the least possible.
    """
    ranks = base**levels
    schedule = schedule_for("bcube", ranks, Options(base=base), "reduce-scatter")
    assert schedule.rounds == levels
    share = schedule.count / schedule.chunks
    for i, part in enumerate(schedule.round_slices()):
        assert share[part] == pytest.approx(1 / base ** (i + 1))
        assert np.bincount(schedule.source[part], minlength=ranks).tolist() == [base - 1] * ranks
    to_one_peer = sum(1 / base ** (i + 1) for i in range(levels))
    assert np.array(count(schedule, 1.0).sent_bytes) == pytest.approx((base - 1) * to_one_peer)
    assert (base - 1) * to_one_peer == pytest.approx((ranks - 1) / ranks)


# The counter itself.


@given(st.sampled_from(["ring", "tree", "halving-doubling", "2lha", "recursive-doubling"]), st.integers(1, 10**12))
def test_what_is_sent_is_received(algo: str, size: int) -> None:
    schedule = schedule_for(algo, 6, Options(groups=[[0, 1], [2, 3, 4], [5]]))
    result = count(schedule, size)
    assert result.cross_group_bytes is None
    assert result.transfers == len(schedule)
    for bytes_of in (result.sent_bytes, result.received_bytes):
        assert sum(bytes_of) == pytest.approx(result.bytes_on_wire)


def test_a_count_by_hand() -> None:
    """A chain of three ranks and 12 bytes: 1 and 2 send all they have up, and get it again; 0 and 1 are one group."""
    result = count(schedule_for("tree", 3, Options(fan_out=1)), 12.0, np.array([7, 7, 9]))
    assert result.to_json() == {
        "schema": "plink.count/1",
        "rounds": 4,
        "transfers": 4,
        "bytes_on_wire": 48.0,
        "sent_bytes": [12.0, 24.0, 12.0],
        "received_bytes": [12.0, 24.0, 12.0],
        "cross_group_bytes": 24.0,
    }
