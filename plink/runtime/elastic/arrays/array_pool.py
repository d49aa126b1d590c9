"""Arrays whose memory is used again.

The cost of a fresh page depends on the machine: on a virtual one 16 MB took 38 ms to touch for the first time and 2 ms
ever after, which is several times the time to send them. The C library gives large blocks back to the system as
soon as they are free; here the last ones are kept for the next arrays of their size.
"""

import threading
from collections import OrderedDict

import numpy as np
import numpy.typing as npt

from plink.elastic.tables import Values
from plink.runtime.elastic.arrays.layout import Places

_MIN_POOLED_BYTES = 1 << 16  # below this the C library keeps them itself
MAX_POOLED_BYTES = 1 << 28
_Block = npt.NDArray[np.uint8]


class _Lease:
    """Reference that an array and all its views hold; when the last of them is gone, the block is free."""

    def __init__(self, block: _Block) -> None:
        self._block = block
        self.__array_interface__ = block.__array_interface__

    def __del__(self) -> None:
        _free.put(self._block)


class _Free:
    """Pool of free blocks by size; those of the sizes that were requested longest ago are dropped first."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[int, list[_Block]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.RLock()  # a lease may end within, in the same thread, when garbage is collected

    def take(self, size: int) -> _Block:
        with self._lock:
            blocks = self._blocks.setdefault(size, [])
            self._blocks.move_to_end(size)
            if blocks:
                self._bytes -= size
                return blocks.pop()
        return np.empty(size, dtype=np.uint8)

    def put(self, block: _Block) -> None:
        with self._lock:
            self._blocks.setdefault(block.nbytes, []).append(block)
            self._bytes += block.nbytes
            while self._bytes > MAX_POOLED_BYTES:
                size, blocks = next(iter(self._blocks.items()))
                if blocks:
                    self._bytes -= blocks.pop().nbytes
                else:
                    del self._blocks[size]


_free = _Free()


def empty(rows: int, width: int, dtype: str | np.dtype[np.generic]) -> Values:
    """Return an array of shape (rows, width) with undefined values."""
    size = rows * width * np.dtype(dtype).itemsize
    if size < _MIN_POOLED_BYTES:
        return np.empty((rows, width), dtype=dtype)
    return np.asarray(_Lease(_free.take(size))).view(dtype).reshape(rows, width)


def copied(values: Values, places: Places, count: int) -> Values:
    """Return a copy of some rows of an array, shape (count, width)."""
    result = empty(count, values.shape[1], values.dtype)
    if isinstance(places, slice):
        result[:] = values[places]
    else:
        # "clip" does not clip, for they are in range: without it numpy fills a buffer of its own first.
        np.take(values, places, axis=0, out=result, mode="clip")
    return result
