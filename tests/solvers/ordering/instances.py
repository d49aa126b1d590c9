"""Problems that several tests of orders use: time limits, fabrics, and all orders that keep what was wished."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import numpy as np

from solvers.costs.by_name import pattern_for
from solvers.costs.fabric import Fabric
from solvers.costs.patterns import Pattern
from solvers.ordering.constraints import PlacementConstraints
from solvers.ordering.problem import ProgressCallback, SearchProgress
from tests.solvers.costs.test_cost_models import fabric, options_for
from tests.solvers.synthetic import Matrix, Tour, random_costs


def never(_: SearchProgress) -> bool:
    """No time at all."""
    return False


def until(calls: int) -> ProgressCallback:
    """A time limit that strikes after so many questions."""
    left = iter([True] * calls)
    return lambda _: next(left, False)


def alike(rtt_us: Matrix) -> Fabric:
    """Nothing is known but the round trips; no group shares anything."""
    n = len(rtt_us)
    rates, item = np.full(n, 10.0), np.array([np.inf])
    names = tuple(f"h{k}" for k in range(n))
    return Fabric(names, rtt_us, None, rates, rates, np.zeros(n, dtype=np.intp), item, item, "measured")


def tied(n: int, seed: int, ties: bool) -> Fabric:
    """Random round trips and rates; small whole numbers for ties, rates of pairs for odd seeds."""
    result = fabric(n, seed, pairs=seed % 2 == 1)
    return dataclasses.replace(result, rtt_us=random_costs(n, seed, 1, 5)) if ties else result


def pattern_of(algo: str, n: int, seed: int = 1) -> Pattern:
    return pattern_for(algo, n, options_for(algo, n, seed))


def neighbours(order: Tour, units: Sequence[Sequence[int]]) -> list[Tour]:
    """All orders that exchanging the contents of units makes."""
    result = []
    for contents in itertools.permutations(units):
        changed = order.copy()
        for unit, content in zip(units, contents, strict=True):
            changed[list(unit)] = order[list(content)]
        result.append(changed)
    return result


def given_order(slots: Sequence[int], seed: int) -> Tour:
    """Hosts with so many ranks each, in an order drawn at random."""
    hosts = np.random.default_rng(seed).permutation(len(slots))
    return np.repeat(hosts, np.array(slots)[hosts])


def is_allowed(order: Tour, slots: Sequence[int], constraints: PlacementConstraints) -> bool:
    """Every host's ranks together and as many as they should be, pins kept, groups consecutive."""
    hosts = list(dict.fromkeys(order.tolist()))
    together = np.repeat(hosts, [slots[host] for host in hosts]).tolist() == order.tolist()
    everyone = sorted(hosts) == list(range(len(slots)))
    pinned = all(order.tolist().index(host) == rank for host, rank in constraints.pinned_ranks.items())
    group_of = {host: k for k, group in enumerate(constraints.host_groups or [hosts]) for host in group}
    changes = (np.diff([group_of[host] for host in hosts]) != 0).sum()
    return together and everyone and pinned and bool(changes == len(set(group_of.values())) - 1)


def allowed_orders(slots: Sequence[int], constraints: PlacementConstraints) -> list[Tour]:
    """Every order of the hosts that keeps what was wished."""
    groups = None if constraints.host_groups is None else tuple(map(tuple, constraints.host_groups))
    return _allowed(tuple(slots), tuple(constraints.pinned_ranks.items()), groups)


@functools.cache
def _allowed(
    slots: tuple[int, ...], pins: tuple[tuple[int, int], ...], groups: tuple[tuple[int, ...], ...] | None
) -> list[Tour]:
    constraints = PlacementConstraints(dict(pins), groups)
    orders = (np.repeat(hosts, [slots[k] for k in hosts]) for hosts in itertools.permutations(range(len(slots))))
    return [order for order in orders if is_allowed(order, slots, constraints)]
