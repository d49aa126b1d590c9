"""What was solved as the order file has it, and as people read it.

Imported by commands that solve, when they run: it needs the solvers.
"""

from typing import Any

from plink.cli.solving import CONFIDENCE, Solved, Wanted
from plink.network import Network
from plink.order import Order
from plink.units import format_us
from solvers.ordering.proving import proven

_WHAT = {"sum": "sum of round trips", "bottleneck": "longest round trip"}


def order_of_one(network: Network, wanted: Wanted) -> Order:
    """The order of a single host: nothing to decide."""
    alone = {"given": 0.0, "random_median": 0.0}
    names = tuple(network.hosts.names)
    details = {"model": "latency", "gap": 0.0, "proven": True, "moves": 0}
    return Order(wanted.algo, names, 0.0, 0.0, alone, "sum", wanted.seed, network.fingerprint(), details)


def order_of(network: Network, solved: Solved, wanted: Wanted) -> Order:
    """The order to launch: the found one, or the given one where nothing better than noise was found."""
    task, found, names = solved.task, solved.found, network.hosts.names
    ranks = task.given if solved.kept else found.order
    grouped = task.algo == "2lha" or task.wishes.groups is not None
    details: dict[str, Any] = {
        "model": task.model,
        **({} if task.model == "latency" else {"size_bytes": task.size_bytes, "capacities": task.fabric.capacities}),
        **({"groups": task.options.groups} if grouped else {}),
        **({"pins": {names[host]: rank for host, rank in task.wishes.pins.items()}} if task.wishes.pins else {}),
        "gap": None if solved.kept or found.gap is None else round(found.gap, 6),
        "bound_by": found.bound_by,
        "proven": proven(found) and not solved.kept,
        "moves": found.moves,
        **{key: round(value, 3) for key, value in found.also.items()},
    }
    if solved.judged is not None:
        shares = {key: round(getattr(solved.judged, key), 4) for key in ("gain", "low", "high", "predicted")}
        details["judged"] = {**shares, "confidence": CONFIDENCE, "pairs": solved.judged.pairs}
    if solved.kept:
        hosts = [names[i] for i in dict.fromkeys(found.order.tolist())]
        details["kept_given"] = {"found": hosts, "found_cost": round(found.cost, 3)}
    return Order(
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


def summary(solved: Solved) -> list[str]:
    """Lines for people: costs and bound, then what else there is to say, then what it is worth beyond the noise."""
    task, found = solved.task, solved.found
    costs = [format_us(cost) for cost in (found.given, found.cost, found.random_median)]
    line = (
        f"{task.algo} of {len(task.hosts)} hosts, {_WHAT.get(found.objective, f'model {task.model}')}: "
        f"given {costs[0]}, found {costs[1]}, median of random orders {costs[2]}"
    )
    if found.lower_bound is not None:
        line += f"; no order under {format_us(found.lower_bound)}"
        if found.gap is not None and not proven(found):
            line += f" (found is at most {found.gap:.2%} above the best)"
    lines = [line, *solved.notes]
    if solved.judged is not None and solved.changed:
        judged = solved.judged
        saves = f"on samples it was not fitted to it saves {judged.gain:.1%} ({judged.low:.1%} to {judged.high:.1%})"
        within = ": within the noise" if judged.within_noise else ""
        kept = ", so the given order is kept (--force takes the found one)" if solved.kept else ""
        lines.append(saves + within + kept)
    return lines
