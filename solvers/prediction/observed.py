"""What a partly filled latency matrix says, as a list of pairs: the form sparse measurements are worked on in.

Round trips predicted by near hosts: what those near to either end measured to the other end.

Where round trips are those of routes, not of places, near hosts still share routes, which no coordinates fit.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Integers = npt.NDArray[np.intp]


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


@dataclass(frozen=True)
class ObservedPairs:
    """M measured pairs of ``n`` hosts: ``i < j`` and ``rtt_us``, each of shape (M,), the worse of both directions."""

    n: int
    i: Integers
    j: Integers
    rtt_us: Floats

    def __len__(self) -> int:
        return len(self.i)

    def take(self, chosen: npt.NDArray[np.bool_]) -> "ObservedPairs":
        """Return only the pairs ``chosen``, shape (M,)."""
        return ObservedPairs(self.n, self.i[chosen], self.j[chosen], self.rtt_us[chosen])

    def with_rtt(self, rtt_us: Floats) -> "ObservedPairs":
        """Return the same pairs with other times."""
        return ObservedPairs(self.n, self.i, self.j, rtt_us)


def observed(measured: Matrix) -> ObservedPairs:
    """The pairs of ``measured``, shape (N, N), microseconds, NaN where unmeasured: ``max(c_ij, c_ji)`` (T 4.2.1)."""
    finite = np.isfinite(measured)
    i, j = np.nonzero(np.triu(finite | finite.T, 1))
    return ObservedPairs(len(measured), i, j, np.fmax(measured[i, j], measured[j, i]))
