"""Make a plan for a network: order, groups, masters, their cost and what it is compared with."""

import contextlib
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from msgspec import structs

from plink.errors import InputError, NoAnswer
from plink.features.order.algorithms import (
    fabric_from,
    groups_in,
    links_of,
    options_in,
    options_of,
    order_from,
    rank_groups,
)
from plink.features.order.constraints import check_number, constraints_from, ranked_groups
from plink.features.order.interfaces import fabric_of_algorithm, own_options, unmeasured_notes
from plink.features.plan.request import PlanRequest
from plink.model.document import UNSET
from plink.model.network import Network
from plink.model.order import RankOrder
from plink.model.plan import MAX_TRANSFERS, Plan, PlannedMasters
from plink.model.schedule import Indices, Schedule
from plink.model.units import format_us
from plink.records.workspace import GROUPS
from solvers.costs.by_name import CONTENTION, SIMULATED, model_for, pattern_for
from solvers.costs.fabric import Fabric
from solvers.costs.least_time import least_time_on
from solvers.costs.patterns import Pattern, masters_pattern
from solvers.grouping.cluster import cluster
from solvers.ordering.problem import expand_slots
from solvers.planning import AllReduce, random_groups_median, schedule_of, two_level_cost, weights_by
from solvers.schedules.catalogue import HUBS, Options, schedule_for
from solvers.schedules.hierarchical import CHUNKS_PER_RANK, masters_by_links
from solvers.schedules.masters import Weights, equal_chunks
from solvers.simulation.cost import cost_by_model, transfers_of

_log = logging.getLogger("plink.plan")
_NOTABLE = 1.02  # of two costs
_MAX_NAMED_HOSTS = 4
_RANDOM_DRAWS, _SIMULATED_DRAWS = 20, 5  # of random groups; a simulation takes longer than a closed form
_MPI = "OMPI_MCA_coll_tuned_"
# What makes the library that an algorithm is named after run that algorithm.
LIBRARY_ENVIRONMENT = {
    "nccl-ring": {"NCCL_ALGO": "Ring"},
    "nccl-tree": {"NCCL_ALGO": "Tree"},
    **{
        f"openmpi-{name}": {f"{_MPI}use_dynamic_rules": "1", f"{_MPI}allreduce_algorithm": number}
        for name, number in (("recursive-doubling", "3"), ("ring", "4"), ("rabenseifner", "6"))
    },
}

Ranks = npt.NDArray[np.intp]


def plan(network: Network, request: PlanRequest | None = None, *, algo: str | None = None) -> Plan:
    """Return a job's plan: order, groups, who aggregates which chunk, schedule and environment.

    :param algo: instead of that of ``request``.

    :raises UsageError, InputError: for what cannot be.
    :raises NoAnswer: when a pair that the plan uses was not measured.
    """
    request = request or PlanRequest()
    if algo is not None:
        request = replace(request, algo=algo)
    fabric = fabric_from(network, request.smooth_latencies)
    notes = unmeasured_notes(network, fabric, [request.algo], request.smooth_latencies)
    fabric = fabric_of_algorithm(network, fabric, request.algo)
    model = model_for(request.model, fabric, timed=True, algo=request.algo)
    order = request.order or RankOrder(
        algo="given", hosts=tuple(network.hosts.ranked().names), network=network.fingerprint()
    )
    ranks = order_from(network, order, request.order_source)
    if request.algo == "2lha":
        result = _two_level(network, request, fabric, model, ranks, order)
        pattern = masters_pattern(result.groups or (), *masters_of(result))
    else:
        result, pattern = _one_level(network, request, fabric, model, ranks, order)
    for note in notes:
        _log.info("%s", note)
    if request.order is None:
        ranks_text = "ranks as the network lists the hosts" if result.groups is None else "groups one after the other"
        _log.info("no order was given: %s", ranks_text)
    schedule = _small_schedule(result, pattern)
    result = structs.replace(result, rate_gbps=fabric.rate_gbps)
    least = least_time_on(fabric, ranks) if model in (CONTENTION, SIMULATED) else None
    if least is not None:
        least_us = round(least.us_per_byte * request.size_bytes, 3)
        result = structs.replace(result, least_time_us=least_us, limited_by=least.limited_by)
    if schedule is None:
        return result
    return structs.replace(result, schedule_file=schedule.file(with_waits=False), chunks=schedule.chunks)


