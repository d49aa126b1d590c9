"""The program's PyTorch model: its parameters as tables, and a copy of it for each thread that works with it.

Parameters of one type lie in one table, one after another, cut into rows. One table a type and not one a tensor: what
is read or added to is one large message a partition, and partitions are of one size however different the layers are.
Tied parameters are there once; those without ``requires_grad`` are not, they stay as the program makes them.
"""

import threading
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from plink.elastic.app_error import MISTAKES, AppError, app_error
from plink.elastic.tables import Table, Values
from plink.errors import InputError

_DTYPES = {torch.float32: "float32", torch.float64: "float64"}
_NARROWEST, _WIDEST, _ROWS = 16, 1024, 1024


@dataclass(frozen=True)
class Slot:
    """Position of one parameter: from number ``start`` on among those of its type."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    start: int

    @property
    def end(self) -> int:
        """Return the first number after it."""
        return self.start + int(np.prod(self.shape, dtype=np.int64))


def trained(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Return the parameters that training changes, by name, each once."""
    return ((name, each) for name, each in module.named_parameters() if each.requires_grad)


@dataclass(frozen=True)
class Slots:
    """Positions of all parameters of a module, in their order."""

    slots: tuple[Slot, ...]

    @classmethod
    def of(cls, module: nn.Module) -> "Slots":
        """Return the slots of a module's parameters.

        :raises InputError: it has no parameters to train, or some that tables cannot hold.
        """
        ends: dict[str, int] = {}
        result = []
        for name, parameter in trained(module):
            if is_lazy(parameter):
                raise InputError(
                    f"parameter {name!r}", "its shape is not known yet: run the lazy module once, or say it"
                )
            if parameter.dtype not in _DTYPES:
                raise InputError(f"parameter {name!r}", f"{parameter.dtype}, and tables hold float32 and float64")
            dtype = _DTYPES[parameter.dtype]
            slot = Slot(name, tuple(parameter.shape), dtype, ends.get(dtype, 0))
            result.append(slot)
            ends[dtype] = slot.end
        if not any(ends.values()):
            raise InputError("the module", "it has no parameters to train")
        return cls(tuple(result))

    def differ(self, other: "Slots") -> str:
        """Return the first difference to another module's parameters, in words; empty: there is none."""
        for own, peer in zip(self.slots, other.slots, strict=False):
            if own != peer:
                return (
                    f"parameter {peer.name!r} of shape {peer.shape} and type {peer.dtype}, "
                    f"not {own.name!r} of shape {own.shape} and type {own.dtype}"
                )
        own_count, peer_count = len(self.slots), len(other.slots)
        return "" if own_count == peer_count else f"{peer_count} parameters, not {own_count}"

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Return the types of numbers of the tables."""
        return tuple(sorted({slot.dtype for slot in self.slots if slot.end > slot.start}))

    def table(self, name: str, dtype: str) -> Table:
        """Return a table with room for all parameters of a type, ``name.dtype``; the end of the last row is not used.

        Rows are as wide as leaves a thousand of them, within bounds: partitions have whole rows, in turns.
        """
        numbers = max(slot.end for slot in self.slots if slot.dtype == dtype)
        width = min(max(1 << (max(numbers // _ROWS, 1).bit_length() - 1), _NARROWEST), _WIDEST)
        return Table(f"{name}.{dtype}", -(-numbers // width), width, dtype)

    def put(self, module: nn.Module, values: Mapping[str, Values]) -> None:
        """Copy tables, by type, of shape (rows, width), into the parameters of a module of the same shapes."""
        flat = {dtype: torch.from_numpy(each.reshape(-1)) for dtype, each in values.items()}
        with torch.no_grad():
            for slot, (_, parameter) in zip(self.slots, trained(module), strict=True):
                if slot.end > slot.start:
                    parameter.copy_(flat[slot.dtype][slot.start : slot.end].view(slot.shape))

    def flat(self, module: nn.Module) -> dict[str, Values]:
        """Return the parameters of a module as tables, by type."""
        values = self.empty()
        self.take((parameter for _, parameter in trained(module)), values)
        return values

    def take(self, tensors: Iterable[torch.Tensor | None], into: Mapping[str, Values]) -> None:
        """Copy tensors of the parameters' shapes, in their order, into tables; None: zeros."""
        flat = {dtype: torch.from_numpy(each.reshape(-1)) for dtype, each in into.items()}
        with torch.no_grad():
            for slot, tensor in zip(self.slots, tensors, strict=True):
                if slot.end > slot.start:
                    place = flat[slot.dtype][slot.start : slot.end]
                    if tensor is None:
                        place.zero_()
                    else:
                        place.view(slot.shape).copy_(tensor.to_dense() if tensor.is_sparse else tensor)

    def empty(self) -> dict[str, Values]:
        """Return zeros, shape (rows, width), by type."""
        tables = {dtype: self.table("", dtype) for dtype in self.dtypes}
        return {dtype: np.zeros((table.rows, table.width), dtype=dtype) for dtype, table in tables.items()}


