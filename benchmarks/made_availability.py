"""Made availability histories, from a seed, for tests and benchmarks.

A zone alternates between calm times, in which it has as many instances as anybody wants, and scarce ones, in which it
has few and loses and regains some at any time. Both last exponentially distributed times; zones differ in how long.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plink.model.spot.prices import HOUR_S, AvailabilityTrace


@dataclass(frozen=True)
class ZoneKind:
    """``calm_h`` and ``scarce_h``: mean hours of both times; ``share``: of the most instances that a scarce time has,
    at most."""

    calm_h: float
    scarce_h: float
    share: float = 0.7


KINDS = (
    *(ZoneKind(60, 1.5), ZoneKind(40, 2), ZoneKind(24, 1), ZoneKind(16, 3), ZoneKind(12, 1.5), ZoneKind(8, 4)),
    *(ZoneKind(6, 1), ZoneKind(4, 2), ZoneKind(2, 1)),
)
"""Nine zones, from calm to busy."""


def make_availability(
    kinds: Sequence[ZoneKind], days: float, seed: int, nodes: int = 16, gap_s: float = 600.0
) -> tuple[AvailabilityTrace, ...]:
    """Return a history of each zone: at most ``nodes`` instances, sampled every ``gap_s`` seconds."""
    return tuple(_zone(kind, days, np.random.default_rng((seed, number)), nodes, gap_s)
                 for number, kind in enumerate(kinds))  # fmt: skip


def _zone(kind: ZoneKind, days: float, rng: np.random.Generator, nodes: int, gap_s: float) -> AvailabilityTrace:
    count = round(days * 24 * HOUR_S / gap_s)
    gap_h = gap_s / HOUR_S
    counts = np.full(count, nodes)
    scarce = bool(rng.random() < kind.scarce_h / (kind.calm_h + kind.scarce_h))
    level = int(rng.uniform(0, kind.share * nodes)) if scarce else nodes
    for sample in range(count):
        if rng.random() < -np.expm1(-gap_h / (kind.scarce_h if scarce else kind.calm_h)):
            scarce = not scarce
            level = int(rng.uniform(0, kind.share * nodes)) if scarce else nodes
        elif scarce and rng.random() < gap_h:  # about once an hour
            level = int(np.clip(level + rng.integers(-2, 3), 0, kind.share * nodes))
        counts[sample] = level
    return AvailabilityTrace(gap_s, counts)
