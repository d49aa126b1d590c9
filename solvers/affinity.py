"""Physical affinity inference accuracy: do measured distances rank hosts as the true ones do? (PLink thesis, 6.2.5)"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix

Mask = npt.NDArray[np.bool_]


def paia(measured: Matrix, truth: Matrix) -> float:
    """Return the share of triplets (a, b; c), a < b, whose measured distances to c differ in the direction of the true
    ones.

    Only :func:`triplets` count, of measured pairs; NaN when there is none.

    :param measured: shape (N, N), any unit, NaN where unmeasured (no triplets).
    :param truth: shape (N, N), true distances, for example router hops; NaN where unknown (no triplets).
    """
    agree = 0
    for c, near, far in _comparable(truth, measured):
        agree += int(np.searchsorted(np.sort(measured[near, c]), measured[far, c], side="left").sum())
    total = triplets(truth, measured)
    return agree / total if total else float("nan")


def triplets(truth: Matrix, measured: Matrix | None = None) -> int:
    """Return the number of triplets with different true distances, of measured ones alone where these are given;
    matrices as in :func:`paia`."""
    return sum(int(near.sum()) * int(far.sum()) for _, near, far in _comparable(truth, measured))


def _comparable(truth: Matrix, measured: Matrix | None) -> Iterator[tuple[int, Mask, Mask]]:
    """Yield for each host c and each true distance to it the hosts at that distance, and those farther away."""
    present = truth if measured is None else np.where(np.isnan(measured), np.nan, truth)
    for c in range(len(present)):
        to = present[:, c].copy()
        to[c] = np.nan
        for distance in np.unique(to[~np.isnan(to)])[:-1]:
            yield c, to == distance, to > distance
