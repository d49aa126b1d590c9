"""Memory of messages is used again, but never while a tensor refers to it."""

import gc

import torch

from plink.runtime.pipeline.transport import MIN_POOLED_BYTES, ReceiveBuffers

SHAPE = (MIN_POOLED_BYTES // 4, 2)


def test_memory_is_used_again() -> None:
    buffers = ReceiveBuffers()
    tensor = buffers.take(SHAPE, torch.float32)
    assert (tuple(tensor.shape), tensor.dtype) == (SHAPE, torch.float32)
    address = tensor.data_ptr()
    assert address % 64 == 0
    del tensor
    gc.collect()
    again = buffers.take((SHAPE[1], SHAPE[0]), torch.int32)
    assert again.data_ptr() == address
    assert again.is_contiguous()


def test_memory_of_a_view_is_in_use() -> None:
    buffers = ReceiveBuffers()
    tensor = buffers.take(SHAPE, torch.float32)
    view = tensor.detach()[1:]
    tensor.fill_(1.0)
    del tensor
    gc.collect()
    buffers.take(SHAPE, torch.float32).fill_(2.0)
    assert bool((view == 1.0).all())


def test_memory_saved_by_autograd_is_in_use() -> None:
    """Autograd saves what a layer got for its backward pass."""
    buffers = ReceiveBuffers()
    received = buffers.take(SHAPE, torch.float32)
    received.fill_(3.0)
    weight = torch.ones(SHAPE, requires_grad=True)
    output = (received.requires_grad_() * weight).sum()
    del received
    gc.collect()
    buffers.take(SHAPE, torch.float32).fill_(5.0)
    output.backward()
    assert weight.grad is not None
    assert bool((weight.grad == 3.0).all())


def test_memory_of_a_gradient_that_was_taken_over_is_in_use() -> None:
    """A leaf may take over a gradient without a copy."""
    buffers = ReceiveBuffers()
    leaf = torch.zeros(SHAPE, requires_grad=True)
    gradient = buffers.take(SHAPE, torch.float32)
    gradient.fill_(7.0)
    torch.autograd.backward([leaf.view_as(leaf)], [gradient])
    del gradient
    gc.collect()
    buffers.take(SHAPE, torch.float32).fill_(9.0)
    assert leaf.grad is not None
    assert bool((leaf.grad == 7.0).all())
