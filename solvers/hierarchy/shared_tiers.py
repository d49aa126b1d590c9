"""Tiers above groups of hosts: candidates by the round trips between groups, confirmed by what they carry.

Round trips show which groups are behind the same router, and not whether its uplink is a bottleneck. So the groups are
merged upwards by the median round trips between them (average linkage), and each step that stands out is a candidate.
All hosts of a candidate's group then send at once: where less comes through than the links below would carry, the group
has a bottleneck of its own.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import structs

from plink.model.network import Matrix
from plink.model.network_file import SharedLinkEntry
from solvers.hierarchy.linkage import average_linkage

HostGroups = list[list[int]]
Row = SharedLinkEntry

MIN_RATIO = 1.1  # of a merge to the one before it; medians of many pairs vary by less
MAX_LINK_SHARE = 0.8  # of what the links below carry: with more these are the limit
_MAX_TIERS = 2  # above the groups
_OWN_LIMITS = frozenset({"link", "others"})  # a link of the tier itself
_SAME_SHARE = 0.87  # of what others carry: with more they may be the limit


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


def confirmed_rows(rows: Sequence[Row], below: Sequence[Row]) -> list[Row]:
    """Return the measured rows of a candidate tier, each with what limits it; empty when no group has a bottleneck.

    ``limited_by`` becomes ``groups`` where the links of the groups below were the limit: those of the group's own
    parts, or those of all others, through which its flows went.

    :param rows: of groups with several parts. :param below: rows of the tier below, all groups.
    """
    confirmed, has_bottleneck = [], False
    for row in rows:
        limits, members = dict[str, Any](), set(row.members)
        parts = [part for part in below if not members.isdisjoint(part.members)]
        for way, other_way in (("out", "in"), ("in", "out")):
            own = _total_rate(parts, way)
            others = _total_rate([part for part in below if members.isdisjoint(part.members)], other_way)
            limit = row.limited_by(way)
            if limit in _OWN_LIMITS and not (row.gbps(way) or 0.0) < MAX_LINK_SHARE * min(own, others):
                limit = "groups"
            limits[f"{way}_limited_by"] = limit
        has_bottleneck |= not _OWN_LIMITS.isdisjoint(limits.values())
        # A host that was lost since the parts were measured is in the group as it is in its part.
        lost = [name for part in parts for name in part.members if name not in members]
        confirmed.append(structs.replace(row, members=[*row.members, *lost], **limits))
    return confirmed if has_bottleneck else []


def limited_from_above(rows: Sequence[Row], above: Sequence[Row]) -> list[Row]:
    """Return rows of a tier, each with what limits it by the links of a tier above.

    ``limited_by`` becomes ``others`` where a group carried what others inside the group above, and the link of that
    group, carry together.

    :param above: of a tier further out, confirmed.
    """
    results = []
    for row in rows:
        result, members = row, set(row.members)
        for outer in (outer for outer in above if members < set(outer.members)):
            beside = [other for other in rows if other is not row and not set(outer.members).isdisjoint(other.members)]
            for way, other_way in (("out", "in"), ("in", "out")):
                has_limit = row.limited_by(way) == "link" and outer.limited_by(way) in _OWN_LIMITS
                if has_limit and (row.gbps(way) or 0.0) > _SAME_SHARE * (
                    _total_rate(beside, other_way) + (outer.gbps(way) or 0.0)
                ):
                    result = structs.replace(result, **{f"{way}_limited_by": "others"})
        results.append(result)
    return results


def _total_rate(parts: Sequence[Row], way: str) -> float:
    """Return what all parts carry together, Gbit/s; 0 where that of one is not known, so that nothing is less."""
    rates = [part.gbps(way) for part in parts]
    return 0.0 if None in rates else float(sum(rate or 0.0 for rate in rates))
