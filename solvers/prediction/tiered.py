"""Round trips of unmeasured pairs from groups of hosts: the block model, the tree above the groups, host offsets.

A pair's time is that of its two groups, plus what each host adds. The time between two groups is the mean of the pairs
measured between them, drawn towards the height at which the tree joins them the more, the fewer they are (empirical
Bayes: by the variance within pairs of groups over that between them).
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csr_array

from plink.model.network import Matrix
from solvers.hierarchy.valley import innermost_tier_us
from solvers.prediction.merging import ClusterTree, merge_tree
from solvers.prediction.observed import Floats, Integers, ObservedPairs, observed

_PASSES = 3
_EXPLORATION_BONUS = 0.3  # share by which groups without measured pairs may be nearer than expected
_MIN_REMAINING_SHARE = 0.2  # of a round trip, after the offsets are subtracted
_STEPS = 40


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
