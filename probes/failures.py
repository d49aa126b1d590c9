"""Detection of hosts that stopped answering, from the pairs that could not be measured."""

import numpy as np
import numpy.typing as npt

Booleans = npt.NDArray[np.bool_]


class HostFailures:
    """Counter of consecutive failures per host: after ``max_failures`` a host counts as lost.

    A failed pair is blamed on the end that has failed for longer: the partners of a dead host answer others in the next
    round, the dead host does not.
    """

    def __init__(self, n: int, max_failures: int) -> None:
        self._streak = np.zeros(n, dtype=np.intp)
        self._max_failures = max_failures

    def update(self, pairs: npt.NDArray[np.intp], failed: Booleans) -> None:
        """Count one round: ``pairs``, shape (k, 2), disjoint; ``failed``, shape (k,)."""
        i, j = pairs.T
        a, b = self._streak[i], self._streak[j]
        self._streak[i] = np.where(failed, a + (a >= b), 0)
        self._streak[j] = np.where(failed, b + (b >= a), 0)

    @property
    def alive(self) -> Booleans:
        """The hosts that are not lost, shape (N,)."""
        return np.asarray(self._streak < self._max_failures, dtype=np.bool_)
