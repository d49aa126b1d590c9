"""``plink show``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plink.terminal.screen import print_json

if TYPE_CHECKING:
    from plink.report.report_data import ReportData, RouteBottleneck


def show(
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
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Draw the network in the terminal: heat maps as given and in plink's order, tiers, how round trips spread.

    In colour where the terminal has it and NO_COLOR is not set, else in shades.

    Example: plink show cloud.json --order order.json
    """
    from rich.console import Console

    from plink.api.interfaces import interface_topology
    from plink.api.report_data import report_data_of
    from plink.cli.report_inputs import network_to_draw, report_request
    from plink.report.terminal import terminal_lines
    from plink.report.terminal_heat import Ink
    from plink.report.words import date, host_costs

    network = network_to_draw(network_file)
    data = report_data_of(network, report_request(network, order, groups))
    costs, interfaces = network.host_costs, interface_topology(network)
    if as_json:
        interface_text = None if interfaces is None else interfaces.text
        print_json(_document(data) | {"host_costs": costs, "interfaces": interface_text})
        return
    console = Console(highlight=False, markup=False)
    colour = console.is_terminal and console.color_system is not None and not console.no_color
    ascii_only = console.options.ascii_only
    for line in terminal_lines(data, Ink(console.width, colour and not ascii_only, ascii_only)):
        console.print(line, no_wrap=True, overflow="ignore", crop=False)
    if costs is not None:
        console.print(f"\n{host_costs(costs)} ({date(costs['measured_at'])})", soft_wrap=True)


def _document(data: "ReportData") -> dict[str, Any]:
    names, route = data.names, data.route
    return {
        "schema": "plink.show/1",
        "hosts": len(names),
        "measured": data.measured,
        "possible": data.possible,
        "groups": [[names[host] for host in members] for members in data.groups.members()],
        "tiers": [
            {
                "name": tier.name,
                "pairs": tier.pairs,
                "measured": tier.measured,
                **{
                    key: round(value, 3) if value == value else None
                    for key, value in (
                        ("low_us", tier.low_us),
                        ("median_us", tier.median_us),
                        ("high_us", tier.high_us),
                    )
                },
            }
            for tier in data.groups.tiers
        ],
        "shared_tiers": [
            {"groups": len(links), "confidence": confidence}
            for links, confidence in zip(data.bandwidths.tiers, data.bandwidths.confidences, strict=True)
        ],
        "order": None if route is None else [names[host] for host in route.order.tolist()],
        "bottleneck": None if route is None else _bottleneck(names, route.bottleneck),
        "left_out": list(data.left_out),
        "suspects": len(data.remarks),
    }


def _bottleneck(names: tuple[str, ...], bottleneck: "RouteBottleneck | None") -> dict[str, Any] | None:
    if bottleneck is None:
        return None
    return {
        "kind": bottleneck.kind,
        "links": list(bottleneck.resources),
        "hosts": [names[host] for host in bottleneck.hosts],
        "time_us": round(bottleneck.time_us, 3),
        "cost_us": round(bottleneck.cost_us, 3),
    }
