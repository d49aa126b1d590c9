"""How the parameters of a PyTorch module lie in tables: those of one type after one another, cut into rows.

One table a type and not one a tensor: what is read or added to is one large message a partition, and partitions are of
one size however different the layers are. Tied parameters are there once; those without ``requires_grad`` are not, they
stay as the program makes them.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

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
