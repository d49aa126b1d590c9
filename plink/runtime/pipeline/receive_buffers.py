"""Memory for messages, used again when nobody refers to it any more.

The kernel hands out large pieces of new memory page by page, as they are first written: for 16 MB that takes about as
long as Gloo takes to send them on a fast link. What was received may live on, as a gradient or in a graph that a
program keeps, so its memory is free only when the last tensor that shares it is gone. Python's reference counts say so:
each tensor is made of an array, which its storage holds.
"""

import math
import weakref
from collections import deque

import torch
from torch import Tensor

MIN_POOLED_BYTES = 1 << 17
"""Below it malloc uses memory again by itself (glibc, M_MMAP_THRESHOLD)."""
_MAX_FREE = 8  # buffers of one size


class ReceiveBuffers:
    """Buffers in host memory, by their size."""

    def __init__(self) -> None:
        self._free: dict[int, deque[Tensor]] = {}

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return a tensor with any values, that shares no memory with any other tensor in use."""
        count = math.prod(shape)
        size = count * dtype.itemsize
        if size < MIN_POOLED_BYTES:
            return torch.empty(shape, dtype=dtype)
        free = self._free.setdefault(size, deque(maxlen=_MAX_FREE))
        try:
            memory = free.pop()
        except IndexError:
            memory = torch.empty(size, dtype=torch.uint8)
        array = memory.numpy()
        weakref.finalize(array, free.append, memory)
        return torch.from_numpy(array).view(dtype).view(shape)
