"""``plink probe``."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from plink.errors import PlinkError, UsageError
from plink.features.measure.request import ProbeRequest
from plink.features.measure.session import measure_into
from plink.model.hosts import Hosts, read_hosts
from plink.model.network import Network, read_network
from plink.model.topology import read_topology
from plink.model.units import numbered
from plink.records import workspace
from plink.terminal.inputs import hosts_file_from, parse_labels
from plink.terminal.options import takes
from plink.terminal.screen import print_lines, say
from probes.measurements import Measurements, measurements_from


@takes(ProbeRequest)
def probe(
    request: ProbeRequest,
    hosts_file: Annotated[
        Path | None, typer.Argument(metavar="[HOSTS]", help="Hosts file; default: ./hosts.txt. - is standard input.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write the network; default .plink/network.json.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Measure only what the output file lacks.", rich_help_panel="Limits")
    ] = False,
    topology: Annotated[
        list[Path] | None,
        typer.Option(
            help="A topology file that says which hosts share links, instead of the round trips; docs/topology.md.",
            rich_help_panel="Bandwidth",
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL,...",
            help="Labels of Kubernetes' nodes that are the levels, outermost first.",
            rich_help_panel="Bandwidth",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
) -> None:
    """Measure the network between the hosts: round trips, loss, hops, and the capacity of what groups of hosts share.

    Every finished round is written at once: Ctrl-C, a dead host or a spent
    --budget loses nothing; --resume continues.

    Example: plink probe hosts.txt -o cloud.json
    """
    from plink.features.measure.run import check_hosts

    if labels is not None and not topology:
        raise UsageError("--labels goes with --topology, whose Kubernetes nodes have them")
    hosts_file = hosts_file_from(hosts_file)
    target = output or workspace.NETWORK
    if resume and str(target) == "-":
        raise UsageError("--resume needs a file to continue, not standard output")
    workspace.check_output(output, workspace.NETWORK, (hosts_file, *(topology or ())))
    hosts = read_hosts(hosts_file)
    if topology:
        request = replace(request, topology=read_topology(*topology, hosts=hosts, labels=parse_labels(labels)))
    check_hosts(hosts)
    if dry_run:
        from plink.features.measure.show import dry_run_lines

        print_lines(*dry_run_lines(hosts, request, _earlier(hosts, target)))
        return
    measurements = _resumed(hosts, target) if resume else Measurements(hosts)
    measure_into(target, measurements, request)


def _earlier(hosts: Hosts, target: Path) -> Network | None:
    """Return what the file has of these hosts, if it has shared links."""
    if str(target) == "-" or not target.exists():
        return None
    try:
        network = read_network(target)
        return network if network.shared_links and set(network.hosts.names) == set(hosts.names) else None
    except PlinkError:
        return None  # it will be replaced


def _resumed(hosts: Hosts, target: Path) -> Measurements:
    """Return the measurements that the file has for exactly these hosts."""
    network = read_network(target)
    if network.hosts.names != hosts.names:
        raise UsageError(f"--resume: {target} is about other hosts (or in another order) than the hosts file")
    measurements = measurements_from(network)
    measurements.hosts = hosts
    say(f"{target}: {numbered(len(measurements.missing()), 'pair is', 'pairs are')} missing in it")
    return measurements
