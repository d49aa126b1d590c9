"""From a network to the order file: which search, under which model, with what it is compared to."""

from typing import TYPE_CHECKING

from plink.cli.screen import say
from plink.errors import UsageError
from plink.units import format_us

if TYPE_CHECKING:
    from plink.network import Network
    from plink.order import Order

_MANY_MOVES = 1 << 50


def known_algorithm(algo: str) -> None:
    """Refuse a name that is none.

    :raises UsageError: with the names there are.
    """
    from solvers.costs.by_name import NAMES

    if algo not in NAMES:
        raise UsageError(f"--algo {algo}: there are {', '.join(NAMES)}")


def solve(
    network: "Network",
    algo: str = "ring",
    size_bytes: float = 100e6,
    model: str = "auto",
    typed: list[str] | None = None,
    time_limit_s: float = 10.0,
    moves: int | None = None,
    seed: int = 0,
) -> "Order":
    """The cheapest order that is found of a network's hosts.

    :param typed: options of the algorithm, ``base=4`` and the like. :param moves: with them the time limit is not
        looked at, so that the same seed gives the same order on any machine.
    :raises PlinkError: whatever :func:`solvers.ordering.search.search` and the models refuse.
    """
    import time

    import numpy as np

    from plink.cli.algorithms import fabric_from, options_from, order_from, rank_groups
    from plink.order import Order
    from solvers.costs.by_name import model_for
    from solvers.costs.latency import symmetrised
    from solvers.ordering.search import search

    if len(network.hosts) == 1:  # nothing to decide
        alone = {"given": 0.0, "random_median": 0.0}
        return Order(
            algo, tuple(network.hosts.names), 0.0, 0.0, alone, "sum", seed, network.fingerprint(), {"model": "latency"}
        )
    fabric = fabric_from(network)
    given = order_from(network, None)
    options = options_from(typed or [], [algo], rank_groups(fabric, given))
    chosen = model_for(model, fabric)
    n = len(network.hosts)
    unknown = int(np.isnan(symmetrised(network.latency_us)).sum()) // 2
    if unknown and "predicted_us" in network.details:
        say(f"{unknown} of {n * (n - 1) // 2} pairs were not measured; what they are predicted to take is used")
    deadline = time.monotonic() + time_limit_s
    found = search(
        fabric,
        given,
        algo,
        options,
        size_bytes,
        chosen,
        seed,
        (lambda: True) if moves is not None else (lambda: time.monotonic() < deadline),
        _MANY_MOVES if moves is None else moves,
    )
    names = network.hosts.names
    gap = found.gap
    return Order(
        algo=algo,
        hosts=tuple(names[i] for i in dict.fromkeys(found.order.tolist())),
        cost=round(found.cost, 3),
        lower_bound=None if found.lower_bound is None else round(found.lower_bound, 3),
        baseline={"given": round(found.given, 3), "random_median": round(found.random_median, 3)},
        objective="sum" if chosen == "latency" and algo == "ring" else "time",
        seed=seed,
        network=network.fingerprint(),
        details={
            "model": chosen,
            **({} if chosen == "latency" else {"size_bytes": size_bytes, "capacities": fabric.capacities}),
            **({"groups": options.groups} if algo == "2lha" else {}),
            "gap": None if gap is None else round(gap, 4),
            "moves": found.moves,
        },
    )


def summary(order: "Order") -> str:
    """An order in a line, for people."""
    given, median, model = order.baseline["given"], order.baseline["random_median"], order.details["model"]
    assert order.cost is not None
    what = "sum of round trips" if order.objective == "sum" else f"model {model}"
    bound = "" if order.lower_bound is None else f"; no order under {format_us(order.lower_bound)}"
    return (
        f"{order.algo} of {len(order.hosts)} hosts, {what}: given {format_us(given)}, found {format_us(order.cost)}, "
        f"median of random orders {format_us(median)}{bound}"
    )
