"""Physical affinity inference accuracy: do measured distances rank hosts as the true ones do? (PLink thesis, 6.2.5)"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix

Mask = npt.NDArray[np.bool_]


def paia(measured: Matrix, truth: Matrix) -> float:
    """The share of triplets (a, b; c), a < b, whose true distances to c differ, whose measured distances differ in the
    same direction; NaN when there is no such triplet.

    :param measured: shape (N, N), any unit, NaN where unmeasured (such triplets count as wrong).
    :param truth: shape (N, N), true distances, for example router hops; NaN where nobody knows (no triplets).
    """
    agree = 0
    for c, near, far in _comparable(truth):
        nearer = np.sort(_finite(measured[near, c]))
        agree += int(np.searchsorted(nearer, _finite(measured[far, c]), side="left").sum())
    total = triplets(truth)
    return agree / total if total else float("nan")


def triplets(truth: Matrix) -> int:
    """How many triplets there are to judge by; ``truth`` as in :func:`paia`."""
    return sum(int(near.sum()) * int(far.sum()) for _, near, far in _comparable(truth))


def _comparable(truth: Matrix) -> Iterator[tuple[int, Mask, Mask]]:
    """For each host c and each true distance to it: who is as far, and who is farther."""
    for c in range(len(truth)):
        to = truth[:, c].copy()
        to[c] = np.nan
        for distance in np.unique(to[~np.isnan(to)])[:-1]:
            yield c, to == distance, to > distance


def _finite(values: Matrix) -> Matrix:
    return values[~np.isnan(values)]
