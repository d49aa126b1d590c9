"""Which pairs are measured next: a plan is asked for a round, the round is measured, the plan is asked again."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from probes.rounds import Circle, Pair, as_pairs


class Plan(Protocol):
    """Rounds of disjoint pairs (i < j), decided one at a time with all that was measured so far in view."""

    @property
    def most_rounds(self) -> int:
        """No more rounds than these will be asked for."""

    @property
    def most_pairs(self) -> int:
        """No more pairs than these will be asked for."""

    def next_round(self, measured: Matrix) -> list[Pair] | None:
        """The pairs to measure next, both ways, none of them twice in the life of a plan; None when done.

        :param measured: shape (N, N), microseconds, NaN where there is no result (yet, or for ever: a pair of the last
            round that is still NaN has failed). It may hold an earlier run's results from the start.
        """


class AllPairs:
    """Every pair once, in a random order that makes any prefix a fair sample; pairs measured both ways are left out.

    To resume, hand the matrix so far to a plan of the same ``n``: only what is missing is asked for.
    """

    def __init__(self, n: int, seed: int) -> None:
        self._circle = Circle(n, seed)
        self._round = 0
        self._done: npt.NDArray[np.bool_] | None = None  # by an earlier run, shape (N, N)

    @property
    def most_rounds(self) -> int:
        """See :class:`Plan`."""
        return len(self._circle)

    @property
    def most_pairs(self) -> int:
        """See :class:`Plan`."""
        return self._circle.n * (self._circle.n - 1) // 2

    def next_round(self, measured: Matrix) -> list[Pair] | None:
        """See :class:`Plan`; rounds in which nothing is missing are skipped."""
        if self._round == 0:
            done = both_ways(measured)
            self._done = done if done.any() else None
        while self._round < len(self._circle):
            pairs = self._circle[self._round]
            self._round += 1
            if self._done is not None:
                pairs = pairs[~self._done[pairs[:, 0], pairs[:, 1]]]
            if len(pairs):
                return as_pairs(pairs)
        return None


def both_ways(measured: Matrix) -> npt.NDArray[np.bool_]:
    """Which pairs were measured in both directions, shape (N, N); a host with itself is not a pair."""
    finite = np.isfinite(measured)
    np.fill_diagonal(finite, False)
    return finite & finite.T
