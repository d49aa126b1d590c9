"""The best order for any algorithm under any model: orders to begin with, a search that fits, a bound."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solvers.costs.by_name import MIXED, pattern_for, pricing_for
from solvers.costs.closed_forms import closed_form
from solvers.costs.fabric import Fabric
from solvers.costs.latency import require_complete
from solvers.costs.patterns import Pattern
from solvers.ordering.annealing import Annealer
from solvers.ordering.bounds import hypercube_bound, pattern_bound
from solvers.ordering.initial import initial_orders
from solvers.ordering.ring import search_ring
from solvers.schedules.catalogue import Options

Order = npt.NDArray[np.intp]
_RANDOM_ORDERS = 201
_HYPERCUBES = ("halving-doubling", "bcube", "openmpi-rabenseifner", "recursive-doubling", "openmpi-recursive-doubling")
_RINGS = ("ring", "ring-chunked", "gloo", "nccl-ring", "openmpi-ring")
_EPSILON = 1e-9


@dataclass(frozen=True)
class Found:
    """The order, shape (N,): the host at each rank; its cost, a lower bound of any order's (None: none is known), the
    cost of the given order, the median of random ones; ``moves``: how many were tried."""

    order: Order
    cost: float
    lower_bound: float | None
    given: float
    random_median: float
    moves: int

    @property
    def gap(self) -> float | None:
        """How much more than the bound, at most, the best order could be missed by: 0.02 is 2 %."""
        if self.lower_bound is None or self.lower_bound <= 0:
            return None
        return max(0.0, self.cost / self.lower_bound - 1)


def search(
    fabric: Fabric,
    given: Order,
    algo: str,
    options: Options,
    size_bytes: float,
    model: str,
    seed: int,
    keep_going: Callable[[], bool],
    most_moves: int,
) -> Found:
    """Search for the cheapest order; never worse than the given one.

    :param given: shape (N,), the host at each rank; a host with several ranks keeps them together.
    :raises UsageError: for an unknown algorithm or model, or what does not fit.
    :raises NoAnswer: when a pair is not known.
    """
    ranks = len(given)
    if algo in MIXED:
        return _both(fabric, given, algo, options, size_bytes, model, seed, keep_going, most_moves)
    hosts = given[np.sort(np.unique(given, return_index=True)[1])]
    require_complete(fabric.rtt_us[np.ix_(hosts, hosts)], [fabric.names[i] for i in hosts.tolist()])
    price = pricing_for(algo, ranks, options, fabric, size_bytes, model)
    cost_given = price(given)
    slots = np.bincount(given, minlength=len(fabric.names))
    rng = np.random.default_rng(seed)
    random_median = float(np.median([price(with_slots(rng.permutation(hosts), slots)) for _ in range(_RANDOM_ORDERS)]))
    single = len(hosts) == ranks
    pattern = pattern_for(algo, ranks, options)
    if pattern.everyone or len(hosts) < 2:
        return Found(given, cost_given, cost_given if single else None, cost_given, random_median, 0)
    if model == "latency" and algo in _RINGS:
        # Ranks of one host follow each other at no cost: a ring of ranks is a ring of hosts.
        ring = search_ring(fabric.rtt_us[np.ix_(hosts, hosts)], seed, keep_going)
        order = with_slots(hosts[ring.order], slots)
        return Found(order, price(order), ring.lower_bound, cost_given, random_median, 0)
    starts = initial_orders(fabric, given)
    order, cost, moves = _anneal(pattern, fabric, size_bytes, model, starts, seed, most_moves, keep_going)
    if cost >= cost_given - _EPSILON * abs(cost_given):
        order, cost = given, cost_given
    bound = None
    if single:
        bound = pattern_bound(pattern, fabric, size_bytes, model, given)
        base = options.base if algo == "bcube" else 2
        rounds = round(np.log(ranks) / np.log(base))
        if model == "latency" and algo in _HYPERCUBES and base**rounds == ranks:
            bound = max(bound, hypercube_bound(fabric.rtt_us[np.ix_(given, given)], base, rounds))
    return Found(order, cost, bound, cost_given, random_median, moves)


def _both(
    fabric: Fabric, given: Order, algo: str, options: Options, size_bytes: float, model: str, seed: int,
    keep_going: Callable[[], bool], most_moves: int,
) -> Found:  # fmt: skip
    """One order for a tree and a ring: a ring costs the same whichever host comes first and whichever way round, so
    among the 2N rotations and reflections of the best ring the one with the cheapest mix is taken."""
    price = pricing_for(algo, len(given), options, fabric, size_bytes, model)
    ring = search(fabric, given, MIXED[algo][1], options, size_bytes, model, seed, keep_going, most_moves)
    slots = np.bincount(given, minlength=len(fabric.names))
    hosts = np.array(list(dict.fromkeys(ring.order.tolist())), dtype=np.intp)
    turned = [np.roll(way, -k) for way in (hosts, hosts[::-1]) for k in range(len(hosts))]
    orders = [given, *(with_slots(order, slots) for order in turned)]
    costs = [price(order) for order in orders]
    best = int(np.argmin(costs))
    rng = np.random.default_rng(seed)
    drawn = [price(with_slots(rng.permutation(hosts), slots)) for _ in range(_RANDOM_ORDERS)]
    return Found(orders[best], costs[best], None, costs[0], float(np.median(drawn)), ring.moves)


def with_slots(hosts: Order, slots: npt.NDArray[np.intp]) -> Order:
    """The order of ranks that an order of hosts makes, each with its slots."""
    return np.repeat(hosts, slots[hosts])


def _anneal(
    pattern: Pattern, fabric: Fabric, size_bytes: float, model: str, starts: list[Order], seed: int, most_moves: int,
    keep_going: Callable[[], bool],
) -> tuple[Order, float, int]:  # fmt: skip
    """The best order, its cost, the moves tried. A host's ranks stay together: hosts with equally many are swapped
    whole; where hosts differ in that, swaps would tear them apart, and the best of the starts is taken."""
    slots = np.bincount(starts[0])
    each = int(slots.max())
    if set(slots.tolist()) - {0, each}:
        price = closed_form(pattern, fabric, size_bytes, model)
        best = min(starts, key=price)
        return best, price(best), 0
    found = Annealer(pattern, fabric, size_bytes, model).search(
        starts, seed, most_moves, keep_going, blocks=_blocks(len(starts[0]), each)
    )
    return found.order, found.cost, found.moves


def _blocks(ranks: int, slots: int) -> list[int]:
    """Lengths of the blocks that are swapped: single hosts mostly, and powers of two of them up to a quarter of all."""
    powers = [slots << k for k in range(1, 20) if slots * 4 << k <= ranks]
    return [slots] * max(1, 2 * len(powers)) + powers
