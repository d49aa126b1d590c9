"""Every generator against its definition written as plain loops: who sends which chunks to whom, when, and who ends
with what. The simulator (tests/solvers/schedules/test_generators.py) tells that a schedule is right; this, that it is
the one of that name."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np
import pytest

from plink.errors import UsageError
from plink.schedule import Schedule
from solvers.schedules.bcube import base_of, bcube, bcube_reduce_scatter, exchanges, levels_of
from solvers.schedules.bml import bml, bml_reduce_scatter
from solvers.schedules.catalogue import ALGORITHMS, Options, schedule_for
from solvers.schedules.counter import count
from solvers.schedules.halving_doubling import doubling_all_gather, halving_doubling, halving_reduce_scatter
from solvers.schedules.hierarchical import flat, flat_reduce_scatter, two_level, two_level_reduce_scatter
from solvers.schedules.lightgbm import lightgbm_reduce_scatter
from solvers.schedules.parameter_server import parameter_server, push
from solvers.schedules.recursive_doubling import recursive_doubling
from solvers.schedules.ring import ring, ring_all_gather, ring_chunked, ring_reduce_scatter
from solvers.schedules.trees import (
    bitwise_parents,
    double_binary_tree,
    heap_parents,
    heights,
    midpoint_parents,
    nccl_tree,
    shifted,
    tree,
    tree_reduce,
)

Move = tuple[int, int, int, int, int, int]  # round, source, target, first chunk, number of chunks, whether it copies


def moves(schedule: Schedule) -> list[Move]:
    columns = (schedule.round, schedule.source, schedule.target, schedule.first, schedule.count, schedule.copies)
    rows = zip(*(np.asarray(column).astype(int).tolist() for column in columns), strict=True)
    return sorted((t, a, b, first, number, copies) for t, a, b, first, number, copies in rows)


def back_again(there: list[Move]) -> list[Move]:
    """And the mirror image."""
    last = max(t for t, *_ in there)
    return sorted([*there, *((2 * last + 1 - t, b, a, first, number, 1) for t, a, b, first, number, _ in there)])


def owners(schedule: Schedule) -> list[int]:
    assert schedule.owners is not None
    return [int(rank) for rank in schedule.owners]


# Rings.


def ring_moves(n: int, step: int, first: int, pieces: int, copies: int) -> list[Move]:
    """Rank r sends block r + ``first`` in hop 0 and what it has got last in hop t; piece p of it p rounds later."""
    found = []
    for t, r, p in product(range(n - 1), range(n), range(pieces)):
        block = (r + first - t * step) % n
        found.append((t + p, r, (r + step) % n, block * pieces + p, 1, copies))
    return sorted(found)


@pytest.mark.parametrize(("step", "start"), [(1, 0), (-1, 0), (1, -1), (-1, 1), (1, 2)])
@pytest.mark.parametrize("pieces", [1, 2, 3])
@pytest.mark.parametrize("n", [2, 3, 5, 6])
def test_rings(n: int, pieces: int, step: int, start: int) -> None:
    scatter = ring_reduce_scatter(n, step, start, pieces)
    gather = ring_all_gather(n, step, start, pieces)
    assert moves(scatter) == ring_moves(n, step, start, pieces, 0)
    assert moves(gather) == ring_moves(n, step, start + step, pieces, 1)
    ends = {(r + start + step) % n * pieces + p: r for r in range(n) for p in range(pieces)}
    assert owners(scatter) == owners(gather) == [ends[chunk] for chunk in range(n * pieces)]
    for one, collective in ((scatter, "reduce-scatter"), (gather, "all-gather")):
        assert (one.algo, one.collective) == ("ring" if pieces == 1 else "ring-chunked", collective)
        assert (one.ranks, one.chunks, one.details) == (n, n * pieces, {"pace": "pipeline"})
    there = ring_moves(n, step, start, 1, 0)
    back = [(t + n - 1, *rest) for t, *rest in ring_moves(n, step, start + step, 1, 1)]
    assert moves(ring(n, step, start)) == sorted([*there, *back])
    if start == 0:
        there = ring_moves(n, step, 0, pieces, 0)
        back = [(t + n - 1, *rest) for t, *rest in ring_moves(n, step, step, pieces, 1)]
        assert moves(ring_chunked(n, pieces, step)) == sorted([*there, *back])


def test_rings_take_a_step_of_one_and_their_own_chunk_first_unless_told() -> None:
    assert moves(ring(5)) == moves(ring(5, 1, 0))
    assert moves(ring_reduce_scatter(5)) == moves(ring_reduce_scatter(5, 1, 0, 1))
    assert moves(ring_all_gather(5)) == moves(ring_all_gather(5, 1, 0, 1))
    assert moves(ring_chunked(5, 3)) == moves(ring_chunked(5, 3, 1))
    assert ring_chunked(2, 4096).chunks == 2 * 4096  # as many pieces as there may be


# Digits: BCube, BML, halving and doubling.


def digits(rank: int, base: int, levels: int) -> list[int]:
    return [rank // base**level % base for level in range(levels)]


def exchanged(base: int, order: Sequence[int]) -> tuple[list[Move], list[int]]:
    """Round by round every rank cuts its window into as many parts as the base says, keeps the one of its own digit and
    sends each rank that differs in that digit only the part of that rank's digit; and who ends with which chunk."""
    n, levels = base ** len(order), len(order)
    start, found = [0] * n, []
    for t, level in enumerate(order):
        size = n // base ** (t + 1)
        for a, b in product(range(n), range(n)):
            mine, yours = digits(a, base, levels), digits(b, base, levels)
            if a != b and all(mine[k] == yours[k] for k in range(levels) if k != level):
                found.append((t, a, b, start[a] + yours[level] * size, size, 0))
        start = [start[rank] + digits(rank, base, levels)[level] * size for rank in range(n)]
    return sorted(found), [start.index(chunk) for chunk in range(n)]