def _one_level(
    network: Network, request: PlanRequest, fabric: Fabric, model: str, ranks: Ranks, order: RankOrder
) -> tuple[Plan, Pattern]:
    own = {} if "levels" in request.options else own_options(network, request.algo, len(ranks))
    option_values = {**own, **options_in(order, request.order_source, request.algo), **request.options}
    options = options_of(option_values, [request.algo], tree=links_of(request.algo, fabric, ranks), ranks=ranks)
    pattern = pattern_for(request.algo, len(ranks), options)
    cost_of = cost_by_model(request.algo, len(ranks), options, fabric, request.size_bytes, model)
    others = {
        "given": lambda: cost_of(order_from(network, None)),
        "flat": _other("flat", network, ranks, request, model),
    }
    if request.algo == HUBS:  # made for the order: all cost the same
        others = {name: _other(name, network, ranks, request, model) for name in ("ring", "double-binary-tree", "flat")}
    schedule = schedule_for(HUBS, len(ranks), options) if request.algo == HUBS else None
    plan = structs.replace(
        _plan(network, request, model, order, cost_of(ranks)),
        baseline_us=_available_costs(others),
        options=dict(option_values),
        schedule_file=None if schedule is None else schedule.file(with_waits=False),
        environment=LIBRARY_ENVIRONMENT.get(request.algo, {}),
    )
    return plan, pattern


def _two_level(
    network: Network, request: PlanRequest, fabric: Fabric, model: str, ranks: Ranks, order: RankOrder
) -> Plan:
    groups = groups_in(order, request.order_source, len(ranks)) if request.groups is None else None
    groups_of_hosts = None
    if groups is None:
        groups_of_hosts = _groups_of_hosts(network, fabric, request, ranks)
        if request.order is None:  # the order is ours to choose: groups one after the other
            hosts = np.array([host for group in groups_of_hosts for host in group], dtype=np.intp)
            ranks = expand_slots(hosts, np.bincount(ranks, minlength=len(network.hosts)))
            order = structs.replace(order, algo="2lha", hosts=tuple(fabric.names[host] for host in hosts))
        groups = [np.flatnonzero(np.isin(ranks, group)).tolist() for group in groups_of_hosts]
    all_reduce = AllReduce(fabric, ranks, request.size_bytes, model)
    by, weights, chunks, masters = _masters(groups, request, all_reduce)
    local, global_group = masters
    cost = two_level_cost(groups, masters, all_reduce)
    random_chunks = min(chunks, len(ranks) * CHUNKS_PER_RANK)  # finer ones change the cost by next to nothing
    draws = _SIMULATED_DRAWS if model in (CONTENTION, SIMULATED) else _RANDOM_DRAWS
    random = random_groups_median(groups, random_chunks, by, all_reduce, request.seed, draws)
    baseline = _available_costs({"flat": _other("flat", network, ranks, request, model)})
    if by != "sizes":
        plain = equal_chunks(groups, chunks)
        baseline["masters_by_sizes"] = round(two_level_cost(groups, plain, all_reduce), 3)
    if groups_of_hosts is None:
        _log.info("groups as %s has them", request.order_source)
    own_groups = rank_groups(fabric, ranks)
    is_other = request.groups is not None and set(map(tuple, groups)) != set(map(tuple, own_groups))
    if is_other and model != "latency" and len(np.unique(fabric.group_of[ranks])) > 1:
        own_masters = _masters(own_groups, request, all_reduce)[3]
        baseline |= _available_costs({"network_groups": lambda: two_level_cost(own_groups, own_masters, all_reduce)})
        if baseline.get("network_groups", math.inf) * _NOTABLE < cost:
            _log.warning(
                "the groups of %s take %s, those of the network's own links %s (without --groups and %s)",
                "--groups" if isinstance(request.groups, int) else request.groups_source,
                format_us(cost),
                format_us(baseline["network_groups"]),
                GROUPS,
            )
    if request.order is None:
        order = structs.replace(order, cost=round(cost, 3), model=model, size_bytes=request.size_bytes)
    return structs.replace(
        _plan(network, request, model, order, cost),
        chunks=chunks,
        baseline_us=baseline | ({} if random is None else {"random_groups_median": round(random, 3)}),
        groups=tuple(tuple(group) for group in groups),
        masters=PlannedMasters(
            weights=by,
            group_weights=_six_digits(weights.groups),
            rank_weights=_six_digits(weights.ranks),
            local_ranks=local.tolist(),
            global_ranks=local[np.arange(chunks), global_group].tolist(),
        ),
    )


