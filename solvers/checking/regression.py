"""Whether a check came out worse than an earlier one, beyond noise."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from solvers.checking.agreement import Correlation


@dataclass(frozen=True)
class Tolerance:
    """``time``: by which share the cheapest order may take longer. ``spearman``: by how much the rank correlation may
    be lower."""

    time: float = 0.1
    spearman: float = 0.05


def slower(before_s: Sequence[float], now_s: Sequence[float], tolerance: Tolerance) -> float | None:
    """How many times longer it takes now, None where that is within the tolerance or the noise: the medians are
    further apart than the tolerance, and half of what was measured now took longer than all that was before.

    :param before_s: seconds of the repetitions then, at least one. :param now_s: now.
    """
    ratio = median(now_s) / median(before_s)
    return ratio if ratio > 1 + tolerance.time and median(now_s) > max(before_s) else None


def ranks_worse(before: Correlation, now: float, tolerance: Tolerance) -> bool:
    """Whether the model ranks orders worse than it did, by Spearman's correlation: lower by more than the tolerance,
    and below the interval of what was found before, where it has one. Few orders vary by more than the tolerance from
    one day to the next without anything being wrong: two neighbours of four that change over are 0.2."""
    return now < before.spearman - tolerance.spearman and (before.low is None or now < before.low)
