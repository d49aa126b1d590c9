"""Jobs with a deadline on made prices: how many miss it, and their cost over the cheapest plan that knows all prices.

The markets of :mod:`benchmarks.spot`, jobs of 2 h on the reference machines, 1,000 starts a zone (``--seeds N``: so
many), with deadlines of 2.2, 3 and 6 hours, and with four times the spikes. Regret is over the first 100 starts.
"""

import sys
import time
from typing import Any

import numpy as np

from benchmarks.record import Bar, record, seeds_of
from benchmarks.spot import _MARKET, _SEED, _STRESS, comparisons
from benchmarks.spot_optimum import OfflinePlan, offline_optimum
from benchmarks.spot_strategies import strategies_for
from plink.errors import NoAnswer
from plink.model.spot.market_file import market_file_from
from plink.model.spot.prices import HOUR_S
from solvers.spot.simulating import work_of
from solvers.spot.strategies import Comparison, compare, draw_starts

_HOURS, _STARTS, _OPTIMA = 2.0, 1000, 100
_DEADLINES_H = (2.2, 3.0, 6.0)
_STRATEGIES = ("on-demand", "standard-agile", "bidbrain", "clairvoyant")


def _optimum(comparison: Comparison, start: float, deadline_s: float) -> OfflinePlan | None:
    work = work_of(_HOURS, comparison.reference.total_cores, comparison.application)
    try:
        return offline_optimum(comparison, start, work, deadline_s)
    except NoAnswer:
        return None


def rows_of(comparison: Comparison, deadline_s: float, count: int) -> dict[str, Any]:
    """Return the figures of each strategy in one zone."""
    starts = draw_starts(comparison.markets.traces, _HOURS, count, _SEED)
    optima = [_optimum(comparison, start.time, deadline_s) for start in starts[:_OPTIMA]]
    rows: dict[str, Any] = {}
    strategies = strategies_for(_STRATEGIES, comparison, has_deadline=True)
    for result in compare(strategies, comparison, _HOURS, starts, deadline_s=deadline_s):
        pairs = [(o.money, p.money) for o, p in zip(result.outcomes, optima, strict=False) if p is not None]
        spent, least = np.sum(pairs, axis=0)
        rows[result.name] = {
            "cost": round(result.money, 3), "hours": round(result.seconds / HOUR_S, 3),
            "missed": result.missed(deadline_s), "fell_back": round(result.fell_back, 4),
            "evictions": round(result.evictions, 3), "regret": round(float(spent / least - 1), 4),
        }  # fmt: skip
    return rows | {"optima": sum(plan is not None for plan in optima)}


def main() -> int:
    """Run and record; the exit code."""
    file = market_file_from(_MARKET, "benchmarks/spot_deadlines.py")
    count = seeds_of({2: _STARTS})[2]
    began = time.perf_counter()
    figures = {
        f"{what}, {zone}, {hours:g} h": rows_of(comparison, hours * HOUR_S, count)
        for what, factor in (("usual", 1.0), ("4 times the spikes", _STRESS))
        for zone, comparison in comparisons(file, factor).items()
        for hours in _DEADLINES_H
    }
    bars = [
        Bar("jobs of BidBrain that missed a deadline, of all", sum(r["bidbrain"]["missed"] for r in figures.values()),
            at_most=0),
        *(
            Bar(f"regret of BidBrain, worst: {what}",
                max(row["bidbrain"]["regret"] for name, row in figures.items() if name.startswith(what)), at_most=0.15)
            for what in ("usual", "4 times")
        ),
    ]  # fmt: skip
    configuration = {"starts": count, "hours": _HOURS, "deadlines_h": _DEADLINES_H, "optima": _OPTIMA, "seed": _SEED,
                     "seconds": round(time.perf_counter() - began, 1)}  # fmt: skip
    return record("spot_deadlines", configuration, figures, bars)


if __name__ == "__main__":
    sys.exit(main())
