"""Draw orders across the whole range of costs, to check by measurement whether the model ranks them correctly.

Random orders are all expensive, and their differences are small compared with the noise of measured times. So orders
are also drawn between the cheapest known order and random ones, and above these by climbing to higher costs.
PLink thesis, 6.3.2: ten orders, the i-th at about the 10i-th percentile in the range of costs.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from plink.errors import NoAnswer
from solvers.ordering.problem import expand_slots

Order = npt.NDArray[np.intp]
_DISTURBED_ORDERS, _RANDOM_ORDERS, _CLIMBS, _CLIMB_STEPS = 600, 300, 3, 100
_EQUAL_DISTANCE_SHARE = 0.005  # of the range of costs: targets within it are equally near
_MIN_COST_RANGE = 1e-6  # of the highest cost: with a smaller range all orders count as equal


def orders_between(
    best: Order, slots: Order, cost_of: Callable[[Order], float], number: int, seed: int
) -> list[tuple[Order, float]]:
    """Return orders at even steps of cost from the cheapest to the most expensive that were drawn, by cost.

    :param best: shape (N,), the host at each rank in the cheapest order that is known.
    :param slots: shape (H,), how many ranks each host has; they stay in one block.
    :param cost_of: the cost of an order; an order for which it raises NoAnswer is skipped.
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
    for _ in range(_DISTURBED_ORDERS):
        meet(_disturbed(hosts, int(rng.integers(1, len(hosts) + 1)), rng))
    for _ in range(_RANDOM_ORDERS):
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
    if costs[-1] - costs[0] <= _MIN_COST_RANGE * costs[-1]:
        raise NoAnswer("every order costs the same by this model: there is nothing to rank")
    return [candidates[place] for place in spread(costs, number, rng)]


def spread(costs: npt.NDArray[np.float64], number: int, rng: np.random.Generator) -> list[int]:
    """Return indices of up to ``number`` orders at even steps from the lowest to the highest cost, by cost.

    Of equally near orders one is drawn at random.
    """
    chosen: list[int] = []
    low, high = costs.min(), costs.max()
    for target in np.linspace(low, high, min(number, len(costs))):
        distance = np.abs(costs - target)
        distance[chosen] = np.inf
        chosen.append(
            int(rng.choice(np.flatnonzero(distance <= distance.min() + _EQUAL_DISTANCE_SHARE * (high - low))))
        )
    return sorted(chosen, key=lambda index: float(costs[index]))


def _disturbed(hosts: Order, swaps: int, rng: np.random.Generator) -> Order:
    order = hosts.copy()
    for _ in range(swaps):
        i, j = rng.integers(len(order), size=2)
        order[[i, j]] = order[[j, i]]
    return order


def _climb(hosts: Order, meet: Callable[[Order], float | None], rng: np.random.Generator) -> None:
    """Swap hosts at random; keep swaps that make the order more expensive."""
    cost = meet(hosts)
    for _ in range(_CLIMB_STEPS):
        other = _disturbed(hosts, 1, rng)
        other_cost = meet(other)
        if other_cost is not None and (cost is None or other_cost >= cost):
            hosts, cost = other, other_cost
