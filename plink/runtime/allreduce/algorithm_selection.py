"""Algorithm selection: the message size from which on the engine is faster than Gloo.

It is measured when a group or its schedule changes.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist


class Waitable(Protocol):
    """Handle of an all-reduce or a message in progress: :class:`torch.distributed.Work`."""

    def wait(self) -> object:
        """Block until it is done."""


AllReduce = Callable[[torch.Tensor, Any], Waitable]

# Gloo's ring skips empty chunks, so with fewer elements than ranks it sends less: with a few ranks below 16 B, with 64
# below 256.
SIZES = (4, 16, 256, 4 << 10, 64 << 10, 256 << 10)
LARGE_SIZES = (1 << 20, 4 << 20)  # measured where Gloo is faster at all smaller ones, or another transport is used
_HUB_BYTES = 16 << 20  # few workers gain little by a hub, and at large sizes
REPEATS = 5
_SHORT_REPEATS = 2  # in mid-run, and for large messages
_TINY_BYTES, _TINY_FACTOR = 256, 3  # tiny messages take no time and vary most: they are repeated more often
_DELEGATION_REPEATS = {4 << 20: _SHORT_REPEATS, 1 << 20: REPEATS, 256 << 10: REPEATS}  # by size, largest first
_MARGIN = 0.95  # of Gloo's time: the engine must be at least this much faster
NEVER = 1 << 62
_HOST = torch.device("cpu")  # independent of the script's default device


@dataclass(frozen=True)
class SizeRange:
    """Range of message sizes that use schedules, bytes, both ends included."""

    min_bytes: int = NEVER
    max_bytes: int = NEVER

    def __contains__(self, size_bytes: int) -> bool:
        return self.min_bytes <= size_bytes <= self.max_bytes


class DispatchThreshold:
    """Size from which on schedules are used, which may change when a schedule is replaced.

    ``min_bytes`` is the same on all ranks for the same all-reduce, since it changes where they synchronise.

    :param gloo: all-reduces by a Gloo group of its own: all-reduces of a group are matched by their order, and those of
        other groups are called by another thread.
    """

    def __init__(self, min_bytes: int, gloo: AllReduce) -> None:
        self.min_bytes = min_bytes
        self._max_bytes = max(min_bytes, LARGE_SIZES[0])
        self.gloo = gloo

    def remeasure(self, engine: AllReduce, has_schedule: Callable[[int], bool]) -> bool:
        """Measure the threshold again, on all ranks at once, and return whether it changed.

        No message is larger than 256 KB. Where Gloo is faster at all of these, schedules are used from 1 MB on, or from
        the threshold that was measured at first.
        """
        measured_bytes = measure(Candidates(engine, self.gloo, has_schedule), _SHORT_REPEATS, (SIZES,))
        previous, self.min_bytes = self.min_bytes, min(measured_bytes, self._max_bytes)
        return self.min_bytes != previous


class Candidates(NamedTuple):
    """Algorithms to compare on ``device``: the engine, for sizes that have a schedule, and ``other`` or else Gloo.

    Ranks exchange the result by Gloo in any case.
    """

    engine: AllReduce
    gloo: AllReduce
    has_schedule: Callable[[int], bool]
    other: AllReduce | None = None
    device: torch.device = _HOST


def measure(rivals: Candidates, repeats: int = REPEATS, steps: Sequence[Sequence[int]] = (SIZES, LARGE_SIZES)) -> int:
    """Return the smallest size, bytes, from which on the engine was faster at every measured size that has a schedule.

    0 where only larger messages have one: nothing smaller uses it anyway. This takes milliseconds to seconds, by the
    network. All ranks return the same: the slowest rank counts.
    """
    engine, gloo, has_schedule, other, device = rivals
    measured = False
    for sizes in ([size for size in candidates_of_step if has_schedule(size)] for candidates_of_step in steps):
        if not sizes:
            continue
        faster = _faster(engine, other or gloo, gloo, sizes, repeats, device)
        slower = [k for k in range(len(sizes)) if not faster[k]]
        if not slower:
            return sizes[0] if measured else 0
        if slower[-1] + 1 < len(sizes):
            return sizes[slower[-1] + 1]
        measured = True
    return NEVER if measured else 0


def measure_size_range(
    rivals: Candidates, repeats: int = REPEATS, eager_max_bytes: int | None = None, has_hubs: bool = False
) -> SizeRange:
    """Return the range of sizes for which the engine is faster, as :func:`measure`.

    :param has_hubs: where Gloo is faster at all these sizes, 16 MB are measured, too.
    :param eager_max_bytes: messages up to this size use another transport than larger ones. Their result says nothing
        about larger ones, which are measured too, at 4 MB.
    """
    engine, gloo, has_schedule, other, device = rivals
    min_bytes = measure(rivals, repeats)
    if has_hubs and min_bytes == NEVER and has_schedule(_HUB_BYTES):
        faster = _faster(engine, other or gloo, gloo, [_HUB_BYTES], _SHORT_REPEATS, device)[0]
        return SizeRange(_HUB_BYTES if faster else NEVER)
    large_bytes = LARGE_SIZES[-1]
    if eager_max_bytes is None or min_bytes > SIZES[-1] or not has_schedule(large_bytes):
        return SizeRange(min_bytes)
    faster = _faster(engine, other or gloo, gloo, [large_bytes], _SHORT_REPEATS, device)[0]
    return SizeRange(min_bytes, NEVER if faster else eager_max_bytes)


def measure_delegation(other: AllReduce, present: AllReduce, gloo: AllReduce) -> int:
    """Return the size from which on ``other`` was faster than ``present``, bytes.

    At every measured size from there on it was.

    :data:`NEVER` where it is not at the largest. The same on all ranks.
    """
    min_bytes = NEVER
    for size, repeats in _DELEGATION_REPEATS.items():
        if not _faster(other, present, gloo, [size], repeats)[0]:
            break
        min_bytes = size
    return min_bytes


def _faster(
    first: AllReduce,
    other: AllReduce,
    gloo: AllReduce,
    sizes: Sequence[int],
    repeats: int,
    device: torch.device = _HOST,
) -> list[bool]:
    """Return whether the first is faster than the other at each size, on the slowest rank."""
    seconds = torch.tensor(
        [_seconds(first, other, gloo, size, repeats, device) for size in sizes], dtype=torch.float64, device=_HOST
    )
    gloo(seconds, dist.ReduceOp.MAX).wait()
    faster: list[bool] = (seconds[:, 0] <= _MARGIN * seconds[:, 1]).tolist()
    return faster


def _seconds(
    first: AllReduce, other: AllReduce, gloo: AllReduce, size_bytes: int, repeats: int, device: torch.device
) -> tuple[float, float]:
    """Return the median times of both over alternating repetitions, of which the first do not count.

    A barrier precedes each: ranks that finish earlier would count the wait for the others as the next one's time.
    """
    data = torch.zeros(max(1, size_bytes // 4), dtype=torch.float32, device=device)
    times: tuple[list[float], list[float]] = ([], [])
    barrier = torch.zeros(1, dtype=torch.float32, device=_HOST)
    for _ in range(repeats * (_TINY_FACTOR if size_bytes < _TINY_BYTES else 1) + 1):
        for samples, all_reduce in zip(times, (first, other), strict=True):
            gloo(barrier, dist.ReduceOp.SUM).wait()
            began = time.perf_counter()
            all_reduce(data, dist.ReduceOp.SUM).wait()
            samples.append(time.perf_counter() - began)
    return median(times[0][1:]), median(times[1][1:])
