"""Tensors on GPUs: who serves them, and from which size on they are aggregated by a schedule all the same.

NCCL serves them, or Gloo. Where PLINK_STAGED is set (to anything, on every rank), all-reduces go by schedules too,
through the hosts' memory (:mod:`staging`), of the sizes at which that was measured to be faster.
"""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from plink.runtime import asked
from plink.runtime.aggengine.aside import all_reduce
from plink.runtime.aggengine.crossover import AllReduce, Rivals, Sizes, Waits, measured_sizes


def staging_asked_for() -> bool:
    """Whether this process was told to have tensors on GPUs aggregated by schedules; for a group rank 0's counts."""
    return bool(os.environ.get(asked.STAGED))


class Accelerators:
    """``group``: what serves tensors on GPUs, ``kind``: which it is: NCCL, which connects when the first of them comes;
    Gloo where torch has no NCCL or the script asked for Gloo, which does them too; None without a GPU."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta, gloo: Any) -> None:
        self.kind, self.group = _serving(store, rank, size, timeout, gloo)
        self._gloo = gloo

    @property
    def by_nccl(self) -> bool:
        """Whether it is a group of its own."""
        return self.group is not None and self.group is not self._gloo

    def staged_sizes(
        self,
        device: torch.device,
        on_host: Sizes,
        engine: AllReduce,
        has_schedule: Callable[[int], bool],
        repeats: int,
        short_bytes: int | None,
    ) -> Sizes:
        """Which sizes of tensors there go by schedules: measured where NCCL would do them otherwise, which all ranks do
        at once. ``on_host``: those of tensors in the host's memory, which hold where Gloo would do them, for it copies
        them there as well; on devices that nothing serves it is all."""
        if device.type != "cuda" or self.group is None:
            return Sizes(0)
        if not self.by_nccl:
            return on_host

        def natively(data: torch.Tensor, op: Any) -> Waits:
            return _Settled(all_reduce(self.group, data, op), device)

        rivals = Rivals(engine, self._on_host, has_schedule, natively, device)
        return measured_sizes(rivals, repeats, short_bytes)

    def _on_host(self, data: torch.Tensor, op: Any) -> Waits:
        return all_reduce(self._gloo, data, op)

    def shutdown(self) -> None:
        """End what is its own."""
        if self.by_nccl:
            self.group.shutdown()


class _Settled:
    """NCCL's are over for the program when they are queued."""

    def __init__(self, work: Waits, device: torch.device) -> None:
        self._work, self._device = work, device

    def wait(self) -> None:
        """Until the GPU is through."""
        self._work.wait()
        torch.cuda.synchronize(self._device)


def _serving(store: Store, rank: int, size: int, timeout: timedelta, gloo: Any) -> tuple[Any, Any]:
    if not torch.cuda.is_available():
        return None, None
    if asked.for_gloo or not dist.is_nccl_available():
        return dist.ProcessGroup.BackendType.GLOO, gloo
    nccl: Any = dist.ProcessGroupNCCL
    options = nccl.Options()
    options._timeout = timeout
    group = nccl(PrefixStore("nccl/", store), rank, size, options)
    group._set_sequence_number_for_group()
    return dist.ProcessGroup.BackendType.NCCL, group
