"""``plink reorder``."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plink.cli.interrupts import noted
from plink.cli.screen import say, searching
from plink.errors import UsageError
from plink.records import workspace

if TYPE_CHECKING:
    from plink.api.ordering import OrderRequest
    from plink.model.network import Network
    from plink.model.order import RankOrder

# As in runners/hostfiles, which is imported only where it is used.
_FORMATS = (
    *("order", "hosts", "openmpi", "openmpi-rankfile", "mpich", "slurm"),
    *("torchrun", "torchrun-env", "deepspeed", "horovod", "lightgbm", "kubernetes"),
)
_PARTLY = 3


_WHAT, _WHERE, _SEARCH, _WRITTEN = (
    "What the order is for", "Where hosts are, and may be", "The search", "What is written",
)  # fmt: skip


def reorder(
    network_file: Annotated[
        Path | None, typer.Argument(metavar="NETWORK", help="What `plink probe` wrote; default .plink/network.json.")
    ] = None,
    algo: Annotated[
        str,
        typer.Option(help="The collective's algorithm, or what a library runs (gloo, ...).", rich_help_panel=_WHAT),
    ] = "ring",
    size: Annotated[
        str,
        typer.Option(
            help="Bytes that are reduced (64KB, 100MB); the model latency knows no sizes.", rich_help_panel=_WHAT
        ),
    ] = "100MB",
    model: Annotated[
        str, typer.Option(help="latency, alpha-beta, contention, or auto.", rich_help_panel=_WHAT)
    ] = "auto",
    objective: Annotated[
        str,
        typer.Option(
            help="For rings: sum of the round trips, or bottleneck: the longest first, the sum second.",
            rich_help_panel=_WHAT,
        ),
    ] = "auto",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="An option of the algorithm: --set base=4, --set fan-out=3.", rich_help_panel=_WHAT
        ),
    ] = None,
    pin: Annotated[
        list[str] | None,
        typer.Option("--pin", metavar="HOST=RANK", help="A host whose first rank is given.", rich_help_panel=_WHERE),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            help="Hosts kept together: a file, one group a line, or how many groups to form of near hosts.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    prior: Annotated[
        Path | None,
        typer.Option(
            help="A topology file: how near hosts are that were not measured; docs/topology.md.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    topology: Annotated[
        Path | None,
        typer.Option(
            help="A topology file instead of a network: an order without probing.", rich_help_panel=_WHERE
        ),
    ] = None,
    hosts_file: Annotated[
        Path | None,
        typer.Option(
            "--hosts", help="With --topology: the hosts to order; default: all in it.", rich_help_panel=_WHERE
        ),
    ] = None,
    denoise: Annotated[
        bool,
        typer.Option(
            "--denoise", help="Take round trips as an embedding fits them; `plink embed` says if it helps.",
            rich_help_panel=_WHERE,
        ),
    ] = False,
    time_limit: Annotated[
        float | None,
        typer.Option(
            min=0, max=1e6, help="Seconds to search; default: until nothing comes of it, 10 at most.",
            rich_help_panel=_SEARCH,
        ),
    ] = None,
    moves: Annotated[
        int | None,
        typer.Option(
            min=1, max=10**12, help="Moves to try, instead of a time: reproducible.", rich_help_panel=_SEARCH
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Makes the search reproducible.", rich_help_panel=_SEARCH)
    ] = 0,
    prove: Annotated[
        bool,
        typer.Option(
            "--prove", help="Go on with exact methods; exit code 3 when there is no proof in the end.",
            rich_help_panel=_SEARCH,
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Take the order that was found even if its gain is within the noise.",
            rich_help_panel=_SEARCH,
        ),
    ] = False,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help=f"What to write: {', '.join(_FORMATS)}; default: order; see docs/launchers.md.",
            rich_help_panel=_WRITTEN,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output",
            help="Where to write it, - for standard output, the default with --format; else .plink/order.json.",
            rich_help_panel=_WRITTEN,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the order as JSON.", rich_help_panel=_WRITTEN)
    ] = False,
) -> None:  # fmt: skip
    """Find the rank order that is cheapest for a collective on the measured network.

    The order is left in .plink/order.json; with --format or -o it is written
    as a file for a launcher. It is fitted on one half of the samples and
    judged on the other: where it saves no more than noise the given order
    stays. docs/orders.md tells more.

    Example: plink reorder cloud.json --algo ring --format openmpi -o hostfile
    """
    from plink.api.ordering import OrderRequest
    from plink.cli.placement_options import parse_groups_option, parse_pins
    from plink.cli.set_options import parse_set_options
    from plink.model.units import parse_bytes
    from runners.hostfiles import command, format_named, render

    request = OrderRequest(
        algo, parse_bytes(size), model, parse_set_options(set_ or []), objective, time_limit_s=time_limit, moves=moves,
        seed=seed, prove=prove, force=force, denoise=denoise,
    )  # fmt: skip
    request.check()
    chosen = format_named(format or "order").name
    if as_json and format not in (None, "order"):
        raise UsageError("--json prints the order itself; leave --format away or give one of the two")
    if topology is not None and (network_file is not None or prior is not None):
        raise UsageError("--topology stands for a network; leave NETWORK and --prior away, or give it as --prior")
    if hosts_file is not None and topology is None:
        raise UsageError("--hosts goes with --topology; the hosts of a network are its own")
    if denoise and topology is not None:
        raise UsageError("--denoise goes with measured round trips; those of --topology are assumed")
    network_read = None if topology is not None else network_file or workspace.NETWORK
    here = network_file is None and topology is None  # the order is that of the network that was probed here
    kept = workspace.ORDER if output is None and format is None and not as_json else None
    workspace.check_output(
        output, kept, (network_read, topology, prior, hosts_file, groups),
        written=workspace.ORDER if here and chosen != "order" else None,
    )  # fmt: skip
    if here:
        workspace.check_output(None, workspace.ORDER)
    from plink.model.order import RankOrder
    from plink.model.storage import STANDARD, name_of, write_text
    from plink.model.topology import read_topology

    network = _network(network_file, topology, hosts_file)
    render(chosen, network.hosts, RankOrder("given", tuple(network.hosts.names)))  # refused before a search, not after
    wanted = replace(
        request,
        pins=parse_pins(pin or (), network.hosts.names[0]),
        groups=None if groups is None else parse_groups_option(groups),
        groups_from="groups" if groups is None else name_of(groups),
        prior=None if prior is None else read_topology(prior),
    )
    with noted() as stopped:  # from here on what was found so far is written, whatever comes
        found = search_shown(network, wanted, stopped)
        order = found.order
        if output is None and format is None and not as_json:
            keep(order)
        else:
            text = render(chosen, order.arrange(network.hosts, "order"), order)
            write_text(output or STANDARD, text)
            if as_json and output is not None and str(output) != STANDARD:
                write_text(STANDARD, text)
            if here:
                order.write(workspace.ORDER)
    for line in found.lines:
        say(line)
    if format is not None and output is not None and str(output) != STANDARD:
        use = command(format, shlex.quote(str(output)), network.hosts)
        if use is not None:
            say(f"use it: {use}")
    if found.interrupted:
        say("interrupted: this is the best order so far, of a search that did not come to its end")
    if stopped():
        raise KeyboardInterrupt
    if not found.complete:
        raise typer.Exit(_PARTLY)


@dataclass(frozen=True)
class Searched:
    """``lines``: what there is to say of it; ``complete``: not without a proof that was asked for; ``interrupted``: the
    search was stopped before its end."""

    order: "RankOrder"
    lines: list[str]
    complete: bool = True
    interrupted: bool = False


def search_shown(network: "Network", wanted: "OrderRequest", stopped: Callable[[], bool]) -> Searched:
    """The order to launch; how the search stands is shown on a terminal.

    :raises PlinkError: as :func:`plink.api.reordering.reorder`.
    """
    from plink.api.ordering import check_alone, solve
    from plink.api.reordering import order_of, order_of_one
    from plink.cli.order_report import summary
    from solvers.ordering.exact import is_optimal

    if len(network.hosts) == 1:
        check_alone(network, wanted)
        return Searched(order_of_one(network, wanted), [f"{wanted.algo} of a single host: there is nothing to order"])
    with searching() as show:
        solved = solve(network, wanted, show, stopped)
    complete = not wanted.prove or is_optimal(solved.found)
    return Searched(order_of(network, solved, wanted), summary(solved), complete, solved.interrupted)


def keep(order: "RankOrder") -> None:
    """Where `plink launch` finds it; says so."""
    workspace.prepare()
    order.write(workspace.ORDER)
    say(f"order -> {workspace.ORDER}")


def _network(network_file: Path | None, topology: Path | None, hosts_file: Path | None) -> "Network":
    from plink.cli.inputs import network_from

    if topology is None:
        network: Network = network_from(network_file)
        return network
    from plink.model.hosts import read_hosts
    from plink.model.topology import read_topology
    from solvers.prediction.topology import assumed_network

    assumed = assumed_network(read_topology(topology), None if hosts_file is None else read_hosts(hosts_file))
    say(f"round trips are assumed from {topology}, none was measured; only their order counts")
    return assumed
