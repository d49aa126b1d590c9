"""Orders improved by questions about parts of them: large-neighbourhood search (Shaw, CP 1998).

A neighbourhood is a window: few enough units that :func:`solvers.ordering.smt.cheaper` answers for all ways of
exchanging their contents. Windows that were searched in vain are not searched again until the order changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solvers.costs.closed_forms import Order, PricingProblem, closed_form
from solvers.costs.evaluator import pair_rates
from solvers.costs.fabric import BYTES_PER_US
from solvers.costs.patterns import Pattern
from solvers.ordering.smt import Effort, cheaper
from solvers.ordering.symmetries import symmetries

_WINDOW = (5, 8)  # units, least and most
_PROMISING = 2 / 3  # of the windows are about a hop that takes long
_MOST_DRAWS = 50  # of windows in vain before all are taken to be searched
_WHOLE = 10  # units that may be asked about at once, one more where a symmetry fixes one


@dataclass(frozen=True)
class Improved:
    """The order, shape (N,), and its cost in microseconds; ``proved``: no order that the classes allow costs less (by
    more than a share of ``EPSILON``); ``asked``: how many questions that took."""

    order: Order
    cost: float
    proved: bool
    asked: int


def improve(
    problem: PricingProblem,
    order: Order,
    classes: Sequence[Sequence[Sequence[int]]],
    effort: Effort,
    seed: int,
    max_questions: int,
) -> Improved:
    """Ask for ``cost < current`` again and again: about the whole order while that can be answered, else about windows
    of it (large-neighbourhood search: Shaw, CP 1998). Never worse than the given order.

    :param order: shape (N,), the host at each rank.
    :param classes: what may be exchanged: each class is a list of units (lists of ranks, all of one length) whose
        contents may be permuted; single ranks, hosts' ranks, racks.
    :param effort: of one question; whether to keep going is asked before every question too, and if that is always
        True the result depends on the seed alone.
    :raises UsageError: for an unknown model or a size that is not positive.
    :raises NoAnswer: when the given order has no price.
    """
    price = closed_form(*problem)
    cost, asked = price(order), 0
    classes = [units for units in classes if len(units) > 1]
    everything = _everything(classes, problem.pattern, problem.model)
    searched: set[frozenset[int]] = set()
    windows = _Windows(problem, classes, np.random.default_rng(seed))
    while asked < max_questions and effort.keep_going() and classes:
        units = everything if everything is not None else windows.next(order, searched)
        if units is None:
            break
        asked += 1
        answer = cheaper(problem, order, units, cost, effort)
        if answer.order is not None:
            order, cost = answer.order, price(answer.order)
            searched.clear()
        elif everything is None:
            searched.add(_ranks(units))
        elif answer.proved:
            return Improved(order, cost, True, asked)
        else:
            everything = None
    return Improved(order, cost, not classes, asked)


def _ranks(units: Sequence[Sequence[int]]) -> frozenset[int]:
    return frozenset(rank for unit in units for rank in unit)


def _everything(
    classes: Sequence[Sequence[Sequence[int]]], pattern: Pattern, model: str
) -> Sequence[Sequence[int]] | None:
    """The one class that allows all that the classes allow, if it is small enough to be asked about at once."""
    moved = _ranks([unit for units in classes for unit in units])
    for units in classes:
        if len(classes) == 1 or (len(units[0]) == 1 and _ranks(units) == moved):
            number = len(units)
            if number == _WHOLE + 1 == pattern.ranks and len({int(s[0]) for s in symmetries(pattern, model)}) == number:
                number -= 1
            if number <= _WHOLE:
                return units
    return None


class _Windows:
    """What to ask about next: first all of a class with few units, then windows about hops that take long, and between
    them windows of neighbours anywhere."""

    def __init__(
        self, problem: PricingProblem, classes: Sequence[Sequence[Sequence[int]]], rng: np.random.Generator
    ) -> None:
        pattern, fabric, size_bytes, model = problem
        self._rng, self._rtt = rng, fabric.rtt_us
        self._classes = classes
        often = pattern.there if model == "latency" else pattern.repeat
        used = often[pattern.round] > 0
        self._source, self._target = pattern.source[used], pattern.target[used]
        self._round, self._often = pattern.round[used], often[pattern.round[used]]
        self._moved = np.zeros(int(used.sum()))
        if model != "latency":
            self._moved = pattern.share[used] * size_bytes / BYTES_PER_US
            self._slow = np.nan_to_num(1 / pair_rates(fabric), nan=0.0)

    def next(self, order: Order, searched: set[frozenset[int]]) -> Sequence[Sequence[int]] | None:
        """Units that were not searched since the order last changed; None where they are hard to find."""
        for units in self._classes:
            if len(units) <= _WINDOW[1] and _ranks(units) not in searched:
                return units
        large = [units for units in self._classes if len(units) > _WINDOW[1]]
        for _ in range(_MOST_DRAWS if large else 0):
            units = large[int(self._rng.integers(len(large)))]
            chosen = self._draw(order, units)
            if _ranks(chosen) not in searched:
                return chosen
        return None

    def _draw(self, order: Order, units: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
        size, count = int(self._rng.integers(_WINDOW[0], _WINDOW[1] + 1)), len(units)
        unit_of = np.full(len(order), -1)
        for u, unit in enumerate(units):
            unit_of[list(unit)] = u
        start = int(self._rng.integers(count))
        centre = [start]
        if self._rng.random() < _PROMISING and len(self._source):
            hops = self._dearest(order)
            hop = int(hops[int(len(hops) * self._rng.random() ** 3)])
            ends = [int(unit_of[self._source[hop]]), int(unit_of[self._target[hop]])]
            centre = [u for u in dict.fromkeys(ends) if u >= 0] or centre
        # Who could stand in for the ends: neighbours in the order, hosts near theirs, partners, anyone.
        first = order[[unit[0] for unit in units]]
        chosen = dict.fromkeys(centre)
        while len(chosen) < size:
            about = centre[int(self._rng.integers(len(centre)))]
            near = 1 + int((count - 1) * self._rng.random() ** 3)
            way = int(self._rng.integers(4))
            if way == 0:
                chosen[(about + near * (1 if self._rng.random() < 0.5 else -1)) % count] = None
            elif way == 1:
                chosen[int(np.argsort(self._rtt[first[about], first], kind="stable")[min(near, count - 1)])] = None
            elif way == 2:
                partners = self._target[np.isin(self._source, units[about])]
                partners = unit_of[partners][unit_of[partners] >= 0]
                if len(partners):
                    chosen[int(self._rng.choice(partners))] = None
            else:
                chosen[int(self._rng.integers(count))] = None
        return [units[u] for u in sorted(chosen)]

    def _dearest(self, order: Order) -> Order:
        """Hops by what they take alone as a share of the longest in their round, then by how long that is."""
        source, target = order[self._source], order[self._target]
        takes = self._rtt[source, target]
        if self._moved.any():
            takes = takes / 2 + np.where(source == target, 0.0, self._moved * self._slow[source, target])
        longest = np.zeros(int(self._round.max()) + 1)
        np.maximum.at(longest, self._round, takes)
        share = takes / np.where(longest > 0, longest, 1.0)[self._round]
        return np.lexsort((-takes * self._often, -np.round(share, 2)))
