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
from benchmarks.spot_zone_policies import (
    NextZone,
    OneZone,
    ZoneBidBrain,
    ZoneJob,
    ZonePolicy,
    ZoneRecord,
    simulate_zones,
)
from solvers.spot.billing import BILLINGS
from solvers.spot.footprint import Application
from solvers.spot.odds import advisor_rate, prior

_DAYS, _NODES = 45, 16
_TRAIN_SHARE = 0.3  # of the histories: BidBrain knows them, and the rest is simulated
_ADVISOR_BUCKET = 2
_TIMES = {"calm": 1.0, "busy": 0.25, "busiest": 0.1}
_EVICT_S = (60, 300)


def _row(factor: float, evict_s: float, billing: str, seed: int) -> dict[str, Any]:
    kinds = [replace(kind, calm_h=kind.calm_h * factor, scarce_h=kind.scarce_h * factor) for kind in KINDS]
    traces = make_availability(kinds, _DAYS, seed, _NODES)
    training = round(_TRAIN_SHARE * len(traces[0].counts))
    before = [replace(trace, counts=trace.counts[:training]) for trace in traces]
    after = [replace(trace, counts=trace.counts[training:]) for trace in traces]
    job = ZoneJob(_NODES, Application(evict_s=evict_s), BILLINGS[billing])
    records = [ZoneRecord.of(trace, _NODES, prior(advisor_rate(_ADVISOR_BUCKET))) for trace in before]
    policies: dict[str, ZonePolicy] = {"next zone": NextZone(len(traces)), "bidbrain": ZoneBidBrain(job, records)}
    singles = [simulate_zones(after, job, OneZone(zone), seed) for zone in range(len(traces))]
    row: dict[str, Any] = {"zones": [(single.cost, single.half_share) for single in singles]}
    for name, policy in policies.items():
        end = simulate_zones(after, job, policy, seed)
        row[name] = {
            "cost": end.cost, "half_share": end.half_share, "work": end.work, "free": end.free_hours,
            "interrupted": end.interrupted,
        }  # fmt: skip
    return row


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
