"""Convergence of the groups of hosts as more pairs are measured."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.intp]


def neighbourhood_overlap(before: Integers, after: Integers) -> float:
    """Return the mean Jaccard index |A & B| / |A | B| of each host's group before and after, itself included.

    1 for equal groups, whatever their numbers. Adjusted mutual information, the usual measure, hardly changes when a
    few hosts move among many groups; this is the share of neighbours that moved.

    >>> neighbourhood_overlap(np.array([0, 0, 1, 1]), np.array([5, 5, 3, 3]))
    1.0
    """
    _, a = np.unique(before, return_inverse=True)
    _, b = np.unique(after, return_inverse=True)
    _, cell, shared = np.unique(a * (b.max() + 1) + b, return_inverse=True, return_counts=True)
    either = np.bincount(a)[a] + np.bincount(b)[b] - shared[cell]
    return float(np.mean(shared[cell] / either))


@dataclass
class GroupConvergence:
    """Test of whether groups have converged.

    They have when all groupings of the last ``rounds`` rounds overlap with the newest by at least ``min_overlap``, and
    at least half of the hosts have a neighbour.
    """

    rounds: int
    min_overlap: float
    _history: list[tuple[int, Integers]] = field(default_factory=list)

    def update(self, at_round: int, groups: Integers) -> bool:
        """Add the ``groups``, shape (N,), of after ``at_round`` rounds, and return whether they have converged."""
        start = max((k for k, _ in self._history if k <= at_round - self.rounds), default=None)
        self._history = [(k, old) for k, old in self._history if start is None or k >= start]
        _, group, size = np.unique(groups, return_inverse=True, return_counts=True)
        grouped = bool(np.mean(size[group] > 1) >= 0.5)
        unchanged = all(neighbourhood_overlap(old, groups) >= self.min_overlap for _, old in self._history)
        self._history.append((at_round, groups))
        return start is not None and grouped and unchanged
