"""Whom all others wait for, by the clocks that hosts tell: a program that hangs on one host hangs the job."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from runners.agile.turns import Share

LONG_S = 10.0
_LONGER = 3  # times as long as any clock took so far
_KEPT = 64  # clocks; more than workers may be apart


@dataclass(frozen=True)
class Wait:
    """``hosts``, by number, have not done ``clock``; nobody has done any for ``seconds``."""

    clock: int
    hosts: tuple[int, ...]
    seconds: float


@dataclass
class Waiting:
    """Of the clock at which it begins to listen some may have been told before, so only those after it count.

    :param apart: most clocks that a worker may be ahead of the slowest.
    """

    apart: int = 0
    _first: int | None = None
    _newest: int = -1
    _done: dict[int, Counter[int]] = field(default_factory=dict)  # workers that have, by clock and host
    _at: float = 0.0
    _longest_s: float = 0.0

    def told(self, host: int, clock: int, now: float) -> None:
        """One of its workers has done a clock."""
        if self._first is None:
            self._first = clock
        else:
            self._longest_s = max(self._longest_s, now - self._at)
        self._at, self._newest = now, max(clock, self._newest)
        self._done.setdefault(clock, Counter())[host] += 1
        self._done.pop(self._newest - _KEPT, None)

    def rolled_back(self) -> None:
        """All clocks are told anew."""
        self._first, self._newest = None, -1
        self._done.clear()

    def now(self, shares: Mapping[int, Share], now: float) -> Wait | None:
        """Who is waited for, where that takes unusually long."""
        seconds = now - self._at
        if self._first is None or self._newest <= self._first or seconds < max(LONG_S, _LONGER * self._longest_s):
            return None
        for clock in range(max(self._first + 1, self._newest - self.apart), self._newest + 2):
            workers = Counter(share.host for share in shares.values() if share.first <= clock)
            done = self._done.get(clock, Counter())
            if late := tuple(sorted(host for host, number in workers.items() if done[host] < number)):
                return Wait(clock, late, seconds)
        return None
