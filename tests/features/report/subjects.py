"""Networks to draw: racks handed out in turns, with whatever is wanted wrong with them."""

from dataclasses import replace
from typing import Any

import numpy as np

from plink.features.report.data import (
    Bandwidths,
    Gap,
    HostMap,
    LinkDirection,
    Plane,
    ProbeSummary,
    ReportData,
    Route,
    SharedLink,
    TieredGroups,
    TierStatistics,
    TimedOrder,
)
from plink.model.diagnosis import Finding, Severity
from plink.model.order import OrderValidation
from solvers.costs.loads import Bottleneck

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
    into_first = Bottleneck("hosts", ("host0, in",), (0,), (), hops[-1:], 300.0, 500.0)
    angle = 2 * np.pi * rack / racks
    xy = 5 * np.stack([np.cos(angle), np.sin(angle)], axis=1) + rng.normal(0, 0.3, (hosts, 2))
    made = ReportData(
        names=tuple(f"host{k}" for k in range(hosts)),
        measured_us=measured,
        groups=TieredGroups(rack, tiers, "the tiers of the round trips"),
        route=Route(
            "ring",
            order,
            hops,
            into_first,
            500.0,
            1000.0,
            OrderValidation(gain=0.48, low=0.45, high=0.51, confidence=0.95),
        ),
        map=HostMap(xy, "√us", Plane(xy, "spread", 0.8), 4, true, 0.05),
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
        remarks=(Finding("slow host", Severity.ERROR, ["host7"], NASTY, "look at `it`"),),
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


def linked(hosts: int = 16, racks: int = 4, pods: int = 1, **changes: Any) -> ReportData:
    """Racks with shared links of all kinds, and pods around them: the first rack's way out is the bottleneck, the
    second one's hosts are the limit, the third one was not measured, and of the last the repeats are unknown."""
    rack_of = np.arange(hosts) % racks
    busy: dict[str, Any] = {"limited_by": "link", "load_bytes": 2e8}
    slow = LinkDirection(1.0, 1.0, 1.0, busy_us=1.6e6, **busy)
    ways = [
        (LinkDirection(0.5, 0.45, 0.52, busy_us=3.2e6, **busy), LinkDirection(1.0, 0.95, 1.1, busy_us=1.6e6, **busy)),
        (LinkDirection(2.0, 1.9, 2.0, "hosts", None, 2e8), LinkDirection(2.0, 1.9, 2.0, "groups", None, 0.0)),
        (LinkDirection(None, None, None, "", 0.8, 2e8, 2e6), LinkDirection(None, None, None, "", None, 2e8)),
        (replace(slow, low=None, high=None), slow),
    ]
    inner = tuple(
        SharedLink(
            tuple(np.flatnonzero(rack_of == rack).tolist()), (1, rack % pods) if pods > 1 else None, *ways[rack % 4],
            NASTY if rack == 2 else "",
        )
        for rack in range(racks)
    )  # fmt: skip
    outer = tuple(
        SharedLink(tuple(np.flatnonzero(rack_of % pods == pod).tolist()), None, *ways[3]) for pod in range(pods)
    )
    rates = np.linspace(0.9, 1.0, hosts)
    rates[1] = np.nan
    pair = np.where(rack_of[:, None] == rack_of[None, :], 1.0, 0.3)
    made = facts(hosts, racks)
    assert made.route is not None
    assert made.route.bottleneck is not None
    blamed = replace(made.route.bottleneck, kind="links", links=((0, 0, True),))
    bandwidths = Bandwidths((inner, outer) if pods > 1 else (inner,), "", 1e8, pair, rates, rates[::-1])
    probes = ProbeSummary("2026-11-24T09:12:33Z", (("STAMP", 230), ("TCP", 10)), (200, 260, 1400), 62_000, "all")
    made = replace(made, route=replace(made.route, bottleneck=blamed), bandwidths=bandwidths, probes=probes)
    return replace(made, **changes)
