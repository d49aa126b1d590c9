"""A pair's samples in a few numbers, made on the host so that samples need not travel.

Runs on the hosts: standard library only.
"""

from __future__ import annotations

from typing import Any

PERCENTILES = (1, 10, 50, 90, 99)


def summary(round_trips_ns: list[int]) -> dict[str, Any]:
    """Percentiles in microseconds (nearest rank) of all samples and of the even and odd ones (to judge on what was not
    fitted), and the mean difference of one sample from the next. Negative values, which only a stepping clock can make,
    are left out and counted."""
    good = [value for value in round_trips_ns if value > 0]
    steps = [abs(b - a) for a, b in zip(good, good[1:])]  # noqa: RUF007, B905  (hosts may have Python 3.8)
    return {
        "received": len(round_trips_ns),
        "clock_steps": len(round_trips_ns) - len(good),
        "percentiles_us": percentiles(good, PERCENTILES),
        "halves_us": [percentiles(good[start::2], (10,))[0] for start in (0, 1)],
        "jitter_us": sum(steps) / len(steps) / 1000 if steps else None,
    }


def percentiles(values_ns: list[int], which: tuple[int, ...]) -> list[float | None]:
    """Nearest-rank percentiles in microseconds, None without values."""
    if not values_ns:
        return [None for _ in which]
    ordered = sorted(values_ns)
    return [ordered[max(0, -(-len(ordered) * p // 100) - 1)] / 1000 for p in which]
