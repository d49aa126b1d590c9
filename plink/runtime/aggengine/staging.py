"""Fetch and Deliver (PLink thesis, 4.2.2): all-reduces add up in the hosts' memory, wherever a tensor is.

A contiguous tensor in the host's memory is reduced where it is. Any other has a copy there that is: made before its
all-reduce begins, and copied back when it is over. Copies from and to a GPU run beside the program's own work there,
each direction in a stream of its own, so that no copy back waits for gradients that have yet to be computed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Fetched:
    """``flat``: the numbers, contiguous, of one dimension, in the host's memory. ``ready()`` comes back when they are
    there, ``deliver()`` when they are back in the tensor; None: there is nothing to do."""

    flat: torch.Tensor
    ready: Callable[[], None] | None = None
    deliver: Callable[[], None] | None = None


_STREAMS: dict[torch.device, tuple[torch.cuda.Stream, torch.cuda.Stream]] = {}  # of each GPU: from it, to it


def fetch(tensor: torch.Tensor) -> Fetched:
    """Begin to fetch a tensor, which must not change until it is delivered."""
    if tensor.device.type == "cuda":
        return _from_gpu(tensor)
    if tensor.device.type == "cpu" and tensor.is_contiguous():
        return Fetched(tensor.detach().view(-1))
    host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    _copy(host, tensor)
    return Fetched(host.view(-1), deliver=lambda: _copy(tensor, host))


def _from_gpu(tensor: torch.Tensor) -> Fetched:
    """Returns at once: what the program asked its GPU for before need not be done."""
    fetching, delivering = _streams(tensor.device)
    host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
    fetching.wait_stream(torch.cuda.current_stream(tensor.device))
    there = torch.cuda.Event()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(fetching):
        _copy(host, tensor, in_background=True)
        there.record(fetching)

    def deliver() -> None:
        back = torch.cuda.Event()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(delivering):
            _copy(tensor, host, in_background=True)
            back.record(delivering)
        # Those who wait for the all-reduce go on in streams that know nothing of this one.
        back.synchronize()

    return Fetched(host.view(-1), there.synchronize, deliver)


def _streams(device: torch.device) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    if device not in _STREAMS:
        new: Any = torch.cuda.Stream
        _STREAMS[device] = new(device), new(device)
    return _STREAMS[device]


def _copy(to: torch.Tensor, source: torch.Tensor, in_background: bool = False) -> None:
    with torch.no_grad():  # parameters are summed up too
        to.copy_(source, non_blocking=in_background)
