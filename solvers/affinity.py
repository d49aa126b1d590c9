"""Physical affinity inference accuracy: do measured distances rank hosts as the true ones do? (PLink thesis, 6.2.5)"""

import numpy as np

from plink.network import Matrix


def paia(measured: Matrix, truth: Matrix) -> float:
    """The share of triplets (a, b; c), a < b, whose true distances to c differ, whose measured distances differ in the
    same direction; NaN when there is no such triplet.

    :param measured: shape (N, N), any unit, NaN where unmeasured (such triplets count as wrong).
    :param truth: shape (N, N), true distances, for example router hops.
    """
    n = len(truth)
    agree = total = 0
    upper = np.triu(np.ones((n, n), dtype=bool), 1)
    for c in range(n):
        others = np.arange(n) != c
        pairs = upper & others[:, None] & others[None, :]
        true = np.sign(truth[:, c][:, None] - truth[:, c][None, :])
        with np.errstate(invalid="ignore"):
            found = np.sign(measured[:, c][:, None] - measured[:, c][None, :])
        comparable = pairs & (true != 0)
        total += int(comparable.sum())
        agree += int((comparable & (found == true)).sum())
    return agree / total if total else float("nan")
