"""A device of torch's own kind for tests, ``far``: its tensors' numbers are where nothing but copies gets at them.

PyTorch keeps the device type PrivateUse1 for devices that it does not know, and lets Python register one.
"""

from typing import Any

import torch
from torch import library
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("far")
_acc: Any = torch._C._acc  # type: ignore[attr-defined]


class Far(torch.Tensor):
    """``numbers``: what it holds, for tests to look at."""

    numbers: torch.Tensor

    @staticmethod
    def __new__(cls: type["Far"], numbers: torch.Tensor) -> "Far":
        made: Far = _acc.create_empty_tensor(numbers.shape, numbers.dtype)
        made.__class__ = cls
        return made

    def __init__(self, numbers: torch.Tensor) -> None:
        self.numbers = numbers.clone()


@library.impl("aten::_copy_from", "privateuseone")
def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    if isinstance(target, Far):
        target.numbers.copy_(source)
    elif isinstance(source, Far):
        target.copy_(source.numbers)
    return target
