"""``plink topology``: where the hosts are in the network, for other programs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

import plink
from plink.errors import UsageError
from plink.features.order.interfaces import unmeasured_notes
from plink.model.storage import STANDARD, write_text
from plink.model.topology.export import WRITERS, switches_of
from plink.records import workspace
from plink.terminal.inputs import network_from
from plink.terminal.options import NetworkFile
from plink.terminal.screen import say
from runners.hostfiles import check_node_names, check_slurm_names
from solvers.costs.fabric import fabric_of
from solvers.simulation.simgrid import OPTIONS, deployment_xml, platform_xml

app = typer.Typer(no_args_is_help=True)
_SIMGRID = "simgrid"
_NAME_CHECKS = {"slurm-conf": check_slurm_names, "slurm-yaml": check_slurm_names, "kubectl": check_node_names}


@app.callback()
def topology() -> None:
    """Where the hosts are in the network, for other programs.

    Example: plink topology export measured.json -o topology.conf
    """


@app.command()
def export(
    network_file: NetworkFile = None,
    kind: Annotated[
        Literal["slurm-conf", "slurm-yaml", "topograph", "kubectl", "simgrid"],
        typer.Option(
            "--format",
            help="Slurm's topology.conf or topology.yaml, JSON as of Topograph's graph, commands that label nodes, a "
            "platform of SimGrid.",
        ),
    ] = "slurm-conf",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write it; default: standard output.")
    ] = None,
    order: Annotated[
        Path | None,
        typer.Option(metavar="ORDER", help="For simgrid: order of the ranks in the deployment; default: the file's."),
    ] = None,
    deployment: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="For simgrid: also write a deployment, an actor on each host in rank order."),
    ] = None,
) -> None:
    """Write the measured tiers of shared links (racks, then pods) for Slurm, Topograph or Kubernetes, or for SimGrid.

    Names of hosts must be those of Slurm's or Kubernetes' nodes, or of Topograph's
    instances. A platform of SimGrid checks plink's costs by another simulator: it
    has the links and rates of `--model simulated`. Run SimGrid with the options
    that are printed, which turn its corrections of TCP off.

    Example: plink topology export measured.json -o topology.conf
    """
    if kind != _SIMGRID and (order is not None or deployment is not None):
        raise UsageError(f"--order and --deployment go with --format {_SIMGRID}")
    workspace.check_output(output, None, (network_file or workspace.NETWORK, order), deployment)
    network = network_from(network_file)
    names = network.hosts.names
    if kind == _SIMGRID:
        if order is not None:
            names = plink.read_order(order).arrange(network.hosts, str(order)).names
        fabric = fabric_of(network)
        for note in unmeasured_notes(network, fabric, [_SIMGRID]):
            say(note)
        text = platform_xml(fabric.with_few_gaps_filled)
        contents = f"{len(names)} hosts"
        say(f"run SimGrid with {' '.join(OPTIONS)}")
        if deployment is not None:
            write_text(deployment, deployment_xml(names))
            say(f"{len(names)} actors -> {deployment}")
    else:
        if check_names := _NAME_CHECKS.get(kind):
            check_names(network.hosts, f"--format {kind}")
        switches = switches_of(network)
        text, contents = WRITERS[kind](switches), f"{len(switches)} switches"
    if output is None or str(output) == STANDARD:
        typer.echo(text, nl=False)
        return
    write_text(output, text)
    say(f"{contents} -> {output}")
