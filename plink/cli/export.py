"""``plink export``: a measured network for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from plink.records import workspace
from plink.terminal.screen import say

app = typer.Typer(
    no_args_is_help=True,
    help="Write a measured network for other programs.\n\nExample: plink export simgrid measured.json -o platform.xml",
)


@app.callback()
def _group() -> None:
    """Keep ``simgrid`` a command of its own: Typer would take it for the whole group."""


@app.command()
def simgrid(
    network_file: Annotated[
        Path | None, typer.Argument(metavar="NETWORK", help="What `plink probe` wrote; default .plink/network.json.")
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write the platform.")] = Path("platform.xml"),
    order: Annotated[
        Path | None, typer.Option(metavar="ORDER", help="Order of the ranks in the deployment; default: the file's.")
    ] = None,
    deployment: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a deployment: an actor on each host, in rank order.")
    ] = None,
) -> None:
    """Write the network as a platform of SimGrid, to check plink's costs by another simulator.

    Links and rates are those of `--model simulated`. Run SimGrid with the
    options that are printed, which turn its corrections of TCP off.

    Example: plink export simgrid measured.json -o platform.xml --deployment deployment.xml
    """
    from plink.model.order import read_order
    from plink.model.storage import write_text
    from plink.terminal.inputs import network_from
    from solvers.costs.fabric import fabric_of
    from solvers.simulation.network import SimulatedNetwork
    from solvers.simulation.simgrid import OPTIONS, deployment_xml, platform_xml

    source = network_file or workspace.NETWORK
    workspace.check_output(output, None, (source, order), deployment)
    network = network_from(network_file)
    hosts = network.hosts.members if order is None else read_order(order).arrange(network.hosts, str(order))
    platform = platform_xml(SimulatedNetwork.of(fabric_of(network)))
    write_text(output, platform)
    say(f"{len(network.hosts)} hosts -> {output}; run SimGrid with {' '.join(OPTIONS)}")
    if deployment is not None:
        write_text(deployment, deployment_xml([host.name for host in hosts]))
        say(f"{len(hosts)} actors -> {deployment}")
