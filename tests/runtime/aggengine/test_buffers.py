"""Merge buffers of a lane."""

import torch

from plink.runtime.aggengine.lane import ROOM_BYTES, Buffers


def test_they_are_used_again_where_they_are_large_enough() -> None:
    """Of the same type only; a smaller one makes way."""
    buffers, like = Buffers(), torch.empty(0)
    one = buffers.take(like, 100)
    buffers.give(one)
    assert len(buffers.take(torch.empty(0, dtype=torch.int32), 10)) == 10
    assert buffers.take(like, 50) is one
    buffers.give(one)
    assert len(buffers.take(like, 101)) == 101
    assert len(buffers.take(like, 7)) == 7


def test_no_more_are_kept_than_a_lane_needs() -> None:
    """A lane's room; two however large they are."""
    for each, most in ((ROOM_BYTES // 16, 4), (ROOM_BYTES, 2)):
        buffers, like = Buffers(), torch.empty(0)
        given = [torch.empty(each) for _ in range(6)]  # four bytes an element
        for one in given:
            buffers.give(one)
        again = [buffers.take(like, 1) for _ in given]
        assert sum(any(one is other for other in given) for one in again) == most
