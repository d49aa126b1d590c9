"""How sure groups and tiers are: the share of resamples of the round trips in which they are found again.

Each direction of each pair has two round trips, of two disjoint halves of its samples. A resample takes one of the two
at random, each pair by itself: a half-sample replicate (McCarthy 1969). It is off the mean of both by half of their
difference, whose variance is that of the whole's own error. So pairs are as noisy in a resample as they were measured.

The tree of each resample is cut at the height of the tree of all samples. The share of resamples in which a group has
exactly the same hosts is its bootstrap proportion (Felsenstein 1985). That of a tier is the share in which all of its
groups are found at once. Noise that both halves share, like a slow hour, is not seen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix, symmetrised
from solvers.hierarchy.linkage import Labels, average_linkage
from solvers.hierarchy.shared_tiers import HostGroups, median_between
from solvers.hierarchy.tiers import completed_far, robust_linkage

# Of so many hosts and more, the resamples: a standard error of at most 5, 11 and 22 points. One of 1,024 hosts takes
# 0.6 s, and more of more.
_RESAMPLES = ((2049, 0), (513, 5), (129, 20), (0, 100))
_MIN_HALVED_SHARE = 0.5  # of the measured round trips: with fewer halves the noise is not known


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
    seed: int = 0,
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
    rng = np.random.default_rng(seed)
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
        return completed_far(symmetrised(drawn))

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
