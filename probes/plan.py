"""Plans of which pairs to measure: a plan returns a round, the round is measured, the plan returns the next."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from probes.round_robin import Pair, RoundRobin, as_pairs


class ProbePlan(Protocol):
    """Source of rounds of disjoint pairs (i < j), each chosen with all earlier results at hand."""

    @property
    def max_rounds(self) -> int:
        """Upper bound of the number of rounds."""

    @property
    def max_pairs(self) -> int:
        """Upper bound of the number of pairs."""

    def next_round(self, measured: Matrix) -> list[Pair] | None:
        """Return the pairs to measure next, in both directions; None when done. A plan returns no pair twice.

        :param measured: shape (N, N), microseconds, NaN where there is no result. A pair of the last round that is
            still NaN has failed. Results of an earlier run may be in it from the start.
        """


class AllPairs:
    """Plan of every pair once, in a random order that makes any prefix a fair sample.

    Pairs measured both ways are skipped. To resume, pass the earlier matrix to a plan of the same ``n``: it returns
    only the missing pairs.
    """

    def __init__(self, n: int, seed: int) -> None:
        self._schedule = RoundRobin(n, seed)
        self._round = 0
        self._done: npt.NDArray[np.bool_] | None = None  # by an earlier run, shape (N, N)

    @property
    def max_rounds(self) -> int:
        """See :class:`ProbePlan`."""
        return len(self._schedule)

    @property
    def max_pairs(self) -> int:
        """See :class:`ProbePlan`."""
        return self._schedule.n * (self._schedule.n - 1) // 2

    def next_round(self, measured: Matrix) -> list[Pair] | None:
        """See :class:`ProbePlan`; rounds in which nothing is missing are skipped."""
        if self._round == 0:
            done = measured_both_ways(measured)
            self._done = done if done.any() else None
        while self._round < len(self._schedule):
            pairs = self._schedule[self._round]
            self._round += 1
            if self._done is not None:
                pairs = pairs[~self._done[pairs[:, 0], pairs[:, 1]]]
            if len(pairs):
                return as_pairs(pairs)
        return None


def measured_both_ways(measured: Matrix) -> npt.NDArray[np.bool_]:
    """Return which pairs were measured in both directions, shape (N, N); a host with itself is not a pair."""
    finite = np.isfinite(measured)
    np.fill_diagonal(finite, False)
    return finite & finite.T
