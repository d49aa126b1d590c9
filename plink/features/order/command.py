"""``plink reorder``."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plink.errors import UsageError
from plink.features.order.request import OrderRequest
from plink.records import workspace
from plink.terminal.interrupts import deferred_interrupts
from plink.terminal.options import NetworkFile, takes
from plink.terminal.screen import say, search_status

if TYPE_CHECKING:
    from plink.features.order.search import Solved
    from plink.model.network import Network
    from plink.model.order import RankOrder

_PARTLY_DONE_CODE = 3
_MAX_GAP = 1.0  # a bound that is further off says nothing
_HOSTS, _OUTPUT = "Hosts and constraints", "Output"


@takes(OrderRequest)
def reorder(
    request: OrderRequest,
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
            metavar="LABEL,...", help="Labels of Kubernetes' nodes that are the levels, outermost first.",
            rich_help_panel=_HOSTS,
        ),
    ] = None,
    hosts_file: Annotated[
        Path | None,
        typer.Option("--hosts", help="With --topology: hosts to order; default: all in it.", rich_help_panel=_HOSTS),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option("--format", help="What to write; default: order; see docs/launchers.md.", rich_help_panel=_OUTPUT),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output",
            help="Where to write it, - for standard output, the default with --format; else .plink/order.json.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the order as JSON.", rich_help_panel=_OUTPUT)] = False,
) -> None:  # fmt: skip
    """Find the rank order that is cheapest for a collective on the measured network.

    The order is written to .plink/order.json, with --format or -o as a file for
    a launcher. An order fitted to one half of the samples is validated on
    the other: a gain within noise keeps the given order. See docs/orders.md.

    Example: plink reorder cloud.json --algo ring --format openmpi -o hostfile
    """
    from plink.terminal.inputs import network_from, parse_groups_option, parse_labels
    from runners.hostfiles import command, format_named, render

    chosen = format_named(format or "order").name
    if as_json and format not in (None, "order"):
        raise UsageError("--json prints the order itself; omit --format, or give one of the two")
    topology, prior = topology or [], prior or []
    if topology and (network_file is not None or prior):
        raise UsageError("--topology replaces a network; omit NETWORK and --prior, or give the file as --prior")
    if hosts_file is not None and not topology:
        raise UsageError("--hosts goes with --topology; the hosts of a network are its own")
    if request.smooth_latencies and topology:
        raise UsageError("--smooth-latencies goes with measured round trips; those of --topology are assumed")
    if labels is not None and not (topology or prior):
        raise UsageError("--labels goes with --topology or --prior, whose Kubernetes nodes have them")
    network_read = None if topology else network_file or workspace.NETWORK
    from_workspace = network_file is None and not topology  # the order is that of the network that was probed here
    default_target = workspace.ORDER if output is None and format is None and not as_json else None
    workspace.check_output(
        output, default_target, (network_read, hosts_file, groups, *topology, *prior),
        written=workspace.ORDER if from_workspace and chosen != "order" else None,
    )  # fmt: skip
    if from_workspace:
        workspace.check_output(None, workspace.ORDER)
    from plink.model.order import RankOrder
    from plink.model.storage import STANDARD, name_of, write_text
    from plink.model.topology import read_topology

    label_names = parse_labels(labels)
    network = _assumed(topology, hosts_file, label_names) if topology else network_from(network_file)
    render(
        chosen, network.hosts, RankOrder(algo="given", hosts=tuple(network.hosts.ranked().names))
    )  # refused before a search, not after
    order_request = replace(
        request,
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
                order.write(workspace.ORDER)
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


@dataclass(frozen=True)
class SearchOutcome:
    """Outcome of a search. ``lines``: its summary; ``complete``: False where a requested proof is missing,
    or the order needs pairs that were not measured; ``interrupted``: the search was stopped early."""

    order: "RankOrder"
    lines: list[str]
    complete: bool = True
    interrupted: bool = False


def search_with_status(network: "Network", request: OrderRequest, stopped: Callable[[], bool]) -> SearchOutcome:
    """Search the order to launch and show the search's status on a terminal.

    :raises PlinkError: as :func:`plink.features.order.run.reorder`.
    """
    from plink.features.order.interfaces import interface_warnings
    from plink.features.order.run import find_order

    warnings = interface_warnings(network)  # invalid interfaces are refused before a search, not after
    with search_status() as show:
        order, solved = find_order(network, request, show, stopped)
    if solved is None:
        return SearchOutcome(order, [f"{request.algo} of a single host: there is nothing to order"])
    proven = solved.result.is_optimal or solved.proven_by_rounds
    complete = (not request.prove or proven) and not solved.needs_unmeasured
    return SearchOutcome(order, [*_summary(solved), *warnings], complete, solved.interrupted)


def _summary(solved: "Solved") -> list[str]:
    """Return the lines of a summary: costs and bound, notes, then the gain against the noise."""
    from plink.features.order.run import OBJECTIVE_TEXT
    from plink.model.units import format_us

    task, result = solved.task, solved.result
    costs = [format_us(cost) for cost in (result.baseline_cost, result.cost, result.random_median)]
    line = (
        f"{task.algo} of {len(task.hosts)} hosts, {OBJECTIVE_TEXT.get(result.objective, f'model {task.model}')}: "
        f"given {costs[0]}, found {costs[1]}, median of random orders {costs[2]}"
    )
    if result.lower_bound is not None and (result.lower_bound > 0 or result.cost == 0):
        of = " of measured pairs" if solved.sparse else ""
        bound = format_us(result.lower_bound)
        line += (
            f"; estimated bound {bound}, from predicted pairs"
            if solved.estimated
            else f"; no order{of} costs less than {bound}"
        )
        if not solved.estimated and result.is_optimal:
            line += " (optimal)"
        elif not solved.estimated and bound != costs[1] and result.gap is not None and result.gap <= _MAX_GAP:
            line += f" (found is at most {result.gap:.2%} above the best)"
    lines = [line, *solved.notes]
    validation = solved.validation
    if validation is not None and solved.changed and (validation.gain or validation.predicted):
        interval = "{:.1%} to {:.1%}".format(*validation.interval)
        cost = OBJECTIVE_TEXT.get(result.objective, "predicted time")
        share = f"{validation.gain:.1%} ({interval}) of the {cost}"
        gain_text = f"found by half of the measurements and checked on the other it saves {share}"
        if not validation.is_significant:
            gain_text += ": within the noise"
            if solved.baseline_kept:
                gain_text += ", so the given order is kept (--force takes the found one)"
            elif solved.baseline_problem is not None:
                gain_text += f"; the given order is not kept, for {solved.baseline_problem}"
        lines.append(gain_text)
    return lines


def save_order(order: "RankOrder") -> None:
    """Write the order where `plink launch` finds it, and say so."""
    workspace.prepare()
    order.write(workspace.ORDER)
    say(f"order -> {workspace.ORDER}")


def _assumed(topology: Sequence[Path], hosts_file: Path | None, labels: Sequence[str]) -> "Network":
    from plink.model.hosts import read_hosts
    from plink.model.topology import read_topology
    from solvers.prediction.topology import assumed_network

    hosts = None if hosts_file is None else read_hosts(hosts_file)
    assumed = assumed_network(read_topology(*topology, hosts=hosts, labels=labels), hosts)
    say(f"round trips are assumed from {assumed.location}, none was measured; only their order counts")
    say("capacities of shared links are not in it; `plink probe` measures them")
    return assumed
