"""How often Autotune notices a change of throughput that there is, and one that there is not, in simulated time.

make bench NAME=autotune_notices

Sixteen ranks in four groups; the throughput of every interval is noise around what it would be. Notices are counted
without a change. With one, a run counts when masters move (one rank becomes slower) or the change is stated (all do)
within twelve intervals of its end.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.record import Bar, record
from solvers.autotune.finetune import quicktune
from solvers.autotune.observed import MasterAssignment, ObservedTraffic
from solvers.autotune.trajectory import (
    QUICKTUNE,
    AutotuneSettings,
    ObservedInterval,
    TuningTrajectory,
    decide,
)
from solvers.schedules.masters import equal_chunks

Vector = npt.NDArray[np.float64]
Generator = np.random.Generator

_GROUPS = tuple(tuple(range(first, first + 4)) for first in range(0, 16, 4))
_RANKS, _CHUNKS = 16, 64
_STEADY, _STEADY_RUNS, _CHANGE_RUNS, _IN_TIME = 300, 60, 100, 12
_BYTES, _BYTES_PER_S = 8_000_000, 9.3e6
_OWN_NOISE, _MORE_NOISE = 0.05, 0.2  # of each rank's rate, besides what is common to all


def _white(share: float) -> Callable[[Generator, int], Vector]:
    return lambda random, number: np.asarray(1 + share * random.standard_normal(number))


def _lingering(share: float, memory: float = 0.7) -> Callable[[Generator, int], Vector]:
    """Return noise in which each value keeps so much of the one before; its standard deviation is ``share``."""

    def draw(random: Generator, number: int) -> Vector:
        values, value = np.empty(number), share * random.standard_normal()
        for k in range(number):
            values[k] = value
            value = memory * value + share * np.sqrt(1 - memory**2) * random.standard_normal()
        return 1 + values

    return draw


def _with_bursts(share: float) -> Callable[[Generator, int], Vector]:
    """Return noise in which one value of twenty is at 0.3, as beside a checkpoint."""

    def draw(random: Generator, number: int) -> Vector:
        values = 1 + share * random.standard_normal(number)
        values[random.integers(20) :: 20] *= 0.3
        return np.asarray(values)

    return draw


NOISES = {
    "5 %": _white(0.05),
    "10 %": _white(0.1),
    "20 %": _white(0.2),
    "30 %": _white(0.3),
    "5 %, every 20th at 0.3": _with_bursts(0.05),
    "5 %, lingering": _lingering(0.05),
    "10 %, lingering": _lingering(0.1),
}
# (at which interval it begins, how many it takes)
CHANGES = ((2, 0), (20, 0), (0, 4), (20, 4), (0, 8), (5, 30))
FACTORS = (0.28, 0.5, 0.75, 2.0)


def _intervals(seed: int, throughputs: Vector, slow_rank: Vector, own: float = _OWN_NOISE) -> list[ObservedInterval]:
    """Return what is observed. ``slow_rank``: rank 0's rate beside the others', for each interval; ``own``: noise of
    each rank's rate."""
    random, intervals = np.random.default_rng(seed), []
    apart = ~np.eye(_RANKS, dtype=bool)
    for throughput, slow in zip(throughputs.tolist(), slow_rank.tolist(), strict=True):
        rates = np.maximum(throughput * (1 + own * random.standard_normal(_RANKS)), 1.0)
        rates[0] *= slow
        bytes_per_s = np.where(apart, np.minimum(rates[:, None], rates) / _RANKS, np.nan)
        rtt_s = np.where(apart, 1e-4, np.nan)
        traffic = ObservedTraffic(np.where(apart, float(_BYTES), 0.0), bytes_per_s, rtt_s)
        intervals.append(ObservedInterval(0, _BYTES, _BYTES / max(throughput, 1.0), traffic))
    return intervals


