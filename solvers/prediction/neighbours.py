"""Round trips predicted by near hosts: what those near to either end measured to the other end.

Where round trips are those of routes, not of places, near hosts still share routes, which no coordinates fit.
"""

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]


def by_neighbours(rtt_us: Matrix, i: Indices, j: Indices, per_end: int = 3) -> Floats:
    """Return the predictions of pairs i[k], j[k], shape (M,): the median of what the ``per_end`` hosts nearest to each
    end measured to the other end; NaN where none of them measured it.

    :param rtt_us: symmetric, shape (N, N), NaN where unmeasured, as the pairs to predict are.
    """
    far = np.where(np.isfinite(rtt_us) & ~np.eye(len(rtt_us), dtype=bool), rtt_us, np.inf)
    values = np.full((len(i), 2 * per_end), np.nan)
    for column, ends, others in ((0, i, j), (per_end, j, i)):
        for end in np.unique(ends).tolist():
            rows = np.flatnonzero(ends == end)
            near = np.argsort(far[end], kind="stable")[: int(np.isfinite(far[end]).sum())]
            from_near = far[np.ix_(near, others[rows])]
            place = np.cumsum(np.isfinite(from_near), axis=0) - 1
            host, row = np.nonzero(np.isfinite(from_near) & (place < per_end))
            values[rows[row], column + place[host, row]] = from_near[host, row]
    result = np.full(len(i), np.nan)
    has_any = np.isfinite(values).any(axis=1)
    result[has_any] = np.nanmedian(values[has_any], axis=1)
    return result
