"""The entry point ``plink`` of the group ``torch.backends``, which every ``import torch`` on the machine calls.

It registers the name ``plink`` and, where PLINK_BACKEND is set (``plink launch --backend``), lets scripts that ask for
Gloo have it, and those that ask for NCCL where PLINK_STAGED is set, too. It must never raise: ``import torch`` would
fail for everybody. TORCH_DEVICE_BACKEND_AUTOLOAD=0 turns it off.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any

from plink.runtime import requested_backend

if TYPE_CHECKING:
    import torch.distributed as dist

VARIABLE = "PLINK_BACKEND"
NAME = "plink"
_FOR_GPUS = ("nccl", "cuda:nccl", "cpu:gloo,cuda:nccl", "cuda:nccl,cpu:gloo")


def autoload() -> None:
    """What the entry point stands for."""
    try:
        register()
        if os.environ.get(VARIABLE):
            _stand_in()
    except Exception as error:
        print(f"plink: the backend is not there: {type(error).__name__}: {error}", file=sys.stderr)


def register() -> None:
    """Make ``init_process_group("plink")`` known; nothing is imported before somebody asks for it."""
    import torch.distributed as dist

    if dist.is_available() and NAME.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])


def _create(wanted: Any, options: object) -> dist.ProcessGroup:
    """:param wanted: torch's ``_DistributedBackendOptions``. :param options: of the script's, for other backends."""
    from plink.runtime.aggengine.backend import PlinkProcessGroup

    members = tuple(wanted.global_ranks_in_group)  # none for the group of all
    return PlinkProcessGroup(wanted.store, wanted.group_rank, wanted.group_size, wanted.timeout, members)


def _stand_in() -> None:
    """Wrap what makes groups, wherever torch has it, so that names mean what :func:`_translated` says."""
    from torch.distributed import distributed_c10d

    init, new = distributed_c10d.init_process_group, distributed_c10d.new_group

    @functools.wraps(init)
    def init_process_group(backend: str | None = None, *arguments: Any, **options: Any) -> None:
        requested_backend.gloo_requested = _means_gloo(backend)
        init(_translated(backend), *arguments, **options)

    @functools.wraps(new)
    def new_group(*arguments: Any, **options: Any) -> Any:
        said, before = options.get("backend"), requested_backend.gloo_requested
        if said is None:  # that of the group of all
            return new(*arguments, **options)
        requested_backend.gloo_requested = _means_gloo(said)
        try:
            return new(*arguments, **{**options, "backend": _translated(said)})
        finally:
            requested_backend.gloo_requested = before

    for name, module in list(sys.modules.items()):
        if name == "torch.distributed" or name.startswith("torch.distributed."):
            for wrapped, original in ((init_process_group, init), (new_group, new)):
                if vars(module).get(original.__name__) is original:
                    setattr(module, original.__name__, wrapped)


def _translated(backend: str | None) -> str | None:
    """Gloo, or nothing in particular without a GPU, means plink; so does what asks for NCCL where staging is asked
    for."""
    import torch

    if backend is None or str(backend).lower() in _FOR_GPUS:
        return (
            NAME
            if os.environ.get(requested_backend.STAGED) or (backend is None and not torch.cuda.is_available())
            else backend
        )
    return NAME if _means_gloo(backend) else backend


def _means_gloo(backend: str | None) -> bool:
    return str(backend).lower() in ("gloo", "cpu:gloo")
