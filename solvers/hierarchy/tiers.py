"""The natural hierarchy of a network: hosts of one machine, one rack, one zone, as far as the latencies show them.

Average linkage, cut where the next merge is farther than the last one by a ratio that stands out. Each such cut is a
tier; cost models and probes go by the nearest one of those that stand out most.

A step in the tree may be noise, so every tier has a confidence: the mean adjusted mutual information between its groups
and those that the same cut makes of other measurements of the same hosts: of each half of the samples, where there are
halves (a file's ``halves_us``), and of four fifths of the hosts at a time. 1: the groups are the same every time; 0:
they agree by chance only. Without halves only the choice of hosts varies, and noise of single pairs stays unseen.

Average linkage: the two clusters that are nearest on average become one, until there is one.

By chains of nearest neighbours (Murtagh 1983): each cluster leads to its nearest one until two lead to each other, and
these can be merged at once, whatever else is near. With NumPy, for it is on the way of every command that computes
orders, and loading SciPy's takes longer than all trees of a thousand hosts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix

Labels = npt.NDArray[np.intp]
MIN_RATIO = 1.3  # height of a merge over that of the one before: a smaller step is noise
MIN_CONFIDENCE = 0.5
_MIN_CONFIDENCE_MOSTLY_ALONE = 0.9  # where most hosts are alone in their group: single near pairs occur by chance
_NEAR_RATIO_EXPONENT = 0.5  # a ratio above the square root of the largest one nearly stands out as much
_MAX_OVER_USUAL = 3.0  # times the usual round trip: longer ones are cut
_MAX_TIERS = 4
_MAX_GROUPINGS = 3  # of those that nobody has confirmed
_MAX_DETOURS = 1_000_000_000  # some seconds
_RESAMPLES = 20
_RESAMPLED_SHARE = 0.8  # of the hosts
_MAX_RESAMPLED_HOSTS = 512  # linkage takes memory in the square of their number


@dataclass(frozen=True)
class Tree:
    """Cluster tree of N - 1 merges, the nearest first.

    ``pairs``, shape (N - 1, 2): a host of either cluster; ``heights``, shape (N - 1,): how far these are apart, on
    average over the pairs between them.
    """

    pairs: Labels
    heights: npt.NDArray[np.float64]

    def cut(self, height: float) -> Labels:
        """Return the cluster of each host when those farther apart are not merged, shape (N,).

        Numbered by first appearance.
        """
        label = np.arange(len(self.pairs) + 1)
        for a, b in self.pairs[self.heights <= height].tolist():
            label[label == label[b]] = label[a]
        _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
        return np.asarray(np.argsort(np.argsort(first))[inverse], dtype=np.intp)

    def height_of(self, clusters: int) -> float:
        """Return the height at which the tree is cut into so many clusters: between two merges."""
        merges = len(self.pairs) + 1 - clusters
        below = float(self.heights[merges - 1]) if merges else 0.0
        return (below + float(self.heights[merges])) / 2 if merges < len(self.heights) else below


def average_linkage(cost: Matrix) -> Tree:
    """The tree of the hosts of ``cost``, shape (N, N), symmetric, complete; what is on its diagonal does not count."""
    apart = np.array(cost, dtype=np.float64)
    np.fill_diagonal(apart, np.inf)
    n = len(apart)
    size = np.ones(n)
    pairs, heights = np.zeros((n - 1, 2), dtype=np.intp), np.zeros(n - 1)
    chain: list[int] = []
    for merge in range(n - 1):
        if not chain:
            chain.append(int(np.argmax(size > 0)))
        while True:
            last = chain[-1]
            nearest = int(apart[last].argmin())
            if len(chain) > 1 and apart[last, chain[-2]] <= apart[last, nearest]:
                break
            chain.append(nearest)
        merged, remaining = sorted((chain.pop(), chain.pop()))
        pairs[merge], heights[merge] = (merged, remaining), apart[merged, remaining]
        joined = (size[merged] * apart[merged] + size[remaining] * apart[remaining]) / (size[merged] + size[remaining])
        apart[remaining] = apart[:, remaining] = joined
        apart[merged] = apart[:, merged] = np.inf
        size[remaining] += size[merged]
        size[merged] = 0
    nearest_first = np.argsort(heights, kind="stable")
    return Tree(pairs[nearest_first], heights[nearest_first])


@dataclass(frozen=True)
class HierarchyTier:
    """Tier of the hierarchy.

    ``label``, shape (N,): the group of every host, numbered by first appearance. ``within_us``: the median round trip
    between hosts that are in one group of this tier and not of a tier inside it; ``next_us``: the same of the next
    tier, or of all else where this is the outermost. NaN where there is no such pair. ``ratio``: how far the step in
    the tree stands out. ``confidence``: as above.
    """

    label: Labels
    within_us: float
    next_us: float
    ratio: float
    confidence: float

    @property
    def groups(self) -> list[list[int]]:
        """The hosts of each group."""
        return [np.flatnonzero(self.label == group).tolist() for group in range(int(self.label.max()) + 1)]


@dataclass(frozen=True)
class _Cut:
    height: float
    ratio: float
    label: Labels


def nearest_tier(cost: Matrix, halves: Sequence[Matrix] = ()) -> Labels:
    """Return the group of every host, shape (N,), numbered by first appearance; all one group when no tier stands out.

    :param cost: shape (N, N), symmetric, complete.
    :param halves: the same of other samples, complete: with these a tier counts only if they confirm it. Then it is the
        innermost tier that stands out nearly as much as the one that does most (by half of the logarithm of its ratio);
        without them, as small groups stand out by chance, the one that stands out most.
    """
    cuts = _cuts(cost)
    if halves:
        cuts = [cut for cut in cuts if _agreement(cut, halves) >= _required_confidence(cut)]
    if not cuts:
        return np.zeros(len(cost), dtype=np.intp)
    most = max(cut.ratio for cut in cuts)
    return next(cut for cut in cuts if cut.ratio >= (most**_NEAR_RATIO_EXPONENT if halves else most)).label


def tiers(cost: Matrix, halves: Sequence[Matrix] = (), seed: int = 0) -> list[HierarchyTier]:
    """Return all tiers that stand out and are confirmed, from the innermost out; none where there is nothing but noise.

    :param cost: shape (N, N), symmetric, complete.
    :param halves: the same, of either half of the samples.
    :param seed: which hosts are left out when tiers are tried.
    """
    trials = list(halves) or [cost]
    result = []
    for cut in sorted(_cuts(cost), key=lambda cut: -cut.ratio)[:_MAX_TIERS]:
        whole = _confidence(cut, trials, whole=True) if halves else 1.0
        confidence = min(whole, _confidence(cut, trials, whole=False, seed=seed))
        if confidence >= _required_confidence(cut):
            result.append((cut, confidence))
    result.sort(key=lambda pair: pair[0].height)
    return [
        HierarchyTier(cut.label, *_latencies(cost, [c for c, _ in result], k), cut.ratio, confidence)
        for k, (cut, confidence) in enumerate(result)
    ]


def groupings(cost: Matrix) -> list[Labels]:
    """The groups of every host, shape (N,), at the steps of the tree that stand out most, from the innermost out:
    racks, pods, zones as far as there are any. Nobody has confirmed these: they are for who tests each group himself.

    :param cost: shape (N, N), symmetric, complete.
    """
    cuts = [cut for cut in _cuts(cost) if 2 * int((np.bincount(cut.label) == 1).sum()) <= len(cost)]
    best = sorted(cuts, key=lambda cut: -cut.ratio)[:_MAX_GROUPINGS]
    return [cut.label for cut in sorted(best, key=lambda cut: cut.height)]


def of_one_method(latency_us: Matrix, method_used: npt.NDArray[Any] | None) -> Matrix:
    """Return the round trips of the method of most pairs, and of unknown ones, NaN for all others, shape (N, N): what
    two methods' times differ by is not how far apart hosts are.

    :param method_used: by number, 0 or NaN where unknown.
    """
    numbers = np.zeros(latency_us.shape) if method_used is None else np.nan_to_num(method_used)
    is_known = np.isfinite(latency_us) & (numbers > 0) & ~np.eye(len(latency_us), dtype=bool)
    methods, pairs = np.unique(numbers[is_known], return_counts=True)
    if len(methods) < 2:
        return latency_us
    return np.where(is_known & (numbers != methods[np.argmax(pairs)]), np.nan, latency_us)


def completed_by_detours(cost: Matrix) -> Matrix:
    """Fill unmeasured pairs (NaN) with the longer leg of the best detour over a third host: what two hosts of one group
    would have. Where there is none, or millions are missing, fill with the farthest measured pair; shape (N, N)."""
    is_measured = np.isfinite(cost) & ~np.eye(len(cost), dtype=bool)
    farthest = cost[is_measured].max() if is_measured.any() else 1.0
    complete = np.where(np.isfinite(cost), cost, farthest)
    missing, legs = ~np.isfinite(cost), np.where(is_measured, cost, np.inf)
    if missing.sum() * len(cost) <= _MAX_DETOURS:
        for host in np.flatnonzero(missing.any(axis=1)).tolist():
            detour = np.maximum(legs[host], legs[missing[host]]).min(axis=1)
            complete[host, missing[host]] = np.where(np.isfinite(detour), detour, farthest)
    return np.asarray(complete)


def robust_linkage(cost: Matrix) -> Tree:
    """Return the tree of average linkage, in which single outlying pairs make no tier.

    A cost out of all proportion (a rate limit, a queue) is capped, by the host that is farthest from the others.
    """
    n = len(cost)
    usual = float(np.median(cost[~np.eye(n, dtype=bool)].reshape(n, n - 1), axis=1).max())
    return average_linkage(np.minimum(cost, _MAX_OVER_USUAL * usual))


def _cuts(cost: Matrix) -> list[_Cut]:
    """Return where the tree steps up by the least ratio or more."""
    if len(cost) < 3:
        return []
    tree = robust_linkage(cost)
    heights = np.maximum(tree.heights, 1e-9)
    ratios = heights[1:] / heights[:-1]
    result = []
    for k in np.flatnonzero(ratios >= MIN_RATIO):
        height = float((heights[k] + heights[k + 1]) / 2)
        result.append(_Cut(height, float(ratios[k]), tree.cut(height)))
    return result


def _confidence(cut: _Cut, trials: list[Matrix], whole: bool, seed: int = 0) -> float:
    """Return how well the cut's groups are found in all trials: on all hosts, or on some after others.

    Hosts are drawn from all of them, so that a group may lose some; the tree of what is left is cut at the same height.
    """
    from sklearn.metrics import adjusted_mutual_info_score

    n = len(cut.label)
    rng = np.random.default_rng(seed)
    sampled_hosts = min(max(3, int(np.ceil(_RESAMPLED_SHARE * n))), _MAX_RESAMPLED_HOSTS, n)
    again = []
    for k in range(len(trials) if whole else _RESAMPLES):
        hosts = np.arange(n) if whole else np.sort(rng.permutation(n)[:sampled_hosts])
        label = robust_linkage(trials[k % len(trials)][np.ix_(hosts, hosts)]).cut(cut.height)
        again.append(float(adjusted_mutual_info_score(cut.label[hosts], label)))
    return float(np.clip(np.mean(again), 0.0, 1.0))


def _agreement(cut: _Cut, trials: Sequence[Matrix]) -> float:
    """Return the confidence on all hosts of every trial, by the adjusted Rand index (Hubert and Arabie 1985).

    As ``_confidence``; this is on the way of every order, and mutual information would bring scikit-learn, a second.
    """
    again = [adjusted_rand(cut.label, robust_linkage(trial).cut(cut.height)) for trial in trials]
    return float(np.mean(again))


def adjusted_rand(a: Labels, b: Labels) -> float:
    """How far two groupings, each of shape (N,), agree on which pairs of hosts are together: 1 on all, 0 by chance."""

    def pairs(sizes: npt.NDArray[np.intp]) -> float:
        return float((sizes * (sizes - 1)).sum()) / 2

    both = pairs(np.unique(np.stack([a, b]), axis=1, return_counts=True)[1])
    of_a, of_b = pairs(np.bincount(a)), pairs(np.bincount(b))
    chance = of_a * of_b / max(1.0, len(a) * (len(a) - 1) / 2)
    most = (of_a + of_b) / 2
    return 1.0 if most == chance else (both - chance) / (most - chance)


def _required_confidence(cut: _Cut) -> float:
    """Return the confidence from which on a cut is a tier."""
    sizes = np.bincount(cut.label)
    return MIN_CONFIDENCE if 2 * int((sizes == 1).sum()) <= len(cut.label) else _MIN_CONFIDENCE_MOSTLY_ALONE


def _latencies(cost: Matrix, cuts: list[_Cut], k: int) -> tuple[float, float]:
    """Return the median round trip that tier k adds, and that of what lies beyond it."""
    apart = [np.ones(cost.shape, dtype=bool), *(cut.label[:, None] != cut.label for cut in cuts[k : k + 2])]
    inner = cuts[k - 1].label[:, None] != cuts[k - 1].label if k else ~np.eye(len(cost), dtype=bool)
    beyond = apart[1] if len(apart) == 2 else apart[1] & ~apart[2]
    return _median(cost[inner & ~apart[1]]), _median(cost[beyond])


def _median(values: Matrix) -> float:
    return float(np.median(values)) if len(values) else float("nan")
