"""What a partly filled latency matrix says, as a list of pairs: the form sparse measurements are worked on in."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.intp]


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
