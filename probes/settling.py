"""Whether groups still change as more pairs are measured."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.intp]


def same_neighbours(before: Integers, after: Integers) -> float:
    """How much of its neighbourhood a host kept, on average: |A & B| / |A | B| of its groups, itself included.

    1 for equal groups, whatever they are called. (Adjusted mutual information, the usual measure, hardly notices a few
    hosts that move among many groups; this is the share of neighbours that moved.)

    >>> same_neighbours(np.array([0, 0, 1, 1]), np.array([5, 5, 3, 3]))
    1.0
    """
    _, a = np.unique(before, return_inverse=True)
    _, b = np.unique(after, return_inverse=True)
    _, cell, shared = np.unique(a * (b.max() + 1) + b, return_inverse=True, return_counts=True)
    either = np.bincount(a)[a] + np.bincount(b)[b] - shared[cell]
    return float(np.mean(shared[cell] / either))


@dataclass
class Settling:
    """Groups stand still when those found over the last ``rounds`` rounds are all like the newest (``same`` of the
    neighbours), and are groups: at least half of the hosts have a neighbour."""

    rounds: int
    same: float
    _history: list[tuple[int, Integers]] = field(default_factory=list)

    def still(self, at_round: int, groups: Integers) -> bool:
        """Take in the ``groups``, shape (N,), found after ``at_round`` rounds; whether they stand still."""
        start = max((k for k, _ in self._history if k <= at_round - self.rounds), default=None)
        self._history = [(k, old) for k, old in self._history if start is None or k >= start]
        size = np.unique(groups, return_inverse=True, return_counts=True)
        grouped = bool(np.mean(size[2][size[1]] > 1) >= 0.5)
        like = all(same_neighbours(old, groups) >= self.same for _, old in self._history)
        self._history.append((at_round, groups))
        return start is not None and grouped and like