SHAPES = [(2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 2), (5, 1)]


@pytest.mark.parametrize(("base", "levels"), SHAPES)
def test_bcube(base: int, levels: int) -> None:
    """Through the digits from the lowest up; rank r ends with the chunk whose number has r's digits in reverse."""
    n = base**levels
    wanted, ends = exchanged(base, range(levels))
    schedule = bcube_reduce_scatter(n, base)
    assert moves(schedule) == wanted
    assert owners(schedule) == ends
    assert ends == [
        sum(digit * base**k for k, digit in enumerate(reversed(digits(chunk, base, levels)))) for chunk in range(n)
    ]
    assert (schedule.algo, schedule.collective, schedule.ranks, schedule.chunks) == ("bcube", "reduce-scatter", n, n)
    assert moves(bcube(n, base)) == back_again(wanted)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("base", [2, 3])
def test_exchanges_in_any_order_of_the_digits(base: int, order: tuple[int, ...]) -> None:
    rows, ends = exchanges(base**3, base, order)
    wanted, owned = exchanged(base, order)
    assert sorted(tuple(row) for row in rows.tolist()) == wanted
    assert ends.tolist() == owned


@pytest.mark.parametrize(("base", "levels"), SHAPES)
def test_bml(base: int, levels: int) -> None:
    """Thread t goes through the digits from the t-th on, on chunks of its own."""
    n = base**levels
    wanted, ends = [], []
    for thread in range(levels):
        own, owned = exchanged(base, [(w + thread) % levels for w in range(levels)])
        wanted += [(t, a, b, first + thread * n, number, 0) for t, a, b, first, number, _ in own]
        ends += owned
    schedule = bml_reduce_scatter(n, base)
    assert moves(schedule) == sorted(wanted)
    assert owners(schedule) == ends
    assert (schedule.algo, schedule.collective, schedule.chunks) == ("bml", "reduce-scatter", levels * n)
    assert moves(bml(n, base)) == back_again(sorted(wanted))