def _plan(network: Network, request: PlanRequest, model: str, order: RankOrder, cost_us: float) -> Plan:
    """Return what plans of all algorithms have."""
    hosts = order.arrange(network.hosts, "order")
    return Plan(
        algo=request.algo,
        model=model,
        size_bytes=request.size_bytes,
        order=order,
        host_entries=hosts.entries(),
        lab=hosts.lab or UNSET,
        cost_us=round(cost_us, 3),
        network=network.fingerprint(),
    )


def _six_digits(weights: Iterable[float]) -> tuple[float, ...]:
    return tuple(float(f"{weight:.6g}") for weight in weights)


def _masters(
    groups: list[list[int]], request: PlanRequest, all_reduce: AllReduce
) -> tuple[str, Weights, int, tuple[Indices, Indices]]:
    """Return by what masters of groups are weighted, the weights, how many chunks there are, and the masters."""
    fabric, ranks = all_reduce.fabric, all_reduce.order
    tree = links_of("2lha", fabric, ranks)
    by_links = tree is not None and masters_by_links(groups, tree) is not None
    by = request.weights or ("least-time" if by_links else "sizes")
    weights = weights_by(by, fabric, ranks, groups)
    chunks = request.chunks or len(ranks) * (1 if by == "sizes" else CHUNKS_PER_RANK)
    return by, weights, chunks, equal_chunks(groups, chunks, weights)


def _groups_of_hosts(network: Network, fabric: Fabric, request: PlanRequest, ranks: Ranks) -> list[list[int]]:
    """Return the hosts of each group: the listed ones, or this many balanced ones; by default those that ``cost`` and
    ``reorder`` go by, too (:func:`plink.features.order.algorithms.rank_groups`).

    :raises UsageError, InputError: for more groups than hosts, or groups that are not of these hosts.
    :raises NoAnswer: when too little was measured to form groups.
    """
    if request.groups is None:
        return [list(dict.fromkeys(ranks[group].tolist())) for group in rank_groups(fabric, ranks)]
    if not isinstance(request.groups, int):
        groups = (
            constraints_from({}, request.groups, network.hosts, fabric.rtt_us, request.groups_source).host_groups or []
        )
        ungrouped = sorted(
            {k for k, host in enumerate(network.hosts) if host.slots} - {host for group in groups for host in group}
        )
        if ungrouped:
            raise InputError(
                request.groups_source, f"{fabric.names[ungrouped[0]]} is in no group; every host belongs to one"
            )
        return [list(group) for group in groups]
    check_number(request.groups, len(network.hosts))
    clustering = cluster(network, request.groups, seed=request.seed)
    if clustering.left_out:
        names = ", ".join(fabric.names[host] for host in clustering.left_out[:_MAX_NAMED_HOSTS])
        more = ", ..." if len(clustering.left_out) > _MAX_NAMED_HOSTS else ""
        raise NoAnswer(f"nothing was measured of {names}{more}, which could be in any group; give --groups FILE")
    return ranked_groups(clustering.groups, network.hosts)


def _other(algo: str, network: Network, ranks: Ranks, request: PlanRequest, model: str) -> Callable[[], float]:
    fabric = fabric_of_algorithm(network, fabric_from(network, request.smooth_latencies), algo)
    return lambda: cost_by_model(algo, len(ranks), Options(), fabric, request.size_bytes, model)(ranks)


def _available_costs(cost_functions: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """Return those costs that use measured pairs only."""
    costs = {}
    for name, cost_of in cost_functions.items():
        with contextlib.suppress(NoAnswer):
            costs[name] = round(cost_of(), 3)
    return costs


def masters_of(plan: Plan) -> tuple[Indices, Indices]:
    """Return the masters of a plan, as :func:`solvers.schedules.masters.equal_chunks` returns them."""
    assert plan.masters is not None
    local = plan.masters.local_masters
    return local, np.argmax(local == plan.masters.global_masters[:, None], axis=1).astype(np.int32)


def _small_schedule(plan: Plan, pattern: Pattern) -> Schedule | None:
    """Return the plan's schedule, None where it is too large for a file (hops of a pattern are transfers, or more).

    :raises NoAnswer: for one that only the network gives.
    """
    if plan.schedule is not None and len(plan.schedule) > MAX_TRANSFERS:
        raise NoAnswer(
            f"{plan.algo} of {plan.ranks} ranks has {len(plan.schedule):,} transfers, a plan {MAX_TRANSFERS:,}; "
            f"`plink cost --algo {plan.algo}` tells its time"
        )
    schedule = schedule_of(plan) if plan.schedule is not None or transfers_of(pattern) <= MAX_TRANSFERS else None
    return None if schedule is None or len(schedule) > MAX_TRANSFERS else schedule
