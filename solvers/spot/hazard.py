"""The rate of evictions where no bid decides: capacity is taken back at a rate (design: today's clouds).

The rate per instance-hour is the mean of a Gamma distribution: a prior from what the provider publishes, worth 24
instance-hours, updated by own interruptions and by availability histories.
"""

import math
from dataclasses import dataclass

import numpy as np

from plink.model.spot.availability import AvailabilityTrace
from plink.model.spot.prices import HOUR_S

HOURS_OF_MONTH = 730.0
PRIOR_HOURS = 24.0
# Shares of a month by bucket of the Spot Instance Advisor: < 5, 5-10, 10-15, 15-20, > 20 %; the middle of each.
ADVISOR_SHARES = (0.025, 0.075, 0.125, 0.175, 0.30)


def advisor_rate(bucket: int) -> float:
    """Return the interruptions per instance-hour of a bucket (0 to 4) of the Spot Instance Advisor."""
    return -math.log1p(-ADVISOR_SHARES[bucket]) / HOURS_OF_MONTH


@dataclass(frozen=True)
class Interruptions:
    """How often instances were taken back: ``count`` in ``hours`` instance-hours."""

    count: float
    hours: float

    def __add__(self, other: "Interruptions") -> "Interruptions":
        return Interruptions(self.count + other.count, self.hours + other.hours)

    @property
    def rate(self) -> float:
        """Per instance-hour; 0 where nothing was held."""
        return self.count / self.hours if self.hours > 0 else 0.0


def prior(rate: float) -> Interruptions:
    """Return what a published rate counts for."""
    return Interruptions(rate * PRIOR_HOURS, PRIOR_HOURS)


def observed(trace: AvailabilityTrace, instances: int | None = None) -> Interruptions:
    """Return the interruptions in an availability history of those who hold all that there is, up to ``instances``
    instances: each fall of the count takes that many."""
    counts = trace.counts if instances is None else np.minimum(trace.counts, instances)
    falls = np.maximum(0, -np.diff(counts)).sum()
    return Interruptions(float(falls), float(counts[:-1].sum()) * trace.gap_s / HOUR_S)


@dataclass(frozen=True)
class Spells:
    """``share``: of the time in which instances could be held; ``hours``: how long each spell lasted."""

    share: float
    hours: tuple[float, ...]


def spells(trace: AvailabilityTrace, instances: int = 1) -> Spells:
    """Return the spells in which ``instances`` instances could be held, the unfinished last one included."""
    held = np.concatenate([[False], trace.counts >= instances, [False]])
    edges = np.flatnonzero(held[1:] != held[:-1])
    lengths = (edges[1::2] - edges[::2]) * trace.gap_s / HOUR_S
    return Spells(float((trace.counts >= instances).mean()), tuple(lengths.tolist()))


@dataclass(frozen=True)
class ExponentialEvictions:
    """Evictions at a constant rate per hour: T ~ Exp(rate)."""

    rate: float

    def within(self, hours: float) -> tuple[float, float]:
        """Return P(T < hours), and E[T; T < hours] in hours."""
        if self.rate <= 0:
            return 0.0, 0.0
        x = self.rate * hours
        return -math.expm1(-x), (-math.expm1(-x) - x * math.exp(-x)) / self.rate
