"""``plink report``."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import structs

from plink.errors import UsageError
from plink.features.report.request import ReportRequest
from plink.model.check import read_benchmark_runs
from plink.model.codec import decode
from plink.model.document import UNSET
from plink.model.embedding import NetworkEmbedding
from plink.model.groups import read_groups
from plink.model.network import Network
from plink.model.order import read_order
from plink.model.storage import STANDARD, read_document, write_text
from plink.records import workspace
from plink.terminal.inputs import network_from
from plink.terminal.options import JobHosts, Json, NetworkFile, takes
from plink.terminal.screen import print_json, say, say_read

if TYPE_CHECKING:
    from plink.features.report.data import ReportData

_DEFAULT_PAGE = Path("report.html")


@takes(ReportRequest)
def report(
    request: ReportRequest,
    network_file: NetworkFile = None,
    hosts_file: JobHosts = None,
    order: Annotated[
        Path | None,
        typer.Option(help="An order, or one host name per line; default: .plink/order.json if it is for this network."),
    ] = None,
    groups: Annotated[
        Path | None, typer.Option(help="Groups of hosts; default: .plink/groups.json, else by the round trips.")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="Orders that were run, predicted and achieved; see docs/report.md.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The page, - for standard output; default report.html.")
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option(help="Also write its pictures: all in this PNG file, or each as PNG and SVG in this folder."),
    ] = None,
    terminal: Annotated[
        bool, typer.Option("--terminal", help="Draw in the terminal instead: heat maps, tiers, round trips.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Render the network as an HTML page: one file that opens offline.

    Heat maps of the round trips as given and in plink's order, shared links
    with their capacities and loads, a map of the hosts with the order's
    route, tiers, missing and suspicious pairs. docs/report.md explains it.
    With --terminal in colour where the terminal has it and NO_COLOR is not
    set, else in shades; with --json the figures as JSON.

    Example: plink report cloud.json --order order.json -o report.html
    """
    from plink.features.report.figures import check_target, write_pictures
    from plink.features.report.page import page
    from plink.features.report.run import check_drawable, report_data_of
    from plink.features.report.show import picture_of, print_picture

    in_terminal, output = terminal or as_json, output or (None if terminal or as_json else _DEFAULT_PAGE)
    if in_terminal and (output, png, results) != (None, None, None):
        raise UsageError("-o, --png and --results go with the page; omit --terminal and --json, or these")
    if output is not None:
        inputs = (
            network_file or workspace.NETWORK,
            hosts_file,
            order or workspace.ORDER,
            groups or workspace.GROUPS,
            results,
        )
        workspace.check_output(output, None, inputs)
    if png is not None:
        check_target(png)
    benchmark_runs = () if results is None else read_benchmark_runs(results)
    network = network_from(network_file, hosts_file)
    check_drawable(network)
    request = _with_groups(_with_order(replace(request, results=benchmark_runs), network, order), network, groups)
    data = report_data_of(network, request)
    if as_json:
        print_json(picture_of(network, data).to_json())
    elif terminal:
        print_picture(network, data)
    if output is None:
        return
    data = _with_map(network, data, request)
    write_text(output, page(data))
    if str(output) != STANDARD:
        say(f"report -> {output}")
    if png is not None:
        written = write_pictures(data, png)
        say(f"pictures -> {png}" if len(written) == 1 else f"{len(written)} pictures -> {written[0]} and others")


def _with_order(request: ReportRequest, network: Network, path: Path | None) -> ReportRequest:
    if path is None and not workspace.ORDER.is_file():
        return replace(request, no_order="There is no order yet; `plink reorder` finds one.")
    order = read_order(path or workspace.ORDER)
    if path is not None:
        if order.network not in (None, network.fingerprint()):
            say(f"{path} was found for another measurement: its costs are left out")
            order = structs.replace(order, cost=None, baseline={}, validation=UNSET)
    elif set(order.hosts) < set(network.hosts.ranked().names):
        say(f"{workspace.ORDER} is for some of these hosts: --hosts FILE shows them alone")
        return replace(request, no_order="The last order is for some of these hosts.")
    elif order.network != network.fingerprint():
        say(f"{workspace.ORDER} was found for another network and is ignored")
        return replace(
            request, no_order="The last order was found for another network; `plink reorder` finds one for this."
        )
    else:
        say_read(workspace.ORDER)
    return replace(request, order=order, order_source=str(path or workspace.ORDER))


def _with_groups(request: ReportRequest, network: Network, path: Path | None) -> ReportRequest:
    if path is None and workspace.GROUPS.is_file():
        group_hosts = {name for group in read_groups(workspace.GROUPS) for name in group}
        if group_hosts == set(network.hosts.names):
            say_read(workspace.GROUPS)
            path = workspace.GROUPS
        else:
            say(f"{workspace.GROUPS} is for other hosts and is ignored")
    return request if path is None else replace(request, groups=read_groups(path), groups_source=str(path))


def _with_map(network: Network, data: "ReportData", request: ReportRequest) -> "ReportData":
    """Return the data with the map of the last embedding if it is of this network, else of a new one."""
    from plink.features.report.run import with_map

    if workspace.EMBEDDING.is_file():
        document, location = read_document(workspace.EMBEDDING), str(workspace.EMBEDDING)
        if document.get("network") == network.fingerprint():
            embedding = decode(NetworkEmbedding, document, location)
            embedded = with_map(network, data, replace(request, embedding=embedding), location)
            say_read(workspace.EMBEDDING)
            return embedded
    return with_map(network, data, request)
