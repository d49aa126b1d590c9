"""Improve an order by exchanges of blocks of hosts, as long as they bring something.

A search goes by a closed form, where it tries a million orders. The best of them for that formula is not the best for
the network; some exchanges by its simulation find a better one.
"""

from collections.abc import Callable

import numpy as np

from solvers.ordering.constraints import FeasibleOrders
from solvers.ordering.problem import Order
from solvers.simulation.cost import SimulatedCost

_EVALUATIONS = (100, 400)  # at least, and of small collectives
_SMALL_TRANSFERS = 20_000
_MAX_TRANSFERS = 100_000  # of all evaluations: about a second
_BLOCK_HOSTS = (1, 1, 2, 4, 8)  # hypercubes and trees tie blocks of a power of two


def descend(
    order: Order, feasible: FeasibleOrders, cost_of: SimulatedCost, seed: int, keep_going: Callable[[], bool]
) -> Order:
    """Return the order after 100 to 400 exchanges of two blocks of hosts, of which those that are cheaper stay.

    :param order: a feasible one. :param keep_going: whether there is time for one more.
    """
    rng, hosts = np.random.default_rng(seed), np.array(list(dict.fromkeys(order.tolist())))
    best, best_cost = order, cost_of(order)
    transfers = max(1, cost_of.transfers)
    for _ in range(min(int(np.clip(_SMALL_TRANSFERS // transfers, *_EVALUATIONS)), _MAX_TRANSFERS // transfers)):
        if not keep_going():
            break
        exchanged = exchange_blocks(hosts, rng)
        candidate = feasible.materialise(exchanged.tolist())
        cost = cost_of(candidate)
        if cost < best_cost:
            best, best_cost, hosts = candidate, cost, exchanged
    return best


def exchange_blocks(hosts: Order, rng: np.random.Generator) -> Order:
    """Return the hosts, two or more, after an exchange of two random blocks of up to 8, which begin at multiples of
    their size."""
    size = int(rng.choice([size for size in _BLOCK_HOSTS if 2 * size <= len(hosts)]))
    first, second = rng.choice(len(hosts) // size, 2, replace=False) * size
    exchanged = hosts.copy()
    exchanged[first : first + size] = hosts[second : second + size]
    exchanged[second : second + size] = hosts[first : first + size]
    return exchanged
