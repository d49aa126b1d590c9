"""The cheapest ring: a travelling salesman's tour over the hosts, by the sum of its hops or by its longest hop first.

2-opt and 3-opt over candidate lists, again and again after the tour was disturbed in one place (iterated local search;
Martin, Otto and Felten 1991). Candidates come from 1-trees, which give the bound of the sum as well (Helsgaun 2000).
"""

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.latency import ring_cost
from solvers.ordering.progress import Progress, SearchBudget, Watch

Tour = npt.NDArray[np.intp]
EXACT = 8  # hosts: up to here every ring is tried
_CANDIDATES = 5
_KICKS = 20  # disturbances per host in a series
_AT_ONCE = 20_000  # disturbances between two looks at the clock
_WARMTH = 0.3  # of the median hop: how much dearer a disturbed tour may come out, on average, when a series begins
_PATIENCE = 40  # series without a gain, after which more of them are thought to be in vain
_FORBIDDEN = 10  # times the longest of all hops: what a hop above the threshold costs on top
_EPSILON = 1e-9
_ROUNDING = 1e-12  # of a hop in other units


@dataclass(frozen=True)
class Ring:
    """The order, shape (N,); its cost (the sum of its hops) and its longest hop; ``lower_bound``: what no ring costs
    less than (no ring whose longest hop is as short, where that comes first); ``longest_bound``: no ring has all its
    hops below it; ``kicks``: how many disturbances were tried."""

    order: Tour
    cost: float
    longest: float
    lower_bound: float
    longest_bound: float
    kicks: int


def search_ring(cost: Matrix, seed: int, budget: SearchBudget) -> Ring:
    """The ring with the least sum of hops that is found, never dearer than the given one (hosts as they are numbered).

    :param cost: shape (N, N), symmetric, complete. :param budget: its moves are disturbances; it is watched between
        series of them.
    """
    floor = _floor(cost)  # before the search, which ends when its time does
    if len(cost) <= EXACT:
        order = _cheapest_of_all(cost, longest_first=False)
        return _ring(cost, order, ring_cost(cost, order), floor, 0)
    found = _Tour(cost, np.arange(len(cost)), seed, budget.watch)
    found.improve(budget.max_moves, budget.patient)
    return _ring(cost, found.order, found.bound, floor, found.kicks)


