"""The figures of a report as a document, and drawn in the terminal."""

import math

from rich.console import Console

from plink.model.network import Network
from plink.model.picture import NetworkPicture, OrderBottleneck, SharedTierSummary, TierSpread
from plink.report.report_data import ReportData
from plink.report.terminal import terminal_lines
from plink.report.terminal_heat import Ink
from plink.report.words import date, host_costs


def print_picture(network: Network, data: ReportData) -> None:
    """Draw the network: in colour where the terminal has it and NO_COLOR is not set, else in shades."""
    console = Console(highlight=False, markup=False)
    colour = console.is_terminal and console.color_system is not None and not console.no_color
    ascii_only = console.options.ascii_only
    for line in terminal_lines(data, Ink(console.width, colour and not ascii_only, ascii_only)):
        console.print(line, no_wrap=True, overflow="ignore", crop=False)
    if (costs := network.host_costs) is not None:
        console.print(f"\n{host_costs(costs)} ({date(costs.measured_at)})", soft_wrap=True)


def picture_of(network: Network, data: ReportData) -> NetworkPicture:
    """Return the figures."""
    names, route, links = data.names, data.route, data.bandwidths
    return NetworkPicture(
        hosts=len(names),
        measured=data.measured,
        possible=data.possible,
        groups=tuple(tuple(names[host] for host in members) for members in data.groups.members()),
        tiers=tuple(
            TierSpread(
                name=tier.name,
                pairs=tier.pairs,
                measured=tier.measured,
                low_us=_rounded(tier.low_us),
                median_us=_rounded(tier.median_us),
                high_us=_rounded(tier.high_us),
            )
            for tier in data.groups.tiers
        ),
        shared_tiers=tuple(
            SharedTierSummary(groups=len(tier), confidence=confidence)
            for tier, confidence in zip(links.tiers, links.confidences, strict=True)
        ),
        order=None if route is None else tuple(names[host] for host in route.order.tolist()),
        bottleneck=None
        if route is None or (most := route.bottleneck) is None
        else OrderBottleneck(
            kind=most.kind,
            links=tuple(most.resources),
            hosts=tuple(names[host] for host in most.hosts),
            time_us=round(most.time_us, 3),
            cost_us=round(most.cost_us, 3),
        ),
        left_out=tuple(data.left_out),
        suspects=len(data.remarks),
        host_costs=network.host_costs,
        interfaces=data.interfaces or None,
    )


def _rounded(us: float) -> float | None:
    return None if math.isnan(us) else round(us, 3)
