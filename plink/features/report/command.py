"""``plink report``."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from plink.errors import UsageError
from plink.features.report.show import picture_of, print_picture
from plink.model.check import read_benchmark_runs
from plink.model.storage import STANDARD, write_text
from plink.records import workspace
from plink.report.files import check_target, write_pictures
from plink.report.page import page
from plink.terminal.options import Json, NetworkFile
from plink.terminal.screen import print_json, say

_DEFAULT_PAGE = Path("report.html")


def report(
    network_file: NetworkFile = None,
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
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of the embedding.")] = 0,
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
    from plink.features.report.gather import report_data_of
    from plink.features.report.inputs import host_map, network_to_draw, report_request

    if terminal or as_json:
        if (output, png, results) != (None, None, None):
            raise UsageError("-o, --png and --results go with the page; omit --terminal and --json, or these")
        network = network_to_draw(network_file)
        data = report_data_of(network, report_request(network, order, groups))
        if as_json:
            print_json(picture_of(network, data).to_json())
        else:
            print_picture(network, data)
        return
    output = output or _DEFAULT_PAGE
    inputs = (network_file or workspace.NETWORK, order or workspace.ORDER, groups or workspace.GROUPS, results)
    workspace.check_output(output, None, inputs)
    if png is not None:
        check_target(png)
    benchmark_runs = () if results is None else read_benchmark_runs(results)
    network = network_to_draw(network_file)
    request = replace(report_request(network, order, groups), results=benchmark_runs)
    data = report_data_of(network, request, lambda data: host_map(network, data, seed))
    write_text(output, page(data))
    if str(output) != STANDARD:
        say(f"report -> {output}")
    if png is not None:
        written = write_pictures(data, png)
        say(f"pictures -> {png}" if len(written) == 1 else f"{len(written)} pictures -> {written[0]} and others")
