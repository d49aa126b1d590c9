"""Announcements of all-reduces to hub processes, in the job's store.

Hubs take no part in the job's own groups: rank 0 writes what the next all-reduce of the engine is, and every hub waits
for it. A group of all ranks has a number, which all processes count alike; its keys are below that.
"""

import contextlib
import itertools
import json
import os
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from plink.runtime.allreduce.aggregation import Aggregation
from plink.runtime.allreduce.reductions import Reduction, reduction_for
from plink.runtime.allreduce.watchdog import AggregationError

GROUPS = itertools.count()  # of this process with hubs


def store_of_group(store: Store, group: int) -> PrefixStore:
    """Return the part of the job's store that the ranks and hubs of a group share."""
    return PrefixStore(f"plink-hub/{group}/", store)


def shared_store(store: Store) -> PrefixStore:
    """Return that of the next group, of a rank. All ranks call this.

    :raises AggregationError: where hubs cannot reach the store.
    """
    base: Any = store
    while isinstance(base, PrefixStore):
        base = base.underlying_store
    if not isinstance(base, TCPStore) or base.port != int(os.environ.get("MASTER_PORT", 0)):
        raise AggregationError("plink: hubs join at MASTER_ADDR and MASTER_PORT: use init_method='env://', the default")
    return store_of_group(base, next(GROUPS))


class HubAnnouncer:
    """Rank 0's end, with a connection of its own: while the script's thread waits on one, it serves no other."""

    def __init__(self, store: Any, aggregation: Aggregation, timeout: timedelta) -> None:
        """:param store: of :func:`shared_store`. :param timeout: of the group."""
        self._store, self._hubs = store.clone(), len(aggregation.hubs)
        self._store.set("aggregation", aggregation.to_bytes())
        self._store.set("timeout_s", str(timeout.total_seconds()))

    def announce(self, number: int, flat: torch.Tensor, reduction: Reduction) -> None:
        """Announce an all-reduce, the ``number``-th of the group."""
        call = [flat.numel(), str(flat.dtype).removeprefix("torch."), reduction.name]
        self._set(number, json.dumps(call))

    def end(self, number: int) -> None:
        """Announce that there is no such all-reduce: the group ends."""
        self._set(number, "")

    def _set(self, number: int, call: str) -> None:
        for hub in range(self._hubs):
            self._store.set(f"call/{hub}/{number}", call)


def next_call(store: Any, hub: int, number: int) -> tuple[int, torch.dtype, Reduction] | None:
    """Wait for the ``number``-th announcement: elements, their type and the reduction; None at the end of the group."""
    key, announced = f"call/{hub}/{number}", b""
    with contextlib.suppress(RuntimeError):  # rank 0, whose the store is, has ended: the launcher reports why
        announced = store.get(key)
        store.delete_key(key)
    if not announced:
        return None
    elements, type_name, operation = json.loads(announced)
    dtype = getattr(torch, type_name)
    reduction = reduction_for(getattr(torch.distributed.ReduceOp, operation.upper()), dtype)
    assert reduction is not None
    return elements, dtype, reduction
