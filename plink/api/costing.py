"""Price a collective in a rank order on a measured network."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from plink.api.algorithms import OptionValues, fabric_from, groups_in, options_in, options_of, order_from, rank_groups
from plink.api.hubs import Ranks, with_hubs
from plink.api.interfaces import fabric_of_algorithm, own_options
from plink.model.network import Network
from plink.model.order import RankOrder
from solvers.costs.accuracy import prediction_interval
from solvers.costs.by_name import SIMULATED, misranking_warning, model_for, parts_of, priced_options
from solvers.costs.closed_forms import CostFunction
from solvers.costs.evaluator import CostBreakdown, evaluate
from solvers.costs.fabric import Fabric
from solvers.schedules.catalogue import HUB_ALGORITHMS, schedule_for
from solvers.simulation.cost import SimulatedCost, cost_by_model

_MAX_RANKS_WITH_ROUNDS = 1024  # of more ranks the cost is known without the transfers
_log = logging.getLogger("plink.cost")


@dataclass(frozen=True)
class CostRequest:
    """A request for a cost. ``options``: of the algorithm (``{"base": 4}``); ``order_source`` names the order in
    errors; ``smooth_latencies``: round trips as an embedding fits them."""

    algo: str = "ring"
    size_bytes: float = 100e6
    model: str = "auto"
    options: OptionValues = field(default_factory=dict)
    order_source: str = "order"
    smooth_latencies: bool = False


@dataclass(frozen=True)
class CollectiveCost:
    """Cost of a collective by ``model``. ``order``, shape (N,): the host (its index in the network) at each rank.
    ``parts``: what the algorithm is made of, as (weight, name, cost with its rounds); empty for very many ranks.
    ``cost_of``: what another order costs, of the same shape."""

    request: CostRequest
    model: str
    cost_us: float
    order: npt.NDArray[np.intp]
    fabric: Fabric
    parts: tuple[tuple[float, str, CostBreakdown], ...]
    cost_of: Callable[[npt.NDArray[np.intp]], float]

    @property
    def interval_us(self) -> tuple[float, float] | None:
        """Return where a library's time is with a probability of 90 %; None for a model that was not calibrated."""
        return prediction_interval(self.cost_us, self.request.algo, self.model, self.fabric)

    @property
    def hosts(self) -> list[str]:
        """Names of the hosts in rank order."""
        return [self.fabric.names[i] for i in dict.fromkeys(self.order.tolist())]


def cost(
    network: Network, order: RankOrder | None = None, request: CostRequest | None = None, *, algo: str | None = None
) -> CollectiveCost:
    """Return the cost of a collective among the network's hosts.

    :param order: None: ranks as the hosts stand. :param algo: instead of that of ``request``.
    :raises UsageError: for an algorithm, option or model that there is none of.
    :raises InputError: when the order is not of these hosts. :raises NoAnswer: when a pair in use was not measured.
    """
    request = request or CostRequest()
    if algo is not None:
        request = replace(request, algo=algo)
    fabric = fabric_of_algorithm(network, fabric_from(network, request.smooth_latencies), request.algo)
    ranks = order_from(network, order, request.order_source)
    groups = groups_in(order, request.order_source, len(ranks)) or rank_groups(fabric, ranks)
    options = options_of(
        {
            **({} if "levels" in request.options else own_options(network, request.algo, len(ranks))),
            **options_in(order, request.order_source, request.algo),
            **request.options,
        },
        [request.algo],
        groups,
    )
    workers = ranks
    if request.algo in HUB_ALGORITHMS and options.servers is None and network.hosts.hubs:
        joined = with_hubs(network, fabric, request.algo, ranks, options)
        ranks, options = joined.order, joined.options
    hubs = ranks[len(workers) :]
    model = model_for(request.model, fabric, timed=True, algo=request.algo)
    warning = misranking_warning(request.algo, request.model)
    if warning:
        _log.warning("%s", warning)
    if model == SIMULATED:
        simulated = SimulatedCost.of(request.algo, len(ranks), options, fabric, request.size_bytes)
        breakdowns = simulated.breakdowns(ranks)
        total = sum(weight * part.cost_us for weight, _, part in breakdowns)
        return CollectiveCost(request, model, total, workers, fabric, tuple(breakdowns), _behind(simulated, hubs))
    cost_of = cost_by_model(request.algo, len(ranks), options, fabric, request.size_bytes, model)
    total = cost_of(ranks)
    part_costs = [us for _, _, us in cost_of.part_costs(ranks)] if isinstance(cost_of, SimulatedCost) else None
    parts: list[tuple[float, str, CostBreakdown]] = []
    if len(ranks) > _MAX_RANKS_WITH_ROUNDS:
        _log.info("more than %d ranks: the cost alone, without its rounds", _MAX_RANKS_WITH_ROUNDS)
    else:
        priced = priced_options(options, request.algo, request.size_bytes, model)
        for number, (weight, name) in enumerate(parts_of(request.algo, request.size_bytes)):
            schedule = schedule_for(name, len(ranks), priced)
            part = evaluate(schedule, fabric, ranks, request.size_bytes, model)
            if part_costs is not None:  # its rounds are each as if alone
                part = replace(part, cost_us=part_costs[number])
            parts.append((weight, name, part))
    return CollectiveCost(request, model, total, workers, fabric, tuple(parts), _behind(cost_of, hubs))


def _behind(cost_of: CostFunction, hubs: Ranks) -> CostFunction:
    """Return the cost of an order of ranks, with hubs behind them."""
    return cost_of if not len(hubs) else lambda order: cost_of(np.append(order, hubs))
