"""Choose an order where nobody measured what groups' links carry.

Round trips do not show which group has the slow link, and the order that is cheapest by one assumption may be the worst
where that is wrong. So orders are compared by several draws of the capacities (:mod:`solvers.costs.fabric`):
each cost is over that of the cheapest order by the same draw, and the mean counts. For hypercube algorithms there are
more orders to choose among (:func:`aligned_order`), and exchanges improve the chosen one. Figures are in
docs/results/order-models.md.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solvers.costs.by_name import CONTENTION, cost_function_for
from solvers.costs.closed_forms import CostFunction
from solvers.ordering.exchanges import exchange_blocks
from solvers.ordering.problem import Order, OrderingProblem

_CAPACITY_DRAWS = 12  # beside the assumed capacities
_ALIGNED_ORDERS = 40
_MAX_EXCHANGES = 600
_MAX_EVALUATIONS = 2_600  # of exchanges, all draws together
_REJECTED_ABOVE = 1.01  # the cost by the first draws over the best order's, from which the other draws are left out
_LEAST_US = 1e-9
_HYPERCUBE_BASES = {
    "halving-doubling": 2, "recursive-doubling": 2, "openmpi-rabenseifner": 2, "openmpi-recursive-doubling": 2,
}  # fmt: skip

Vector = npt.NDArray[np.float64]
Labels = npt.NDArray[np.intp]
_MIXED = -1
# Hosts, and their group in each tier: -1 where they have no group in common.
_Block = tuple[list[int], tuple[int, ...]]


def cheapest_on_average(
    problem: OrderingProblem, orders: Sequence[Order], seed: int, keep_going: Callable[[], bool]
) -> Order:
    """Return the order of the least mean cost over drawn capacities: one of ``orders``, or a better one.

    :param orders: feasible ones. :param keep_going: whether there is time for one more order.
    """
    rng = np.random.default_rng(seed)
    fabrics = [problem.fabric, *(problem.fabric.with_drawn_links(rng) for _ in range(_CAPACITY_DRAWS))]
    args = problem.algo, len(problem.baseline), problem.options
    cost_functions = [cost_function_for(*args, fabric, problem.size_bytes, CONTENTION) for fabric in fabrics]
    base = problem.options.base if problem.algo == "bcube" else _HYPERCUBE_BASES.get(problem.algo)
    candidates, costs = list(orders), list[list[float]]()
    if base is not None:
        hosts, tiers = problem.hosts.tolist(), [tier.group_of for tier in problem.fabric.tiers]
        aligned = (aligned_order(hosts, tiers, base, rng) for _ in range(_ALIGNED_ORDERS))
        candidates += [problem.feasible.materialise(preference) for preference in aligned]
    for order in candidates:
        if costs and not keep_going():
            break
        costs.append([cost_of(order) for cost_of in cost_functions])
    of_order = np.array(costs)
    weights = 1 / np.maximum(of_order.min(axis=0), _LEAST_US)
    best = int(np.argmin(of_order @ weights))
    if base is None:
        return candidates[best]
    return _exchanged(problem, candidates[best], _MeanCost(cost_functions, weights), seed, keep_going)


@dataclass(frozen=True)
class _MeanCost:
    """Weighted sum of the costs by several draws of the capacities. ``weights``: one for each of ``cost_functions``."""

    cost_functions: Sequence[CostFunction]
    weights: Vector

    def partial_sums(self, order: Order, limits: Vector | None = None) -> Vector:
        """Return the sums up to each draw; they end with the first one that is not below its limit."""
        sums = list[float]()
        for k, (weight, cost_of) in enumerate(zip(self.weights, self.cost_functions, strict=True)):
            sums.append((sums[-1] if sums else 0.0) + float(weight) * cost_of(order))
            if limits is not None and sums[-1] >= limits[k]:
                break
        return np.array(sums)


def _exchanged(
    problem: OrderingProblem, order: Order, mean_cost: _MeanCost, seed: int, keep_going: Callable[[], bool]
) -> Order:
    """Exchange blocks of hosts as long as that lowers the mean cost, with a bounded number of costs.

    A candidate that costs more by the first draws is rejected without the others.
    """
    rng, hosts = np.random.default_rng(seed), np.array(list(dict.fromkeys(order.tolist())))
    if len(hosts) < 2:
        return order
    draws, remaining = len(mean_cost.cost_functions), _MAX_EVALUATIONS
    tolerance = np.where(np.arange(draws) < draws - 1, _REJECTED_ABOVE, 1.0)
    sums = mean_cost.partial_sums(order)
    for _ in range(_MAX_EXCHANGES):
        if remaining < draws or not keep_going():
            break
        exchanged = exchange_blocks(hosts, rng)
        candidate = problem.feasible.materialise(exchanged.tolist())
        limits = sums * tolerance
        candidate_sums = mean_cost.partial_sums(candidate, limits)
        remaining -= len(candidate_sums)
        if len(candidate_sums) == draws and candidate_sums[-1] < limits[-1]:
            order, hosts, sums = candidate, exchanged, candidate_sums
    return order


def aligned_order(hosts: Sequence[int], tiers: Sequence[Labels], base: int, rng: np.random.Generator) -> list[int]:
    """Return the hosts in a random order in which as many blocks of ``base ** k`` as possible share a group, by the
    tiers alone: whatever the groups' links carry, few large messages use them.

    In halving-doubling a rank exchanges half of the vector with rank xor 1, a quarter with rank xor 2, and so on; BCube
    has digits instead of bits. So blocks of ``base ** k`` consecutive ranks exchange the large messages among
    themselves. Blocks are joined from smaller ones that share a group, of the innermost tier where that is possible.

    :param tiers: the group of each host, the innermost tier first. :param base: at least 2.
    """
    blocks: list[_Block] = [([int(host)], (*(int(group_of[host]) for group_of in tiers), 0)) for host in hosts]
    incomplete: list[int] = []  # what is over at the end has no block of its size
    while blocks:
        joined: list[_Block] = []
        for tier in range(len(tiers) + 1):  # the last one: any blocks
            of_group = defaultdict[int, list[_Block]](list)
            remaining: list[_Block] = []
            for block in _shuffled(blocks, rng):
                group = block[1][tier]
                (remaining if group == _MIXED else of_group[group]).append(block)
            for members in of_group.values():
                whole = len(members) // base * base
                joined += [_join(members[k : k + base]) for k in range(0, whole, base)]
                remaining += members[whole:]
            blocks = remaining
        incomplete = [host for members, _ in blocks for host in members] + incomplete
        blocks = joined
    return incomplete


def _shuffled(blocks: list[_Block], rng: np.random.Generator) -> list[_Block]:
    return [blocks[k] for k in rng.permutation(len(blocks)).tolist()]


def _join(blocks: list[_Block]) -> _Block:
    groups = zip(*(groups for _, groups in blocks), strict=True)
    common = tuple(shared[0] if len(set(shared)) == 1 else _MIXED for shared in groups)
    return [host for hosts, _ in blocks for host in hosts], common
