"""The best order for any algorithm under any model: orders to begin with, a search that fits, a bound."""

import itertools
from dataclasses import replace

import numpy as np

from plink.errors import UsageError
from plink.model.network import Matrix
from solvers.costs.by_name import MIXED, pattern_for, pricing_for
from solvers.costs.closed_forms import Pricing
from solvers.costs.patterns import Pattern
from solvers.latency import require_complete
from solvers.ordering.annealing import Annealer
from solvers.ordering.bounds import hypercube_bound, pattern_bound
from solvers.ordering.initial import initial_orders
from solvers.ordering.moves import moves_of
from solvers.ordering.progress import Progress, SearchBudget, Watch
from solvers.ordering.ring import longest_hop, search_bottleneck, search_ring
from solvers.ordering.rings import bound_of_any_ring, can_turn, ring_order, with_tolls
from solvers.ordering.task import OBJECTIVES, RINGS, Found, Order, Task, with_slots

_HYPERCUBES = ("halving-doubling", "bcube", "openmpi-rabenseifner", "recursive-doubling", "openmpi-recursive-doubling")
_RANDOM_ORDERS = 201
_FEW = 7  # hosts: up to here every order is tried, unless each has so many ranks that a price takes long
_FEW_RANKS = 64
_TURNS = 1024  # of a ring that are priced even if there is no time left
_SKETCH = 100  # disturbances per host of a ring that only is a place to begin
_EPSILON = 1e-9


def search(task: Task, seed: int, budget: SearchBudget) -> Found:
    """Search for the cheapest order; never worse than the given one, where that is allowed.

    :raises UsageError: for an unknown algorithm, model or objective, or what does not fit.
    :raises NoAnswer: when a pair is not known, or pins cannot be fitted.
    """
    objective = _objective(task)
    seats, hosts = task.seats, task.hosts
    require_complete(task.fabric.rtt_us[np.ix_(hosts, hosts)], [task.fabric.names[i] for i in hosts.tolist()])
    price = _bottleneck_price(task) if objective == "bottleneck" else _pricing(task)
    given = price(task.given)
    start = Found(task.given, given, None, None, given, median_of_random(task, price, seed), 0, objective)
    turned = task.by_hops and (seats.free or can_turn(seats))
    if len(hosts) <= _FEW and len(task.given) <= _FEW_RANKS and not turned and objective != "bottleneck":
        return _all(task, start, price)
    if task.algo in MIXED:
        return _both(task, start, price, seed, budget)
    pattern = pattern_for(task.algo, len(task.given), task.options)
    if len(hosts) < 2 or (pattern.everyone and seats.free):
        alone = len(hosts) == len(task.given)
        return replace(
            start, lower_bound=given if alone else None, bound_by="all orders cost the same" if alone else None
        )
    if turned:
        return ring_order(task, start, price, seed, budget)
    if pattern.everyone:
        order = seats.arrange(hosts.tolist())
        return replace(start, order=order, cost=price(order), lower_bound=given, bound_by="all orders cost the same")
    if objective == "bottleneck":
        raise UsageError(
            "--objective bottleneck: at most one --pin, and none where hosts have different numbers of slots"
        )
    return _annealed(task, pattern, start, price, seed, budget)


def _all(task: Task, start: Found, price: Pricing) -> Found:
    """Every order of the hosts tried, as the wishes arrange it; of several that cost the same the given one first.

    Groups of different sizes follow each other as they are given: what other sequences cost is not known.
    """
    preferences = itertools.permutations(task.hosts.tolist())
    orders = {order.tobytes(): order for order in map(task.seats.arrange, preferences)}
    costs = [price(order) for order in orders.values()]
    best = int(np.argmin(costs))
    if costs[0] <= costs[best] * (1 + _EPSILON):  # the first is the given one, as far as it is allowed
        best = 0
    order = list(orders.values())[best]
    found = replace(start, order=order, cost=costs[best], moves=len(costs))
    return replace(found, lower_bound=min(costs), bound_by="all orders") if task.seats.even_groups else found


def median_of_random(task: Task, price: Pricing, seed: int) -> float:
    """What random orders cost, hosts with all their ranks: the median of 201."""
    slots = np.bincount(task.given, minlength=len(task.fabric.names))
    rng, hosts = np.random.default_rng(seed), task.hosts
    return float(np.median([price(with_slots(rng.permutation(hosts), slots)) for _ in range(_RANDOM_ORDERS)]))


def _objective(task: Task) -> str:
    if task.objective not in OBJECTIVES:
        raise UsageError(f"--objective {task.objective}: there are {', '.join(OBJECTIVES)}")
    if task.objective in ("sum", "bottleneck"):
        if task.algo not in RINGS:
            raise UsageError(f"--objective {task.objective} is for rings ({', '.join(RINGS)}), not for {task.algo}")
        if task.model != "latency":
            raise UsageError(f"--objective {task.objective} knows round trips only; leave --model {task.model} away")
        return task.objective
    return "sum" if task.objective == "auto" and task.by_hops else "time"


