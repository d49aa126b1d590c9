"""From which size on the engine is faster than Gloo, measured when a group begins and when its schedule changes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist


class Waits(Protocol):
    """What an all-reduce gives back: :class:`torch.distributed.Work`."""

    def wait(self) -> object:
        """Until it is done."""


AllReduce = Callable[[torch.Tensor, Any], Waits]

# Gloo's ring leaves out what is empty, so that where there are fewer numbers than ranks it sends less: for a few ranks
# that ends at 16 B, for 64 at 256.
SIZES = (4, 16, 256, 4 << 10, 64 << 10, 256 << 10)
LARGER = (1 << 20, 4 << 20)  # looked at where Gloo is faster at all smaller ones, or these go another way
REPEATS = 5
_FEW = 2  # where it is measured in mid-run, and of what takes long
_TINY, _AS_OFTEN = 256, 3  # what is tiny takes no time, and its times differ most
_LARGEST = {4 << 20: _FEW, 1 << 20: REPEATS, 256 << 10: REPEATS}  # at which Gloo in another order is tried
_MARGIN = 0.95  # of Gloo's time: what is no faster than that is left to Gloo, which everybody knows
NEVER = 1 << 62
_HOST = torch.device("cpu")  # whatever the script made the default


@dataclass(frozen=True)
class Sizes:
    """Of the messages that schedules do: in bytes, both among them."""

    smallest: int = NEVER
    largest: int = NEVER

    def __contains__(self, size_bytes: int) -> bool:
        return self.smallest <= size_bytes <= self.largest


class Crossover:
    """Where schedules are replaced, the size from which on they are used may change with them. ``smallest``: that size,
    bytes, the same on all ranks for the same all-reduce, since it changes where these meet.

    :param gloo: all-reduces by a Gloo group that serves nothing else: which of its all-reduces is which follows from
        their order, and those of other groups are asked for by another thread.
    """

    def __init__(self, smallest: int, gloo: AllReduce) -> None:
        self.smallest = smallest
        self._largest = max(smallest, LARGER[0])
        self.gloo = gloo

    def again(self, engine: AllReduce, has_schedule: Callable[[int], bool]) -> bool:
        """Measure again, on all ranks at once; whether it is another size now. No message is larger than 256 KB: where
        Gloo is faster at all of these, schedules are used from 1 MB on, or from what was found at first."""
        found = measure(Rivals(engine, self.gloo, has_schedule), _FEW, (SIZES,))
        before, self.smallest = self.smallest, min(found, self._largest)
        return self.smallest != before


class Rivals(NamedTuple):
    """Whose times are compared, on ``device``: the engine, for sizes in bytes for which there is a schedule, and
    ``other`` or else Gloo, by which ranks agree anyway."""

    engine: AllReduce
    gloo: AllReduce
    has_schedule: Callable[[int], bool]
    other: AllReduce | None = None
    device: torch.device = _HOST


def measure(rivals: Rivals, repeats: int = REPEATS, steps: Sequence[Sequence[int]] = (SIZES, LARGER)) -> int:
    """The smallest message, in bytes, from which on the engine was faster at every size that was looked at: those for
    which there is a schedule. Where there is one for larger messages only, 0: nothing smaller goes by one anyway.

    Takes a few milliseconds to some seconds, by the network; all ranks find the same, for the slowest of them counts.
    """
    engine, gloo, has_schedule, other, device = rivals
    looked_at = False
    for sizes in ([size for size in some if has_schedule(size)] for some in steps):
        if not sizes:
            continue
        faster = _faster(engine, other or gloo, gloo, sizes, repeats, device)
        slower = [k for k in range(len(sizes)) if not faster[k]]
        if not slower:
            return sizes[0] if looked_at else 0
        if slower[-1] + 1 < len(sizes):
            return sizes[slower[-1] + 1]
        looked_at = True
    return NEVER if looked_at else 0


def measured_sizes(rivals: Rivals, repeats: int = REPEATS, short_bytes: int | None = None) -> Sizes:
    """As :func:`measure`. ``short_bytes``: messages up to this size go another way than larger ones, so what is found
    of them says nothing of those, and these are looked at besides, at 4 MB."""
    engine, gloo, has_schedule, other, device = rivals
    smallest = measure(rivals, repeats)
    large = LARGER[-1]
    if short_bytes is None or smallest > SIZES[-1] or not has_schedule(large):
        return Sizes(smallest)
    faster = _faster(engine, other or gloo, gloo, [large], _FEW, device)[0]
    return Sizes(smallest, NEVER if faster else short_bytes)


def faster_from(other: AllReduce, present: AllReduce, gloo: AllReduce) -> int:
    """The smallest message, in bytes, from which on ``other`` was faster than what is used at present at every size
    that was looked at, of large ones only; :data:`NEVER` where it is not at the largest. The same on all ranks."""
    found = NEVER
    for size, repeats in _LARGEST.items():
        if not _faster(other, present, gloo, [size], repeats)[0]:
            break
        found = size
    return found


def _faster(
    one: AllReduce,
    other: AllReduce,
    gloo: AllReduce,
    sizes: Sequence[int],
    repeats: int,
    device: torch.device = _HOST,
) -> list[bool]:
    """Whether one is faster than the other at each size, on the slowest rank."""
    seconds = torch.tensor(
        [_seconds(one, other, gloo, size, repeats, device) for size in sizes], dtype=torch.float64, device=_HOST
    )
    gloo(seconds, dist.ReduceOp.MAX).wait()
    found: list[bool] = (seconds[:, 0] <= _MARGIN * seconds[:, 1]).tolist()
    return found


def _seconds(
    one: AllReduce, other: AllReduce, gloo: AllReduce, size_bytes: int, repeats: int, device: torch.device
) -> tuple[float, float]:
    """The medians of both over some repetitions in turn, of which the first do not count.

    Ranks meet before each: some are through sooner than others, and would count as the next one's time what they wait
    for those.
    """
    data = torch.zeros(max(1, size_bytes // 4), dtype=torch.float32, device=device)
    taken: tuple[list[float], list[float]] = ([], [])
    meeting = torch.zeros(1, dtype=torch.float32, device=_HOST)
    for _ in range(repeats * (_AS_OFTEN if size_bytes < _TINY else 1) + 1):
        for times, all_reduce in zip(taken, (one, other), strict=True):
            gloo(meeting, dist.ReduceOp.SUM).wait()
            began = time.perf_counter()
            all_reduce(data, dist.ReduceOp.SUM).wait()
            times.append(time.perf_counter() - began)
    return median(taken[0][1:]), median(taken[1][1:])
