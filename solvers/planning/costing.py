"""What two-level aggregation costs with given masters, and what it is compared with."""

import contextlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from plink.errors import NoAnswer
from plink.model.schedule import forward_and_reverse
from solvers.costs.by_name import CONTENTION, SIMULATED
from solvers.costs.closed_forms import closed_form
from solvers.costs.fabric import Fabric
from solvers.costs.master_patterns import masters_pattern
from solvers.planning.bandwidth import bandwidth_weights
from solvers.schedules.hierarchical import two_level_reduce_scatter
from solvers.schedules.masters import Groups, Indices, Weights, equal_chunks, size_weights
from solvers.simulation.collective import PreparedCollective
from solvers.simulation.cost import check_transfers, needs_closed_form
from solvers.simulation.network import SimulatedNetwork

WEIGHTS = ("sizes", "bandwidth")

Order = npt.NDArray[np.intp]


def weights_by(name: str, fabric: Fabric, order: Order, groups: Groups) -> Weights:
    """The weights of that name (:data:`WEIGHTS`).

    :raises UsageError: when they need bandwidths and none was measured.
    """
    return size_weights(groups) if name == "sizes" else bandwidth_weights(fabric, order, groups)


class AllReduce(NamedTuple):
    """One all-reduce whose cost is computed. ``order``, shape (N,): the host at each rank."""

    fabric: Fabric
    order: Order
    size_bytes: float
    model: str


def two_level_cost(groups: Groups, masters: tuple[Indices, Indices], request: AllReduce) -> float:
    """Microseconds of an all-reduce with these masters of equal chunks.

    :raises UsageError: for an unknown model or a size that is not positive.
    :raises NoAnswer: when a pair that is used was not measured.
    """
    pattern = masters_pattern(groups, *masters)
    if request.model == SIMULATED:
        check_transfers("2lha", pattern)
    if request.model == SIMULATED or (request.model == CONTENTION and not needs_closed_form(pattern)):
        schedule = forward_and_reverse(two_level_reduce_scatter(groups, *masters))
        collective, network = PreparedCollective.of(schedule), SimulatedNetwork.of(request.fabric)
        return collective.run(network, request.order, request.size_bytes).makespan_us
    return closed_form(pattern, request.fabric, request.size_bytes, request.model)(request.order)


def random_groups_median(
    groups: Groups, chunks: int, weights: str, request: AllReduce, seed: int, draws: int = 20
) -> float | None:
    """The median cost of groups of as many hosts each, dealt at random, their masters chosen by the same rule (the
    thesis's Balanced Random, 4.2.1); None where too little was measured to compute the cost of one of them.

    :param chunks: of equal size. :param weights: one of :data:`WEIGHTS`.
    """
    rng, order = np.random.default_rng(seed), request.order
    group_of = np.empty(len(order), dtype=np.intp)
    for number, group in enumerate(groups):
        group_of[np.asarray(group)] = number
    hosts, first, rank_host = np.unique(order, return_index=True, return_inverse=True)
    costs = []
    for _ in range(draws):
        labels = rng.permutation(group_of[first])[rank_host]
        drawn = [np.flatnonzero(labels == label).tolist() for label in np.unique(labels)]
        masters = equal_chunks(drawn, chunks, weights_by(weights, request.fabric, order, drawn))
        with contextlib.suppress(NoAnswer):
            costs.append(two_level_cost(drawn, masters, request))
    return float(np.median(costs)) if costs and len(hosts) > 1 else None
