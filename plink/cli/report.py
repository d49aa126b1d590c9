"""``plink report``."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from plink.records import workspace
from plink.terminal.screen import say

_DEFAULT_PAGE = Path("report.html")


def report(
    network_file: Annotated[
        Path | None, typer.Argument(metavar="NETWORK", help="What `plink probe` wrote; default .plink/network.json.")
    ] = None,
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
    output: Annotated[Path, typer.Option("-o", "--output", help="The page, - for standard output.")] = _DEFAULT_PAGE,
    png: Annotated[
        Path | None,
        typer.Option(help="Also write its pictures: all in this PNG file, or each as PNG and SVG in this folder."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of the embedding.")] = 0,
) -> None:
    """Render the network as an HTML page: one file that opens offline.

    Heat maps of the round trips as given and in plink's order, shared links
    with their capacities and loads, a map of the hosts with the order's
    route, tiers, missing and suspicious pairs.
    docs/report.md explains it.

    Example: plink report cloud.json --order order.json -o report.html
    """
    from plink.api.report_data import report_data_of
    from plink.cli.report_inputs import host_map, network_to_draw, report_request
    from plink.model.benchmark_runs import read_benchmark_runs
    from plink.model.storage import STANDARD, write_text
    from plink.report.files import check_target, write_pictures
    from plink.report.page import page

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
