"""The cheapest ring: a travelling salesman's tour over the hosts, by nearest neighbour, 2-opt and Or-opt.

Best-improvement local search from several starts (Croes 1958 for 2-opt, Or 1976 for Or-opt); all moves of a kind are
priced at once as a matrix. The matrix must be symmetric, so a reversed stretch costs what it did.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.network import Matrix
from solvers.costs.latency import ring_cost, ring_lower_bound

Tour = npt.NDArray[np.intp]
_SEGMENT = 3  # Or-opt moves one to three hosts at once
_EPSILON = 1e-9


@dataclass(frozen=True)
class RingResult:
    """The order found, shape (N,), its cost, a lower bound on any order's, and the costs it is compared with."""

    order: Tour
    cost: float
    lower_bound: float
    given: float
    random_median: float


def search_ring(
    cost: Matrix, seed: int, keep_going: Callable[[], bool], starts: int = 16, random_orders: int = 201
) -> RingResult:
    """The cheapest ring found from the given order and ``starts`` nearest-neighbour tours.

    :param cost: shape (N, N), symmetric, complete.
    :param keep_going: asked between moves; once False the best so far is returned, never worse than the given order.
    """
    rng = np.random.default_rng(seed)
    n = len(cost)
    given = np.arange(n)
    random_costs = [ring_cost(cost, rng.permutation(n)) for _ in range(random_orders)]
    best = given
    for start in [*rng.permutation(n)[:starts].tolist(), None]:
        tour = _improve(cost, given if start is None else nearest_neighbour(cost, start), keep_going)
        if ring_cost(cost, tour) < ring_cost(cost, best) - _EPSILON:
            best = tour
        if not keep_going():
            break
    best = canonical(best)
    return RingResult(
        best, ring_cost(cost, best), ring_lower_bound(cost), ring_cost(cost, given), float(np.median(random_costs))
    )


def canonical(order: Tour) -> Tour:
    """The same ring starting at host 0, towards the lower-numbered of its neighbours: one ring, one way to write it."""
    order = np.roll(order, -int(np.flatnonzero(order == 0)[0]))
    return order if len(order) < 3 or order[1] < order[-1] else np.roll(order[::-1], 1)


def nearest_neighbour(cost: Matrix, start: int) -> Tour:
    """From ``start`` always on to the nearest host not yet visited."""
    left = np.array(cost)
    tour = np.empty(len(cost), dtype=np.intp)
    tour[0] = start
    for k in range(1, len(cost)):
        left[:, tour[k - 1]] = np.inf
        tour[k] = int(np.argmin(left[tour[k - 1]]))
    return tour


def _improve(cost: Matrix, tour: Tour, keep_going: Callable[[], bool]) -> Tour:
    if len(tour) < 4:
        return tour
    while True:
        gain, move = max((_best_two_opt(cost, tour), _best_or_opt(cost, tour)), key=lambda found: found[0])
        if gain <= _EPSILON or not keep_going():
            return tour
        tour = move()


def _best_two_opt(cost: Matrix, tour: Tour) -> tuple[float, Callable[[], Tour]]:
    """Replace edges (i, i+1) and (j, j+1) by (i, j) and (i+1, j+1): reverse what lies between."""
    after = np.roll(tour, -1)
    edge = cost[tour, after]
    gain = edge[:, None] + edge[None, :] - cost[np.ix_(tour, tour)] - cost[np.ix_(after, after)]
    gain[np.tril_indices(len(tour), 1)] = -np.inf  # j > i+1: each pair once, neighbours cannot be exchanged
    i, j = divmod(int(np.argmax(gain)), len(tour))

    def move() -> Tour:
        return np.concatenate([tour[: i + 1], tour[i + 1 : j + 1][::-1], tour[j + 1 :]])

    return float(gain[i, j]), move


def _best_or_opt(cost: Matrix, tour: Tour) -> tuple[float, Callable[[], Tour]]:
    """Take one to three hosts in a row out and put them between two others, either way round."""
    n = len(tour)
    best_gain, best = -np.inf, (0, 1, 0, False)
    position = np.arange(n)
    for length in range(1, min(_SEGMENT, n - 3) + 1):
        first, last = tour, np.roll(tour, -(length - 1))
        before, behind = np.roll(tour, 1), np.roll(tour, -length)
        saved = cost[before, first] + cost[last, behind] - cost[before, behind]
        after = np.roll(tour, -1)
        edge = cost[tour, after]
        # row: where the segment starts; column: the edge (k, k+1) it is put into
        inside = (position[None, :] - position[:, None] + 1) % n <= length
        for flipped, (head, tail) in ((False, (first, last)), (True, (last, first))):
            gain = saved[:, None] + edge[None, :] - cost[np.ix_(head, tour)] - cost[np.ix_(tail, after)]
            gain[inside] = -np.inf
            s, k = divmod(int(np.argmax(gain)), n)
            if gain[s, k] > best_gain:
                best_gain, best = float(gain[s, k]), (s, length, k, flipped)

    def move() -> Tour:
        s, length, k, flipped = best
        turned = np.roll(tour, -s)
        segment, rest = turned[:length], turned[length:]
        at = (k - s) % n - length + 1
        return np.concatenate([rest[:at], segment[::-1] if flipped else segment, rest[at:]])

    return best_gain, move
