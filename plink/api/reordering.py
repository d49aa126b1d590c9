"""Find the cheapest rank order for a network."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from plink.api.interfaces import BCUBE_ALGORITHMS
from plink.api.ordering import CONFIDENCE, OrderRequest, Solved, check_alone, solve
from plink.model.network import Network
from plink.model.order import RankOrder
from solvers.ordering.problem import Order, OrderingProblem
from solvers.ordering.progress import SearchProgress
from solvers.schedules.catalogue import Options

OBJECTIVE_TEXT = {"sum": "sum of round trips", "bottleneck": "longest round trip"}


def reorder(
    network: Network,
    request: OrderRequest | None = None,
    *,
    algo: str | None = None,
    show: Callable[[SearchProgress], None] = lambda progress: None,
    stopped: Callable[[], bool] = lambda: False,
) -> RankOrder:
    """Return the rank order to launch: the cheapest one found, or the given one where that saves no more than noise.

    :param algo: instead of that of ``request``.
    :param show: told of the search now and then.
    :param stopped: asked now and then; once it says yes the search ends with the best order so far.
    :raises UsageError: for a request that cannot be met. :raises NoAnswer: when too little was measured.
    """
    request = request or OrderRequest()
    if algo is not None:
        request = replace(request, algo=algo)
    return find_order(network, request, show, stopped)[0]


def find_order(
    network: Network, request: OrderRequest, show: Callable[[SearchProgress], None], stopped: Callable[[], bool]
) -> tuple[RankOrder, Solved | None]:
    """Return the rank order to launch, and the search for it, None for a single host; parameters and errors as of
    :func:`reorder`."""
    if len(network.hosts) == 1:
        check_alone(network, request)
        return _order_of_one(network, request), None
    solved = solve(network, request, show, stopped)
    return _order_of(network, solved, request), solved


def _order_of_one(network: Network, request: OrderRequest) -> RankOrder:
    """Return the only order of a single host."""
    alone = {"given": 0.0, "random_median": 0.0}
    names = tuple(network.hosts.names)
    details = {"model": "latency", "gap": 0.0, "proven": True, "moves": 0}
    return RankOrder(request.algo, names, 0.0, 0.0, alone, "sum", request.seed, network.fingerprint(), details)


def _order_of(network: Network, solved: Solved, request: OrderRequest) -> RankOrder:
    """Return the order to launch: the found one, or the given one where the gain is within noise."""
    task, result, names = solved.task, solved.result, network.hosts.names
    ranks = task.baseline if solved.baseline_kept else result.order
    options = dict(request.options)
    if task.algo in BCUBE_ALGORITHMS and task.options.base != Options().base:  # that of the hosts' interfaces
        options["base"] = task.options.base
    details: dict[str, Any] = {
        "model": task.model,
        **({} if task.model == "latency" else {"size_bytes": task.size_bytes, "capacities": task.fabric.capacities}),
        **({"options": options} if options else {}),
        **_groups(task, ranks),
        **(
            {"pins": {names[host]: rank for host, rank in task.constraints.pinned_ranks.items()}}
            if task.constraints.pinned_ranks
            else {}
        ),
        "gap": None if solved.baseline_kept or result.gap is None else round(result.gap, 6),
        "bound_by": result.bound_by,
        "proven": result.is_optimal and not solved.baseline_kept and not solved.estimated,
        "moves": result.moves,
        **({"estimated_bound": True} if solved.estimated else {}),
        **({"measured_pairs_only": True} if solved.sparse else {}),
        **({"interrupted": True} if solved.interrupted else {}),
        **({"proven_by_rounds": True} if solved.proven_by_rounds else {}),
        **{
            key: round(value, 3)
            for key, value in result.metrics.items()
            if not solved.baseline_kept or key not in OBJECTIVE_TEXT
        },
    }
    if solved.choice is not None:
        details |= {"search_model": solved.choice.search_model, "simulated_orders": solved.choice.simulated}
    if solved.smoothing is not None:
        details["smoothing"] = solved.smoothing.to_json()
    if solved.validation is not None:
        validation = solved.validation
        low, high = validation.interval
        values = {
            "gain": round(validation.gain, 4),
            "low": low,
            "high": high,
            "predicted": round(validation.predicted, 4),
        }
        details["validation"] = {**values, "confidence": CONFIDENCE, "pairs": validation.pairs}
    if solved.baseline_kept:
        hosts = [names[i] for i in dict.fromkeys(result.order.tolist())]
        details["kept_baseline"] = {"result": hosts, "result_cost": round(result.cost, 3)}
    return RankOrder(
        algo=task.algo,
        hosts=tuple(names[i] for i in dict.fromkeys(ranks.tolist())),
        cost=round(result.baseline_cost if solved.baseline_kept else result.cost, 3),
        lower_bound=None if result.lower_bound is None else round(result.lower_bound, 3),
        baseline={"given": round(result.baseline_cost, 3), "random_median": round(result.random_median, 3)},
        objective=result.objective,
        seed=request.seed,
        network=network.fingerprint(),
        details=details,
    )


def _groups(task: OrderingProblem, ranks: Order) -> dict[str, Any]:
    """Return the ranks of each group: of the constraints in rank order, else those of 2lha."""
    if task.constraints.host_groups is None:
        return {"groups": task.options.groups} if task.algo == "2lha" else {}
    group_of = {host: k for k, group in enumerate(task.constraints.host_groups) for host in group}
    labels = [group_of[host] for host in ranks.tolist()]
    return {"groups": [[rank for rank, label in enumerate(labels) if label == k] for k in dict.fromkeys(labels)]}
