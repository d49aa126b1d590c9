"""Ranks as threads of this process, with real Gloo connections over loopback between them."""

import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from plink.model.schedule import Schedule
from plink.model.segmentation import SegmentationConfig
from plink.runtime.allreduce.aggregation import Aggregation, SizeClass
from plink.runtime.allreduce.eager import EagerTransport
from plink.runtime.allreduce.engine import Engine
from plink.runtime.allreduce.mesh import FullMesh, connect_mesh
from plink.runtime.allreduce.reductions import reduction_for
from plink.runtime.allreduce.transport import GlooTransport
from plink.runtime.allreduce.watchdog import AggregationError, Watchdog

FINE = SegmentationConfig(
    chunk_bytes=64, segment_bytes=2048, segments=3, min_segment_bytes=512
)  # many cells of small vectors


def everywhere(ranks: int, work: Callable[[int], Any], patience_s: float = 60.0) -> list[Any]:
    """What each rank's thread returned; what one raised is raised here."""
    results: list[Any] = [None] * ranks
    errors: list[BaseException] = []

    def run_rank(rank: int) -> None:
        try:
            results[rank] = work(rank)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run_rank, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience_s)
        assert not thread.is_alive(), "a rank hangs"
    for error in errors:
        raise error
    return results


class Clock(threading.local):
    """One for each rank's thread; it goes when it is told."""

    now = 0.0

    def perf_counter(self) -> float:
        """As ``time``."""
        return self.now


@dataclass
class Member:
    """One rank's engine."""

    rank: int
    engine: Engine
    schedule: Schedule

    def reduce(self, tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, patience_s: float = 60.0) -> str | None:
        """All-reduce in place; what went wrong."""
        ended = threading.Event()
        errors: list[str | None] = []

        def done(error: str | None) -> None:
            errors.append(error)
            ended.set()

        reduction = reduction_for(op, tensor.dtype)
        assert reduction is not None
        try:
            self.engine.submit(tensor, self.schedule, reduction, done)
        except AggregationError as error:
            return str(error)
        assert ended.wait(patience_s), f"rank {self.rank} waits for ever"
        return errors[0]


class Members:
    """The engines of all ranks of one schedule, on connections of their own."""

    def __init__(
        self,
        schedule: Schedule,
        channels: int = 2,
        segmentation: SegmentationConfig = FINE,
        timeout_s: float = 20.0,
        eager: bool = False,
    ) -> None:
        self.schedule = schedule
        store = dist.HashStore()
        aggregation = Aggregation((SizeClass(None, schedule.algo, schedule),), channels, segmentation)

        def join(rank: int) -> Member:
            timeout = timedelta(seconds=timeout_s)
            mesh = FullMesh(rank, range(schedule.ranks), channels)
            transport = GlooTransport(dist.PrefixStore("t/", store), mesh, timeout * 2)
            met = connect_mesh(dist.PrefixStore("e/", store), mesh, ["127.0.0.1"], 20) if eager else {}
            short = EagerTransport(met, mesh, timeout * 2) if eager else None
            watchdog = Watchdog(dist.PrefixStore("w/", store), rank, schedule.ranks, timeout, slow_s=1.0)
            return Member(rank, Engine(aggregation, rank, transport, watchdog, short), schedule)

        self.members: list[Member] = everywhere(schedule.ranks, join)

    def __enter__(self) -> "Members":
        return self

    def __exit__(self, *_: object) -> None:
        # All at once, and the last reference with it: Gloo takes its time to take a rank's connections apart.
        everywhere(len(self.members), lambda rank: self.members.pop().engine.close(2.0))

    def reduce(self, tensors: list[torch.Tensor], op: Any = dist.ReduceOp.SUM) -> list[str | None]:
        """All ranks all-reduce their tensors in place; what went wrong for each."""
        return everywhere(len(tensors), lambda rank: self.members[rank].reduce(tensors[rank], op))


@contextmanager
def gloo_groups(ranks: int, timeout_s: float = 20.0) -> Any:
    """Stock Gloo groups of as many ranks."""
    store = dist.HashStore()
    timeout = timedelta(seconds=timeout_s)
    yield everywhere(ranks, lambda rank: dist.ProcessGroupGloo(store, rank, ranks, timeout))
