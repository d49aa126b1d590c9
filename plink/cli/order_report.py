"""What was solved as the order file has it, and as people read it.

Imported by commands that solve, when they run: it needs the solvers.
"""

from typing import Any

from plink.cli.solving import CONFIDENCE, Solved, Wanted
from plink.model.network import Network
from plink.model.order import Order as Written
from plink.model.units import format_us
from solvers.ordering.proving import proven
from solvers.ordering.task import Order, Task
from solvers.schedules.catalogue import Options

_WHAT = {"sum": "sum of round trips", "bottleneck": "longest round trip"}


def order_of_one(network: Network, wanted: Wanted) -> Written:
    """The order of a single host: nothing to decide."""
    alone = {"given": 0.0, "random_median": 0.0}
    names = tuple(network.hosts.names)
    details = {"model": "latency", "gap": 0.0, "proven": True, "moves": 0}
    return Written(wanted.algo, names, 0.0, 0.0, alone, "sum", wanted.seed, network.fingerprint(), details)


def order_of(network: Network, solved: Solved, wanted: Wanted) -> Written:
    """The order to launch: the found one, or the given one where nothing better than noise was found."""
    task, found, names = solved.task, solved.found, network.hosts.names
    ranks = task.given if solved.kept else found.order
    details: dict[str, Any] = {
        "model": task.model,
        **({} if task.model == "latency" else {"size_bytes": task.size_bytes, "capacities": task.fabric.capacities}),
        **_options(task.options, wanted.typed),
        **_groups(task, ranks),
        **({"pins": {names[host]: rank for host, rank in task.wishes.pins.items()}} if task.wishes.pins else {}),
        "gap": None if solved.kept or found.gap is None else round(found.gap, 6),
        "bound_by": found.bound_by,
        "proven": proven(found) and not solved.kept,
        "moves": found.moves,
        **({"measured_pairs_only": True} if solved.sparse else {}),
        **({"interrupted": True} if solved.interrupted else {}),
        **{key: round(value, 3) for key, value in found.also.items() if not solved.kept or key not in _WHAT},
    }
    if solved.denoised is not None:
        details["denoised"] = solved.denoised.to_json()
    if solved.judged is not None:
        shares = {key: round(getattr(solved.judged, key), 4) for key in ("gain", "low", "high", "predicted")}
        details["judged"] = {**shares, "confidence": CONFIDENCE, "pairs": solved.judged.pairs}
    if solved.kept:
        hosts = [names[i] for i in dict.fromkeys(found.order.tolist())]
        details["kept_given"] = {"found": hosts, "found_cost": round(found.cost, 3)}
    return Written(
        algo=task.algo,
        hosts=tuple(names[i] for i in dict.fromkeys(ranks.tolist())),
        cost=round(found.given if solved.kept else found.cost, 3),
        lower_bound=None if found.lower_bound is None else round(found.lower_bound, 3),
        baseline={"given": round(found.given, 3), "random_median": round(found.random_median, 3)},
        objective=found.objective,
        seed=wanted.seed,
        network=network.fingerprint(),
        details=details,
    )


def _options(options: Options, typed: tuple[str, ...]) -> dict[str, Any]:
    """What the algorithm was told; who reads the order's file prices and draws it by that."""
    names = sorted({word.partition("=")[0].replace("-", "_") for word in typed})
    return {"options": {name: getattr(options, name) for name in names}} if names else {}


def _groups(task: Task, ranks: Order) -> dict[str, Any]:
    """The ranks of each group: of those wished for, as they follow each other; else of those that 2lha was told."""
    if task.wishes.groups is None:
        return {"groups": task.options.groups} if task.algo == "2lha" else {}
    group_of = {host: k for k, group in enumerate(task.wishes.groups) for host in group}
    labels = [group_of[host] for host in ranks.tolist()]
    return {"groups": [[rank for rank, label in enumerate(labels) if label == k] for k in dict.fromkeys(labels)]}


def summary(solved: Solved) -> list[str]:
    """Lines for people: costs and bound, then what else there is to say, then what it is worth beyond the noise."""
    task, found = solved.task, solved.found
    costs = [format_us(cost) for cost in (found.given, found.cost, found.random_median)]
    line = (
        f"{task.algo} of {len(task.hosts)} hosts, {_WHAT.get(found.objective, f'model {task.model}')}: "
        f"given {costs[0]}, found {costs[1]}, median of random orders {costs[2]}"
    )
    if found.lower_bound is not None and (found.lower_bound > 0 or found.cost == 0):
        of = " of measured pairs" if solved.sparse else ""
        line += f"; no order{of} under {format_us(found.lower_bound)}"
        if found.gap is not None and not proven(found):
            line += f" (found is at most {found.gap:.2%} above the best)"
    lines = [line, *solved.notes]
    judged = solved.judged
    if judged is not None and solved.changed and (judged.gain or judged.predicted):
        saves = f"on samples it was not fitted to it saves {judged.gain:.1%} ({judged.low:.1%} to {judged.high:.1%})"
        if judged.within_noise:
            saves += ": within the noise"
            if solved.kept:
                saves += ", so the given order is kept (--force takes the found one)"
            elif solved.given_cannot is not None:
                saves += f"; the given order is not kept, for {solved.given_cannot}"
        lines.append(saves)
    return lines
