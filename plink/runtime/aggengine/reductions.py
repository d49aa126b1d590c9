"""What can be reduced: operations and types."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed import ReduceOp

Combine = Callable[[torch.Tensor, torch.Tensor], object]


@dataclass(frozen=True)
class Reduction:
    """``combine(cell, received)`` adds into the first; ``finish(cell, ranks)`` makes the result of what all ranks gave,
    None where that is it. ``kind``: what Gloo would be asked for before that."""

    name: str
    combine: Combine
    kind: Any
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


GLOO_SUMS = DTYPES - {torch.int16}  # an error there, as seen with torch 2.13


def reduction_for(op: ReduceOp, dtype: torch.dtype) -> Reduction | None:
    """The reduction, None where it is not one of ours (then Gloo or NCCL does it, or says why not)."""
    if dtype not in DTYPES:
        return None
    kind = getattr(op, "op", op)  # a ReduceOp, or one of the names that torch keeps for old scripts
    return _REDUCTIONS.get(kind)  # type: ignore[arg-type]


def only_ours(op: ReduceOp, dtype: torch.dtype) -> bool:
    """Whether Gloo cannot do it."""
    kind = getattr(op, "op", op)
    return dtype not in GLOO_SUMS or (kind == ReduceOp.AVG and not dtype.is_floating_point)
