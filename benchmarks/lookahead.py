"""Whether ZipLine's lookahead should pay for its uncertainty, in simulated time (Zhao et al. 2019, IV).

The further a barrier is, the less is known of when workers arrive there: errors of k steps add up to sigma * sqrt(k).
``paper``: the barrier of least predicted wait, the first such one, as plink takes it. ``uncertain``: the one of least
predicted wait plus that error, with sigma as it is. A step takes a second over its worker's speed, and jitter.
"""

import statistics
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.record import Bar, record
from benchmarks.rule_courses import SPEEDS
from plink.runtime.elastic.worker.zipline import barrier

_JITTERS, _MOST_STEPS, _DEFAULT = (0.1, 0.3), (15, 60, 240), 15
_SEEDS, _STEPS = 6, 4800

Vector = npt.NDArray[np.float64]
Counts = npt.NDArray[np.intp]


def uncertain_barrier(expected_s: Vector, most: int, jitter: float) -> Counts:
    """Return each worker's steps until the barrier of least wait plus error.

    :param expected_s: of a step of each worker. :param jitter: a step's time is uniform within that share of it.
    """
    workers = len(expected_s)
    ends = expected_s[:, None] * np.arange(1, most + 1)
    spread_s = expected_s[:, None] * jitter / np.sqrt(3) * np.sqrt(np.arange(1, most + 1))
    order = ends.ravel().argsort(kind="stable")
    place = np.empty((workers, most), dtype=np.intp)
    place.ravel()[order] = np.arange(ends.size)
    following = np.full(ends.size, ends.size, dtype=np.intp)
    following[place[:, :-1]] = place[:, 1:]
    last = np.arange(place[:, 0].max(), ends.size)
    first = np.maximum.accumulate(following).searchsorted(last, side="right")
    in_time, spread_s = ends.ravel()[order], spread_s.ravel()[order]
    scores = in_time[last] - in_time[first] + np.hypot(spread_s[last], spread_s[first]) / np.sqrt(2)
    return np.asarray((place <= last[int(scores.argmin())]).sum(axis=1))


def course(speeds: tuple[float, ...], most: int, jitter: float, seed: int, *, uncertain: bool) -> tuple[float, float]:
    """Return seconds of a job, and the mean of its supersteps."""
    random, speed, expected_s = np.random.default_rng(seed), np.array(speeds), np.zeros(0)
    done, now, supersteps = 0, 0.0, 0
    while done < _STEPS:
        counts = np.ones(len(speeds), dtype=np.intp)
        if len(expected_s) and uncertain:
            counts = uncertain_barrier(expected_s, most, jitter)
        elif len(expected_s):
            counts = barrier(expected_s[:, None] * np.arange(1, most + 1))[1]
        counts = np.maximum(1, (counts * min(1.0, (_STEPS - done) / counts.sum())).astype(np.intp))
        ends = np.array([(1 + random.uniform(-jitter, jitter, int(count))).sum() for count in counts]) / speed
        now, done, supersteps = now + float(ends.max()), done + int(counts.sum()), supersteps + 1
        latest = ends / counts
        expected_s = 0.5 * latest + 0.5 * expected_s if len(expected_s) else latest
    return now, now / supersteps


def figures_of() -> list[dict[str, Any]]:
    """Return a row for each speeds, jitter and R: mean seconds in all and of a superstep, both ways."""
    rows: list[dict[str, Any]] = []
    for name, speeds in SPEEDS.items():
        for jitter in _JITTERS:
            for most in _MOST_STEPS:
                row: dict[str, Any] = {"speeds": name, "jitter": jitter, "steps": most}
                for key in ("paper", "uncertain"):
                    courses = [course(speeds, most, jitter, s, uncertain=key == "uncertain") for s in range(_SEEDS)]
                    row[f"{key}_s"] = round(statistics.fmean(seconds for seconds, _ in courses), 1)
                    row[f"{key}_superstep_s"] = round(statistics.fmean(each for _, each in courses), 2)
                rows.append(row)
    return rows


def main() -> int:
    """Run and record; the exit code."""
    rows = figures_of()
    ratios = [row["paper_s"] / row["uncertain_s"] for row in rows]
    default = [ratio for ratio, row in zip(ratios, rows, strict=True) if row["steps"] == _DEFAULT]
    bars = [
        Bar("R=15: the paper's barrier over the uncertain one's time, at worst", max(default), 1.0),
        Bar("R=15 to 240: the same", max(ratios), 1.01),
    ]
    configuration = {"speeds": SPEEDS, "steps": _STEPS, "seeds": _SEEDS}
    return record("lookahead", configuration, {"rows": rows}, bars)


if __name__ == "__main__":
    sys.exit(main())
