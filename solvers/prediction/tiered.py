"""Round trips of unmeasured pairs from groups of hosts: the block model, the tree above the groups, host offsets.

A pair's time is that of its two groups, plus what each host adds. The time between two groups is the mean of the pairs
measured between them, drawn towards the height at which the tree joins them the more, the fewer they are (empirical
Bayes: by the variance within pairs of groups over that between them).

Where the innermost tier of a network ends: the first valley in how the distances of its pairs are spread.

A tree of hosts from the few pairs that were measured: average linkage in which most pairs are missing.

Two clusters are as far apart as the mean of the pairs measured between them. The nearest ones merge first, all those
at once that are each other's nearest (reciprocal nearest neighbours, Murtagh, Comput. J. 26(4), 1983) and within a
band of the nearest of all: on complete data that is the tree one merge at a time gives, in a few dozen array passes.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array

from plink.model.network import Matrix
from solvers.prediction.observed import Floats, Integers, ObservedPairs, observed

_GRID_STEP = 0.01  # of the natural logarithm of a height
_BANDWIDTH = 0.04  # of the kernel, as a share of the height: the spread of one tier that is to be smoothed away
_MAX_VALLEY_SHARE = 0.5  # density of a valley over that of the lower peak beside it
_MIN_SHARE = 0.001  # of the pairs, on either side of a valley
_MIN_PAIRS = 5  # on either side of a valley
_MERGE_BAND = 1.05
_PASSES = 3
_EXPLORATION_BONUS = 0.3  # share by which groups without measured pairs may be nearer than expected
_MIN_REMAINING_SHARE = 0.2  # of a round trip, after the offsets are subtracted
_STEPS = 40


def innermost_tier_us(height_us: npt.NDArray[np.float64]) -> float:
    """Return the height that separates the nearest tier from the rest; 0 where no tier stands out: all hosts apart.

    The heights' logarithms are smoothed with a Gaussian kernel; a valley counts when its density is no more than half
    that of the peaks on both sides, and five pairs at least (one in a thousand) lie below it, and above. A largest-gap
    rule would do for complete measurements; with most pairs missing, some hosts hang in the tree by one noisy pair and
    fill the gap.

    :param height_us: shape (M,), for each measured pair the height at which a tree joins its hosts.
    """
    if len(height_us) < 2 or height_us.max() <= 0:
        return 0.0
    x = np.sort(np.log(np.maximum(height_us, height_us.max() * 1e-6)))
    grid = np.arange(x[0] - 0.3, x[-1] + 0.3, _GRID_STEP)
    histogram, _ = np.histogram(x, bins=np.append(grid, grid[-1] + _GRID_STEP) - _GRID_STEP / 2)
    reach = np.arange(-int(4 * _BANDWIDTH / _GRID_STEP), int(4 * _BANDWIDTH / _GRID_STEP) + 1) * _GRID_STEP
    density = np.convolve(histogram, np.exp(-0.5 * (reach / _BANDWIDTH) ** 2))[len(reach) // 2 :][: len(grid)]
    least = max(_MIN_SHARE * len(x), _MIN_PAIRS)
    peak, low, at = density[0], density[0], 0
    for k, value in enumerate(density.tolist()):
        deep = low < _MAX_VALLEY_SHARE * min(peak, value)
        if deep and least <= np.searchsorted(x, grid[at]) <= len(x) - least:
            return float(np.exp(grid[at]))
        if value > peak or deep:  # a new peak; a valley with too little below it is forgotten
            peak, low, at = value, value, k
        elif value < low:
            low, at = value, k
    return 0.0


@dataclass(frozen=True)
class ClusterTree:
    """Dendrogram of the hosts.

    ``order``, shape (N,): hosts as the leaves from left to right. ``height_us``, shape (N-1,): between each two leaves
    next to each other, the distance at which their clusters merged; two hosts anywhere in the order met at the highest
    of those between them.
    """

    order: Integers
    height_us: Floats

    def highest_us(self, i: Integers, j: Integers) -> Floats:
        """Return the distance at which hosts ``i`` and ``j``, each of shape (M,), i != j, met, shape (M,)."""
        place = np.empty(len(self.order), dtype=np.intp)
        place[self.order] = np.arange(len(self.order))
        start, stop = np.minimum(place[i], place[j]), np.maximum(place[i], place[j])
        power = np.frexp((stop - start).astype(np.float64))[1] - 1
        table, heights = self.height_us, np.zeros(len(i))  # table[k]: the highest of 2^level from k on
        for level in range(int(power.max(initial=-1)) + 1):
            here, width = power == level, 1 << level
            heights[here] = np.maximum(table[start[here]], table[stop[here] - width])
            table = np.maximum(table[:-width], table[width:])
        return heights

    def cut(self, height_us: float) -> Integers:
        """Return the cluster of every host, shape (N,), when all merges above ``height_us`` are undone."""
        labels = np.empty(len(self.order), dtype=np.intp)
        labels[self.order] = np.concatenate([[0], np.cumsum(self.height_us > height_us)])
        return labels


def merge_tree(pairs: ObservedPairs) -> ClusterTree:
    """The tree of ``pairs``; hosts that no chain of measured pairs joins meet at the farthest distance there is."""
    n = pairs.n
    a, b, total, count = pairs.i, pairs.j, pairs.rtt_us, np.ones(len(pairs))
    farthest = float(np.max(pairs.rtt_us, initial=0.0))
    after = np.full(n, -1, dtype=np.intp)
    first, last, floor = np.arange(n), np.arange(n), np.zeros(n)
    gap = np.full(n, farthest)  # above the leaf to the right
    while len(a):
        distance = total / count
        nearest = np.full(len(first), np.inf)
        np.minimum.at(nearest, a, distance)
        np.minimum.at(nearest, b, distance)
        mutual = (distance == nearest[a]) & (distance == nearest[b]) & (distance <= distance.min() * _MERGE_BAND)
        left, right = _disjoint(a[mutual], b[mutual], len(first))
        height = np.maximum(nearest[left], np.maximum(floor[left], floor[right]))
        after[last[left]] = first[right]
        gap[last[left]] = height
        first, last, floor = first.copy(), last.copy(), floor.copy()
        last[left], floor[left] = last[right], height
        selected = np.ones(len(first), dtype=bool)
        selected[right] = False
        number = np.cumsum(selected) - 1
        number[right] = number[left]
        first, last, floor = first[selected], last[selected], floor[selected]
        a, b, total, count = _joined(number[a], number[b], total, count, len(first))
    order, height_us = [], []
    for start in first.tolist():
        leaf = start
        while leaf >= 0:
            order.append(leaf)
            height_us.append(gap[leaf])
            leaf = int(after[leaf])
        height_us[-1] = farthest
    return ClusterTree(np.array(order, dtype=np.intp), np.array(height_us[:-1]))


def _disjoint(a: Integers, b: Integers, n: int) -> tuple[Integers, Integers]:
    """Keep of the pairs (a, b) those that share no end with an earlier one kept (ties make them share)."""
    place = np.arange(len(a))
    owner = np.full(n, len(a), dtype=np.intp)
    np.minimum.at(owner, a, place)
    np.minimum.at(owner, b, place)
    selected = (owner[a] == place) & (owner[b] == place)
    return a[selected], b[selected]


def _joined(
    a: Integers, b: Integers, total: Floats, count: Floats, n: int
) -> tuple[Integers, Integers, Floats, Floats]:
    """Join pairs of clusters after merging: drop those inside one, add up those between the same two."""
    apart = a != b
    low, high = np.minimum(a, b)[apart], np.maximum(a, b)[apart]
    totals = coo_array((total[apart], (low, high)), shape=(n, n)).tocsr().tocoo()  # sums entries of the same place
    counts = coo_array((count[apart], (low, high)), shape=(n, n)).tocsr()
    row, column = totals.coords
    return row, column, np.asarray(totals.data, dtype=np.float64), np.asarray(counts.data, dtype=np.float64)


@dataclass(frozen=True)
class TieredPrediction:
    """K groups in the order of the tree's leaves.

    ``groups``, shape (N,): the group of every host. ``height_us``, shape (K-1,): where each two groups next to each
    other in the tree join. ``total_us`` and ``count``, shape (K, K), sparse, symmetric, with the same entries: sum and
    number of the pairs measured between two groups, offsets taken off. ``offset_us``, shape (N,). ``prior``: so many
    pairs the tree's word counts for.
    """

    groups: Integers
    height_us: Floats
    total_us: csr_array
    count: csr_array
    offset_us: Floats
    prior: float

    def rtt_us(self, hosts: Integers) -> Matrix:
        """Return expected round trips from ``hosts``, shape (H,), to all hosts, shape (H, N); 0 to themselves."""
        return self._rows(hosts, doubt=0.0)

    def lower_bound_us(self, hosts: Integers) -> Matrix:
        """Return optimistic round trips: what is not known may be better.

        Groups with c measured pairs between them are taken to be 0.3 / (1 + c) nearer than expected, a bonus for trying
        as bandit methods give it.
        """
        return self._rows(hosts, doubt=_EXPLORATION_BONUS)

    def _rows(self, hosts: Integers, doubt: float) -> Matrix:
        own_groups, row = np.unique(self.groups[hosts], return_inverse=True)
        blocks = np.stack([self._group_row(int(group), doubt) for group in own_groups])
        rows = np.asarray(blocks[row[:, None], self.groups], dtype=np.float64)
        if self.offset_us.any():
            rows += self.offset_us[hosts, None]
            rows += self.offset_us
        rows[np.arange(len(hosts)), hosts] = 0.0
        return rows

    def _group_row(self, group: int, doubt: float) -> Floats:
        """Return the times from one group to all, shape (K,)."""
        heights, k = self.height_us, len(self.height_us) + 1
        row, count = np.empty(k), np.zeros(k)
        row[:group] = np.maximum.accumulate(heights[:group][::-1])[::-1]
        row[group + 1 :] = np.maximum.accumulate(heights[group:])
        row[group] = 0.0
        entries = slice(self.count.indptr[group], self.count.indptr[group + 1])
        there, total, count_there = self.count.indices[entries], self.total_us.data[entries], self.count.data[entries]
        prior = np.where(there == group, 0.0, self.prior)
        row[there] = (total + prior * row[there]) / (count_there + prior)
        count[there] = count_there
        return np.asarray(row * (1.0 - doubt / (1.0 + count)), dtype=np.float64)


def predict_tiered(measured: Matrix) -> TieredPrediction:
    """Return a prediction from ``measured``, shape (N, N), microseconds, NaN where unmeasured.

    Tree, tiers and offsets are found in turns, three times: an offset shifts a host in the tree, and its place in the
    tree says what of its times is offset.
    """
    pairs = observed(measured)
    offset = np.zeros(pairs.n)
    tree = merge_tree(pairs)
    bare = pairs
    for _ in range(_PASSES - 1):
        offset_update = host_offsets_us(pairs, np.maximum(tree.highest_us(pairs.i, pairs.j), 1e-9))
        if not offset_update.any():
            break
        offset = offset_update
        bare = pairs.with_rtt(
            np.maximum(pairs.rtt_us - offset[pairs.i] - offset[pairs.j], _MIN_REMAINING_SHARE * pairs.rtt_us)
        )
        tree = merge_tree(bare)
    return _blocks(bare, tree, offset)


def _blocks(pairs: ObservedPairs, tree: ClusterTree, offset_us: Floats) -> TieredPrediction:
    """Return the block model of ``pairs``, offsets taken off, on the tree's innermost tier."""
    join_us = tree.highest_us(pairs.i, pairs.j)
    cut = innermost_tier_us(join_us)
    groups = tree.cut(cut)
    k = int(groups.max(initial=-1)) + 1
    a, b = groups[pairs.i], groups[pairs.j]
    both = np.concatenate([a, b]), np.concatenate([b, a])
    total = coo_array((np.tile(pairs.rtt_us, 2), both), shape=(k, k)).tocsr()
    count = coo_array((np.ones(2 * len(pairs)), both), shape=(k, k)).tocsr()
    apart = a != b
    ratio = pairs.rtt_us[apart] / np.maximum(join_us[apart], 1e-9) - 1.0
    return TieredPrediction(
        groups=groups,
        height_us=tree.height_us[tree.height_us > cut],
        total_us=total,
        count=count,
        offset_us=offset_us,
        prior=_prior(ratio, np.minimum(a, b)[apart] * k + np.maximum(a, b)[apart]),
    )


