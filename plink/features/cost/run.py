"""Price a collective in a rank order on a measured network."""

import itertools
import logging
import time
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from plink.errors import NoAnswer
from plink.features.cost.request import CostRequest
from plink.features.order.algorithms import (
    fabric_from,
    groups_in,
    links_of,
    options_in,
    options_of,
    order_from,
    rank_groups,
)
from plink.features.order.hubs import Ranks, with_hubs
from plink.features.order.interfaces import fabric_of_algorithm, own_options, unmeasured_notes
from plink.model.cost import CollectiveCost, CostPart, CostRound, RandomOrders
from plink.model.document import UNSET
from plink.model.network import Network
from plink.model.order import RankOrder
from plink.model.units import format_bytes
from solvers.costs.by_name import (
    SIMULATED,
    misranking_warning,
    model_for,
    parts_of,
    prediction_interval,
    priced_options,
)
from solvers.costs.closed_forms import CostFunction
from solvers.costs.evaluator import CostBreakdown, evaluate
from solvers.costs.fabric import Fabric
from solvers.costs.least_time import least_time_on
from solvers.ordering.problem import number_of_random_orders, random_orders
from solvers.schedules.catalogue import HUB_ALGORITHMS, HUBS, Options, schedule_for
from solvers.simulation.cost import SimulatedCost, cost_by_model

_NCCL_MIN_BYTES = 4_000_000
_MAX_RANKS_WITH_ROUNDS = 1024  # of more ranks the cost is known without the transfers
_RANDOM_ORDERS_S = 10.0  # where one takes milliseconds or more
_log = logging.getLogger("plink.cost")


def cost(
    network: Network,
    order: RankOrder | None = None,
    request: CostRequest | None = None,
    *,
    algo: str | None = None,
    source: str = "order",
) -> CollectiveCost:
    """Return the cost of a collective among the network's hosts, and of random orders.

    :param order: None: ranks as the hosts stand. :param algo: instead of that of ``request``. :param source: names the
        order in errors and in the result.
    :raises UsageError: for an algorithm, option or model that there is none of.
    :raises InputError: when the order is not of these hosts. :raises NoAnswer: when a pair in use was not measured.
    """
    request = request or CostRequest()
    if algo is not None:
        request = replace(request, algo=algo)
    fabric = fabric_from(network, request.smooth_latencies)
    notes = unmeasured_notes(network, fabric, [request.algo], request.smooth_latencies)
    fabric = fabric_of_algorithm(network, fabric, request.algo)
    workers = order_from(network, order, source)
    ranks, options = _ranks_and_options(network, fabric, order, workers, request, source)
    model = model_for(request.model, fabric, timed=True, algo=request.algo)
    for note in notes:
        _log.info("%s", note)
    has_hubs = request.algo in HUB_ALGORITHMS
    if warning := misranking_warning(request.algo, model if has_hubs else request.model):
        _log.warning("%s", warning)
    if model == SIMULATED:
        simulated = SimulatedCost.of(request.algo, len(ranks), options, fabric, request.size_bytes)
        cost_of: CostFunction = simulated
        parts = _with_library_us(simulated.breakdowns(ranks), fabric, request.size_bytes)
        total = sum(weight * part.cost_us for weight, _, part in parts)
    else:
        cost_of = cost_by_model(request.algo, len(ranks), options, fabric, request.size_bytes, model)
        total, parts = cost_of(ranks), _parts(cost_of, ranks, options, fabric, model, request)
    untimed = {name for _, name in parts_of(request.algo, request.size_bytes, fabric)} - {
        each.algo for each in network.library_costs
    }
    if request.algo.startswith("nccl") and untimed and request.size_bytes < _NCCL_MIN_BYTES and model != "latency":
        _log.info(
            "times of %s hold from %s on: below, NCCL itself takes more than the network; `plink check --measure "
            "--calibrate --algo nccl` times it",
            request.algo,
            format_bytes(_NCCL_MIN_BYTES),
        )
    if model in ("contention", SIMULATED) and not fabric.measured:
        _log.info("shared capacities were not measured; they are %s", fabric.capacities)
    least = None
    if model in ("contention", SIMULATED) and request.algo not in HUB_ALGORITHMS:
        least = least_time_on(fabric, workers)
    interval = prediction_interval(total, request.algo, request.size_bytes, model, fabric)
    return CollectiveCost(
        algo=request.algo,
        model=model,
        size_bytes=round(request.size_bytes),
        ranks=len(workers),
        order="as the hosts stand" if order is None else source,
        hosts=tuple(fabric.names[host] for host in dict.fromkeys(workers.tolist())),
        cost_us=round(total, 3),
        interval_us=interval,
        least_time_us=UNSET if least is None else round(least.us_per_byte * request.size_bytes, 3),
        limited_by=UNSET if least is None else least.limited_by,
        capacities=fabric.capacities,
        host_costs=UNSET if network.host_costs is None else network.host_costs,
        network=network.fingerprint(),
        smoothed=request.smooth_latencies or UNSET,
        predicted_pairs=UNSET if request.smooth_latencies else network.predicted_pairs or UNSET,
        random=_random_orders(cost_of, workers, ranks[len(workers) :], total, model, request),
        parts=tuple(_part(name, weight, part) for weight, name, part in parts),
    )


