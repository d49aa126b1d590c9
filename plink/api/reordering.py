"""The cheapest rank order that is found for a network."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from plink.api.ordering import CONFIDENCE, OrderRequest, Solved, check_alone, solve
from plink.model.network import Network
from plink.model.order import RankOrder
from solvers.ordering.exact import is_optimal
from solvers.ordering.problem import Order, OrderingProblem
from solvers.ordering.progress import SearchProgress

_WHAT = {"sum": "sum of round trips", "bottleneck": "longest round trip"}


def reorder(
    network: Network,
    request: OrderRequest | None = None,
    *,
    algo: str | None = None,
    show: Callable[[SearchProgress], None] = lambda progress: None,
    stopped: Callable[[], bool] = lambda: False,
) -> RankOrder:
    """The rank order to launch: the cheapest that is found, or the given one where that saves no more than noise.

    :param algo: instead of that of ``request``.
    :param show: told of the search now and then.
    :param stopped: asked now and then; once it says yes the search ends with the best order so far.
    :raises UsageError: for a request that cannot be met. :raises NoAnswer: when too little was measured.
    """
    wanted = request or OrderRequest()
    if algo is not None:
        wanted = replace(wanted, algo=algo)
    if len(network.hosts) == 1:
        check_alone(network, wanted)
        return order_of_one(network, wanted)
    return order_of(network, solve(network, wanted, show, stopped), wanted)


def order_of_one(network: Network, wanted: OrderRequest) -> RankOrder:
    """The order of a single host: nothing to decide."""
    alone = {"given": 0.0, "random_median": 0.0}
    names = tuple(network.hosts.names)
    details = {"model": "latency", "gap": 0.0, "proven": True, "moves": 0}
    return RankOrder(wanted.algo, names, 0.0, 0.0, alone, "sum", wanted.seed, network.fingerprint(), details)


def order_of(network: Network, solved: Solved, wanted: OrderRequest) -> RankOrder:
    """The order to launch: the found one, or the given one where nothing better than noise was found."""
    task, found, names = solved.task, solved.found, network.hosts.names
    ranks = task.baseline if solved.kept else found.order
    details: dict[str, Any] = {
        "model": task.model,
        **({} if task.model == "latency" else {"size_bytes": task.size_bytes, "capacities": task.fabric.capacities}),
        **({"options": dict(wanted.options)} if wanted.options else {}),
        **_groups(task, ranks),
        **(
            {"pins": {names[host]: rank for host, rank in task.constraints.pinned_ranks.items()}}
            if task.constraints.pinned_ranks
            else {}
        ),
        "gap": None if solved.kept or found.gap is None else round(found.gap, 6),
        "bound_by": found.bound_by,
        "proven": is_optimal(found) and not solved.kept,
        "moves": found.moves,
        **({"measured_pairs_only": True} if solved.sparse else {}),
        **({"interrupted": True} if solved.interrupted else {}),
        **{key: round(value, 3) for key, value in found.metrics.items() if not solved.kept or key not in _WHAT},
    }
    if solved.denoised is not None:
        details["denoised"] = solved.denoised.to_json()
    if solved.judged is not None:
        shares = {key: round(getattr(solved.judged, key), 4) for key in ("gain", "low", "high", "predicted")}
        details["judged"] = {**shares, "confidence": CONFIDENCE, "pairs": solved.judged.pairs}
    if solved.kept:
        hosts = [names[i] for i in dict.fromkeys(found.order.tolist())]
        details["kept_given"] = {"found": hosts, "found_cost": round(found.cost, 3)}
    return RankOrder(
        algo=task.algo,
        hosts=tuple(names[i] for i in dict.fromkeys(ranks.tolist())),
        cost=round(found.baseline_cost if solved.kept else found.cost, 3),
        lower_bound=None if found.lower_bound is None else round(found.lower_bound, 3),
        baseline={"given": round(found.baseline_cost, 3), "random_median": round(found.random_median, 3)},
        objective=found.objective,
        seed=wanted.seed,
        network=network.fingerprint(),
        details=details,
    )


def _groups(task: OrderingProblem, ranks: Order) -> dict[str, Any]:
    """The ranks of each group: of those wished for, as they follow each other; else of those that 2lha was told."""
    if task.constraints.host_groups is None:
        return {"groups": task.options.groups} if task.algo == "2lha" else {}
    group_of = {host: k for k, group in enumerate(task.constraints.host_groups) for host in group}
    labels = [group_of[host] for host in ranks.tolist()]
    return {"groups": [[rank for rank, label in enumerate(labels) if label == k] for k in dict.fromkeys(labels)]}