def _prior(ratio: Floats, block: Integers) -> float:
    """Return variance within blocks over variance between them: method of moments, kept in [1, 100].

    :param ratio: shape (M,), the relative deviation of each pair from the tree.
    :param block: shape (M,), the pair of groups it belongs to.
    """
    if not len(ratio):
        return 1.0
    _, place, count = np.unique(block, return_inverse=True, return_counts=True)
    pairs, blocks = len(ratio), len(count)
    all_, of_means = float(np.sum(ratio**2)), float(np.sum(np.bincount(place, ratio) ** 2 / count))
    between = (of_means - all_ * blocks / pairs) / max(pairs - blocks, 1)
    within = all_ / pairs - between
    return float(np.clip(within / between, 1.0, 100.0)) if between > 0 else 100.0


def host_offsets_us(pairs: ObservedPairs, expected_us: Floats) -> Floats:
    """Offsets h, shape (N,), mean 0, so that ``rtt - expected ~ h_i + h_j``, each pair weighted by 1 / expected^2.

    Ridge regression whose penalty is the ratio of the noise's variance to the offsets' own, both estimated from the
    data (method of moments): all zeros where the hosts' mean residuals differ no more than noise makes them differ.
    The heights of network coordinates (Dabek et al., Vivaldi, SIGCOMM 2004) are the same term.

    :param expected_us: shape (M,), what each pair would take without offsets.
    """
    n, i, j = pairs.n, pairs.i, pairs.j
    weight = 1.0 / expected_us**2
    residual = pairs.rtt_us - expected_us
    pull = np.bincount(i, weight * residual, n) + np.bincount(j, weight * residual, n)
    mass = np.bincount(i, weight, n) + np.bincount(j, weight, n)
    noise = float(np.mean(weight * residual**2)) if len(pairs) else 0.0
    seen = mass > 0
    if noise == 0.0 or not seen.any():
        return np.zeros(n)
    own = float(np.var(pull[seen] / mass[seen]) - np.mean(noise / mass[seen]))
    if own <= 0.0:
        return np.zeros(n)
    between = coo_array((weight, (i, j)), shape=(n, n)).tocsr()
    between = between + between.T
    offset = np.zeros(n)
    for _ in range(_STEPS):  # damped Jacobi: the matrix is diagonally dominant
        offset = (offset + (pull - between @ offset) / (mass + noise / own)) / 2
    return np.asarray(offset - offset.mean(), dtype=np.float64)
