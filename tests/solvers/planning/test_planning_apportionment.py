"""Chunks in proportion to weights: whole numbers, within one of every share, a part within the whole."""

from fractions import Fraction
from math import ceil, floor

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from solvers.schedules.masters import apportioned, nested

WEIGHTS = st.lists(st.integers(1, 1000), min_size=1, max_size=12)
CALM = settings(max_examples=100, deadline=None)


def shares(chunks: int, weights: list[int]) -> list[Fraction]:
    """What is due to each, exactly."""
    return [Fraction(chunks * weight, sum(weights)) for weight in weights]


def within_one(counts: list[int], due: list[Fraction]) -> bool:
    """Whether every count is its share rounded down or up."""
    return all(floor(share) <= count <= ceil(share) for count, share in zip(counts, due, strict=True))


@CALM
@given(st.integers(1, 5000), WEIGHTS)
def test_shares_are_rounded_down_or_up(chunks: int, weights: list[int]) -> None:
    """And nobody with a smaller remainder is rounded up before another."""
    counts, due = apportioned(chunks, np.array(weights, dtype=np.float64)).tolist(), shares(chunks, weights)
    assert sum(counts) == chunks
    assert within_one(counts, due)
    up = [share - floor(share) for count, share in zip(counts, due, strict=True) if count > floor(share)]
    down = [share - floor(share) for count, share in zip(counts, due, strict=True) if count == floor(share)]
    assert min(up, default=Fraction(1)) >= max(down, default=Fraction(0))


@CALM
@given(st.integers(0, 3000), st.integers(1, 3000), WEIGHTS)
# Shares of 0.4 and 0.55 of four, beside three of 0.6 that begin anew: rounding each by itself would not do.
@example(10, 13, [8, 8, 8, 8, 16, 16, 16])
@example(3, 4, [1, 1, 1, 1, 6])
def test_a_part_is_within_one_and_within_the_whole(part: int, more: int, weights: list[int]) -> None:
    chunks = part + more
    inside, all_ = (counts.tolist() for counts in nested(part, chunks, np.array(weights, dtype=np.float64)))
    assert (sum(inside), sum(all_)) == (part, chunks)
    assert within_one(inside, shares(part, weights))
    assert within_one(all_, shares(chunks, weights))
    assert all(item <= other for item, other in zip(inside, all_, strict=True))
