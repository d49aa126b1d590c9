"""DSSP: how far a worker may be ahead of the slowest, from clock to clock (Zhao et al., ICDCS 2019).

A worker that is L clocks ahead looks forward: if it went on for r more clocks, how long would it wait then until the
slowest ends one? It gets the r of the shortest wait as a credit, 0 to U - L, and waits after those. All is predicted
from the seconds of a clock of both, which workers write down. When the slowest ended its clock is seen by one's own
watch, so no clocks need to be synchronised.
"""

from collections.abc import Mapping
from typing import NamedTuple


class WorkerClock(NamedTuple):
    """The latest clock that a worker has finished, and the seconds of one."""

    finished: int
    seconds: float


class StalenessCredits:
    """Credits of one worker.

    :param lower, upper: bounds of the clocks that it may be ahead.
    """

    def __init__(self, lower: int, upper: int) -> None:
        self._lower, self._upper = lower, upper
        self._seen: dict[int, tuple[int, float]] = {}  # by worker: its clock, and when that was seen first
        self._until = -1  # the last clock that may begin on credit

    def bound(self, clock: int, own_s: float, others: Mapping[int, WorkerClock], now_s: float) -> int:
        """Return how many clocks this worker may be ahead when it begins ``clock``.

        :param own_s: seconds of a clock of this worker; 0: nothing is known yet.
        :param now_s: by any watch that does not go back.
        """
        for worker, other in others.items():
            if worker not in self._seen or self._seen[worker][0] != other.finished:
                self._seen[worker] = other.finished, now_s
        if not others:
            return self._lower
        slowest = min(others, key=lambda worker: (others[worker].finished, -others[worker].seconds))
        ahead = clock - 1 - others[slowest].finished
        if ahead <= self._lower:
            self._until = -1
            return self._lower
        if self._until < 0 and own_s > 0 and others[slowest].seconds > 0:
            credit = self._best(own_s, others[slowest].seconds, now_s - self._seen[slowest][1])
            self._until = clock - 1 + credit
        if clock <= self._until:
            return min(self._upper, ahead)
        self._until = -1  # after the wait it is decided anew
        return self._lower

    def _best(self, own_s: float, slowest_s: float, since_s: float) -> int:
        """Return the number of more clocks after which the slowest ends one soonest; the first of several."""
        first = max(0.0, slowest_s - since_s)  # from now on: the end of its present clock

        def wait(more: int) -> float:
            at = more * own_s
            periods = max(0.0, -(-(at - first) // slowest_s))
            return first + periods * slowest_s - at

        return min(range(self._upper - self._lower + 1), key=lambda more: (round(wait(more), 9), more))

    def roll_back(self) -> None:
        """Forget all: clocks are done again."""
        self._seen.clear()
        self._until = -1
