"""Find the cheapest rank order for a network."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from plink.features.order.algorithms import order_from
from plink.features.order.interfaces import BCUBE_ALGORITHMS
from plink.features.order.mesh import hosts_of_blocks
from plink.features.order.request import OrderRequest
from plink.features.order.search import CONFIDENCE, Solved, check_alone, solve
from plink.model.document import UNSET, Unset
from plink.model.mesh import Mesh
from plink.model.network import Network
from plink.model.order import KeptBaseline, OrderValidation, RankOrder
from solvers.ordering.cross_validation import ValidatedGain
from solvers.ordering.problem import Order, OrderingProblem, SearchProgress
from solvers.schedules.catalogue import Options

OBJECTIVE_TEXT = {"sum": "sum of round trips", "bottleneck": "longest round trip"}


def reorder(
    network: Network,
    request: OrderRequest | None = None,
    *,
    algo: str | None = None,
    mesh: Mesh | None = None,
    show: Callable[[SearchProgress], None] = lambda progress: None,
    stopped: Callable[[], bool] = lambda: False,
) -> RankOrder:
    """Return the rank order to launch: the cheapest one found, or the given one where that saves no more than noise.

    :param algo: instead of that of ``request``. :param mesh: order for the groups of a mesh instead of one collective
        (:func:`plink.model.mesh.make_mesh`).
    :param show: told of the search now and then.
    :param stopped: asked now and then; once it says yes the search ends with the best order so far.
    :raises UsageError: for a request that cannot be met. :raises NoAnswer: when too little was measured.
    """
    request = request or OrderRequest()
    if algo is not None:
        request = replace(request, algo=algo)
    if mesh is not None:
        request = replace(request, mesh=mesh)
    return find_order(network, request, show, stopped)[0]


def find_order(
    network: Network, request: OrderRequest, show: Callable[[SearchProgress], None], stopped: Callable[[], bool]
) -> tuple[RankOrder, Solved | None]:
    """Return the rank order to launch, and the search for it, None for a single host; parameters and errors as of
    :func:`reorder`."""
    if len(network.hosts) == 1:
        check_alone(network, request)
        if request.mesh is not None:
            hosts_of_blocks(network, request.mesh, order_from(network, None))
        return _order_of_one(network, request), None
    solved = solve(network, request, show, stopped)
    return _order_of(network, solved, request), solved


def _order_of_one(network: Network, request: OrderRequest) -> RankOrder:
    """Return the only order of a single host."""
    return RankOrder(
        algo=request.algo,
        hosts=tuple(network.hosts.names),
        mesh=UNSET if request.mesh is None else request.mesh.file(),
        cost=0.0,
        lower_bound=0.0,
        baseline={"given": 0.0, "random_median": 0.0},
        objective="sum",
        model="latency",
        seed=request.seed,
        network=network.fingerprint(),
        gap=0.0,
        proven=True,
        moves=0,
    )


def _order_of(network: Network, solved: Solved, request: OrderRequest) -> RankOrder:
    """Return the order to launch: the found one, or the given one where the gain is within noise."""
    task, result, names = solved.task, solved.result, network.hosts.names
    baseline_kept = solved.baseline_kept
    ranks = task.baseline if baseline_kept else result.order
    options: dict[str, int | float | bool | str] = dict(request.options)
    if task.algo in BCUBE_ALGORITHMS and task.options.base != Options().base:  # that of the hosts' interfaces
        options["base"] = task.options.base
    by_size = task.model != "latency"
    choice, smoothing, metrics = solved.choice, solved.smoothing, dict(result.metrics)
    if baseline_kept:
        metrics = {key: value for key, value in metrics.items() if key not in OBJECTIVE_TEXT}
    mesh_costs, slots = solved.mesh_costs, 1
    baseline: dict[str, float | None] = {
        "given": round(result.baseline_cost, 3),
        "random_median": None if result.random_median is None else round(result.random_median, 3),
    }
    if mesh_costs is not None:  # orders are of hosts, which have equally many ranks
        slots = mesh_costs.mesh.ranks // len(task.baseline)
        baseline["sorted_by_group"] = round(math.fsum(mesh_costs.by_traffic(mesh_costs.sorted_by_group)), 3)
    return RankOrder(
        algo=task.algo,
        hosts=_names(ranks, names),
        cost=round(result.baseline_cost if baseline_kept else result.cost, 3),
        lower_bound=None if result.lower_bound is None else round(result.lower_bound, 3),
        baseline=baseline,
        objective=result.objective,
        model=task.model,
        search_model=UNSET if choice is None else choice.search_model,
        simulated_orders=UNSET if choice is None else choice.simulated,
        seed=request.seed,
        network=network.fingerprint(),
        gap=None if baseline_kept or result.gap is None else round(result.gap, 6),
        measured_pairs_only=solved.sparse or UNSET,
        bound_by=result.bound_by,
        estimated_bound=solved.estimated or UNSET,
        proven=result.is_optimal and not baseline_kept and not solved.estimated,
        proven_by_rounds=solved.proven_by_rounds or UNSET,
        interrupted=solved.interrupted or UNSET,
        moves=result.moves,
        size_bytes=task.size_bytes if by_size and mesh_costs is None else UNSET,
        capacities=task.fabric.capacities if by_size else UNSET,
        groups=_groups(task, np.repeat(ranks, slots)),
        options=options or UNSET,
        mesh=UNSET if mesh_costs is None else mesh_costs.mesh.file(),
        cost_by_traffic=UNSET if mesh_costs is None else mesh_costs.rows(ranks),
        pins={names[host]: rank * slots for host, rank in task.constraints.pinned_ranks.items()} or UNSET,
        validation=UNSET if solved.validation is None else _validation(solved.validation),
        kept_baseline=KeptBaseline(result=_names(result.order, names), result_cost=round(result.cost, 3))
        if baseline_kept
        else UNSET,
        smoothing=UNSET if smoothing is None else smoothing.stated(),
        **{key: round(value, 3) for key, value in metrics.items()},
    )


def _names(ranks: Order, names: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts in the order of their ranks."""
    return tuple(names[host] for host in dict.fromkeys(ranks.tolist()))


def _validation(validation: ValidatedGain) -> OrderValidation:
    low, high = validation.interval
    return OrderValidation(
        gain=round(validation.gain, 4),
        low=low,
        high=high,
        predicted=round(validation.predicted, 4),
        confidence=CONFIDENCE,
        pairs=validation.pairs,
    )


def _groups(task: OrderingProblem, ranks: Order) -> tuple[tuple[int, ...], ...] | Unset:
    """Return the ranks of each group: of the constraints in rank order, else those of 2lha."""
    if task.constraints.host_groups is None:
        groups = task.options.groups if task.algo == "2lha" else None
        return tuple(map(tuple, groups)) if groups else UNSET
    group_of = {host: k for k, group in enumerate(task.constraints.host_groups) for host in group}
    labels = [group_of[host] for host in ranks.tolist()]
    return tuple(tuple(rank for rank, label in enumerate(labels) if label == k) for k in dict.fromkeys(labels))
