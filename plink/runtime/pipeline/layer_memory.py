"""Memory of a layer that is profiled: what autograd keeps for its backward pass, and what that pass holds besides."""

import contextlib
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
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


@dataclass
class LayerMemory:
    """Bytes of one layer, as in :class:`plink.model.pipeline.profile.LayerProfile`."""

    saved: int = 0
    saved_before: int = 0
    saved_input: int = 0
    saved_output: int = 0
    aliases_input: bool = False
    backward: int = 0

    @contextmanager
    def counting(self, module: nn.Module, device: torch.device) -> Iterator["LayerPasses"]:
        """Count during both passes."""
        parameters = set().union(*(_places(parameter) for parameter in module.parameters()))
        counter = counter_of(device)
        passes = LayerPasses(self, counter)

        def keep(tensor: Tensor) -> Tensor:
            for storage in storages_of(tensor):
                # Autograd keeps views of parameters, too.
                if storage.data_ptr() not in parameters and not isinstance(tensor, nn.Parameter):
                    passes.storages[storage.data_ptr()] = storage.nbytes()
            return tensor

        with counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            yield passes
            self.backward = 0 if passes.before is None else max(0, counter.most - passes.before)


@dataclass
class LayerPasses:
    """A forward and a backward pass. ``storages``: bytes of what autograd keeps, by address. ``before``: bytes that
    were there before the backward pass; None where there is none."""

    _memory: LayerMemory
    _counter: TensorCounter | AllocatorCounter
    storages: dict[int, int] = field(default_factory=dict)
    before: int | None = None

    def after_forward(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], are_saved: Sequence[bool]
    ) -> list[bool]:
        """Say how much of it is input or output. ``are_saved``: which inputs layers before keep; return the same of
        the outputs, for the next layer."""
        memory, saved = self._memory, self.storages
        places = {place: before for tensor, before in zip(inputs, are_saved, strict=True) for place in _places(tensor)}
        memory.saved = sum(saved.values())
        memory.saved_input = sum(saved.get(place, 0) for place in places)
        memory.saved_before = sum(saved.get(place, 0) for place, before in places.items() if before)
        memory.aliases_input = any(_places(tensor) & places.keys() for tensor in outputs)
        outputs_saved = [
            any(place in saved or places.get(place, False) for place in _places(tensor)) for tensor in outputs
        ]
        memory.saved_output = sum(
            tensor.nbytes for tensor, is_saved in zip(outputs, outputs_saved, strict=True) if is_saved
        )
        return outputs_saved

    def before_backward(self) -> None:
        """Begin to count the backward pass."""
        self._counter.restart()
        self.before = self._counter.current


def _places(tensor: Tensor) -> set[int]:
    """Return the addresses of a tensor's memory."""
    return {storage.data_ptr() for storage in storages_of(tensor)}