def checksum(values: Mapping[str, Values]) -> int:
    """Return a 32-bit checksum of numbers."""
    result = 0
    for dtype in sorted(values):
        result = zlib.crc32(values[dtype].data.cast("B"), result)
    return result


# torch's random numbers come from one generator of the process, whatever the thread: who seeds it must have it alone.
_generator = threading.RLock()


@contextmanager
def seeded(seed: int, devices: Sequence[int] = ()) -> Iterator[None]:
    """Seed torch's generators in a context, and restore them afterwards: the CPU's and those of some CUDA devices."""
    with _generator, torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


@dataclass
class Replica:
    """Copy of the model that one thread works with; nothing of it counts between clocks. ``slopes``: room for
    gradients, as tables."""

    module: nn.Module
    slopes: dict[str, Values]
    initial: dict[str, Values] | None  # until training begins
    parameters: list[nn.Parameter] = field(init=False)
    devices: list[int] = field(init=False)
    _buffers: dict[str, torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.parameters = [parameter for _, parameter in trained(self.module)]
        self.devices = sorted({each.get_device() for each in self.module.parameters() if each.is_cuda})

        self._buffers = {name: _bytes(each).clone() for name, each in self.module.named_buffers()}

    def changed(self) -> str | None:
        """Return the name of a buffer that differs from when the model was made; by value, as BatchNorm's kernels count
        no version."""
        for name, buffer in self.module.named_buffers():
            if name not in self._buffers or not torch.equal(_bytes(buffer), self._buffers[name]):
                return name
        return None


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return bytes that are equal also where a tensor is NaN."""
    return tensor.detach().reshape(-1).view(torch.uint8)


class Models:
    """Models of all threads of a process; for any thread.

    :param location: the program's method, for messages.
    :param make: it.

    :raises AppError: it raised something, or gave what cannot be. :raises InputError: what tables cannot hold.
    """

    def __init__(self, location: str, make: Callable[[], object], seed: int) -> None:
        self._location, self._make, self._seed = location, make, seed
        self._parameters_in_use: list[weakref.ref[nn.Parameter]] = []
        self._mine = threading.local()
        first = self._made()
        try:
            self.slots = Slots.of(first)
        except InputError as error:
            raise InputError(location, str(error)) from error
        self._checksum = checksum(self.slots.flat(first))

    def new(self) -> nn.Module:
        """Return a new model, as the program begins with it."""
        made = self._made()
        unlike = self.slots.differ(Slots.of(made))
        if unlike:
            raise AppError(f"{self._location} gave another model than before, with {unlike}")
        if checksum(self.slots.flat(made)) != self._checksum:
            reason = "they must come from a file, or from torch's generator, which load() must not use"
            raise AppError(f"{self._location} gave parameters of other values than before: {reason}")
        return made

    def replica(self) -> Replica:
        """Return the replica of the calling thread."""
        result: Replica | None = getattr(self._mine, "replica", None)
        if result is None:
            made = self.new()
            result = self._mine.replica = Replica(made, self.slots.empty(), self.slots.flat(made))
        return result

    def initial(self) -> dict[str, Values]:
        """Return the parameters before training, as tables."""
        replica = self.replica()
        if replica.initial is None:  # training is back where it began
            replica.initial = self.slots.flat(self.new())
        return replica.initial

    def _made(self) -> nn.Module:
        with seeded(self._seed):
            try:
                made = self._make()
            except MISTAKES as error:
                raise app_error(self._location, error) from error
            if not isinstance(made, nn.Module):
                raise AppError(f"{self._location} gave {type(made).__name__}, which must be a torch.nn.Module")
            self._parameters_in_use = [reference for reference in self._parameters_in_use if reference() is not None]
            others = {id(reference()) for reference in self._parameters_in_use}
            if any(id(parameter) in others for _, parameter in trained(made)):
                raise AppError(f"{self._location} gave the same parameters again: it must make new ones at every call")
            self._parameters_in_use += [weakref.ref(parameter) for _, parameter in trained(made)]
            return made
