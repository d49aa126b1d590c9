"""Secondary Gloo process group beside the engine's connections, with its ranks possibly in another order.

Gloo's ring visits its ranks in their order, so a bad order crosses the same links many times; the sum is the same in
any order. The group is separate because all-reduces of a group are matched by the order of calls: the engine's are in
the engine's order, those of scripts and of other collectives in another.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]

from plink.runtime.allreduce.transport import abort_connections, gloo_devices

_THREADS = 2  # as torch has for a device


class SecondaryGroup:
    """All-reduces by Gloo among the same ranks."""

    def __init__(self, store: Store, rank: int, order: Sequence[int], timeout: timedelta) -> None:
        """:param order: all ranks, in the order in which Gloo's ring visits them."""
        self._rank, self._size = list(order).index(rank), len(order)
        options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices, options._threads, options._timeout = gloo_devices(1), _THREADS, timeout
        self._group: Any = dist.ProcessGroupGloo(store, self._rank, self._size, options)

    def all_reduce(self, tensor: torch.Tensor, op: Any) -> dist.Work:
        """Begin an all-reduce in place."""
        return all_reduce(self._group, tensor, op)

    def close(self) -> None:
        """Abort everything in progress, here and on the peers, which lose their connections."""
        abort_connections(self._group, [peer for peer in range(self._size) if peer != self._rank], 0)

    def shutdown(self) -> None:
        """Shut the group down."""
        self._group.shutdown()


def all_reduce(gloo: Any, tensor: torch.Tensor, op: Any) -> dist.Work:
    """Begin an all-reduce by any Gloo group."""
    opts = dist.AllreduceOptions()
    opts.reduceOp = op
    work: dist.Work = gloo.allreduce([tensor], opts)
    return work


def differs_from_rank_order(order: Sequence[int]) -> bool:
    """Return whether a ring in that order has other neighbours than one in rank order."""
    size = len(order)
    steps = {(after - before) % size for before, after in zip(order, [*order[1:], *order[:1]], strict=True)}
    return not (steps <= {1} or steps <= {size - 1})
