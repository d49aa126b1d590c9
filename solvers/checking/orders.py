"""Orders all along the range of costs: to run, so that the clock can say whether the model ranks them right.

Random orders alone all stand at the expensive end, where the model's differences are small beside the clock's noise.
So orders are also drawn between the cheapest that a search found and random ones, and beyond these towards the most
expensive.
PLink thesis, 6.3.2: ten orders, the i-th at about the 10i-th percentile in the range of costs.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from plink.errors import NoAnswer
from solvers.ordering.problem import expand_slots

Order = npt.NDArray[np.intp]
_DISTURBED, _RANDOM, _CLIMBS, _STEPS = 600, 300, 3, 100
_ALIKE = 0.005  # of the range: orders as near to where one is wanted as this are as good as each other
_FLAT = 1e-6  # of the dearest cost: a range smaller than that is none


def orders_between(
    best: Order, slots: Order, cost_of: Callable[[Order], float], number: int, seed: int
) -> list[tuple[Order, float]]:
    """Orders at even steps of cost from the cheapest to the dearest that were met, by cost.

    :param best: shape (N,), the host at each rank in the cheapest order that is known.
    :param slots: shape (H,), how many ranks each host has; they stay in one block.
    :param cost_of: the cost of an order; NoAnswer for one that has none is passed over.
    :returns: (order, cost), up to ``number`` of them; fewer where there are not so many different ones.
    :raises NoAnswer: when all orders cost the same, or fewer than two have a cost.
    """
    rng = np.random.default_rng(seed)
    met: dict[bytes, tuple[Order, float]] = {}

    def meet(hosts: Order) -> float | None:
        order = expand_slots(hosts, slots)
        try:
            cost = float(cost_of(order))
        except NoAnswer:
            return None
        met.setdefault(order.tobytes(), (order, cost))
        return cost

    hosts = best[np.sort(np.unique(best, return_index=True)[1])]
    meet(hosts)
    for _ in range(_DISTURBED):
        meet(_disturbed(hosts, int(rng.integers(1, len(hosts) + 1)), rng))
    for _ in range(_RANDOM):
        meet(rng.permutation(hosts))
    for _ in range(_CLIMBS):
        _climb(rng.permutation(hosts), meet, rng)
    candidates = sorted(met.values(), key=lambda entry: entry[1])
    if len(candidates) < 2:
        raise NoAnswer(
            "fewer than two orders have a cost: too many pairs were not measured; `plink probe HOSTS --resume` "
            "measures them"
        )
    costs = np.array([cost for _, cost in candidates])
    if costs[-1] - costs[0] <= _FLAT * costs[-1]:
        raise NoAnswer("every order costs the same by this model: there is nothing to rank")
    return [candidates[place] for place in spread(costs, number, rng)]


def spread(costs: npt.NDArray[np.float64], number: int, rng: np.random.Generator) -> list[int]:
    """Indices of up to ``number`` different orders at even steps from the lowest cost to the highest, by cost; at
    random among those that are as near."""
    chosen: list[int] = []
    low, high = costs.min(), costs.max()
    for target in np.linspace(low, high, min(number, len(costs))):
        distance = np.abs(costs - target)
        distance[chosen] = np.inf
        chosen.append(int(rng.choice(np.flatnonzero(distance <= distance.min() + _ALIKE * (high - low)))))
    return sorted(chosen, key=lambda index: float(costs[index]))


def _disturbed(hosts: Order, swaps: int, rng: np.random.Generator) -> Order:
    order = hosts.copy()
    for _ in range(swaps):
        i, j = rng.integers(len(order), size=2)
        order[[i, j]] = order[[j, i]]
    return order


def _climb(hosts: Order, meet: Callable[[Order], float | None], rng: np.random.Generator) -> None:
    """Swaps that make an order more expensive are kept."""
    cost = meet(hosts)
    for _ in range(_STEPS):
        other = _disturbed(hosts, 1, rng)
        dearer = meet(other)
        if dearer is not None and (cost is None or dearer >= cost):
            hosts, cost = other, dearer
