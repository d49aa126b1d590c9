"""Hub process: a member of the engine's group that contributes nothing, and reduces for the ranks (``--backend phub``).

``plink launch`` starts it beside the ranks of the job and ends it with them. It joins a group when rank 0 has made one,
submits what rank 0 announces, and waits for the next group when that one ends or has lost a member.
"""

import contextlib
import itertools
import math
import os
import socket
import sys
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from plink.model.units import format_bytes
from plink.runtime.allreduce.aggregation import from_bytes
from plink.runtime.allreduce.engine import Engine
from plink.runtime.allreduce.hub_announcements import next_call, store_of_group
from plink.runtime.allreduce.mesh import FullMesh
from plink.runtime.allreduce.transport import GlooTransport, raise_file_limit
from plink.runtime.allreduce.watchdog import AggregationError, Watchdog
from plink.runtime.elastic.host.memory_limits import memory

_RETRY_S = 0.1
_CONNECT_S = 5.0
_WAIT = timedelta(days=365)  # a job may compute for long between two all-reduces
_CLOSE_TIMEOUT_S = 2.0
_IDENTITIES = {"product": 1.0, "min": math.inf, "max": -math.inf}  # integers have the nearest; of sums it is 0


class ZeroVectors:
    """Vectors of zeros, each used by one all-reduce at a time and zeroed after it."""

    def __init__(self) -> None:
        self._free: dict[tuple[int, torch.dtype], list[torch.Tensor]] = {}

    def take(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Return a vector.

        :raises AggregationError: when this host has too little memory for another one.
        """
        free = self._free.setdefault((elements, dtype), [])
        if free:
            return free.pop()
        needed, limit = elements * dtype.itemsize, memory()
        if limit is not None and needed > limit.available:
            raise AggregationError(
                f"{socket.gethostname()} needs {format_bytes(needed)} of memory for an all-reduce of as many, and has "
                f"{format_bytes(limit.available)}: give the hub more memory, or the program smaller buckets"
            )
        return torch.zeros(elements, dtype=dtype)

    def give_back(self, vector: torch.Tensor) -> None:
        """Zero a vector for the next all-reduce of its size."""
        self._free[len(vector), vector.dtype].append(vector.zero_())


def serve(store: PrefixStore, rank: int) -> None:
    """Add up for a group until it ends.

    :param store: of :func:`store_of_group`. :param rank: this process's in the engine's group, after those of the job.
    :raises RuntimeError: when it cannot join.
    """
    aggregation = from_bytes(store.get("aggregation"))
    timeout = timedelta(seconds=float(store.get("timeout_s")))
    ranks = aggregation.ranks or 0
    mesh = FullMesh(rank, [*range(ranks), *aggregation.hubs], aggregation.channels)
    size = len(mesh.names)
    raise_file_limit(2 * size * aggregation.channels)
    transport = GlooTransport(PrefixStore("engine/", store), mesh, timeout + timedelta(seconds=5))
    watchdog = Watchdog(PrefixStore("watch/", store), rank, size, timeout, names=mesh.names)
    engine, vectors = Engine(aggregation, rank, transport, watchdog), ZeroVectors()
    try:
        for number in itertools.count(1):
            call = next_call(store, rank - ranks, number)
            if call is None:
                return
            _submit(engine, vectors, call)
    except AggregationError as error:
        engine.stop(watchdog.publish(str(error).removeprefix("plink: ")))
    finally:
        engine.close(_CLOSE_TIMEOUT_S)


def _submit(engine: Engine, vectors: ZeroVectors, call: tuple[int, torch.dtype, Any]) -> None:
    elements, dtype, reduction = call
    vector = vectors.take(elements, dtype)
    if identity := _IDENTITIES.get(reduction.name):
        limits = None if dtype.is_floating_point else torch.iinfo(dtype)
        vector.fill_(identity if limits is None else min(max(identity, limits.min), limits.max))

    def on_done(error: str | None) -> None:
        if error is None:
            vectors.give_back(vector)

    schedule = engine.aggregation.schedule_for(vector.nbytes, required=True)
    engine.submit(vector, schedule, replace(reduction, finish=None), on_done)


def main() -> None:
    """Serve one group of the job after the other, until the launcher ends this process."""
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    for group in itertools.count():
        store = None
        while store is None:
            with contextlib.suppress(OSError, RuntimeError):  # the job has no group, or not yet the next
                socket.create_connection(place, _CONNECT_S).close()
                joined = TCPStore(*place, is_master=False, wait_for_workers=False, timeout=_WAIT)
                of_group = store_of_group(joined, group)
                of_group.wait(["timeout_s"])
                store = of_group  # not before: the store may have ended with the group before
            time.sleep(_RETRY_S)
        try:
            serve(store, int(os.environ["RANK"]))
        except RuntimeError as error:
            print(f"plink: {str(error).splitlines()[0]}", file=sys.stderr)


if __name__ == "__main__":
    main()