def test_powers_are_told_from_other_numbers() -> None:
    """Over all numbers to 130; the nearest powers are the last below and the first above, without the zeroth."""
    for base, ranks in product(range(2, 8), range(1, 131)):
        powers = [base**k for k in range(1, 9)]
        if ranks in powers:
            assert levels_of("x", ranks, base) == powers.index(ranks) + 1
            assert base_of("x", ranks, powers.index(ranks) + 1) == base
            continue
        near = [max((p for p in powers if p < ranks), default=0), min(p for p in powers if p > ranks)]
        said = " or ".join(str(p) for p in near if p)
        with pytest.raises(
            UsageError, match=f"x of base {base} needs a power of {base} ranks, not {ranks}; .*: {said}$"
        ):
            levels_of("x", ranks, base)


def test_powers_of_a_number_of_levels_are_told_too() -> None:
    for levels, ranks in product(range(2, 6), range(1, 131)):
        powers = [base**levels for base in range(2, 13)]
        if ranks in powers:
            assert base_of("x", ranks, levels) == powers.index(ranks) + 2
            continue
        near = [max((p for p in powers if p < ranks), default=0), min(p for p in powers if p > ranks)]
        said = " or ".join(str(p) for p in near if p)
        with pytest.raises(
            UsageError, match=f"x with {levels} levels .* power {levels} .* not {ranks}; nearest: {said}$"
        ):
            base_of("x", ranks, levels)
    assert [base_of("x", ranks, 1) for ranks in (2, 3, 100)] == [2, 3, 100]
    assert base_of("x", 2**64, 64) == 2
    with pytest.raises(UsageError, match=r"as the power 64 of some base, not 4; nearest: 18446744073709551616$"):
        base_of("x", 4, 64)
    with pytest.raises(UsageError, match=r"65 levels needs 2\^65 ranks or more, not 4$"):
        base_of("x", 4, 65)


def power_below(n: int) -> int:
    """The largest power of two that is not above n."""
    return next(half for half in (1, 2, 4, 8, 16) if n < 2 * half)


