"""A tree of hosts from the few pairs that were measured: average linkage in which most pairs are missing.

Two clusters are as far apart as the mean of the pairs measured between them. The nearest ones merge first, all those
at once that are each other's nearest (reciprocal nearest neighbours, Murtagh, Comput. J. 26(4), 1983) and within a
band of the nearest of all: on complete data that is the tree one merge at a time gives, in a few dozen array passes.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array

from solvers.prediction.observed import Floats, Integers, ObservedPairs

_MERGE_BAND = 1.05


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
