"""Summary of a pair's samples, computed on the host so that samples need not travel.

Runs on the hosts: standard library only.
"""

from __future__ import annotations

import math
from typing import Any

PERCENTILES = (1, 10, 50, 90, 99)


def summary(round_trips_ns: list[int]) -> dict[str, Any]:
    """Return nearest-rank percentiles, microseconds, of all samples and of the even and the odd ones (for
    cross-validation), and the mean difference of consecutive samples. Negative values, which only a stepping clock
    causes, are counted apart.
    """
    valid = [value for value in round_trips_ns if value > 0]
    differences = [abs(b - a) for a, b in zip(valid, valid[1:])]  # noqa: RUF007, B905  (hosts may have Python 3.8)
    return {
        "received": len(round_trips_ns),
        "clock_steps": len(round_trips_ns) - len(valid),
        "percentiles_us": percentiles(valid, PERCENTILES),
        "halves_us": [percentiles(valid[start::2], (10,))[0] for start in (0, 1)],
        "jitter_us": sum(differences) / len(differences) / 1000 if differences else None,
    }


def is_precise(round_trips_ns: list[int], share: float) -> bool:
    """Return whether the 10th percentile is known to within a share of it, with 95 % confidence.

    By order statistics: of n samples, the true percentile lies between those of ranks n/10 - 2 sigma and
    n/10 + 2 sigma, sigma^2 = n (1/10) (9/10). That holds for independent samples, so the earlier and the later half
    have to agree too.
    """
    valid = [value for value in round_trips_ns if value > 0]
    if len(valid) < 40:
        return False
    ordered = sorted(valid)
    reach = 2 * math.sqrt(0.09 * len(ordered))
    low = ordered[max(0, int(len(ordered) / 10 - reach) - 1)]
    high = ordered[min(len(ordered) - 1, int(len(ordered) / 10 + reach))]
    half = len(valid) // 2
    earlier, later = (sorted(part)[len(part) // 10] for part in (valid[:half], valid[half:]))
    return max(high - low, abs(later - earlier)) <= 2 * share * ordered[len(ordered) // 10]


def percentiles(values_ns: list[int], which: tuple[int, ...]) -> list[float | None]:
    """Return nearest-rank percentiles in microseconds, None without values."""
    if not values_ns:
        return [None for _ in which]
    ordered = sorted(values_ns)
    return [ordered[max(0, -(-len(ordered) * p // 100) - 1)] / 1000 for p in which]
