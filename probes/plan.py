"""Plans of which pairs to measure: a plan returns a round, the round is measured, the plan returns the next."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from probes.disjoint_pairs import Pair, RoundRobin, as_pairs


class ProbePlan(Protocol):
    """Source of rounds of disjoint pairs (i < j), each chosen with all earlier results at hand."""

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


class LinkLimit(NamedTuple):
    """``members``: shape (N,), which hosts are behind a link; at most ``max_flows`` cross it at a time."""

    members: npt.NDArray[np.bool_]
    max_flows: int


class LinkAwarePlan:
    """Plan of every pair once, in which no link has more flows than it carries: they would share its capacity.

    Each round is packed greedily: first the pairs whose hosts or links have the most left to do.
    """

    def __init__(self, n: int, seed: int, limits: Sequence[LinkLimit]) -> None:
        self._rng = np.random.default_rng(seed)
        a, b = np.triu_indices(n, 1)
        shuffled = self._rng.permutation(len(a))
        self._n, self._limits = n, limits
        self._pairs = np.stack([a, b], axis=1)[shuffled]
        self._crosses = np.array([limit.members[self._pairs].sum(axis=1) == 1 for limit in limits]).reshape(-1, len(a))
        self._crossed = [np.flatnonzero(column).tolist() for column in self._crosses.T]
        self._begun = False

    @property
    def max_pairs(self) -> int:
        """See :class:`ProbePlan`."""
        return self._n * (self._n - 1) // 2

    def next_round(self, measured: Matrix) -> list[Pair] | None:
        """See :class:`ProbePlan`."""
        if not self._begun:
            done = measured_both_ways(measured)
            self._keep(~done[self._pairs[:, 0], self._pairs[:, 1]])
            self._begun = True
        if not len(self._pairs):
            return None
        chosen = self._packed()
        pairs = as_pairs(self._pairs[chosen])
        self._keep(~np.isin(np.arange(len(self._pairs)), chosen))
        return pairs

    def _packed(self) -> list[int]:
        """Return the positions of the pairs of a round."""
        room = [limit.max_flows for limit in self._limits]
        host_work = np.bincount(self._pairs.ravel(), minlength=self._n)
        work = host_work[self._pairs].max(axis=1).astype(float)
        for crosses, limit in zip(self._crosses, self._limits, strict=True):
            np.maximum(work, crosses.sum() / limit.max_flows, out=work, where=crosses)
        pairs, crossed = self._pairs.tolist(), self._crossed
        free, unpaired, chosen = [True] * self._n, self._n, []
        for position in np.argsort(-work, kind="stable").tolist():
            a, b = pairs[position]
            if free[a] and free[b] and all(room[link] > 0 for link in crossed[position]):
                free[a] = free[b] = False
                for link in crossed[position]:
                    room[link] -= 1
                chosen.append(position)
                unpaired -= 2
                if unpaired < 2:
                    break
        return chosen

    def _keep(self, kept_pairs: npt.NDArray[np.bool_]) -> None:
        self._pairs, self._crosses = self._pairs[kept_pairs], self._crosses[:, kept_pairs]
        self._crossed = list(itertools.compress(self._crossed, kept_pairs))


def measured_both_ways(measured: Matrix) -> npt.NDArray[np.bool_]:
    """Return which pairs were measured in both directions, shape (N, N); a host with itself is not a pair."""
    finite = np.isfinite(measured)
    np.fill_diagonal(finite, False)
    return finite & finite.T
