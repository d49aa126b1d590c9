"""Groups of hosts that are near each other, found in their latencies by hierarchical clustering."""

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from plink.network import Matrix

_OUT_OF_PROPORTION = 3.0


def nearest_tier(cost: Matrix, least_ratio: float = 1.3) -> npt.NDArray[np.intp]:
    """The group of every host, shape (N,), numbered by first appearance; all one group when no tier stands out.

    Average linkage, cut where the next merge is farther than the last one by the largest ratio (at least
    ``least_ratio``: below that a "tier" is noise).

    :param cost: shape (N, N), symmetric, complete.
    """
    n = len(cost)
    if n < 3:
        return np.zeros(n, dtype=np.intp)
    # One pair that is out of all proportion (a rate limit, a queue) is no tier.
    usual = float(np.median(cost[~np.eye(n, dtype=bool)]))
    tree = linkage(squareform(np.minimum(cost, _OUT_OF_PROPORTION * usual), checks=False), method="average")
    heights = np.maximum(tree[:, 2], 1e-9)
    ratios = heights[1:] / heights[:-1]
    cut = int(np.argmax(ratios))
    if ratios[cut] < least_ratio:
        return np.zeros(n, dtype=np.intp)
    labels = fcluster(tree, (heights[cut] + heights[cut + 1]) / 2, criterion="distance")
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]
