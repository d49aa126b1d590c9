"""Tiers above groups of hosts: candidates by the round trips between groups, confirmed by what they carry.

Round trips show which groups are behind the same router, and not whether its uplink is a bottleneck. So the groups are
merged upwards by the median round trips between them (average linkage), and each step that stands out is a candidate.
All hosts of a candidate's group then send at once: where less comes through than the links below would carry, the group
has a bottleneck of its own.

How sure groups and tiers are: the share of resamples of the round trips in which they are found again.

Each direction of each pair has two round trips, of two disjoint halves of its samples. A resample takes one of the two
at random, each pair by itself: a half-sample replicate (McCarthy 1969). It is off the mean of both by half of their
difference, whose variance is that of the whole's own error. So pairs are as noisy in a resample as they were measured.

The tree of each resample is cut at the height of the tree of all samples. The share of resamples in which a group has
exactly the same hosts is its bootstrap proportion (Felsenstein 1985). That of a tier is the share in which all of its
groups are found at once. Noise that both halves share, like a slow hour, is not seen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import structs

from plink.model.network import Matrix, symmetrised
from plink.model.network_file import SharedLinkEntry
from solvers.hierarchy.tiers import Labels, average_linkage, completed_by_detours, robust_linkage

HostGroups = list[list[int]]
Row = SharedLinkEntry
MIN_RATIO = 1.1  # of a merge to the one before it; medians of many pairs vary by less
MAX_LINK_SHARE = 0.8  # of what the links below carry: with more these are the limit
_MAX_TIERS = 2  # above the groups
_OWN_LIMITS = frozenset({"link", "others"})  # a link of the tier itself
_SAME_SHARE = 0.87  # of what others carry: with more they may be the limit
# Of so many hosts and more, the resamples: a standard error of at most 5, 11 and 22 points. One of 1,024 hosts takes
# 0.6 s, and more of more.
_RESAMPLES = ((2049, 0), (513, 5), (129, 20), (0, 100))
_MIN_HALVED_SHARE = 0.5  # of the measured round trips: with fewer halves the noise is not known


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


@dataclass(frozen=True)
class TierConfidence:
    """``tier``: share of resamples with all groups of the tier; ``groups``: with each of them, in their order."""

    tier: float
    groups: tuple[float, ...]


def tier_confidences(
    latency_us: Matrix,
    halves_us: Sequence[Matrix],
    tiers: Sequence[HostGroups],
    label: Callable[[Matrix], Labels] | None = None,
) -> list[TierConfidence]:
    """Return how sure each tier is; empty where too few round trips have both halves, and of more than 2,048 hosts.

    :param latency_us: shape (N, N), from row to column, NaN where unmeasured. :param halves_us: two, of the same shape.
    :param tiers: indices of the hosts of each group, the innermost tier first; a group holds whole groups of the tier
        below. Hosts in no group do not count.
    :param label: how the innermost groups are found, from ``latency_us`` to labels, shape (N,); by default average
        linkage.
    """
    if not tiers or not _has_halves(latency_us, halves_us):
        return []
    count = next(count for least, count in _RESAMPLES if len(latency_us) >= least)
    if not count:
        return []
    hosts = np.array(sorted(host for group in tiers[0] for host in group), dtype=np.intp)
    place = {host: number for number, host in enumerate(hosts.tolist())}
    among = np.ix_(hosts, hosts)
    latency, (first, second) = latency_us[among], (half[among] for half in halves_us)
    innermost = [[place[host] for host in group] for group in tiers[0]]
    parts = [[_parts(group, tiers[0]) for group in tier] for tier in tiers[1:]]
    rng = np.random.default_rng(0)
    find = _finders(latency, innermost, parts)
    results: list[list[npt.NDArray[np.bool_]]] = [[] for _ in tiers]
    for _ in range(count):
        drawn = np.where(rng.random(latency.shape) < 0.5, first, second)
        drawn = np.where(np.isfinite(drawn), drawn, latency)
        if label is None:
            labels = find[0](drawn)
        else:
            whole = np.full(latency_us.shape, np.nan)
            whole[among] = drawn
            labels = label(whole)[hosts]
        results[0].append(_same_groups(innermost, labels))
        for tier, groups in enumerate(parts, 1):
            results[tier].append(_same_groups(groups, find[tier](drawn)))
    return [
        TierConfidence(float(np.mean([np.all(row) for row in rows])), tuple(np.mean(rows, axis=0).tolist()))
        for rows in results
    ]


def _has_halves(latency_us: Matrix, halves_us: Sequence[Matrix]) -> bool:
    measured = np.isfinite(latency_us) & ~np.eye(len(latency_us), dtype=bool)
    if len(halves_us) != 2 or not measured.any():
        return False
    both = np.isfinite(halves_us[0]) & np.isfinite(halves_us[1])
    return bool(both[measured].mean() >= _MIN_HALVED_SHARE)


def _parts(group: Sequence[int], innermost: HostGroups) -> list[int]:
    """Return the numbers of the innermost groups that a group holds."""
    members = set(group)
    return [number for number, part in enumerate(innermost) if members.issuperset(part)]


def _finders(latency: Matrix, innermost: HostGroups, parts: Sequence[HostGroups]) -> list[Callable[[Matrix], Labels]]:
    """Return for each tier what labels the hosts, or the innermost groups, by directed round trips, shape (N, N)."""

    def of_hosts(drawn: Matrix) -> Matrix:
        return completed_by_detours(symmetrised(drawn))

    def of_groups(drawn: Matrix) -> Matrix:
        return median_between(symmetrised(drawn), innermost)

    height = robust_linkage(of_hosts(latency)).height_of(len(innermost))
    finders: list[Callable[[Matrix], Labels]] = [lambda drawn: robust_linkage(of_hosts(drawn)).cut(height)]
    for groups in parts:
        between = average_linkage(of_groups(latency)).height_of(len(groups))
        finders.append(lambda drawn, between=between: average_linkage(of_groups(drawn)).cut(between))  # type: ignore[misc]
    return finders


def _same_groups(groups: HostGroups, labels: Labels) -> npt.NDArray[np.bool_]:
    """Return whether each group is one of those that labels make, with the same members, shape (G,)."""
    sizes = np.bincount(labels)
    return np.array(
        [bool(np.all(labels[group] == labels[group[0]])) and sizes[labels[group[0]]] == len(group) for group in groups]
    )
