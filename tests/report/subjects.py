"""Networks to draw: racks handed out in turns, with whatever is wanted wrong with them."""

from dataclasses import replace
from typing import Any

import numpy as np

from plink.report.report_data import (
    GainEstimate,
    Gap,
    HostMap,
    Remark,
    ReportData,
    Route,
    TieredGroups,
    TierStatistics,
    TimedOrder,
)

NASTY = "</script><b>&\"'`x`\u2028$a^2$"


def facts(hosts: int = 8, racks: int = 2, seed: int = 0, **changes: Any) -> ReportData:
    """Host k is in rack k modulo ``racks``; 40 us in a rack, 95 us between racks, 4 % of noise."""
    rng = np.random.default_rng(seed)
    rack = np.arange(hosts) % racks
    same = rack[:, None] == rack[None, :]
    true = np.where(same, 40.0, 95.0)
    measured = true * rng.lognormal(0, 0.04, true.shape)
    np.fill_diagonal(measured, 0.0)
    np.fill_diagonal(true, 0.0)
    upper = np.triu(np.ones_like(same), 1)
    tiers = tuple(
        TierStatistics(name, int((upper & part).sum()), int((upper & part).sum()), us * 0.95, us, us * 1.05)
        for name, part, us in (("inside groups", same, 40.0), ("between groups", ~same, 95.0))
        if (upper & part).any()
    )
    order = np.argsort(rack, kind="stable")
    hops = np.sort(np.stack([order, np.roll(order, 1)], axis=1), axis=1)
    angle = 2 * np.pi * rack / racks
    xy = 5 * np.stack([np.cos(angle), np.sin(angle)], axis=1) + rng.normal(0, 0.3, (hosts, 2))
    made = ReportData(
        names=tuple(f"host{k}" for k in range(hosts)),
        measured_us=measured,
        groups=TieredGroups(rack, tiers, "the tiers of the round trips"),
        route=Route("ring", order, hops, (0, hosts - 1), 500.0, 1000.0, GainEstimate(0.48, 0.45, 0.51, 0.95)),
        map=HostMap(xy, "√µs", 0.8, 4, 2.0, true, 0.05),
        sources=("cloud.json",),
    )
    return replace(made, **changes)


def troubled() -> ReportData:
    """Sixteen hosts in four racks; one is left out, one pair is missing, and texts hold what a page must not run."""
    made = facts(16, 4)
    measured = made.measured_us.copy()
    measured[5, :] = measured[:, 5] = np.nan
    measured[5, 5] = 0.0
    measured[2, 3] = np.nan
    there = made.map
    assert there is not None
    xy = there.xy.copy()
    xy[5] = np.nan
    return replace(
        made,
        measured_us=measured,
        map=replace(there, xy=xy),
        left_out=("host5",),
        gaps=(Gap("host5", 30, NASTY), Gap("host2 → host3", 1, "timed out")),
        remarks=(Remark("slow host", "error", ("host7",), NASTY, "look at `it`"),),
        runs=(
            TimedOrder(NASTY, 500.0, (0.2, 0.21)),
            TimedOrder("given", 1000.0, (0.5,)),
            TimedOrder("unpriced", None, (0.4,)),
        ),
        sources=(NASTY,),
    )


def plain(hosts: int) -> ReportData:
    """Hosts that are all alike, without an order or a map."""
    groups = TieredGroups(
        np.zeros(hosts, dtype=np.intp), (TierStatistics("all pairs", 1, 1, 60.0, 60.0, 60.0),), "none"
    )
    measured = np.full((hosts, hosts), 60.0)
    np.fill_diagonal(measured, 0.0)
    return ReportData(tuple(f"h{k}" for k in range(hosts)), measured, groups, no_route="No order.", no_map="No map.")
