"""Entry point ``plink`` of the group ``torch.backends``, which every ``import torch`` on the machine calls.

It registers the name ``plink``. Where PLINK_BACKEND is set (``plink launch --backend``), scripts that request Gloo get
plink, and so do those that request NCCL where PLINK_STAGED is set, too. It must never raise: ``import torch`` would
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
    """Register the backend: the function of the entry point."""
    try:
        register()
        if os.environ.get(VARIABLE):
            _wrap_group_functions()
    except Exception as error:
        print(f"plink: the backend is unavailable: {type(error).__name__}: {error}", file=sys.stderr)


def register() -> None:
    """Make ``init_process_group("plink")`` available; its module is imported on first use."""
    import torch.distributed as dist

    if dist.is_available() and NAME.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])


def _create(request: Any, options: object) -> dist.ProcessGroup:
    """:param request: ``_DistributedBackendOptions``. :param options: of the script, for other backends."""
    from plink.runtime.allreduce.backend import PlinkProcessGroup

    members = tuple(request.global_ranks_in_group)  # none for the group of all
    return PlinkProcessGroup(request.store, request.group_rank, request.group_size, request.timeout, members)


def _wrap_group_functions() -> None:
    """Wrap the functions that create groups, wherever torch has them, to translate backends' names, and the one that
    asks for a group's backend: parts of torch, and scripts, go by Gloo's name."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    init, new, get = distributed_c10d.init_process_group, distributed_c10d.new_group, distributed_c10d.get_backend
    world, gloo = distributed_c10d._world, dist.Backend.GLOO
    gloo_config = str(dist.BackendConfig(dist.Backend(gloo)))

    def note_request(group: Any) -> None:
        """Note with a group of ours that Gloo was requested, where torch keeps what it was made of."""
        if requested_backend.gloo_requested and world.pg_map.get(group, ("",))[0] == NAME:
            world.pg_backend_config[group] = gloo_config

    @functools.wraps(init)
    def init_process_group(backend: str | None = None, *arguments: Any, **options: Any) -> None:
        requested_backend.gloo_requested = _is_gloo(backend)
        init(_translate(backend), *arguments, **options)
        note_request(dist.group.WORLD)

    @functools.wraps(new)
    def new_group(*arguments: Any, **options: Any) -> Any:
        backend, previous = options.get("backend"), requested_backend.gloo_requested
        if backend is not None:  # else that of the group of all
            requested_backend.gloo_requested = _is_gloo(backend)
            options = {**options, "backend": _translate(backend)}
        try:
            group = new(*arguments, **options)
            note_request(group)
            return group
        finally:
            requested_backend.gloo_requested = previous

    @functools.wraps(get)
    def get_backend(group: Any = None) -> Any:  # torch.compile traces it
        backend = get(group)
        if backend != NAME:
            return backend
        is_gloo = world.pg_backend_config.get(group or distributed_c10d._get_default_group()) == gloo_config
        return gloo if is_gloo else backend

    for name, module in list(sys.modules.items()):
        if name == "torch.distributed" or name.startswith("torch.distributed."):
            for wrapped, original in ((init_process_group, init), (new_group, new), (get_backend, get)):
                if vars(module).get(original.__name__) is original:
                    setattr(module, original.__name__, wrapped)


def _translate(backend: str | None) -> str | None:
    """Return plink for Gloo, and for no backend in particular without a GPU; for NCCL where staging is requested."""
    import torch

    if backend is None or str(backend).lower() in _FOR_GPUS:
        return (
            NAME
            if os.environ.get(requested_backend.STAGED) or (backend is None and not torch.cuda.is_available())
            else backend
        )
    return NAME if _is_gloo(backend) else backend


def _is_gloo(backend: str | None) -> bool:
    return str(backend).lower() in ("gloo", "cpu:gloo")
