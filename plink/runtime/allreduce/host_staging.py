"""Host staging (Fetch and Deliver, PLink thesis, 4.2.2): all-reduces add up in host memory, wherever a tensor is.

A contiguous tensor in host memory is reduced in place. Any other is copied to host memory before its all-reduce begins,
and back when it is done. Copies from and to a GPU run beside the program's own work there, each direction in a stream
of its own, so that no copy back waits for gradients that have yet to be computed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class StagedTensor:
    """Tensor's values in host memory, contiguous and one-dimensional, as ``flat``.

    ``wait_ready()`` returns when the values are there, ``copy_back()`` when they are back in the tensor; None: no copy.
    """

    flat: torch.Tensor
    wait_ready: Callable[[], None] | None = None
    copy_back: Callable[[], None] | None = None


_STREAMS: dict[torch.device, tuple[torch.cuda.Stream, torch.cuda.Stream]] = {}  # for each GPU: from it, to it


def stage_to_host(tensor: torch.Tensor) -> StagedTensor:
    """Begin to stage a tensor, which must not change until it is copied back."""
    if tensor.device.type == "cuda":
        return _from_gpu(tensor)
    if tensor.device.type == "cpu" and tensor.is_contiguous():
        return StagedTensor(tensor.detach().view(-1))
    host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    _copy(host, tensor)
    return StagedTensor(host.view(-1), copy_back=lambda: _copy(tensor, host))


def _from_gpu(tensor: torch.Tensor) -> StagedTensor:
    """Stage a tensor of a GPU without waiting for work that the program queued there before."""
    from_gpu, to_gpu = _streams(tensor.device)
    host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
    from_gpu.wait_stream(torch.cuda.current_stream(tensor.device))
    ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(from_gpu):
        _copy(host, tensor, in_background=True)
        ready.record(from_gpu)

    def copy_back() -> None:
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(to_gpu):
            _copy(tensor, host, in_background=True)
            copied.record(to_gpu)
        # The all-reduce's callers continue in streams that do not wait for this one.
        copied.synchronize()

    return StagedTensor(host.view(-1), ready.synchronize, copy_back)


def _streams(device: torch.device) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    if device not in _STREAMS:
        new: Any = torch.cuda.Stream
        _STREAMS[device] = new(device), new(device)
    return _STREAMS[device]


def _copy(target: torch.Tensor, source: torch.Tensor, in_background: bool = False) -> None:
    with torch.no_grad():  # parameters may be reduced, too
        target.copy_(source, non_blocking=in_background)