def search_bottleneck(cost: Matrix, seed: int, budget: SearchBudget) -> Ring:
    """The ring whose longest hop is shortest and, among those, the one with the least sum, as far as they are found.

    Hops above a threshold are made so dear that the search for the least sum avoids them. The threshold begins where
    a ring could exist at all (:mod:`solvers.ordering.biconnected`); then what is left between the last one that was
    searched in vain and the best ring is halved.

    :param cost: and the others: as in :func:`search_ring`; what is watched is the longest hop.
    """
    from solvers.ordering.one_tree import one_tree

    n = len(cost)
    if n <= EXACT:
        order = _cheapest_of_all(cost, longest_first=True)
        return _ring(cost, order, ring_cost(cost, order), longest_hop(cost, order), 0)
    lengths = np.unique(cost[np.triu_indices(n, 1)])
    floor = in_vain = threshold = _floor(cost)
    best, kicks, most_kicks = np.arange(n), 0, budget.max_moves

    def going(progress: Progress) -> bool:
        return budget.watch(Progress(longest_hop(cost, best), floor, kicks + progress.moves))

    while kicks < most_kicks:
        found = _Tour(_forbidding(cost, threshold), best, seed, going)
        found.improve((most_kicks - kicks + 1) // 2, False, threshold)
        kicks += found.kicks
        best = min(best, found.order, key=lambda order: (longest_hop(cost, order), ring_cost(cost, order)))
        if longest_hop(cost, best) > threshold:
            in_vain = threshold
        between = lengths[(lengths > in_vain) & (lengths < longest_hop(cost, best))]
        if not len(between) or not going(Progress(0.0, None, 0)):
            break
        threshold = float(between[len(between) // 2])
    last = _within(cost, best, longest_hop(cost, best), seed, going)
    last.improve(max(0, most_kicks - kicks), budget.patient)
    if longest_hop(cost, last.order) <= longest_hop(cost, best):
        best = last.order
    # What no ring costs less than, no ring of short hops does either: the larger of the two bounds is the better.
    plain = one_tree(cost, lambda: going(Progress(0.0, None, 0))).bound
    return _ring(cost, best, max(last.bound, plain), floor, kicks + last.kicks)


def least_sum(cost: Matrix, order: Tour, longest: float, seed: int, budget: SearchBudget) -> Tour:
    """A ring with no hop above ``longest`` and the least sum that is found, from one that has none either."""
    if len(cost) <= EXACT:
        return order
    found = _within(cost, order, longest, seed, budget.watch)
    found.improve(budget.max_moves, False)
    return found.order if longest_hop(cost, found.order) <= longest else order


def _within(cost: Matrix, order: Tour, longest: float, seed: int, watch: Watch) -> "_Tour":
    return _Tour(_forbidding(cost, longest), order, seed, watch)


def longest_hop(cost: Matrix, order: Tour) -> float:
    """The longest hop of a ring, in the unit of the costs; 0 for a host alone."""
    return float(cost[order, np.roll(order, 1)].max())


def canonical(order: Tour) -> Tour:
    """The same ring starting at host 0, towards the lower-numbered of its neighbours: one ring, one way to write it."""
    order = np.roll(order, -int(np.flatnonzero(order == 0)[0]))
    return order if len(order) < 3 or order[1] < order[-1] else np.roll(order[::-1], 1)


class _Tour:
    """A tour that gets better, and what its 1-tree says no tour can cost less than."""

    def __init__(self, cost: Matrix, start: Tour, seed: int, watch: Watch) -> None:
        from solvers.ordering.one_tree import candidates, one_tree
        from solvers.ordering.ring_kernels import Neighbours

        # In units of a usual hop: what is too little to count does not depend on how far hosts are apart.
        self._unit = float(np.median(cost[cost > 0])) if (cost > 0).any() else 1.0
        self._cost = np.ascontiguousarray(cost, dtype=np.float64) / self._unit
        self.order, self.kicks, self._watch = start, 0, watch
        self._value, self._bound = ring_cost(self._cost, start), -np.inf
        tree = one_tree(self._cost, self._going)
        self._bound = tree.bound
        near = candidates(self._cost, tree, _CANDIDATES)
        nearest_first = np.argsort(np.take_along_axis(self._cost, near, 1), axis=1, kind="stable")
        self._graph = Neighbours(self._cost, np.take_along_axis(near, nearest_first, 1).copy())
        self._state = np.array([seed], dtype=np.uint64)

    def improve(self, most_kicks: int, patient: bool, enough: float = -np.inf) -> None:
        """Series of disturbances until the bound is met, no hop is longer than ``enough``, or there is no more time."""
        from solvers.ordering.ring_kernels import Kicks, kick

        n, cost = len(self._cost), self._cost
        tour = self.order.astype(np.int64)
        kick(self._graph, tour, tour.copy(), Kicks(0, 0.0, 0.0, settle=True), self._state)
        self._take(tour)
        warmth = _WARMTH * float(np.median(cost[tour, np.roll(tour, 1)]))
        idle = 0
        while self.kicks < most_kicks and self._value > self._bound * (1 + _EPSILON):
            if longest_hop(cost, self.order) <= enough / self._unit * (1 + _ROUNDING):
                return
            if not self._going() or (idle >= _PATIENCE and not patient):
                return
            idle = 0 if self._series(min(_KICKS * n, most_kicks - self.kicks), warmth) else idle + 1

    def _series(self, kicks: int, warmth: float) -> bool:
        """Disturbances of the best tour, at first letting dearer ones pass; whether a cheaper one was met."""
        from solvers.ordering.ring_kernels import Kicks, kick

        tour = self.order.astype(np.int64)
        met, best, done = False, np.empty_like(tour), 0
        while done < kicks and (done == 0 or self._going()):
            part = min(_AT_ONCE, kicks - done)
            warm, cool = (warmth * (1 - k / kicks) for k in (done, done + part))
            kick(self._graph, tour, best, Kicks(part, warm, cool), self._state)
            done += part
            self.kicks += part
            met |= self._take(best)
        return met

    def _take(self, tour: npt.NDArray[np.int64]) -> bool:
        value = ring_cost(self._cost, tour)
        if value >= self._value * (1 - _EPSILON):
            return False
        self.order, self._value = tour.astype(np.intp), value
        return True

    @property
    def bound(self) -> float:
        """What no tour costs less than."""
        return self._bound * self._unit

    def _going(self) -> bool:
        bound = self.bound if np.isfinite(self._bound) else None
        return self._watch(Progress(self._value * self._unit, bound, self.kicks))


def _ring(cost: Matrix, order: Tour, bound: float, floor: float, kicks: int) -> Ring:
    order = canonical(order)
    value = ring_cost(cost, order)
    return Ring(order, value, longest_hop(cost, order), min(bound, value), min(floor, longest_hop(cost, order)), kicks)


def _floor(cost: Matrix) -> float:
    from solvers.ordering.biconnected import two_connected_threshold

    return two_connected_threshold(cost) if len(cost) > 2 else longest_hop(cost, np.arange(len(cost)))


def _forbidding(cost: Matrix, threshold: float) -> Matrix:
    return np.where(cost <= threshold, cost, cost + _FORBIDDEN * cost.max())


def _cheapest_of_all(cost: Matrix, longest_first: bool) -> Tour:
    """Every ring tried; the given order where none is cheaper."""
    n = len(cost)
    orders = np.array([(0, *rest) for rest in itertools.permutations(range(1, n))], dtype=np.intp).reshape(-1, n)
    hops = cost[orders, np.roll(orders, 1, axis=1)]
    sums = hops.sum(axis=1)
    best = int(np.lexsort((sums, hops.max(axis=1)))[0] if longest_first else np.argmin(sums))
    found: Tour = orders[best]
    return found
