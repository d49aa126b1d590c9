"""Parts of a mini-batch of tensors: cut along the first dimension, whatever holds them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from plink.errors import InputError


def rows_of(items: object) -> int:
    """Return the number of rows of a mini-batch's first tensor.

    :raises InputError: it does not begin with one.
    """
    first: object = items
    while isinstance(first, Mapping | list | tuple) and first:
        first = next(iter(first.values() if isinstance(first, Mapping) else first))
    if not isinstance(first, torch.Tensor | np.ndarray) or not first.ndim:
        raise InputError("a mini-batch", f"{type(items).__name__}, which does not begin with a tensor of items")
    return len(first)


def micro_batch(items: Any, number: int, parts: int) -> Any:
    """Return part ``number`` of a mini-batch. Parts differ in size by one row at most. They are views of those tensors
    that have as many rows as the first, and whatever else there is.

    :raises InputError: as :func:`rows_of`.
    """
    rows = rows_of(items)
    return _sliced(items, rows, slice(rows * number // parts, rows * (number + 1) // parts))


def _sliced(items: Any, rows: int, part: slice) -> Any:
    if isinstance(items, torch.Tensor | np.ndarray):
        return items[part] if items.ndim and len(items) == rows else items
    if isinstance(items, Mapping):
        return {key: _sliced(value, rows, part) for key, value in items.items()}
    if isinstance(items, tuple) and hasattr(items, "_fields"):
        return type(items)(*(_sliced(value, rows, part) for value in items))
    if isinstance(items, list | tuple):
        return type(items)(_sliced(value, rows, part) for value in items)
    return items
