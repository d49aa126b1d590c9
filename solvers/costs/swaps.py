"""What an order would cost with two of its ranks swapped: only the hops of these two are looked at again.

For the model ``latency`` with the paces ``rounds`` and ``pipeline``: a rank has a few hops in a round (one in a ring or
in halving-doubling, B - 1 in a BCube), and a round's longest hop changes only if one of these was it or becomes it.
"""

import numpy as np
import numpy.typing as npt

from plink.network import Matrix
from solvers.costs.patterns import Pattern

Order = npt.NDArray[np.intp]


class Swaps:
    """An order, its price, and the prices of its neighbours; not thread-safe.

    :param pattern: with the pace ``rounds`` or ``pipeline``. :param rtt_us: shape (N, N), symmetric, complete.
    :param order: shape (N,), the host at each rank; copied.
    """

    def __init__(self, pattern: Pattern, rtt_us: Matrix, order: Order) -> None:
        assert pattern.pace in ("rounds", "pipeline")
        assert not pattern.everyone
        used = pattern.there[pattern.round] > 0 if pattern.pace == "rounds" else np.ones(len(pattern.round), dtype=bool)
        low, high = np.minimum(pattern.source, pattern.target)[used], np.maximum(pattern.source, pattern.target)[used]
        rounds = pattern.round[used]
        self._sum = pattern.pace == "pipeline"
        if self._sum:  # hops count once, whichever the round, and one each way
            rounds = np.zeros_like(rounds)
            low, high = pattern.source[used], pattern.target[used]
        keys = np.unique((rounds * pattern.ranks + low) * pattern.ranks + high)
        self._low, self._high = keys // pattern.ranks % pattern.ranks, keys % pattern.ranks
        self._round = keys // (pattern.ranks * pattern.ranks)
        self._starts = np.searchsorted(self._round, np.arange(len(pattern.repeat)))
        self._ends = [*self._starts[1:].tolist(), len(keys)]
        self._weight = pattern.there.tolist()
        self._round_of: list[int] = self._round.tolist()
        self._ends_of: list[tuple[int, int]] = list(zip(self._low.tolist(), self._high.tolist(), strict=True))
        self._hops_of: list[list[int]] = [[] for _ in range(pattern.ranks)]
        for hop, (a, b) in enumerate(self._ends_of):
            self._hops_of[a].append(hop)
            self._hops_of[b].append(hop)
        self._rtt = rtt_us
        self.order: list[int] = order.tolist()
        self._reset()

    def _reset(self) -> None:
        order = np.array(self.order)
        self._values = self._rtt[order[self._low], order[self._high]]
        if self._sum:
            self.cost = float(self._values.sum())
            return
        self._longest: list[float] = [
            float(self._values[start:end].max(initial=0.0))
            for start, end in zip(self._starts.tolist(), self._ends, strict=True)
        ]
        self.cost = sum(most * weight for most, weight in zip(self._longest, self._weight, strict=True))

    def _changed(self, a: int, b: int) -> dict[int, float]:
        """The hops of two ranks, as long as they are when these are swapped."""
        order, item = self.order, self._rtt.item
        order[a], order[b] = order[b], order[a]
        ends = self._ends_of
        found = {hop: item(order[ends[hop][0]], order[ends[hop][1]]) for hop in self._hops_of[a] + self._hops_of[b]}
        order[a], order[b] = order[b], order[a]
        return found

    def price(self, a: int, b: int) -> float:
        """The cost with the hosts at ranks a and b swapped."""
        changed = self._changed(a, b)
        values = self._values
        if self._sum:
            return self.cost + float(sum(new - values.item(hop) for hop, new in changed.items()))
        cost, longest = self.cost, self._longest
        most: dict[int, float] = {}
        shrinks: set[int] = set()
        for hop, new in changed.items():
            k = self._round_of[hop]
            if new > most.get(k, -1.0):
                most[k] = new
            if values.item(hop) == longest[k]:
                shrinks.add(k)
        for k, new in most.items():
            if k in shrinks and new < longest[k]:
                rest = values[self._starts[k] : self._ends[k]].copy()
                rest[[hop - self._starts[k] for hop in changed if self._round_of[hop] == k]] = new
                cost += (float(rest.max()) - longest[k]) * self._weight[k]
            elif new > longest[k]:
                cost += (new - longest[k]) * self._weight[k]
        return float(cost)

    def swap(self, a: int, b: int) -> None:
        """Swap the hosts at ranks a and b for good."""
        changed = self._changed(a, b)
        self.order[a], self.order[b] = self.order[b], self.order[a]
        if self._sum:
            self.cost += sum(new - self._values.item(hop) for hop, new in changed.items())
        for hop, new in changed.items():
            self._values[hop] = new
        if not self._sum:
            for k in {self._round_of[hop] for hop in changed}:
                most = float(self._values[self._starts[k] : self._ends[k]].max())
                self.cost += (most - self._longest[k]) * self._weight[k]
                self._longest[k] = most
