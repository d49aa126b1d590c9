"""Delegation of all-reduces of tensors on GPUs to NCCL or Gloo, and the sizes for which schedules are faster.

Where PLINK_STAGED is set (to anything, on every rank), all-reduces use schedules too, staged through the hosts' memory
(:mod:`host_staging`), for the sizes at which that was measured to be faster.
"""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from plink.runtime import requested_backend
from plink.runtime.allreduce.algorithm_selection import AllReduce, Candidates, SizeRange, Waitable, measure_size_range
from plink.runtime.allreduce.secondary_group import all_reduce


def staging_requested() -> bool:
    """Return whether all-reduces of tensors on GPUs are to use schedules; rank 0's answer counts for a group."""
    return bool(os.environ.get(requested_backend.STAGED))


class CudaDelegate:
    """Process group that serves tensors on GPUs, as ``group``, and its type, as ``kind``.

    NCCL connects when the first of them comes. Gloo serves them where torch has no NCCL or the script requested Gloo.
    Both are None without a GPU.
    """

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta, gloo: Any) -> None:
        self.kind, self.group = _make_group(store, rank, size, timeout, gloo)
        self._gloo = gloo

    @property
    def is_nccl(self) -> bool:
        """Return whether NCCL serves tensors on GPUs."""
        return self.group is not None and self.group is not self._gloo

    def staged_range(
        self,
        device: torch.device,
        host_range: SizeRange,
        engine: AllReduce,
        has_schedule: Callable[[int], bool],
        repeats: int,
        eager_max_bytes: int | None,
    ) -> SizeRange:
        """Return the sizes of tensors for which schedules are used, measured where NCCL would serve them otherwise.

        All ranks call this at once.

        :param host_range: the sizes for tensors in host memory. It holds where Gloo would serve the device, for Gloo
            copies them there, too; on devices that nothing serves all sizes use schedules.
        """
        if device.type != "cuda" or self.group is None:
            return SizeRange(0)
        if not self.is_nccl:
            return host_range

        def by_delegate(data: torch.Tensor, op: Any) -> Waitable:
            return _Synchronized(all_reduce(self.group, data, op), device)

        rivals = Candidates(engine, self._on_host, has_schedule, by_delegate, device)
        return measure_size_range(rivals, repeats, eager_max_bytes)

    def _on_host(self, data: torch.Tensor, op: Any) -> Waitable:
        return all_reduce(self._gloo, data, op)

    def shutdown(self) -> None:
        """Shut down the group, unless it is the caller's Gloo group."""
        if self.is_nccl:
            self.group.shutdown()


class _Synchronized:
    """Work that is done when the GPU is: NCCL's is done for the program when it is queued."""

    def __init__(self, work: Waitable, device: torch.device) -> None:
        self._work, self._device = work, device

    def wait(self) -> None:
        """Block until the GPU has finished."""
        self._work.wait()
        torch.cuda.synchronize(self._device)


def _make_group(store: Store, rank: int, size: int, timeout: timedelta, gloo: Any) -> tuple[Any, Any]:
    if not torch.cuda.is_available():
        return None, None
    if requested_backend.gloo_requested or not dist.is_nccl_available():
        return dist.ProcessGroup.BackendType.GLOO, gloo
    nccl: Any = dist.ProcessGroupNCCL
    options = nccl.Options()
    options._timeout = timeout
    group = nccl(PrefixStore("nccl/", store), rank, size, options)
    group._set_sequence_number_for_group()
    return dist.ProcessGroup.BackendType.NCCL, group
