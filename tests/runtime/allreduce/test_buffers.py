"""Merge buffers of a lane."""

import torch

from plink.runtime.allreduce.channel import MergeBuffers


def test_large_enough_buffers_are_reused() -> None:
    """Of the same type only; a smaller one makes way."""
    buffers, like = MergeBuffers(), torch.empty(0)
    buffer = buffers.take(like, 100)
    buffers.give(buffer)
    assert len(buffers.take(torch.empty(0, dtype=torch.int32), 10)) == 10
    assert buffers.take(like, 50) is buffer
    buffers.give(buffer)
    assert len(buffers.take(like, 101)) == 101
    assert len(buffers.take(like, 7)) == 7
