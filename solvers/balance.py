"""Balance of an exchange and links: what a form of it puts on the busiest link, and what a step hides of it.

Luo 2020, chapter 2: a model of M bytes goes up and down in each step of T seconds. With N workers and both directions
of one interface counted together a server carries 2(N-1) M (colocated, centralised: CC), 4(N-1)/N M (colocated,
sharded: CS), 2N M (NCC) or 2N/S M (S servers apart: NCS). Here the bytes of the schedules are counted instead, each
direction for itself.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from solvers.costs.evaluator import resource_bytes
from solvers.costs.fabric import BYTES_PER_US, Fabric
from solvers.costs.loads import HOST_BLOCKS, Ranks, transfers_of
from solvers.costs.patterns import Pattern

_BYTES_PER_S = BYTES_PER_US * 1e6  # of one Gbit/s
_EQUAL_SHARE = 0.99  # of the busiest link's time: what is as busy counts as equal
_NEAR = 2e-4  # of the time that a step hides: how near to it an exchange counts as just hidden
_NO_BYTES = 1e-9  # of the bytes' time: of links so fast that round trips alone count
_WIDE = 2.0  # times the median of the others: equal links measured twice differ by less


@dataclass(frozen=True)
class BusiestLink:
    """Link that an exchange keeps busy the longest, one way. ``bytes``: over it in one exchange; ``gbps``: what it
    carries; ``equals``: how many others are as busy."""

    name: str
    bytes: float
    gbps: float
    equals: int

    @property
    def busy_s(self) -> float:
        """Return how long it works."""
        return self.bytes / (self.gbps * _BYTES_PER_S)


def busiest_link(
    pattern: Pattern, fabric: Fabric, order: Ranks, size_bytes: float, shared: bool = True
) -> BusiestLink | None:
    """Return the link whose bytes take longest, of hosts or of groups; None when nothing is sent.

    :param order: shape (N,), the host at each rank. :param shared: whether the links that groups share count.
    """
    blocks = resource_bytes(fabric, transfers_of(pattern, order, size_bytes))
    blocks = blocks if shared else blocks[:HOST_BLOCKS]
    moved = np.concatenate([pattern.repeat @ block for _, _, block in blocks])
    gbps = np.concatenate([rates for _, rates, _ in blocks])
    seconds = moved / (gbps * _BYTES_PER_S)
    worst = int(np.argmax(seconds))
    if not seconds[worst] > 0:
        return None
    equals = int((seconds >= _EQUAL_SHARE * seconds[worst]).sum()) - 1
    names = [name for block_names, _, _ in blocks for name in block_names]
    return BusiestLink(names[worst], float(moved[worst]), float(gbps[worst]), equals)


def speed_up(seconds_of: Callable[[float], float], hidden_s: float, busy_s: float) -> float:
    """Return how many times as fast all links have to be for an exchange to take this long, to 0.02 %; infinite where
    round trips alone take longer.

    :param seconds_of: the exchange's time with links so many times as fast. :param busy_s: how long its busiest link
        works now, more than 0.
    """
    if hidden_s <= 0:
        return math.inf
    # Inverse factors, in which times are nearly linear: one that hides, if any does, and one that does not.
    low, high = _NO_BYTES, hidden_s / busy_s
    if (low_s := seconds_of(1 / low)) > hidden_s:
        return math.inf
    if (high_s := seconds_of(1 / high)) <= hidden_s:
        return 1 / high
    aim_s = (1 - _NEAR / 2) * hidden_s
    for step in itertools.count(1):
        if low_s >= (1 - _NEAR) * hidden_s or high - low <= _NEAR * low:
            break
        share = (aim_s - low_s) / (high_s - low_s) if step % 3 else 0.5
        middle = low + share * (high - low)
        if (middle_s := seconds_of(1 / middle)) <= hidden_s:
            low, low_s = middle, middle_s
        else:
            high, high_s = middle, middle_s
    return 1 / low


def wide_hosts(gbps: Sequence[float]) -> list[int]:
    """Return the hosts, the widest first, with at least twice the median rate of the others: what may serve as hubs."""
    rates = np.asarray(gbps, dtype=np.float64)
    wide = [k for k in range(len(rates)) if len(rates) > 2 and rates[k] >= _WIDE * np.median(np.delete(rates, k))]
    return sorted(wide, key=lambda k: -rates[k])


@dataclass(frozen=True)
class RackTimes:
    """Seconds of an exchange, there and back, by links alone: ``flat_s``, hubs as shards, both at once; rack by rack
    with one phase after the other, ``sequential_s``, or all at once, ``streamed_s``."""

    flat_s: float
    sequential_s: float
    streamed_s: float


def rack_times(
    workers: Sequence[int], hub_gbps: Sequence[float], core_gbps: Sequence[float], worker_gbps: float, size_bytes: float
) -> RackTimes:
    """Return what hubs of R racks take as shards, and rack by rack (Luo 2020, 2.3, for uneven racks).

    :param workers: shape (R,), of each rack. :param hub_gbps: shape (R,), its hubs together, all alike.
    :param core_gbps: shape (R,), its link to the others. :param worker_gbps: of the slowest worker.
    """
    n, hub, core = (np.asarray(values, dtype=np.float64) for values in (workers, hub_gbps, core_gbps))
    others = 1 - 1 / len(n)
    slowest = 1 / worker_gbps
    gathering = max(float((n / hub).max()), slowest)
    among = float((others / np.minimum(hub, core)).max())
    crossing = n * others + (n.sum() - n) / len(n)  # each way: workers' vectors one way, sums of hubs the other
    flat = max(float((crossing / core).max()), float(n.sum() / hub.sum()), slowest)
    streamed = max(float((2 * others / core).max()), float(((n + 2 * others) / hub).max()), slowest)
    seconds = size_bytes / _BYTES_PER_S
    return RackTimes(seconds * flat, seconds * 2 * (gathering + among), seconds * streamed)
