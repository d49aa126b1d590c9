"""``plink reorder``."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from plink.errors import UsageError
from plink.features.order.request import MeshRequest, OrderRequest
from plink.model.hosts import read_hosts
from plink.model.network import Network
from plink.model.order import RankOrder
from plink.model.storage import STANDARD, name_of, write_text
from plink.model.topology import read_topology
from plink.model.units import numbered
from plink.records import workspace
from plink.terminal.inputs import network_from, parse_groups_option, parse_labels
from plink.terminal.interrupts import deferred_interrupts
from plink.terminal.options import NetworkFile, takes
from plink.terminal.screen import say
from runners.hostfiles import command, format_named, render
from solvers.prediction.topology import assumed_network

_PARTLY_DONE_CODE = 3
_HOSTS, _OUTPUT = "Hosts and constraints", "Output"


@takes(OrderRequest, MeshRequest)
def reorder(
    request: OrderRequest,
    mesh_request: MeshRequest,
    network_file: NetworkFile = None,
    groups: Annotated[
        str | None,
        typer.Option(
            help="Groups of hosts kept together: a file, one group per line, or a number of groups to form.",
            rich_help_panel=_HOSTS,
        ),
    ] = None,
    prior: Annotated[
        list[Path] | None,
        typer.Option(help="A topology file that fills in unmeasured pairs; docs/topology.md.", rich_help_panel=_HOSTS),
    ] = None,
    topology: Annotated[
        list[Path] | None,
        typer.Option(
            help="A topology file instead of a network: an order without probing; repeat it for each page.",
            rich_help_panel=_HOSTS,
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL,...",
            help="Labels of Kubernetes' nodes that are the levels, outermost first.",
            rich_help_panel=_HOSTS,
        ),
    ] = None,
    hosts_file: Annotated[
        Path | None,
        typer.Option(
            "--hosts",
            help="The job's hosts as given, with slots: some or all of the network's, or of those of --topology.",
            rich_help_panel=_HOSTS,
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option("--format", help="What to write; default: order; see docs/launchers.md.", rich_help_panel=_OUTPUT),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Where to write it, - for standard output, the default with --format; else .plink/order.json.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the order as JSON.", rich_help_panel=_OUTPUT)] = False,
) -> None:
    """Find the rank order that is cheapest for a collective on the measured network.

    The order is written to .plink/order.json, with --format or -o as a file for
    a launcher. An order fitted to one half of the samples is validated on
    the other: a gain within noise keeps the given order. See docs/orders.md.

    Example: plink reorder cloud.json --algo ring --format openmpi -o hostfile
    """
    from plink.features.order.session import save_order, search_with_status, show_traffic

    chosen = format_named(format or "order").name
    if as_json and format not in (None, "order"):
        raise UsageError("--json prints the order itself; omit --format, or give one of the two")
    topology, prior = topology or [], prior or []
    if topology and (network_file is not None or prior):
        raise UsageError("--topology replaces a network; omit NETWORK and --prior, or give the file as --prior")
    if output is not None and output.suffix == ".gz" and chosen not in ("order", "hosts"):
        raise UsageError(f"-o {output}: launchers read no compressed file; omit .gz")
    if request.smooth_latencies and topology:
        raise UsageError("--smooth-latencies goes with measured round trips; those of --topology are assumed")
    if labels is not None and not (topology or prior):
        raise UsageError("--labels goes with --topology or --prior, whose Kubernetes nodes have them")
    mesh = mesh_request.mesh()
    network_read = None if topology else network_file or workspace.NETWORK
    from_workspace = network_file is None and not topology  # the order is that of the network that was probed here
    default_target = workspace.ORDER if output is None and format is None and not as_json else None
    workspace.check_output(
        output,
        default_target,
        (network_read, hosts_file, groups, mesh_request.mesh_file, mesh_request.mesh_from, *topology, *prior),
        written=workspace.ORDER if from_workspace and chosen != "order" else None,
    )
    if from_workspace:
        workspace.check_output(None, workspace.ORDER)
    label_names = parse_labels(labels)
    network = _assumed(topology, hosts_file, label_names) if topology else network_from(network_file, hosts_file)
    render(
        chosen, network.hosts, RankOrder(algo="given", hosts=tuple(network.hosts.ranked().names))
    )  # refused before a search, not after
    order_request = replace(
        request,
        mesh=mesh,
        groups=None if groups is None else parse_groups_option(groups),
        groups_source="groups" if groups is None else name_of(groups),
        prior=read_topology(*prior, hosts=network.hosts, labels=label_names) if prior else None,
    )
    with deferred_interrupts() as stopped:  # from here on what was found so far is written, whatever comes
        outcome = search_with_status(network, order_request, stopped)
        order = outcome.order
        if output is None and format is None and not as_json:
            save_order(order)
        else:
            text = render(chosen, order.arrange(network.hosts, "order"), order)
            write_text(output or STANDARD, text)
            if as_json and output is not None and str(output) != STANDARD:
                write_text(STANDARD, text)
            if from_workspace:
                save_order(order)
    if order.mesh:
        say(f"a step sends {' '.join(order.mesh.traffic)}")
        if order.cost_by_traffic:
            show_traffic(order)
    for line in outcome.lines:
        say(line)
    if format is not None and output is not None and str(output) != STANDARD:
        usage = command(format, shlex.quote(str(output)), network.hosts)
        if usage is not None:
            say(f"use it: {usage}")
    if outcome.interrupted:
        say("interrupted: this is the best order so far")
    if stopped():
        raise KeyboardInterrupt
    if not outcome.complete:
        raise typer.Exit(_PARTLY_DONE_CODE)


def _assumed(topology: Sequence[Path], hosts_file: Path | None, labels: Sequence[str]) -> Network:
    hosts = None if hosts_file is None else read_hosts(hosts_file)
    assumed = assumed_network(read_topology(*topology, hosts=hosts, labels=labels), hosts)
    say(f"round trips are assumed from {assumed.location}, none was measured; only their order counts")
    groups = assumed.shared_links[0].groups if assumed.shared_links else []
    alone = len(assumed.hosts) - sum(len(group.members) for group in groups)
    alone_text = f" and {alone} alone" if alone else ""
    contents = f"in {numbered(len(groups), 'group')}{alone_text}" if groups else "that form no groups"
    say(f"{numbered(len(assumed.hosts), 'host')} {contents}")
    say("capacities of shared links are not in it; `plink probe` measures them")
    return assumed
