"""Tiers above groups of hosts: candidates by the round trips between groups, confirmed by what they carry.

Round trips show which groups are behind the same router, and not whether its uplink is a bottleneck. So the groups are
merged upwards by the median round trips between them (average linkage), and each step that stands out is a candidate.
All hosts of a candidate's group then send at once: where less comes through than the links below would carry, the group
has a bottleneck of its own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plink.model.network import Matrix
from solvers.hierarchy.linkage import average_linkage

HostGroups = list[list[int]]
Row = Mapping[str, Any]  # of a tier of `Network.shared_links`

MIN_RATIO = 1.1  # of a merge to the one before it; medians of many pairs vary by less
MAX_LINK_SHARE = 0.8  # of what the links below carry: with more these are the limit
_MAX_TIERS = 2  # above the groups


def candidate_tiers(rtt_us: Matrix, groups: HostGroups, min_ratio: float = MIN_RATIO) -> list[HostGroups]:
    """Return groups of hosts that hold several of ``groups`` each, or one as it is, from the innermost tier out.

    :param rtt_us: symmetric round trips, shape (N, N), NaN where unmeasured: as far as the farthest.
    :param min_ratio: of a merge to the one before it.
    """
    if len(groups) < 3:
        return []
    tree = average_linkage(median_between(rtt_us, groups))
    heights = np.maximum(tree.heights, 1e-9)
    ratios = heights[1:] / heights[:-1]
    steps = [k for k in np.argsort(-ratios, kind="stable").tolist() if ratios[k] >= min_ratio][:_MAX_TIERS]
    tiers = []
    for step in sorted(steps):
        label = tree.cut(float(heights[step] + heights[step + 1]) / 2)
        tiers.append(
            [
                sorted(host for group, of in zip(groups, label.tolist(), strict=True) if of == number for host in group)
                for number in range(int(label.max()) + 1)
            ]
        )
    return tiers


def median_between(rtt_us: Matrix, groups: HostGroups) -> Matrix:
    """Return the median round trip between each two groups, shape (G, G), 0 on the diagonal; as far as the farthest
    pair of hosts where none was measured."""
    group_of = np.full(len(rtt_us), -1, dtype=np.intp)
    for number, group in enumerate(groups):
        group_of[group] = number
    first, second = group_of[:, None], group_of
    a, b = np.nonzero((first > second) & (second >= 0) & np.isfinite(rtt_us))
    block, us = group_of[a] * len(groups) + group_of[b], rtt_us[a, b]
    by_block = np.lexsort((us, block))
    block, us = block[by_block], us[by_block]
    number, start, count = np.unique(block, return_index=True, return_counts=True)
    between = np.full((len(groups), len(groups)), float(np.nanmax(rtt_us)))
    between.flat[number] = (us[start + (count - 1) // 2] + us[start + count // 2]) / 2
    between = np.tril(between, -1)
    return np.asarray(between + between.T)


def confirmed_rows(rows: Sequence[Row], below: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the measured rows of a candidate tier, each with what limits it; empty when no group has a bottleneck.

    ``limited_by`` becomes ``groups`` where the links of the groups below were the limit: those of the group's own
    parts, or those of all others, through which its flows went.

    :param rows: of groups with several parts. :param below: rows of the tier below, all groups.
    """
    confirmed, has_bottleneck = [], False
    for row in rows:
        limits, members = {}, set(row["members"])
        parts = [part for part in below if not members.isdisjoint(part["members"])]
        for way, other_way in (("out", "in"), ("in", "out")):
            own = _total_rate(parts, way)
            others = _total_rate([part for part in below if members.isdisjoint(part["members"])], other_way)
            limit = row.get(f"{way}_limited_by")
            if limit == "link" and not row[f"{way}_gbps"] < MAX_LINK_SHARE * min(own, others):
                limit = "groups"
            limits[f"{way}_limited_by"] = limit
        has_bottleneck |= "link" in limits.values()
        # A host that was lost since the parts were measured is in the group as it is in its part.
        lost = [name for part in parts for name in part["members"] if name not in members]
        confirmed.append({**row, **limits, "members": [*row["members"], *lost]})
    return confirmed if has_bottleneck else []


def doubtful_members(rows: Sequence[Row], families: Sequence[Sequence[str]]) -> list[str]:
    """Return the hosts of groups that may be better than measured.

    Two groups of a family send to each other only, so that a slow link of one makes both slow. It shows where both
    carry less than groups of other families.

    :param rows: of one tier. :param families: the names of the hosts of each.
    """
    if len(rows) <= 2:
        return []
    usual = {way: _median_rate(rows, way) for way in ("out", "in")}
    doubted: list[str] = []
    for family in map(set, families):
        inside = [row for row in rows if family.issuperset(row["members"])]
        slow = any(
            (row.get(f"{way}_gbps") or 0.0) < MAX_LINK_SHARE * usual[way] for row in inside for way in ("out", "in")
        )
        if len(inside) == 2 and slow:
            doubted += [name for row in inside for name in row["members"]]
    return doubted


def _median_rate(rows: Sequence[Row], way: str) -> float:
    return float(np.median([row.get(f"{way}_gbps") or 0.0 for row in rows]))


def with_larger(rows: Sequence[Row], again: Sequence[Row]) -> list[dict[str, Any]]:
    """Return rows with the larger capacity of two measurements in each direction: a link carries at least both."""
    others = {tuple(sorted(row["members"])): row for row in again}
    results = []
    for row in rows:
        other, result = others.get(tuple(sorted(row["members"])), {}), dict(row)
        for way in ("out", "in"):
            if (other.get(f"{way}_gbps") or 0.0) > (row.get(f"{way}_gbps") or 0.0):
                result |= {key: value for key, value in other.items() if key.startswith(f"{way}_")}
                key = f"{way}_gbps"
                result["interval"] = {**result.get("interval", {}), key: other.get("interval", {}).get(key)}
        if all(result.get(f"{way}_gbps") is not None for way in ("out", "in")):
            result.pop("why", None)
        results.append(result)
    return results


def _total_rate(parts: list[Row], way: str) -> float:
    """Return what all parts carry together, Gbit/s; 0 where that of one is not known, so that nothing is less."""
    rates = [part.get(f"{way}_gbps") for part in parts]
    return 0.0 if None in rates else float(sum(rate or 0.0 for rate in rates))