@pytest.mark.parametrize("n", range(2, 14))
def test_halving_and_doubling(n: int) -> None:
    """p = 2^k ranks halve. Of the first 2r ranks the odd ones help the even ones: each adds up half of both vectors,
    then the even one has all. In the end the odd ones get the whole vector."""
    p = power_below(n)
    r = n - p
    stay = [2 * i for i in range(r)] + list(range(2 * r, n))
    halved, ends = exchanged(2, range(p.bit_length() - 1))
    wanted: list[Move] = []
    for even in range(0, 2 * r, 2):
        wanted += [(0, even, even + 1, p // 2, p // 2, 0), (0, even + 1, even, 0, p // 2, 0)]
        wanted.append((1, even + 1, even, p // 2, p // 2, 1))
    later = 2 if r else 0
    wanted += [(t + later, stay[a], stay[b], first, number, 0) for t, a, b, first, number, _ in halved]
    scatter, gather = halving_reduce_scatter(n), doubling_all_gather(n)
    assert moves(scatter) == sorted(wanted)
    assert owners(scatter) == owners(gather) == [stay[rank] for rank in ends]
    last = p.bit_length() - 1
    back = [(last - 1 - t, stay[b], stay[a], first, number, 1) for t, a, b, first, number, _ in halved]
    back += [(last, even, even + 1, 0, p, 1) for even in range(0, 2 * r, 2)]
    assert moves(gather) == sorted(back)
    assert moves(halving_doubling(n)) == sorted([*wanted, *((t + last + later, *rest) for t, *rest in back)])
    assert (scatter.collective, gather.collective, scatter.chunks) == ("reduce-scatter", "all-gather", p)
    assert scatter.algo == gather.algo == "halving-doubling"


@pytest.mark.parametrize("n", range(2, 14))
def test_recursive_doubling(n: int) -> None:
    """The whole vector; the even ones of the first 2r ranks give theirs away and get the result."""
    p = power_below(n)
    r = n - p
    stay = [2 * i + 1 for i in range(r)] + list(range(2 * r, n))
    k = p.bit_length() - 1
    later = 1 if r else 0
    wanted = [(0, even, even + 1, 0, 1, 0) for even in range(0, 2 * r, 2)]
    wanted += [(t + later, stay[i], stay[i ^ 2**t], 0, 1, 0) for t in range(k) for i in range(p)]
    wanted += [(k + 1, even + 1, even, 0, 1, 1) for even in range(0, 2 * r, 2)]
    schedule = recursive_doubling(n)
    assert moves(schedule) == sorted(wanted)
    assert (schedule.algo, schedule.collective, schedule.chunks) == ("recursive-doubling", "all-reduce", 1)


@pytest.mark.parametrize("n", range(2, 14))
def test_lightgbm(n: int) -> None:
    """p parties, the last r of which are pairs. Half of what a party is left with goes to the party half of that far
    away, whose own is in it; the chunks of a party are those of its ranks."""
    p = power_below(n)
    r = n - p
    parties = [[i] for i in range(p - r)] + [[p - r + 2 * i, p - r + 2 * i + 1] for i in range(r)]
    wanted: list[Move] = [(0, pair[1], pair[0], 0, n, 0) for pair in parties if len(pair) == 2]
    t = 1 if r else 0
    distance = p // 2
    while distance:
        for i in range(p):
            partner = i ^ distance
            begin = partner // distance * distance
            ranks = [rank for party in parties[begin : begin + distance] for rank in party]
            wanted.append((t, parties[i][0], parties[partner][0], ranks[0], len(ranks), 0))
        t, distance = t + 1, distance // 2
    wanted += [(t, pair[0], pair[1], pair[1], 1, 1) for pair in parties if len(pair) == 2]
    schedule = lightgbm_reduce_scatter(n)
    assert moves(schedule) == sorted(wanted)
    assert owners(schedule) == list(range(n))
    assert (schedule.algo, schedule.collective, schedule.chunks) == ("lightgbm", "reduce-scatter", n)


# Trees.


def height(rank: int, parents: Sequence[int]) -> int:
    """The longest way down."""
    return max((1 + height(child, parents) for child, above in enumerate(parents) if above == rank), default=0)


def up(trees: Sequence[Sequence[int]]) -> list[Move]:
    """Every rank sends what its whole subtree has, as soon as that has arrived."""
    return sorted(
        (height(rank, parents), rank, above, chunk, 1, 0)
        for chunk, parents in enumerate(trees)
        for rank, above in enumerate(parents)
        if above >= 0
    )


def heap(n: int, fan_out: int) -> list[int]:
    return [-1, *((rank - 1) // fan_out for rank in range(1, n))]


def midpoints(first: int, last: int, above: int = -1) -> dict[int, int]:
    """The middle is the root of both sides."""
    if first > last:
        return {}
    middle = (first + last) // 2
    return {middle: above} | midpoints(first, middle - 1, middle) | midpoints(middle + 1, last, middle)


def moved_on(parents: Sequence[int], by: int) -> list[int]:
    """Rank r + by stands where r stood."""
    n = len(parents)
    found = {(rank + by) % n: -1 if above < 0 else (above + by) % n for rank, above in enumerate(parents)}
    return [found[rank] for rank in range(n)]


def bitwise(n: int) -> list[int]:
    """A rank with lowest bit 2^k is below the one with that bit cleared and the next set; if there is none, below the
    one with that bit cleared."""
    found = [-1]
    for rank in range(1, n):
        bit = next(2**k for k in range(12) if rank & 2**k)
        found.append(rank - bit if (rank - bit) | 2 * bit >= n else (rank - bit) | 2 * bit)
    return found


@pytest.mark.parametrize("n", range(2, 18))
def test_trees(n: int) -> None:
    for fan_out in (1, 2, 3, 5, 20):
        parents = heap_parents(n, fan_out)
        assert parents.tolist() == heap(n, fan_out)
        assert heights(parents).tolist() == [height(rank, heap(n, fan_out)) for rank in range(n)]
        reduction = tree_reduce(n, fan_out)
        assert moves(reduction) == up([heap(n, fan_out)])
        assert owners(reduction) == [0]
        assert (reduction.algo, reduction.collective, reduction.chunks) == ("tree", "reduce", 1)
        assert reduction.details == {"pace": "chain", "fan_out": fan_out}
        assert moves(tree(n, fan_out)) == back_again(up([heap(n, fan_out)]))
    assert moves(tree(n)) == moves(tree(n, 2))
    assert moves(tree_reduce(n)) == moves(tree_reduce(n, 2))


@pytest.mark.parametrize("n", range(2, 18))
def test_double_trees(n: int) -> None:
    middle = [midpoints(0, n - 1)[rank] for rank in range(n)]
    assert midpoint_parents(n).tolist() == middle
    for by in (-2, -1, 1, 3):
        assert shifted(midpoint_parents(n), by).tolist() == moved_on(middle, by)
    assert moves(double_binary_tree(n)) == back_again(up([middle, moved_on(middle, -1)]))
    bits = bitwise(n)
    assert bitwise_parents(n).tolist() == bits
    mirror = [-1 if bits[n - 1 - rank] < 0 else n - 1 - bits[n - 1 - rank] for rank in range(n)]
    assert moves(nccl_tree(n)) == back_again(up([bits, mirror if n % 2 == 0 else moved_on(bits, 1)]))
    assert nccl_tree(n).details == double_binary_tree(n).details == {"pace": "chain"}
    assert (nccl_tree(n).algo, double_binary_tree(n).algo) == ("nccl-tree", "double-binary-tree")


# Servers and masters.


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_servers(n: int) -> None:
    """Every worker pushes chunk s to the s-th server; who serves itself sends nothing."""
    everyone = list(range(n))

    def pushed(workers: list[int], serving: list[int]) -> list[Move]:
        return sorted((0, a, b, s, 1, 0) for a in workers for s, b in enumerate(serving) if a != b)

    forms = [(push(n), everyone, everyone, "reduce-scatter")]
    forms += [(push(n, sharded=False, root=k), everyone, [k], "reduce") for k in range(n)]
    forms += [(push(n, sharded=False), everyone, [0], "reduce")]
    forms += [(push(n, sharded=False, colocated=False), everyone[:-1], everyone[-1:], "reduce")]
    half = max(1, n // 2)
    forms += [(push(n, colocated=False), everyone[: n - half], everyone[n - half :], "reduce-scatter")]
    forms += [
        (push(n, colocated=False, servers=k), everyone[: n - k], everyone[n - k :], "reduce-scatter")
        for k in range(1, n)
    ]
    for schedule, workers, serving, collective in forms:
        assert moves(schedule) == pushed(workers, serving)
        assert owners(schedule) == serving
        assert (schedule.algo, schedule.collective, schedule.chunks) == ("ps", collective, len(serving))
        assert schedule.details == ({} if len(workers) == n else {"contributors": workers})
    assert moves(parameter_server(n)) == back_again(pushed(everyone, everyone))
    assert moves(parameter_server(n, False)) == back_again(pushed(everyone, [0]))
    assert moves(parameter_server(n, False, root=n - 1)) == back_again(pushed(everyone, [n - 1]))
    assert moves(parameter_server(n, servers=1, colocated=False)) == back_again(pushed(everyone[:-1], everyone[-1:]))
    assert moves(flat_reduce_scatter(n)) == pushed(everyone, everyone)
    assert owners(flat_reduce_scatter(n)) == everyone
    assert moves(flat(n)) == back_again(pushed(everyone, everyone))


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_servers_leave_a_worker_and_serve_from_a_rank_that_is_there(n: int) -> None:
    for servers in (0, n, n + 1, -1):
        with pytest.raises(UsageError, match=f"ps: {servers} servers of {n} ranks .*; 1 to {n - 1} do"):
            push(n, colocated=False, servers=servers)
    for root in (-1, n):
        with pytest.raises(UsageError, match=f"ps: there is no rank {root} to serve {n} ranks"):
            push(n, sharded=False, root=root)
    assert push(n, root=n).chunks == n  # sharded, no one rank serves


def one_by_one(schedule: Schedule) -> Counter[tuple[int, int, int, int]]:
    """(round, source, target, chunk)."""
    return Counter(
        (t, a, b, chunk) for t, a, b, first, number, _ in moves(schedule) for chunk in range(first, first + number)
    )


@pytest.mark.parametrize(
    ("groups", "local", "final"),
    [
        ([[0, 1], [2, 3, 4]], [[1, 2], [0, 3], [0, 3], [0, 4], [1, 4]], [1, 0, 0, 0, 1]),
        ([[0], [1], [2]], [[0, 1, 2]] * 4, [0, 2, 2, 1]),
        ([[2, 0, 1]], [[0], [0], [2], [1]], [0, 0, 0, 0]),
        ([[3, 1], [0, 2]], [[1, 0], [1, 0], [1, 2], [3, 2], [3, 0], [1, 0]], [0, 1, 1, 1, 0, 0]),
        # Neighbours that go from one master to two, or from two to one.
        ([[0, 1, 2], [3, 4, 5]], [[0, 3], [0, 4], [1, 4], [1, 4]], [1, 1, 1, 0]),
    ],
)
def test_two_levels(groups: list[list[int]], local: list[list[int]], final: list[int]) -> None:
    """Every member sends every chunk to its local master, and these to the global one; a round in which nobody sends
    anything to another is none. Neighbouring chunks that go the same way go together."""
    wanted: list[tuple[int, int, int, int]] = []
    for chunk, (masters, group) in enumerate(zip(local, final, strict=True)):
        wanted += [(0, r, masters[g], chunk) for g, some in enumerate(groups) for r in some if r != masters[g]]
        wanted += [(1, master, masters[group], chunk) for master in masters if master != masters[group]]
    used = sorted({t for t, *_ in wanted})
    schedule = two_level_reduce_scatter(groups, np.array(local, dtype=np.int32), np.array(final, dtype=np.int32))
    assert one_by_one(schedule) == Counter((used.index(t), a, b, chunk) for t, a, b, chunk in wanted)
    assert owners(schedule) == [masters[group] for masters, group in zip(local, final, strict=True)]
    assert (schedule.algo, schedule.chunks, schedule.details) == ("2lha", len(local), {"groups": groups})
    by_way = sorted((t, a, b, first, number) for t, a, b, first, number, _ in moves(schedule))
    for (*way, first, number), (*next_way, next_first, _) in pairwise(by_way):
        assert way != next_way or next_first > first + number or (
            way[0] == used.index(1) and len(used) == 2
        ), "two transfers where one would do"  # fmt: skip


def test_two_levels_go_there_and_back() -> None:
    groups = [[0, 1], [2, 3, 4]]
    both = two_level(groups)
    there = [move for move in moves(both) if move[0] < 2]
    assert moves(both) == back_again(there)
    assert all(copies == 0 for *_, copies in there)


# The catalogue and the counter.


def test_every_name_stands_for_its_generator() -> None:
    groups = ((0, 1, 2), (3, 4), (5, 6, 7))
    options = Options(fan_out=3, base=2, pieces=3, groups=groups, sharded=False, root=5)
    wanted = {
        "ring": ring(8),
        "ring-chunked": ring_chunked(8, 3),
        "halving-doubling": halving_doubling(8),
        "recursive-doubling": recursive_doubling(8),
        "tree": tree(8, 3),
        "double-binary-tree": double_binary_tree(8),
        "bcube": bcube(8, 2),
        "2lha": two_level(groups),
        "flat": flat(8),
        "ps": parameter_server(8, sharded=False, root=5),
        "bml": bml(8, 2),
        "gloo": ring(8, -1, 1),
        "nccl-ring": ring(8, 1, -1),
        "nccl-tree": nccl_tree(8),
        "openmpi-ring": ring(8, 1),
        "openmpi-recursive-doubling": recursive_doubling(8),
        "openmpi-rabenseifner": halving_doubling(8),
    }
    for algo, schedule in wanted.items():
        found = schedule_for(algo, 8, options)
        assert moves(found) == moves(schedule)
        assert (found.algo, found.collective, found.chunks) == (algo, "all-reduce", schedule.chunks)
    assert {*wanted, "lightgbm"} == set(ALGORITHMS)
    assert moves(schedule_for("lightgbm", 6)) == back_again(moves(lightgbm_reduce_scatter(6)))


def test_what_is_not_said_is_the_usual() -> None:
    """A binary tree, digits of two, four pieces, and servers on every worker."""
    assert moves(schedule_for("tree", 9)) == moves(tree(9, 2))
    assert moves(schedule_for("bcube", 16)) == moves(bcube(16, 2))
    assert moves(schedule_for("bml", 16)) == moves(bml(16, 2))
    assert moves(schedule_for("ring-chunked", 5)) == moves(ring_chunked(5, 4))
    assert moves(schedule_for("ps", 5)) == moves(flat(5))
    assert moves(schedule_for("ps", 5, Options(sharded=False))) == moves(parameter_server(5, sharded=False, root=0))


@pytest.mark.parametrize("algo", ["bcube", "bml"])
def test_levels_say_the_base(algo: str) -> None:
    for base, levels in ((2, 3), (3, 2), (9, 1)):
        by_levels = schedule_for(algo, base**levels, Options(base=77, levels=levels))
        assert moves(by_levels) == moves(schedule_for(algo, base**levels, Options(base=base)))


def test_the_parts_are_the_generators_parts() -> None:
    options = Options(fan_out=3, pieces=3)
    assert moves(schedule_for("ring", 5, options, "reduce-scatter")) == moves(ring_reduce_scatter(5))
    assert moves(schedule_for("ring", 5, options, "all-gather")) == moves(ring_all_gather(5))
    for collective, make in (("reduce-scatter", ring_reduce_scatter), ("all-gather", ring_all_gather)):
        assert moves(schedule_for("ring-chunked", 5, options, collective)) == moves(make(5, pieces=3))
    assert moves(schedule_for("tree", 5, options, "reduce")) == moves(tree_reduce(5, 3))
    down = moves(schedule_for("tree", 5, options, "broadcast"))
    assert down == [move for move in [(t - 2, *rest) for t, *rest in moves(tree(5, 3))] if move[0] >= 0]
    assert ALGORITHMS["ps"].collectives == ["all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce"]
    assert ALGORITHMS["tree"].collectives == ["all-reduce", "broadcast", "reduce"]
    assert ALGORITHMS["recursive-doubling"].collectives == ["all-reduce"]


def test_a_count_by_hand() -> None:
    """A chain of three ranks and 12 bytes: 1 and 2 send all they have up, and get it again; 0 and 1 are one group."""
    found = count(tree(3, 1), 12.0, np.array([7, 7, 9]))
    assert (found.rounds, found.transfers, found.bytes_on_wire) == (4, 4, 48.0)
    assert found.sent_bytes.tolist() == [12.0, 24.0, 12.0]
    assert found.received_bytes.tolist() == [12.0, 24.0, 12.0]
    assert found.cross_group_bytes == 24.0
    reduction = count(push(4, colocated=False, servers=1), 12.0, np.array([0, 0, 1, 1]))
    assert reduction.sent_bytes.tolist() == [12.0, 12.0, 12.0, 0.0]
    assert reduction.received_bytes.tolist() == [0.0, 0.0, 0.0, 36.0]
    assert reduction.to_json() == {
        "schema": "plink.count/1",
        "rounds": 1,
        "transfers": 3,
        "bytes_on_wire": 36.0,
        "sent_bytes": [12.0, 12.0, 12.0, 0.0],
        "received_bytes": [0.0, 0.0, 0.0, 36.0],
        "cross_group_bytes": 24.0,
    }
    assert count(ring(3), 12.0).cross_group_bytes is None
    assert count(ring(3), 12.0, np.arange(3)).cross_group_bytes == 48.0
