"""Hosts in groups of even size whose members are near each other."""

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.grouping.sizes import sizes_for

_OPTIMAL_UP_TO = 600  # hosts: ordering the leaves takes the cube of their number


def leaves(rtt_us: Matrix) -> npt.NDArray[np.intp]:
    """Return hosts as the leaves of their hierarchy, rotated so that neighbours are near; shape (N,).

    Average linkage; rotations by Bar-Joseph, Gifford and Jaakkola 2001.

    :param rtt_us: shape (N, N), symmetric, complete, N at least 2.
    """
    from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
    from scipy.spatial.distance import squareform

    distances = squareform(rtt_us, checks=False)
    tree = linkage(distances, method="average")
    if len(rtt_us) <= _OPTIMAL_UP_TO:
        tree = optimal_leaf_ordering(tree, distances)
    return np.asarray(leaves_list(tree), dtype=np.intp)


def even_groups(rtt_us: Matrix, number: int) -> list[list[int]]:
    """Return so many groups of hosts, whose sizes are one apart at most.

    They are the leaves of the hierarchy, cut, then exchanged between groups until nothing comes of it.

    :param rtt_us: as in :func:`leaves`; ``number`` at most N.
    """
    from solvers.grouping.exchanges import refined

    n = len(rtt_us)
    if n < 2:
        return [[0]]
    label = np.empty(n, dtype=np.intp)
    for group, part in enumerate(np.array_split(leaves(rtt_us), number)):
        label[part] = group
    label, _ = refined(label, rtt_us, sizes_for(n, number))
    return [np.flatnonzero(label == group).tolist() for group in range(number)]
