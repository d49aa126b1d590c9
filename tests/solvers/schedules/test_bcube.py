"""BCube and BML (multi-port) schedules."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.schedules.bcube import bml_reduce_scatter
from solvers.schedules.catalogue import Options, schedule_for
from tests.solvers.schedules.transfers import moves, sent


@given(st.sampled_from([(2, 1), (2, 5), (3, 3), (4, 2), (6, 2), (40, 1)]))
def test_bcube_sends_the_thesis_s_parts(shape: tuple[int, int]) -> None:
    """Round i: S / B^(i+1) to each of the B - 1 ranks at a distance of multiples of B^i."""
    base, levels = shape
    ranks = base**levels
    schedule = schedule_for("bcube", ranks, Options(base=base))
    assert schedule.rounds == 2 * levels
    assert sent(schedule) == pytest.approx([2 * (ranks - 1) / ranks] * ranks)
    for t, a, b, _, count, copies in moves(schedule):
        i = 2 * levels - 1 - t if copies else t
        assert count == ranks // base ** (i + 1)
        assert abs(a - b) % base**i == 0
        assert a // base ** (i + 1) == b // base ** (i + 1)


def test_bml_on_bcube_3_2_is_the_example_of_the_paper() -> None:
    """18 pieces; each interface sends 6, 2, 2 and 6 of them, and thread 0 begins on level 0, thread 1 on level 1."""
    schedule = schedule_for("bml", 9, Options(base=3))
    assert (schedule.chunks, schedule.rounds) == (18, 4)
    used: Counter[tuple[int, int, int]] = Counter()
    for t, a, b, first, count, _ in moves(schedule):
        level = 0 if a // 3 == b // 3 else 1
        thread = 0 if first + count <= 9 else 1
        assert level == (thread + (t if t < 2 else 3 - t)) % 2
        used[t, a, level] += count
    assert used == {(t, a, level): (6, 2, 2, 6)[t] for t in range(4) for a in range(9) for level in range(2)}


@given(st.sampled_from([(2, 1), (2, 2), (2, 4), (2, 5), (3, 2), (3, 3), (5, 2)]))
def test_every_interface_of_bml_is_busy_for_2_n_minus_1_over_kn(shape: tuple[int, int]) -> None:
    base, levels = shape
    ranks = base**levels
    schedule = schedule_for("bml", ranks, Options(base=base))
    busy: Counter[tuple[int, int]] = Counter()
    for _, a, b, _, count, _ in moves(schedule):
        level = next(i for i in range(levels) if a // base**i % base != b // base**i % base)
        busy[a, level] += count
    assert set(busy.values()) == {2 * (ranks - 1)}  # of kN pieces
    assert len(busy) == ranks * levels


def test_bml_leaves_every_rank_one_chunk_of_each_thread() -> None:
    owners = bml_reduce_scatter(27, 3).owners
    assert owners is not None
    for thread in range(3):
        assert sorted(owners[27 * thread : 27 * thread + 27].tolist()) == list(range(27))