def _ranks_and_options(
    network: Network, fabric: Fabric, order: RankOrder | None, workers: Ranks, request: CostRequest, source: str
) -> tuple[Ranks, Options]:
    """Return the host at each rank, hubs behind the workers, and the algorithm's options."""
    groups = groups_in(order, source, len(workers)) or rank_groups(fabric, workers)
    own = {} if "levels" in request.options else own_options(network, request.algo, len(workers))
    values = {**own, **options_in(order, source, request.algo), **request.options}
    own_fabric = fabric_of_algorithm(network, fabric, request.algo)
    options = options_of(values, [request.algo], groups, links_of(request.algo, own_fabric, workers), workers)
    if request.algo in HUB_ALGORITHMS:
        joined = with_hubs(network, fabric, request.algo, workers, options)
        return joined.order, joined.options
    return workers, options


def _parts(
    cost_of: CostFunction, ranks: Ranks, options: Options, fabric: Fabric, model: str, request: CostRequest
) -> list[tuple[float, str, CostBreakdown]]:
    """Return the algorithms of which the collective is made with their rounds: weight, name, cost; none for very many
    ranks."""
    if len(ranks) > _MAX_RANKS_WITH_ROUNDS:
        _log.info("more than %d ranks: the cost alone, without its rounds", _MAX_RANKS_WITH_ROUNDS)
        return []
    costs = [us for _, _, us in cost_of.part_costs(ranks)] if isinstance(cost_of, SimulatedCost) else None
    is_simulated = isinstance(cost_of, SimulatedCost) and not cost_of.is_closed_form
    if request.algo in HUB_ALGORITHMS and costs is None:  # in slices
        costs = [cost_of(ranks)]
    priced = priced_options(options, request.algo, request.size_bytes, model)
    parts = []
    for number, (weight, name) in enumerate(parts_of(request.algo, request.size_bytes, fabric)):
        schedule = schedule_for(name, len(ranks), priced)
        part = evaluate(schedule, fabric, ranks, request.size_bytes, model, late=not is_simulated)
        if costs is not None:  # its rounds are each as if alone
            part = replace(part, cost_us=costs[number])
        parts.append((weight, name, part))
    return parts if costs is not None else _with_library_us(parts, fabric, request.size_bytes)


def _with_library_us(
    parts: Iterable[tuple[float, str, CostBreakdown]], fabric: Fabric, size_bytes: float
) -> list[tuple[float, str, CostBreakdown]]:
    return [
        (weight, name, replace(part, cost_us=fabric.with_library_us(name, size_bytes, part.cost_us)))
        for weight, name, part in parts
    ]


def _part(name: str, weight: float, part: CostBreakdown) -> CostPart:
    link, share = part.bottleneck or (UNSET, UNSET)
    return CostPart(
        algo=name,
        weight=round(weight, 4),
        model=part.model,
        cost_us=round(part.cost_us, 3),
        slowest_pair=part.slowest,
        rounds=tuple(
            CostRound(latency_us=round(latency, 3), transfer_us=round(transfer, 3), busiest=busiest)
            for latency, transfer, busiest in zip(
                part.latency_us.tolist(), part.transfer_us.tolist(), part.busiest, strict=True
            )
        ),
        busiest_link=link,
        busiest_share=UNSET if share is UNSET else round(share, 4),
    )


def _random_orders(
    cost_of: CostFunction, workers: Ranks, hubs: Ranks, total: float, model: str, request: CostRequest
) -> RandomOrders | None:
    """Return what random orders cost, of as many as the time allows; None where none was drawn or has a cost."""
    number = 0 if request.algo == HUBS else request.random  # made for the order: every order costs the same
    if number is None:
        number = number_of_random_orders(getattr(cost_of, "transfers", 0))
    drawn = random_orders(np.unique(workers), np.bincount(workers), request.seed)
    limit_s = _RANDOM_ORDERS_S if model in ("contention", SIMULATED) else None
    costs = _costs_of_measured(
        cost_of, (np.append(it, hubs) for it in itertools.islice(drawn, number)), number, limit_s
    )
    if not len(costs):
        return None
    return RandomOrders(
        orders=len(costs),
        seed=request.seed,
        min_us=round(float(costs.min()), 3),
        median_us=round(float(np.median(costs)), 3),
        max_us=round(float(costs.max()), 3),
        more_expensive=round(float((costs > total).mean()), 4),
    )


def _costs_of_measured(
    cost_of: CostFunction, orders: Iterable[Ranks], number: int, limit_s: float | None
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the costs of those orders that use measured pairs only."""
    costs: list[float] = []
    priced, started = 0, time.monotonic()
    for order in orders:
        if limit_s is not None and time.monotonic() > started + limit_s:
            _log.info("%d of %d random orders were priced in %g s", priced, number, limit_s)
            break
        priced += 1
        try:
            costs.append(cost_of(order))
        except NoAnswer:
            continue
    if len(costs) < priced:
        left_out = priced - len(costs)
        _log.info("%d of %d random orders use pairs that were not measured: left out", left_out, priced)
    return np.array(costs)
