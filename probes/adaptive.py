"""A tenth of the pairs, well chosen: random rounds, then the pairs predicted nearest, until the groups stand still.

What is near is the caller's to say: a plan measures, predicts nothing itself, and keeps some random pairs from the
predictor so that its error can be told honestly.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from probes.failures import Failures
from probes.matching import disjoint, nearest_pairs
from probes.plan import both_ways
from probes.rounds import Circle, Pair, as_pairs
from probes.settling import Settling

Integers = npt.NDArray[np.intp]

_CHUNK = 128
_NONE: Integers = np.zeros((0, 2), dtype=np.intp)


class Prediction(Protocol):
    """What the caller makes of the pairs measured so far."""

    @property
    def groups(self) -> Integers:
        """The group of every host, shape (N,)."""

    def rtt_us(self, hosts: Integers) -> Matrix:
        """Expected round trips from ``hosts``, shape (H,), to all hosts, shape (H, N)."""

    def least_us(self, hosts: Integers) -> Matrix:
        """The same, as near as the pairs may still turn out to be: what little is known about is worth a look."""


@dataclass(frozen=True)
class AdaptiveSettings:
    """``budget``: the share of all pairs that may be asked for, those of an earlier run included.

    First come rounds of random pairs that are kept from the predictor, until there are ``held_out`` of them (no more
    than an eighth of the budget, at least one round), then random rounds it may see, the share ``random`` of the
    budget. A new prediction is made when ``every_rounds`` rounds have passed and the pairs asked for have grown by the
    share ``growth``. The plan ends early when for ``settled_rounds`` rounds every host kept the share ``same`` of its
    neighbours on average. A host is given up after ``give_up`` failures in a row.
    """

    budget: float = 0.10
    held_out: int = 1500
    random: float = 0.25
    every_rounds: int = 2
    growth: float = 0.10
    settled_rounds: int = 8
    same: float = 0.99
    give_up: int = 5

    def __post_init__(self) -> None:
        if not 0 < self.budget <= 1:
            raise ValueError(f"the budget is a share of all pairs: {self.budget} is not in (0, 1]")
        if min(self.held_out, self.every_rounds, self.settled_rounds, self.give_up) < 1:
            raise ValueError("pairs, rounds and failures are counted from 1")
        if self.growth < 0 or not 0 < self.same <= 1 or not 0 < self.random <= 1:
            raise ValueError("growth is not negative, `random` and `same` are shares in (0, 1]")


class Adaptive:
    """A :class:`probes.plan.Plan` of few pairs.

    ``predict`` is given the measured matrix, shape (N, N), NaN where unmeasured or held out. ``held_out_error`` is the
    median relative error of the last prediction on ``held_out_pairs`` pairs it never saw (NaN before the first),
    ``settled`` whether the groups stood still in the end; ``lost`` the hosts given up.
    """

    def __init__(
        self, n: int, seed: int, predict: Callable[[Matrix], Prediction], settings: AdaptiveSettings | None = None
    ) -> None:
        self.settings = settings or AdaptiveSettings()
        a_round = max(n // 2, 1)
        self.most_pairs = max(int(self.settings.budget * n * (n - 1) / 2), 1)
        self.most_rounds = math.ceil(self.most_pairs / a_round)
        self.held_out_error, self.held_out_pairs = math.nan, 0
        self.settled = False
        self._predict = predict
        self._rng = np.random.default_rng(seed)
        self._circle = Circle(n, seed)
        kept_back = max(min(math.ceil(self.settings.held_out / a_round), self.most_rounds // 8), 1)
        self._opening = min(kept_back + math.ceil(self.settings.random * self.most_rounds), len(self._circle))
        self._held_out = np.concatenate([_NONE, *(self._circle[k] for k in range(min(kept_back, self._opening)))])
        self._closed = np.eye(n, dtype=bool)
        self._seen: Matrix = np.full((n, n), np.nan)
        self._failures = Failures(n, self.settings.give_up)
        self._settling = Settling(self.settings.settled_rounds, self.settings.same)
        self._last: Integers | None = None
        self._wanted = _NONE
        self._spent = self._asked_rounds = self._opened = 0
        self._looked_at = (-1, 0)

    @property
    def lost(self) -> list[int]:
        """Hosts given up because their pairs failed again and again."""
        return [int(host) for host in np.flatnonzero(~self._failures.alive)]

    def next_round(self, measured: Matrix) -> list[Pair] | None:
        """See :class:`probes.plan.Plan`."""
        self._take_in(measured)
        pairs = self._choose(measured)[: self.most_pairs - self._spent]
        if not len(pairs):
            self._look(measured)
            return None
        self._last = pairs
        self._close(pairs)
        self._spent += len(pairs)
        self._asked_rounds += 1
        return as_pairs(pairs)

    def _take_in(self, measured: Matrix) -> None:
        """Learn what the last round gave; at first, what an earlier run did."""
        if self._last is not None:
            i, j = self._last.T
            back_and_forth = np.stack([measured[i, j], measured[j, i]])
            self._failures.learn(self._last, np.isnan(back_and_forth).all(axis=0))
            self._seen[i, j], self._seen[j, i] = back_and_forth
        else:
            np.copyto(self._seen, measured)
            done = both_ways(measured)
            self._closed |= done
            self._spent = int(done.sum()) // 2
        i, j = self._held_out.T
        self._seen[i, j] = self._seen[j, i] = np.nan

    def _close(self, pairs: Integers) -> None:
        i, j = pairs.T
        self._closed[i, j] = self._closed[j, i] = True

    def _choose(self, measured: Matrix) -> Integers:
        """The pairs of the next round, shape (k, 2), none when it is over."""
        if self._asked_rounds >= self.most_rounds or self._spent >= self.most_pairs:
            return _NONE
        alive = self._failures.alive
        while self._opened < self._opening:
            pairs = self._circle[self._opened]
            self._opened += 1
            pairs = pairs[~self._closed[pairs[:, 0], pairs[:, 1]] & alive[pairs].all(axis=1)]
            if len(pairs):
                return pairs
        if self._look_is_due():
            self._look(measured)
        pairs = disjoint(self._wanted, self._closed, alive, self._rng)
        if not len(pairs):
            self._look(measured)
            pairs = disjoint(self._wanted, self._closed, alive, self._rng)
        return _NONE if self.settled else pairs

    def _look_is_due(self) -> bool:
        rounds_then, spent_then = self._looked_at
        old = self._asked_rounds - rounds_then >= self.settings.every_rounds
        return rounds_then < 0 or (old and self._spent >= spent_then * (1 + self.settings.growth))

    def _look(self, measured: Matrix) -> None:
        """Predict anew, unless nothing was measured since: the pairs wanted next, the error, whether to go on."""
        if self._looked_at == (self._asked_rounds, self._spent):
            return
        prediction = self._predict(self._seen)
        waiting = max(self.settings.every_rounds, math.ceil(self.settings.growth * self._asked_rounds))
        self._wanted = nearest_pairs(prediction.least_us, self._closed, self._failures.alive, waiting + 16, self._rng)
        self._judge(prediction, measured)
        self.settled = self._settling.still(self._asked_rounds, prediction.groups)
        self._looked_at = (self._asked_rounds, self._spent)

    def _judge(self, prediction: Prediction, measured: Matrix) -> None:
        i, j = self._held_out.T
        truth = np.fmax(measured[i, j], measured[j, i])
        judged = truth > 0
        i, j, truth = i[judged], j[judged], truth[judged]
        self.held_out_pairs = len(i)
        if len(i):
            chunks = [slice(k, k + _CHUNK) for k in range(0, len(i), _CHUNK)]
            expected = [self._one_each(prediction, i[some], j[some]) for some in chunks]
            self.held_out_error = float(np.median(np.abs(np.concatenate(expected) - truth) / truth))

    @staticmethod
    def _one_each(prediction: Prediction, i: Integers, j: Integers) -> npt.NDArray[np.float64]:
        return prediction.rtt_us(i)[np.arange(len(i)), j]
