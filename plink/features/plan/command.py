"""``plink plan``."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import plink
from plink.errors import PlinkError
from plink.features.plan.request import PlanRequest
from plink.features.plan.show import print_plan
from plink.model.storage import STANDARD
from plink.model.units import format_us
from plink.records import workspace
from plink.terminal.inputs import last_groups, last_order, network_from, parse_groups_option
from plink.terminal.options import JobHosts, Json, NetworkFile, takes
from plink.terminal.screen import print_json, say
from solvers.schedules.catalogue import HUB_ALGORITHMS, HUBS

if TYPE_CHECKING:
    from plink.model.network import Network
    from plink.model.plan import Plan

_NOT_COMPARED = ("latency", "simulated")  # models: one without sizes, one that takes long for all algorithms
_MAX_COMPARED_HOSTS = 256  # above, all algorithms take longer to compare than a plan to make
_CHEAPER = 0.95  # times the plan's cost: less is worth a line


@takes(PlanRequest)
def plan(
    request: PlanRequest,
    network_file: NetworkFile = None,
    hosts_file: JobHosts = None,
    order: Annotated[
        Path | None,
        typer.Option(help="An order, or one host name per line; default: .plink/order.json if it is for these hosts."),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            help="For 2lha: a file, one group a line, or how many; default: the order's, those of `plink cluster`, or "
            "those that cost and reorder go by."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where to write it, - for standard output; default .plink/plan.json."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Plan a job: order, groups, who aggregates which chunk, schedule and environment.

    The plan is written to .plink/plan.json. docs/plans.md explains how masters
    are chosen.

    Example: plink plan cloud.json --algo 2lha --size 100MB
    """
    if groups is not None:
        replace(request, groups=1)  # refuses what has none
    read = (network_file or workspace.NETWORK, hosts_file, order or workspace.ORDER, groups or workspace.GROUPS)
    workspace.check_output(output, None if as_json and network_file is not None else workspace.PLAN, read)
    network = network_from(network_file, hosts_file)
    rank_order = last_order(network) if order is None else plink.read_order(order)
    group_request = None if groups is None else parse_groups_option(groups)
    if group_request is None and request.algo == "2lha":
        group_request = last_groups(network, rank_order)
    job_plan = plink.plan(
        network,
        replace(
            request,
            order=rank_order,
            order_source=str(order or workspace.ORDER),
            groups=group_request,
            groups_source=str(groups or workspace.GROUPS),
        ),
    )
    if output is None and not as_json:
        workspace.prepare()
        output = workspace.PLAN
    elif output is None and network_file is None:  # the network came from there
        job_plan.write(workspace.PLAN)
    to_file = output is not None and str(output) != STANDARD
    if output is not None:
        job_plan.write(output)
    if as_json and (to_file or output is None):
        print_json(job_plan.to_json())
    print_plan(job_plan, on_stderr=as_json or not to_file)
    if (cheaper := _cheaper_algorithm(network, job_plan, request.smooth_latencies)) is not None:
        say(cheaper)
    if job_plan.schedule is None:
        say("the schedule is too large for the file; it is made from the plan when it is needed")
    if to_file:
        say(f"plan -> {output}")


def _cheaper_algorithm(network: "Network", job_plan: "Plan", smooth_latencies: bool) -> str | None:
    """Return which other algorithm costs less at this size, in the best order that is known for it; None: no other."""
    if job_plan.cost_us is None or job_plan.model in _NOT_COMPARED or len(network.hosts) > _MAX_COMPARED_HOSTS:
        return None
    advise_log = logging.getLogger("plink.advise")
    level = advise_log.level
    advise_log.setLevel(logging.WARNING)  # its remarks are about a table that is not shown
    try:
        size, model = job_plan.size_bytes, job_plan.model
        advice = plink.advise(network, plink.AdviseRequest(size, size, model, smooth_latencies=smooth_latencies))
    except PlinkError:
        return None
    finally:
        advise_log.setLevel(level)
    best = advice.best(job_plan.size_bytes)
    cost_us = best.at(job_plan.size_bytes)
    if best.algo == job_plan.algo or cost_us >= _CHEAPER * job_plan.cost_us:
        return None
    if best.algo in HUB_ALGORITHMS:
        how = f"`plink launch --backend {best.algo}` (the least possible time is that without role=hub hosts)"
    else:
        reorder = "" if best.algo == HUBS else f"`plink reorder --algo {best.algo}`, then "  # they fit any order
        how = f"{reorder}`plink plan --algo {best.algo}`"
    return f"{best.algo} costs {format_us(cost_us)} at this size, this plan {format_us(job_plan.cost_us)}: {how}"
