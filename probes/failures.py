"""Which hosts have gone, told from the pairs that gave no result."""

import numpy as np
import numpy.typing as npt

Booleans = npt.NDArray[np.bool_]


class Failures:
    """Hosts whose pairs failed ``give_up`` times in a row are lost.

    A failed pair is blamed on the end that has failed longer: the partners of a dead host answer others in the next
    round, the dead host does not.
    """

    def __init__(self, n: int, give_up: int) -> None:
        self._streak = np.zeros(n, dtype=np.intp)
        self._give_up = give_up

    def learn(self, pairs: npt.NDArray[np.intp], failed: Booleans) -> None:
        """Take in one round: ``pairs``, shape (k, 2), disjoint; ``failed``, shape (k,)."""
        i, j = pairs.T
        a, b = self._streak[i], self._streak[j]
        self._streak[i] = np.where(failed, a + (a >= b), 0)
        self._streak[j] = np.where(failed, b + (b >= a), 0)

    @property
    def alive(self) -> Booleans:
        """Shape (N,)."""
        return np.asarray(self._streak < self._give_up, dtype=np.bool_)
