"""Where to hold 16 instances of nine zones by their availability, on made histories: BidBrain over all zones against
each zone alone and against the next zone after each interruption. Prices are equal; the first hour is free if the
provider interrupts it, as on EC2 today.

Calm histories are those of :data:`benchmarks.made_availability.KINDS`; in busy ones all times are a quarter as long,
in the busiest a tenth.
"""

import statistics
import sys
from dataclasses import replace
from typing import Any

from benchmarks.made_availability import KINDS, make_availability
from benchmarks.record import Bar, record, seeds_of
from plink.api.spot_zones import compare_zones
from plink.model.spot.market_file import market_file_from
from plink.model.spot.prices import Market

_DAYS, _NODES = 45, 16
_TIMES = {"calm": 1.0, "busy": 0.25, "busiest": 0.1}
_EVICT_S = (60, 300)
_MARKET: dict[str, Any] = {
    "types": [{"name": "v100", "cores": 8, "on_demand": 3.06}],
    "reference": {"type": "v100", "count": _NODES},
    "limits": {"max_cores": 8 * _NODES},
}


def _row(factor: float, evict_s: float, billing: str, seed: int) -> dict[str, Any]:
    kinds = [replace(kind, calm_h=kind.calm_h * factor, scarce_h=kind.scarce_h * factor) for kind in KINDS]
    traces = make_availability(kinds, _DAYS, seed, _NODES)
    application = {"start_s": 120, "add_s": 30, "evict_s": evict_s}
    market_file = market_file_from(_MARKET | {"billing": billing, "application": application}, "benchmarks")
    availability = {Market(f"zone-{number}", "v100"): trace for number, trace in enumerate(traces)}
    results = compare_zones(market_file, availability, seed=seed).results
    return {
        "zones": [(row.outcome.cost, row.outcome.half_share) for row in results if row.strategy == "one zone"],
        **{
            row.strategy: {
                "cost": row.outcome.cost, "half_share": row.outcome.half_share, "work": row.outcome.work,
                "free": row.outcome.free_hours, "interrupted": row.outcome.interrupted,
            }
            for row in results if row.strategy != "one zone"
        },
    }  # fmt: skip


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over seeds, and the worst beside the cheapest zone."""

    def median(strategy: str, key: str) -> float:
        return float(round(statistics.median(row[strategy][key] for row in rows), 4))

    steady = [min(cost for cost, share in row["zones"] if share >= 0.9) for row in rows]
    cheapest = [min(cost for cost, _ in row["zones"]) for row in rows]
    own = [row["bidbrain"]["cost"] for row in rows]
    return {
        **{name: {key: median(name, key) for key in rows[0][name]} for name in ("next zone", "bidbrain")},
        "over_next_zone": round(max(row["bidbrain"]["cost"] / row["next zone"]["cost"] for row in rows), 4),
        "over_cheapest_zone": round(max(a / b for a, b in zip(own, cheapest, strict=True)), 4),
        "over_cheapest_steady_zone": round(max(a / b for a, b in zip(own, steady, strict=True)), 4),
        "zones": [
            {"cost": round(statistics.median(row["zones"][k][0] for row in rows), 4),
             "half_share": round(statistics.median(row["zones"][k][1] for row in rows), 4)}
            for k in range(len(KINDS))
        ],
    }  # fmt: skip


def main() -> int:
    """Run and record; the exit code."""
    seeds = seeds_of({0: 5})[0]
    figures: dict[str, Any] = {}
    bars = []
    for name, factor in _TIMES.items():
        for evict_s in _EVICT_S:
            what = f"{name}, {evict_s} s an interruption"
            summary = _summary([_row(factor, evict_s, "first-hour-free", seed) for seed in range(seeds)])
            figures[what] = summary
            bars += [
                Bar(f"{what}: cost by next zone, worst seed", summary["over_next_zone"], at_most=0.95),
                Bar(f"{what}: cost by the cheapest zone, worst seed", summary["over_cheapest_zone"], at_most=1.1),
            ]
    figures["calm, per second"] = _summary([_row(1.0, 60, "per-second", seed) for seed in range(seeds)])
    configuration = {"days": _DAYS, "nodes": _NODES, "seeds": seeds, "start_s": 120, "add_s": 30}
    return record("spot_zones", configuration, figures, bars)


if __name__ == "__main__":
    sys.exit(main())