def _pricing(task: Task) -> Pricing:
    return pricing_for(task.algo, len(task.given), task.options, task.fabric, task.size_bytes, task.model)


def _bottleneck_price(task: Task) -> Pricing:
    return lambda order: longest_hop(task.fabric.rtt_us, order)


def _both(task: Task, start: Found, price: Pricing, seed: int, budget: SearchBudget) -> Found:
    """One order for a tree and a ring: a ring costs the same whichever host comes first and whichever way round, so
    among the 2N rotations and reflections of the best ring the one with the cheapest mix is taken."""
    ring = search(replace(task, algo=MIXED[task.algo][1]), seed, budget)
    hosts = np.array(list(dict.fromkeys(ring.order.tolist())), dtype=np.intp)
    turned = [np.roll(way, -k) for way in (hosts, hosts[::-1]) for k in range(len(hosts))]
    given = task.seats.arrange(task.hosts.tolist())
    best, cost = given, price(given)
    for k, order in enumerate((ring.order, *(task.seats.arrange(order.tolist()) for order in turned))):
        # The search for the ring may have used all the time; a second for the turns is worth it.
        if k >= _TURNS and not budget.watch(Progress(cost, None, ring.moves)):
            break
        dear = price(order)
        if dear < cost:
            best, cost = order, dear
    return replace(start, order=best, cost=cost, moves=ring.moves)


def _annealed(task: Task, pattern: Pattern, start: Found, price: Pricing, seed: int, budget: SearchBudget) -> Found:
    bound = _bound(task, pattern)
    starts = _starts(task, price, seed, budget.watch)
    annealer = Annealer(pattern, task.fabric, task.size_bytes, task.model)
    # Places are exchanged: only orders whose hosts and groups begin at the same ranks can share the moves.
    classes = task.seats.classes(min(starts, key=price))
    alike = [one for one in starts if task.seats.classes(one) == classes]
    found = annealer.search(alike, moves_of(classes, len(task.given)), seed, budget, bound)
    order, cost = found.order, found.cost
    if cost >= start.given - _EPSILON * abs(start.given) and np.array_equal(starts[0], task.given):
        order, cost = task.given, start.given
    return replace(
        start,
        order=order,
        cost=cost,
        lower_bound=bound,
        bound_by=None if bound is None else "1-tree" if task.by_hops else "rounds",
        moves=found.moves,
    )


def _starts(task: Task, price: Pricing, seed: int, watch: Watch) -> list[Order]:
    """Allowed orders to begin with; the given one, as far as it is allowed, first."""
    seats = task.seats
    preferences = [list(dict.fromkeys(order.tolist())) for order in initial_orders(task.fabric, task.given)]
    if task.algo in RINGS:
        hosts, sketch = task.hosts, SearchBudget(_SKETCH * len(task.hosts), watch)
        rings = [search_ring(with_tolls(task)[0], seed, sketch).order]
        slow = _slowness(task)
        if slow is not None:  # all hops at once: the slowest counts, and swaps one by one do not find a fast circle
            rings.append(search_bottleneck(slow, seed, sketch).order)
        found = [hosts[ring].tolist() for ring in rings]
        ways = [way for ring in found for way in (ring, ring[::-1])]
        if seats.pins:  # what suits the pins best, of all turns
            turns = [way[k:] + way[:k] for way in ways for k in range(len(way))]
            ways = sorted(turns, key=lambda way: price(seats.arrange(way)))[:2]
        preferences += ways
    orders = [seats.arrange(preference) for preference in preferences]
    return list({order.tobytes(): order for order in orders}.values())


def _slowness(task: Task) -> Matrix | None:
    """Time per byte between hosts, there and back together, shape (H, H), where every pair's rate was measured."""
    rates = task.fabric.pair_gbps
    if task.model != "alpha-beta" or rates is None:
        return None
    rates = np.where(np.eye(len(task.hosts), dtype=bool), np.inf, rates[np.ix_(task.hosts, task.hosts)])
    return 1 / rates + 1 / rates.T if (rates > 0).all() else None


def _bound(task: Task, pattern: Pattern) -> float | None:
    """For one rank a host."""
    ranks, given = len(task.given), task.given
    if task.by_hops:
        return bound_of_any_ring(task)
    if len(task.hosts) < ranks:
        return None
    bound = pattern_bound(pattern, task.fabric, task.size_bytes, task.model, given)
    base = task.options.base if task.algo == "bcube" else 2
    rounds = round(np.log(ranks) / np.log(base))
    if task.model == "latency" and task.algo in _HYPERCUBES and base**rounds == ranks:
        bound = max(bound, hypercube_bound(task.fabric.rtt_us[np.ix_(given, given)], base, rounds))
    return bound