def _notices(intervals: list[ObservedInterval], slow: float = 1.0) -> list[tuple[int, bool]]:
    """Return at which intervals a change was stated, and whether masters moved, which ends the run. ``slow``: rank 0's
    rate by which masters are in proportion at the beginning."""
    masters, settings = MasterAssignment(_GROUPS, *equal_chunks(_GROUPS, _CHUNKS)), AutotuneSettings()
    if slow < 1:
        traffic = _intervals(0, np.full(1, _BYTES_PER_S), np.full(1, slow), 0.0)
        masters = quicktune(masters, traffic[0].observed, settings.alike)
    trajectory, noticed = TuningTrajectory(masters), list[tuple[int, bool]]()
    for k, interval in enumerate(intervals):
        trajectory, decision = decide(trajectory, interval, settings)
        if decision.reason.startswith("throughput went") and "not yet" not in decision.reason:
            noticed.append((k, decision.action == QUICKTUNE))
        if decision.assignment is not None:
            break
    return noticed


def steady(noise: str, own: float, slow: float) -> dict[str, Any]:
    """Return notices of 100 intervals in which nothing changes, and the share of runs in which masters move. ``slow``:
    rank 0's rate, to which masters are in proportion."""
    number, moved, intervals = 0, 0, 0
    for seed in range(_STEADY_RUNS):
        drawn = np.maximum(NOISES[noise](np.random.default_rng(seed), _STEADY), 0.01)
        noticed = _notices(_intervals(seed, _BYTES_PER_S * drawn, np.full(_STEADY, slow), own), slow)
        has_moved = bool(noticed) and noticed[-1][1]
        intervals += noticed[-1][0] + 1 if has_moved else _STEADY
        number, moved = number + len(noticed), moved + has_moved
    return {
        "noise": noise, "own_noise": own, "rank_0": slow,
        "notices_per_100": round(100 * number / intervals, 3),
        "runs_with_moves": round(moved / _STEADY_RUNS, 3),
    }  # fmt: skip


def changing(noise: str, factor: float, begins: int, takes: int, *, one_rank: bool) -> dict[str, Any]:
    """Return the share of runs in which a change is noticed within twelve intervals of its end: that masters move,
    where it is one rank's."""
    total, noticed_runs = begins + takes + _IN_TIME, 0
    steps = np.clip((np.arange(total) - begins + 1) / max(1, takes), 0, 1)
    course = factor**steps
    for seed in range(_CHANGE_RUNS):
        drawn = np.maximum(NOISES[noise](np.random.default_rng(seed), total), 0.01)
        slow = course if one_rank else np.ones(total)
        noticed = _notices(_intervals(seed, _BYTES_PER_S * drawn * course, slow))
        noticed_runs += any(k >= begins and (moved or not one_rank) for k, moved in noticed)
    return {
        "noise": noise, "factor": factor, "begins": begins, "takes": takes, "one_rank": one_rank,
        "noticed": noticed_runs / _CHANGE_RUNS,
    }  # fmt: skip


def main() -> int:
    """Run and record; the exit code."""
    unchanged = [
        steady(noise, own, slow) for own in (_OWN_NOISE, _MORE_NOISE) for slow in (1.0, 0.5) for noise in NOISES
    ]
    changes = [
        changing(noise, factor, *when, one_rank=one_rank)
        for one_rank in (True, False)
        for noise in ("5 %", "20 %")
        for factor in FACTORS
        if factor < 1 or not one_rank
        for when in CHANGES
    ]
    halved = [each["noticed"] for each in changes if each["noise"] == "5 %" and each["factor"] <= 0.5]
    bars = [
        Bar(
            "noise of a rank 5 %: masters move in runs without a change, share of runs at worst",
            max(row["runs_with_moves"] for row in unchanged if row["own_noise"] == _OWN_NOISE),
            0.02,
        ),
        Bar("notices of 100 intervals without a change, white noise of 5 %", unchanged[0]["notices_per_100"], 0.05),
        Bar("a half or less, noise of 5 %: noticed, share of runs at worst", min(halved), at_least=0.9),
    ]
    configuration = {
        "ranks": _RANKS, "intervals": _STEADY, "runs": [_STEADY_RUNS, _CHANGE_RUNS], "noticed_within": _IN_TIME,
        "noise_of_each_rank": _OWN_NOISE,
    }  # fmt: skip
    return record("autotune_notices", configuration, {"unchanged": unchanged, "changes": changes}, bars)


if __name__ == "__main__":
    sys.exit(main())
