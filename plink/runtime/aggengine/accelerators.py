"""Tensors on GPUs: who serves them, and from which size on they are aggregated by a schedule all the same.

NCCL serves them, or Gloo. Where PLINK_STAGED is set (to anything, for rank 0), all-reduces go by schedules too, through
the hosts' memory (:mod:`staging`), from the size on from which that was measured to be faster.
"""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from plink.runtime import torch_backend
from plink.runtime.aggengine.aside import all_reduce
from plink.runtime.aggengine.crossover import AllReduce, Waits, measure


def staging_asked_for() -> bool:
    """Whether this process was told to have tensors on GPUs aggregated by schedules; rank 0's counts."""
    return bool(os.environ.get(torch_backend.STAGED))


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

    def staged_from(
        self, device: torch.device, on_host: int, engine: AllReduce, has_schedule: Callable[[int], bool], repeats: int
    ) -> int:
        """From which size on tensors there go by schedules, bytes: measured where NCCL would do them otherwise, which
        all ranks do at once. ``on_host``: that size for tensors in the host's memory, which holds where Gloo would do
        them, for it copies them there as well; and 0 on devices that nothing serves."""
        if device.type != "cuda" or self.group is None:
            return 0
        if not self.by_nccl:
            return on_host

        def natively(data: torch.Tensor, op: Any) -> Waits:
            return _Settled(all_reduce(self.group, data, op), device)

        return measure(engine, self._on_host, has_schedule, repeats, other=natively, device=device)

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
    if torch_backend.asked_for_gloo or not dist.is_nccl_available():
        return dist.ProcessGroup.BackendType.GLOO, gloo
    nccl: Any = dist.ProcessGroupNCCL
    options = nccl.Options()
    options._timeout = timeout
    group = nccl(PrefixStore("nccl/", store), rank, size, options)
    group._set_sequence_number_for_group()
    return dist.ProcessGroup.BackendType.NCCL, group
