"""``plink reorder``."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from plink import workspace
from plink.cli.screen import say
from plink.errors import UsageError

# As in runners/hostfiles, which is imported only where it is used.
_FORMATS = (
    *("order", "hosts", "openmpi", "openmpi-rankfile", "mpich", "slurm"),
    *("torchrun", "torchrun-env", "deepspeed", "horovod", "lightgbm", "kubernetes"),
)


def reorder(
    network_file: Annotated[
        Path | None, typer.Argument(metavar="NETWORK", help="What `plink probe` wrote; default .plink/network.json.")
    ] = None,
    algo: Annotated[str, typer.Option(help="The collective's algorithm, or what a library runs (gloo, ...).")] = "ring",
    size: Annotated[str, typer.Option(help="Bytes that are reduced (100MB); the model latency knows no sizes.")] = (
        "100MB"
    ),
    model: Annotated[str, typer.Option(help="latency, alpha-beta, contention, or auto.")] = "auto",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="An option of the algorithm: --set base=4, --set fan-out=3.")
    ] = None,
    format: Annotated[
        str | None, typer.Option("--format", help=f"What to write: {', '.join(_FORMATS)}; see docs/launchers.md.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write it, - for standard output.")
    ] = None,
    time_limit: Annotated[float, typer.Option(min=0, help="Seconds to search at most.")] = 10.0,
    moves: Annotated[
        int | None, typer.Option(min=1, max=10**12, help="Moves to try, instead of a time: the same on any machine.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Makes the search reproducible.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the order as JSON.")] = False,
) -> None:
    """Find the rank order that is cheapest for a collective on the measured network.

    The order is left in .plink/order.json; with --format or -o it is also written as a file for a launcher.

    Example: plink reorder cloud.json --algo ring --format openmpi -o hostfile
    """
    from plink.cli.solving import known_algorithm
    from plink.units import parse_bytes
    from runners.hostfiles import command, format_named, render

    known_algorithm(algo)
    size_bytes = parse_bytes(size)
    chosen = format_named(format or "order").name
    if as_json and format not in (None, "order"):
        raise UsageError("--json prints the order itself; leave --format away or give one of the two")
    from plink.cli.inputs import network_from
    from plink.cli.solving import solve, summary
    from plink.order import Order
    from plink.storage import STANDARD, write_text

    network = network_from(network_file)
    render(chosen, network.hosts, Order("given", tuple(network.hosts.names)))  # refused before a search, not after
    order = solve(network, algo, size_bytes, model, set_, time_limit, moves, seed)
    if output is None and format is None and not as_json:
        workspace.prepare()
        order.write(workspace.ORDER)
        say(f"order -> {workspace.ORDER}")
    else:
        text = render(chosen, order.arrange(network.hosts, "order"), order)
        write_text(output or STANDARD, text)
        if network_file is None:
            order.write(workspace.ORDER)
    say(summary(order))
    if format is not None and output is not None and str(output) != STANDARD:
        use = command(format, shlex.quote(str(output)), network.hosts)
        if use is not None:
            say(f"use it: {use}")
