"""Plan that measures a tenth of the pairs: random rounds, then the pairs predicted nearest, until the groups converge.

The caller predicts: the plan itself only measures, and keeps some random pairs from the predictor as a held-out set.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from probes.disjoint_pairs import Pair, RoundRobin, as_pairs, disjoint, nearest_pairs
from probes.plan import measured_both_ways

Integers = npt.NDArray[np.intp]
_NO_PAIRS: Integers = np.zeros((0, 2), dtype=np.intp)
Booleans = npt.NDArray[np.bool_]


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


class Prediction(Protocol):
    """What the caller predicts from the pairs measured so far."""

    @property
    def groups(self) -> Integers:
        """The group of every host, shape (N,)."""

    def lower_bound_us(self, hosts: Integers) -> Matrix:
        """Return lower bounds of round trips from ``hosts``, shape (H,), to all hosts, shape (H, N): pairs of unknown
        distance are candidates."""


@dataclass(frozen=True)
class AdaptiveSettings:
    """Settings of an adaptive plan. ``budget`` is the largest share of all pairs to measure, an earlier run's included.

    The first rounds are random pairs kept from the predictor, until there are ``held_out`` of them (at most an eighth
    of the budget, at least one round). Then come random rounds that it sees, the share ``random_share`` of the budget.
    A prediction is made when ``every_rounds`` rounds have passed and the pairs have grown by the share ``growth``. The
    plan ends early when for ``convergence_rounds`` rounds every host kept the share ``min_overlap`` of its neighbours
    on average. A host is lost after ``max_failures`` failures in a row.
    """

    budget: float = 0.10
    held_out: int = 1500
    random_share: float = 0.25
    every_rounds: int = 2
    growth: float = 0.10
    convergence_rounds: int = 8
    min_overlap: float = 0.99
    max_failures: int = 5


class AdaptivePlan:
    """A :class:`probes.plan.ProbePlan` that measures few pairs.

    ``predict`` gets the measured matrix, shape (N, N), NaN where unmeasured or held out. ``held_out``, shape
    (k, 2): the pairs that no prediction sees. ``converged``: whether the groups had converged at the end.
    """

    def __init__(
        self, n: int, seed: int, predict: Callable[[Matrix], Prediction], settings: AdaptiveSettings | None = None
    ) -> None:
        self.settings = settings or AdaptiveSettings()
        pairs_per_round = max(n // 2, 1)
        self.max_pairs = max(int(self.settings.budget * n * (n - 1) / 2), 1)
        self._max_rounds = math.ceil(self.max_pairs / pairs_per_round)
        self.converged = False
        self._predict = predict
        self._rng = np.random.default_rng(seed)
        self._schedule = RoundRobin(n, seed)
        held_out_rounds = max(min(math.ceil(self.settings.held_out / pairs_per_round), self._max_rounds // 8), 1)
        self._opening_rounds = min(
            held_out_rounds + math.ceil(self.settings.random_share * self._max_rounds), len(self._schedule)
        )
        self.held_out = np.concatenate(
            [_NO_PAIRS, *(self._schedule[k] for k in range(min(held_out_rounds, self._opening_rounds)))]
        )
        self._closed = np.eye(n, dtype=bool)
        self._visible: Matrix = np.full((n, n), np.nan)
        self._failures = HostFailures(n, self.settings.max_failures)
        self._convergence = GroupConvergence(self.settings.convergence_rounds, self.settings.min_overlap)
        self._last_round: Integers | None = None
        self._candidates = _NO_PAIRS
        self._spent = self._rounds = self._opening_round = 0
        self._predicted_at = (-1, 0)

    def next_round(self, measured: Matrix) -> list[Pair] | None:
        """See :class:`probes.plan.ProbePlan`."""
        self._update(measured)
        pairs = self._choose()[: self.max_pairs - self._spent]
        if not len(pairs):
            self._predict_anew()
            return None
        self._last_round = pairs
        self._close(pairs)
        self._spent += len(pairs)
        self._rounds += 1
        return as_pairs(pairs)

    def _update(self, measured: Matrix) -> None:
        """Add the results of the last round; the first time, those of an earlier run."""
        if self._last_round is not None:
            i, j = self._last_round.T
            both_directions = np.stack([measured[i, j], measured[j, i]])
            self._failures.update(self._last_round, np.isnan(both_directions).all(axis=0))
            self._visible[i, j], self._visible[j, i] = both_directions
        else:
            np.copyto(self._visible, measured)
            done = measured_both_ways(measured)
            self._closed |= done
            self._spent = int(done.sum()) // 2
        i, j = self.held_out.T
        self._visible[i, j] = self._visible[j, i] = np.nan

    def _close(self, pairs: Integers) -> None:
        i, j = pairs.T
        self._closed[i, j] = self._closed[j, i] = True

    def _choose(self) -> Integers:
        """Return the pairs of the next round, shape (k, 2); none when the plan is done."""
        if self._rounds >= self._max_rounds or self._spent >= self.max_pairs:
            return _NO_PAIRS
        alive = self._failures.alive
        while self._opening_round < self._opening_rounds:
            pairs = self._schedule[self._opening_round]
            self._opening_round += 1
            pairs = pairs[~self._closed[pairs[:, 0], pairs[:, 1]] & alive[pairs].all(axis=1)]
            if len(pairs):
                return pairs
        if self._prediction_is_due():
            self._predict_anew()
        pairs = disjoint(self._candidates, self._closed, alive, self._rng)
        if not len(pairs):
            self._predict_anew()
            pairs = disjoint(self._candidates, self._closed, alive, self._rng)
        return _NO_PAIRS if self.converged else pairs

    def _prediction_is_due(self) -> bool:
        rounds_before, spent_before = self._predicted_at
        is_old = self._rounds - rounds_before >= self.settings.every_rounds
        return rounds_before < 0 or (is_old and self._spent >= spent_before * (1 + self.settings.growth))

    def _predict_anew(self) -> None:
        """Predict, unless nothing was measured since: the next candidates, and convergence."""
        if self._predicted_at == (self._rounds, self._spent):
            return
        prediction = self._predict(self._visible)
        count = max(self.settings.every_rounds, math.ceil(self.settings.growth * self._rounds))
        self._candidates = nearest_pairs(
            prediction.lower_bound_us, self._closed, self._failures.alive, count + 16, self._rng
        )
        self.converged = self._convergence.update(self._rounds, prediction.groups)
        self._predicted_at = (self._rounds, self._spent)


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
