"""``plink cluster``."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plink.errors import PartlyDone
from plink.records import workspace
from plink.terminal.results import write_result
from plink.terminal.screen import progress

if TYPE_CHECKING:
    from plink.model.groups import Groups, NamedTier
    from plink.model.network import Network

_MAX_NAMED_HOSTS = 5
_MIN_AGREEMENT = 0.75


def cluster(
    network_file: Annotated[
        Path | None, typer.Argument(metavar="NETWORK", help="What `plink probe` wrote; default .plink/network.json.")
    ] = None,
    groups: Annotated[
        int | None, typer.Option(metavar="K", help="Number of groups; default: the square root of the number of hosts.")
    ] = None,
    elasticity: Annotated[
        float, typer.Option(metavar="E", help="How uneven groups may be: 1 even, 2 from half to twice n/K hosts.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Makes the search reproducible.")] = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write them, - for standard output.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the groups as JSON.")] = False,
) -> None:
    """Cluster hosts near each other into balanced groups for hierarchical aggregation.

    Shows the gain over random groups, how well repeated runs agree, and the
    natural tiers (machines, racks, zones). The result is written to
    .plink/groups.json; see docs/grouping.md.

    Example: plink cluster cloud.json --elasticity 1.5
    """
    from plink.api.clustering import ClusterRequest
    from plink.api.clustering import cluster as make_groups
    from plink.terminal.inputs import network_from

    request = ClusterRequest(groups, elasticity, seed)
    request.check()  # refuse before anything is read
    workspace.check_output(output, None if as_json else workspace.GROUPS, (network_file or workspace.NETWORK,))
    network = network_from(network_file)
    with progress("fitting", "clustering") as bars:
        grouping = make_groups(network, request, progress=lambda what, done, total: bars[what](done, total))
    if not write_result(grouping, "groups", workspace.GROUPS, output, as_json):
        _print(network, grouping)
    if grouping.left_out:
        names = ", ".join(grouping.left_out[:_MAX_NAMED_HOSTS]) + (
            ", ..." if len(grouping.left_out) > _MAX_NAMED_HOSTS else ""
        )
        raise PartlyDone(f"nothing was measured of these hosts, they are left out: {names}")


def _print(network: "Network", grouping: "Groups") -> None:
    from rich.console import Console
    from rich.table import Table

    from plink.model.hostlist import fold_hostlist
    from solvers.grouping.cluster import longest_within

    console = Console()
    table = Table("group", "hosts", "mean", "longest", "members", title="balanced groups", title_justify="left")
    for column in (0, 1, 2, 3):
        table.columns[column].justify = "right"
    index = {name: host for host, name in enumerate(network.hosts.names)}
    for k, names in enumerate(grouping.groups, 1):
        mean, longest = longest_within(network.rtt_us, [index[name] for name in names])
        table.add_row(str(k), str(len(names)), _us(mean), _us(longest), fold_hostlist(names, " "))
    # Off a terminal nothing is cut: a program or a file has no width.
    width = max(len(fold_hostlist(names, " ")) for names in grouping.groups) + 50
    (console if console.is_terminal else Console(width=max(80, width))).print(table)
    print("\n".join(_lines(grouping)))


def _lines(grouping: "Groups") -> list[str]:
    lines = []
    if grouping.cohesion_us is not None:
        lines.append(
            f"mean round trip within groups {_us(grouping.cohesion_us)}, across {_us(grouping.across_us)}; "
            f"within balanced random groups {_us(grouping.random['cohesion_us'])}"
        )
    if grouping.runs > 1:
        caveat = "" if grouping.ami >= _MIN_AGREEMENT else "; other groups would be about as good"
        lines.append(f"{grouping.runs} searches agree by {grouping.ami:.2f} (adjusted mutual information){caveat}")
    random_cohesion = grouping.random["cohesion_us"]
    if len(grouping.groups) > 1 and None not in (random_cohesion, grouping.cohesion_us) and not grouping.tiers:
        lines.append("these groups may be noise: no tier confirms them")
    return [*lines, *([_tier(tier) for tier in grouping.tiers] or ["no tier stands out"])]


def _tier(tier: "NamedTier") -> str:
    sizes = sorted(len(group) for group in tier.groups)
    span = f"{sizes[0]}" if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
    return (
        f"tier: {len(tier.groups)} groups of {span} hosts, {_us(tier.within_us)} within, {_us(tier.next_us)} to the "
        f"next; confidence {tier.confidence:.2f}"
    )


def _us(value: float | None) -> str:
    from plink.model.units import format_us

    return "-" if value is None or not math.isfinite(value) else format_us(value)
