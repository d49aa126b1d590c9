"""A Gloo group beside the engine's connections, for what Gloo does sooner; its ranks may stand in another order.

Gloo's ring goes round its ranks, so a bad order crosses the same links many times; a sum is the same whoever is which
rank. A group of its own in any case: which of a group's all-reduces is which follows from the order of calls, and the
engine's are in the engine's order, those of scripts and of other collectives in another.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]

from plink.runtime.aggengine.transport import cut_off, devices

_THREADS = 2  # as torch has for a device


class Aside:
    """All-reduces by Gloo of the same ranks."""

    def __init__(self, store: Store, rank: int, order: Sequence[int], timeout: timedelta) -> None:
        """:param order: all ranks, in the sequence in which Gloo's ring goes round them."""
        self._rank, self._size = list(order).index(rank), len(order)
        options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices, options._threads, options._timeout = devices(1), _THREADS, timeout
        self._group: Any = dist.ProcessGroupGloo(store, self._rank, self._size, options)

    def all_reduce(self, tensor: torch.Tensor, op: Any) -> dist.Work:
        """Begin one, in place."""
        return all_reduce(self._group, tensor, op)

    def close(self) -> None:
        """End all that is under way, here and for the peers, which lose connections."""
        cut_off(self._group, [peer for peer in range(self._size) if peer != self._rank], 0)

    def shutdown(self) -> None:
        """It is not needed any more."""
        self._group.shutdown()


def all_reduce(gloo: Any, tensor: torch.Tensor, op: Any) -> dist.Work:
    """Begin one by any Gloo group."""
    opts = dist.AllreduceOptions()
    opts.reduceOp = op
    work: dist.Work = gloo.allreduce([tensor], opts)
    return work


def another_ring(order: Sequence[int]) -> bool:
    """Whether a ring in that order has other neighbours than one in the ranks' own."""
    size = len(order)
    steps = {(after - before) % size for before, after in zip(order, [*order[1:], *order[:1]], strict=True)}
    return not (steps <= {1} or steps <= {size - 1})
