"""Depths by Little's law: as many minibatches in flight as a network's round trips need, and no more.

The thesis's depth (NOAM, 5.3.2) counts workers and takes communication for free. A replica of stage s that has d_s
minibatches in flight finishes one every L_s / d_s seconds at best, where L_s is a minibatch's round trip from its
forward pass at s to its backward pass there. A pipeline of tau seconds per minibatch gives it one every r_s tau, so

    d_s = ceil(L_s / (r_s tau))
    L_s = sum over i >= s of (F_i + B_i), plus both transfers of every cut behind s, plus the stage's own update

is the least depth that costs nothing. A stage deeper than what the one before it has in flight could wait for ever:
d_s <= (r_(s-1) (d_(s-1) - 1) + 1) / r_s, or the thesis's depth, which never locks.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from plink.model.pipeline.shape import base_depths

MIN_GAIN = 0.01
"""Share of a minibatch's time for which one minibatch more in flight is not worth its staleness."""
_MAX_USE = 0.9  # of depths below the thesis's: what is left absorbs the jitter of hosts
_ROUNDING = 1e-9

Depths = tuple[int, ...]


@dataclass(frozen=True)
class StageLoop:
    """Seconds of one minibatch at a stage. ``own_s``: what follows its backward pass before the next forward pass: the
    update, and the part of an all-reduce that the pass does not hide. ``transfers_s``: both ways over the cut behind
    it, round trips included; 0 at the last stage."""

    passes_s: float
    own_s: float = 0.0
    transfers_s: float = 0.0


def round_trips_s(loops: tuple[StageLoop, ...]) -> list[float]:
    """Return L_s of each stage."""
    behind, times = 0.0, []
    for loop in reversed(loops):
        behind += loop.passes_s + loop.transfers_s
        times.append(behind + loop.own_s)
    return times[::-1]


def loop_period_s(loops: tuple[StageLoop, ...], replicas: tuple[int, ...], depths: Depths) -> float:
    """Return the least seconds per minibatch that these depths allow."""
    trips = zip(round_trips_s(loops), replicas, depths, strict=True)
    return max(trip_s / (count * depth) for trip_s, count, depth in trips)


def depths_of_network(
    loops: tuple[StageLoop, ...], replicas: tuple[int, ...], period_s: float, ends: Callable[[Depths], bool]
) -> Depths:
    """Return the depths for a pipeline of so many seconds per minibatch.

    :param ends: whether a pipeline of these depths is proven to end. Depths below the thesis's are used only then, and
        only where they leave a tenth of the time to spare.
    """
    base = base_depths(replicas)
    trips = round_trips_s(loops)
    relaxed = [_least(trip_s, count * period_s * _MAX_USE) for trip_s, count in zip(trips, replicas, strict=True)]
    if all(depth <= limit for depth, limit in zip(relaxed, base, strict=True)):
        lower = _bounded(replicas, relaxed, (1,) * len(replicas), base)
        return lower if lower == base or ends(lower) else base
    wanted = [_least(trip_s, count * period_s * (1 + MIN_GAIN)) for trip_s, count in zip(trips, replicas, strict=True)]
    return _bounded(replicas, wanted, base, None)


def _bounded(replicas: tuple[int, ...], wanted: list[int], least: Depths, most: Depths | None) -> Depths:
    """Return what is wanted, first to last as deep as cannot lock, and within these limits."""
    depths = [max(least[0], wanted[0])]
    for stage in range(1, len(replicas)):
        possible = (replicas[stage - 1] * (depths[-1] - 1) + 1) // replicas[stage]
        depths.append(max(least[stage], min(wanted[stage], possible)))
    return tuple(depths if most is None else map(min, depths, most))


def _least(trip_s: float, interval_s: float) -> int:
    return max(1, math.ceil(trip_s / interval_s - _ROUNDING))


def depths_from(first: int, replicas: tuple[int, ...], wanted: Sequence[int] | None = None) -> tuple[int, ...]:
    """Return depths of all stages from that of the first: the thesis's, or ``wanted`` ones, as deep as cannot lock.

    A stage deeper than what the one before it has in flight would wait for inputs that never come.
    """
    base, depths = base_depths(replicas), [first]
    for stage in range(1, len(replicas)):
        possible = (replicas[stage - 1] * (depths[-1] - 1) + 1) // replicas[stage]
        want = base[stage] if wanted is None else max(base[stage], wanted[stage])
        depths.append(max(1, min(want, possible)))
    return tuple(depths)
