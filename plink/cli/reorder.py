"""``plink reorder``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plink import workspace
from plink.cli.screen import say
from plink.errors import UsageError

if TYPE_CHECKING:
    from plink.network import Network
    from plink.order import Order

_ALGORITHMS = ("ring",)


def reorder(
    network_file: Annotated[
        Path | None, typer.Argument(metavar="NETWORK", help="What `plink probe` wrote; default .plink/network.json.")
    ] = None,
    algo: Annotated[str, typer.Option(help=f"The collective's algorithm: {', '.join(_ALGORITHMS)}.")] = "ring",
    format: Annotated[
        str | None, typer.Option("--format", help="order (JSON), hosts (one name a line), openmpi (hostfile).")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write it, - for standard output.")
    ] = None,
    time_limit: Annotated[float, typer.Option(min=0, help="Seconds to search at most.")] = 10.0,
    seed: Annotated[int, typer.Option(min=0, help="Makes the search reproducible.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the order as JSON.")] = False,
) -> None:
    """Find the rank order that is cheapest for a collective on the measured network.

    The order is left in .plink/order.json; with --format or -o it is also written as a file for a launcher.

    Example: plink reorder cloud.json --algo ring --format openmpi -o hostfile
    """
    from runners.hostfiles import FORMATS, render

    if algo not in _ALGORITHMS:
        raise UsageError(f"--algo {algo}: there are {', '.join(_ALGORITHMS)}")
    if format is not None and format not in FORMATS:
        raise UsageError(f"--format {format}: there are {', '.join(FORMATS)}")
    if as_json and format not in (None, "order"):
        raise UsageError("--json prints the order itself; leave --format away or give one of the two")
    from plink.cli.inputs import network_from
    from plink.storage import STANDARD, write_text

    network = network_from(network_file)
    order = solve_ring(network, time_limit, seed)
    if output is None and format is None and not as_json:
        workspace.prepare()
        order.write(workspace.ORDER)
        say(f"order -> {workspace.ORDER}")
    else:
        text = render(format or "order", order.arrange(network.hosts, "order"), order)
        write_text(output or STANDARD, text)
        if network_file is None:
            order.write(workspace.ORDER)
    given, median = order.baseline["given"], order.baseline["random_median"]
    assert order.cost is not None
    assert order.lower_bound is not None
    say(
        f"ring of {len(order.hosts)} hosts, sum of round trips: given {given:.0f} us, found {order.cost:.0f} us, "
        f"median of random orders {median:.0f} us, no ring under {order.lower_bound:.0f} us"
    )


def solve_ring(network: "Network", time_limit_s: float, seed: int) -> "Order":
    """The cheapest ring order of a network."""
    import time

    import numpy as np

    from plink.order import Order
    from solvers.costs.latency import completed, require_complete, symmetrised
    from solvers.ordering.ring import search_ring

    predicted, n = network.detail("predicted_us"), len(network.hosts)
    cost = completed(network.latency_us, predicted)
    unknown = int(np.isnan(symmetrised(network.latency_us)).sum()) // 2
    if unknown and predicted is not None:
        say(f"{unknown} of {n * (n - 1) // 2} pairs were not measured; what they are predicted to take is used")
    require_complete(cost, network.hosts.names)
    deadline = time.monotonic() + time_limit_s
    result = search_ring(cost, seed, lambda: time.monotonic() < deadline)
    return Order(
        algo="ring",
        hosts=tuple(network.hosts.names[i] for i in result.order),
        cost=round(result.cost, 3),
        lower_bound=round(result.lower_bound, 3),
        baseline={"given": round(result.given, 3), "random_median": round(result.random_median, 3)},
        objective="sum",
        seed=seed,
        network=network.fingerprint(),
        details={"model": "latency"},
    )
