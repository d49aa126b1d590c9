"""Supported reductions: operations and types."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed import ReduceOp

Combine = Callable[[torch.Tensor, torch.Tensor], object]


@dataclass(frozen=True)
class Reduction:
    """Reduction operation: ``combine(cell, received)`` adds into the first argument.

    ``finish(cell, ranks)`` makes the result of the combined values, None where they are the result. ``gloo_op``: Gloo's
    operation for the same, without ``finish``.
    """

    name: str
    combine: Combine
    gloo_op: Any
    finish: Callable[[torch.Tensor, int], object] | None = None


def _divide(cell: torch.Tensor, ranks: int) -> object:
    return cell.div_(ranks) if cell.is_floating_point() else cell.div_(ranks, rounding_mode="trunc")


_REDUCTIONS = {
    ReduceOp.SUM: Reduction("sum", lambda cell, got: cell.add_(got), ReduceOp.SUM),
    ReduceOp.AVG: Reduction("avg", lambda cell, got: cell.add_(got), ReduceOp.SUM, _divide),
    ReduceOp.PRODUCT: Reduction("product", lambda cell, got: cell.mul_(got), ReduceOp.PRODUCT),
    ReduceOp.MIN: Reduction("min", lambda cell, got: torch.minimum(cell, got, out=cell), ReduceOp.MIN),
    ReduceOp.MAX: Reduction("max", lambda cell, got: torch.maximum(cell, got, out=cell), ReduceOp.MAX),
}

DTYPES = frozenset(
    {
        *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
        *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    }
)


GLOO_SUM_DTYPES = DTYPES - {torch.int16}  # which Gloo refuses (torch 2.13)


def reduction_for(op: ReduceOp, dtype: torch.dtype) -> Reduction | None:
    """Return the reduction, None where the engine has none (then Gloo or NCCL does it, or refuses)."""
    if dtype not in DTYPES:
        return None
    gloo_op = getattr(op, "op", op)  # a ReduceOp, or one of the names that torch keeps for old scripts
    return _REDUCTIONS.get(gloo_op)  # type: ignore[arg-type]


def needs_engine(op: ReduceOp, tensor: torch.Tensor) -> bool:
    """Return whether the engine has the reduction of a dense tensor in host memory, and Gloo does not."""
    gloo_op, dtype = getattr(op, "op", op), tensor.dtype
    lacking = dtype not in GLOO_SUM_DTYPES or (gloo_op == ReduceOp.AVG and not dtype.is_floating_point)
    return lacking and tensor.is_cpu and tensor.layout is torch.strided and reduction_for(op, dtype) is not None
