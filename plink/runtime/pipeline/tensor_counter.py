"""Bytes of tensors that are alive, and the most there were: of the CPU's by watching operations, of a GPU's by its
allocator, which also sees what libraries use inside of an operation."""

import contextlib
import weakref
from collections import Counter
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


def storages_of(tensor: Tensor) -> list[torch.UntypedStorage]:
    """Return the memory of a tensor: of a sparse one, that of its indices and values; none of what has no address, like
    a tensor of oneDNN's own layout."""
    parts = [tensor]
    if tensor.layout == torch.sparse_coo:
        parts = [tensor._indices(), tensor._values()]
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    storages = []
    for part in parts:
        with contextlib.suppress(NotImplementedError, RuntimeError):
            storage = part.untyped_storage()
            storage.data_ptr()
            storages.append(storage)
    return storages


class TensorCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """``current`` and ``most``: bytes of storages that are alive, and the most since :meth:`restart`.

    Memory counts once, however many storages share it, from the first operation that makes or reads it until nothing
    refers to it any more.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.current = self.most = 0
        self._storages: set[int] = set()
        self._sharing: Counter[int] = Counter()  # storages by the address of their memory

    def restart(self) -> None:
        """Forget what was most."""
        self.most = self.current

    def _see(self, tensor: Tensor) -> None:
        for storage in storages_of(tensor):
            key, size, address = storage._cdata, storage.nbytes(), storage.data_ptr()
            if key in self._storages or not size:
                continue
            self._storages.add(key)
            weakref.finalize(storage, self._gone, key, address, size)
            self._sharing[address] += 1
            if self._sharing[address] == 1:
                self.current += size
                self.most = max(self.most, self.current)

    def _gone(self, key: int, address: int, size: int) -> None:
        self._storages.discard(key)
        self._sharing[address] -= 1
        if not self._sharing[address]:
            del self._sharing[address]
            self.current -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in tree_iter((args, kwargs, result)):
            if isinstance(value, Tensor):
                self._see(value)
        return result


class AllocatorCounter:
    """The same of a GPU, by its allocator."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @property
    def current(self) -> int:
        """Bytes that tensors have now."""
        return torch.cuda.memory_allocated(self._device)

    @property
    def most(self) -> int:
        """The most since :meth:`restart`."""
        return torch.cuda.max_memory_allocated(self._device)

    def restart(self) -> None:
        """Forget what was most."""
        torch.cuda.reset_peak_memory_stats(self._device)

    def __enter__(self) -> "AllocatorCounter":
        """Do nothing: the allocator always counts."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing."""


def counter_of(device: torch.device) -> TensorCounter | AllocatorCounter:
    """Return a counter, which counts from when it is entered."""
    return AllocatorCounter(device) if device.type == "cuda" else TensorCounter()
