"""Average linkage: the two clusters that are nearest on average become one, until there is one.

By chains of nearest neighbours (Murtagh 1983): each cluster leads to its nearest one until two lead to each other, and
these can be merged at once, whatever else is near. With NumPy, for it is on the way of every command that computes
orders, and loading SciPy's takes longer than all trees of a thousand hosts.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix

Labels = npt.NDArray[np.intp]


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
