"""Summary of a pair's samples, computed on the host so that samples need not travel.

Runs on the hosts: standard library only.
"""

from __future__ import annotations

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


def percentiles(values_ns: list[int], which: tuple[int, ...]) -> list[float | None]:
    """Return nearest-rank percentiles in microseconds, None without values."""
    if not values_ns:
        return [None for _ in which]
    ordered = sorted(values_ns)
    return [ordered[max(0, -(-len(ordered) * p // 100) - 1)] / 1000 for p in which]
