"""Trees: heaps, those of NCCL and of the thesis."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.errors import UsageError
from solvers.schedules.catalogue import Options, schedule_for
from solvers.schedules.trees import (
    bitwise_parents,
    double_binary_tree,
    heap_parents,
    heights,
    midpoint_parents,
    nccl_tree,
    shifted,
)
from solvers.schedules.verifier import verify
from tests.solvers.requests import RANKS
from tests.solvers.schedules.transfers import sent


def test_the_heap() -> None:
    assert heap_parents(8, 3).tolist() == [-1, 0, 0, 0, 1, 1, 1, 2]
    assert heights(heap_parents(8, 3)).tolist() == [2, 1, 1, 0, 0, 0, 0, 0]
    assert heap_parents(4, 1).tolist() == [-1, 0, 1, 2]
    with pytest.raises(UsageError, match="fan-out of one or more"):
        schedule_for("tree", 4, Options(fan_out=0))


@given(RANKS, st.integers(2, 6))
def test_a_tree_takes_twice_its_height(ranks: int, fan_out: int) -> None:
    levels = math.ceil(round(math.log(ranks * (fan_out - 1) + 1, fan_out), 9)) - 1
    schedule = schedule_for("tree", ranks, Options(fan_out=fan_out))
    assert schedule.rounds == 2 * levels
    assert sum(sent(schedule)) == 2 * (ranks - 1)
    assert np.bincount(schedule.target[~schedule.copies]).max() <= fan_out


@pytest.mark.parametrize(
    ("ranks", "first", "second"),
    [
        (4, [-1, 2, 0, 2], [1, 3, 1, -1]),
        (5, [-1, 2, 4, 2, 0], [1, -1, 3, 0, 3]),
        (8, [-1, 2, 4, 2, 0, 6, 4, 6], [1, 3, 1, 7, 5, 3, 5, -1]),
        # The pictures in trees.cc, of 14 ranks, and of 12 and 13 for the second tree.
        (14, [-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8, 12], None),
        (12, None, [1, 3, 1, 11, 5, 7, 5, 3, 9, 7, 9, -1]),
        (13, None, [9, -1, 3, 5, 3, 9, 7, 5, 7, 1, 11, 0, 11]),
    ],
)
def test_the_trees_of_nccl(ranks: int, first: list[int] | None, second: list[int] | None) -> None:
    schedule = nccl_tree(ranks)
    for chunk, parents in ((0, first), (1, second)):
        up = ~schedule.copies & (schedule.first == chunk)
        result = dict(zip(schedule.source[up].tolist(), schedule.target[up].tolist(), strict=True))
        if parents is not None:
            assert [result.get(rank, -1) for rank in range(ranks)] == parents


@given(RANKS, st.integers(1, 5), st.sampled_from(["tree", "double-binary-tree", "nccl-tree"]))
def test_segmented_trees_reduce_and_move_as_much(ranks: int, segments: int, algo: str) -> None:
    whole, cut = schedule_for(algo, ranks), schedule_for(algo, ranks, Options(segments=segments))
    assert verify(cut) == []
    assert cut.chunks == whole.chunks * segments
    assert len(cut) == len(whole) * segments
    assert cut.rounds == whole.rounds + segments - 1


@given(RANKS)
def test_nobody_has_more_than_two_children_in_any_tree(ranks: int) -> None:
    for parents in (midpoint_parents(ranks), bitwise_parents(ranks)):
        assert np.count_nonzero(parents < 0) == 1
        assert np.bincount(parents[parents >= 0]).max() <= 2
        assert heights(parents).max() <= math.ceil(math.log2(ranks))


@given(st.integers(1, 7).map(lambda k: 2**k - 1).filter(lambda n: n > 1))
def test_inner_nodes_of_one_tree_are_leaves_of_the_other(ranks: int) -> None:
    first = midpoint_parents(ranks)
    inner = [set(parents.tolist()) - {-1} for parents in (first, shifted(first, -1))]
    assert not inner[0] & inner[1]


def test_the_trees_of_the_thesis() -> None:
    """Eight ranks: 3 above 1 and 5, and the second tree one rank lower everywhere."""
    first = midpoint_parents(8)
    assert first.tolist() == [1, 3, 1, -1, 5, 3, 5, 6]
    assert shifted(first, -1).tolist() == [2, 0, -1, 4, 2, 4, 5, 0]
    schedule = double_binary_tree(8)
    assert (schedule.chunks, schedule.rounds) == (2, 6)
    assert sum(sent(schedule)) == 2 * 7
