"""``plink plan``."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plink.errors import PlinkError
from plink.model.units import format_bytes, format_us, parse_bytes
from plink.records import workspace
from plink.terminal.screen import print_json, say

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from rich.table import Table

    from plink.model.network import Network
    from plink.model.plan import Groups, Masters, Plan

_MAX_NAMED_HOSTS = 6
_MAX_GROUPS = 40
_NOT_COMPARED = ("latency", "simulated")  # models: one without sizes, one that takes long for all algorithms
_MAX_COMPARED_HOSTS = 256  # above, all algorithms take longer to compare than a plan to make
_CHEAPER = 0.95  # times the plan's cost: less is worth a line


def plan(
    network_file: Annotated[
        Path | None, typer.Argument(metavar="NETWORK", help="What `plink probe` wrote; default .plink/network.json.")
    ] = None,
    algo: Annotated[str, typer.Option(help="The collective's algorithm: 2lha, ring, nccl-tree, ...")] = "2lha",
    size: Annotated[str, typer.Option(help="Bytes to reduce (64KB, 100MB).")] = "100MB",
    model: Annotated[str, typer.Option(help="Cost model.")] = "auto",
    order: Annotated[
        Path | None,
        typer.Option(help="An order, or one host name per line; default: .plink/order.json if it is for these hosts."),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            help="For 2lha: a file, one group a line, or how many; default: the order's, or those of `plink cluster`."
        ),
    ] = None,
    chunks: Annotated[
        int | None,
        typer.Option(
            help="For 2lha: number of equal chunks of the vector; default: one per rank, 8 with --weights bandwidth."
        ),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="For 2lha: masters in proportion to group sizes (the default) or bandwidth.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="An option of the algorithm: --set base=4, --set fan-out=3.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Draws the random groups to compare with.")] = 0,
    smooth_latencies: Annotated[
        bool,
        typer.Option(
            "--smooth-latencies", help="Smooth round trips by an embedding; `plink embed` shows whether it helps."
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where to write it, - for standard output; default .plink/plan.json."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Plan a job: order, groups, who aggregates which chunk, schedule and environment.

    The plan is written to .plink/plan.json. docs/plans.md explains how masters
    are chosen.

    Example: plink plan cloud.json --algo 2lha --size 100MB
    """
    from plink.api.planning import PlanRequest
    from plink.api.planning import plan as make_plan
    from plink.model.order import read_order
    from plink.model.request import parse_settings
    from plink.model.storage import STANDARD
    from plink.terminal.inputs import last_groups, last_order, network_from, parse_groups_option

    request = PlanRequest(
        algo, parse_bytes(size), model, groups=None if groups is None else 1, chunks=chunks, weights=weights,
        options=parse_settings(set_ or []), seed=seed, smooth_latencies=smooth_latencies,
    )  # fmt: skip
    request.check()
    read = (network_file or workspace.NETWORK, order or workspace.ORDER, groups or workspace.GROUPS)
    workspace.check_output(output, None if as_json and network_file is not None else workspace.PLAN, read)
    network = network_from(network_file)
    rank_order = last_order(network) if order is None else read_order(order)
    group_request = None if groups is None else parse_groups_option(groups)
    if group_request is None and algo == "2lha" and (rank_order is None or not rank_order.groups):
        group_request = last_groups(network)
    job_plan = make_plan(
        network,
        replace(
            request, order=rank_order, order_source=str(order or workspace.ORDER),
            groups=group_request, groups_source=str(groups or workspace.GROUPS),
        ),
    )  # fmt: skip
    if output is None and not as_json:
        workspace.prepare()
        output = workspace.PLAN
    elif network_file is None:  # the network came from there
        job_plan.write(workspace.PLAN)
    to_file = output is not None and str(output) != STANDARD
    if output is not None:
        job_plan.write(output)
    if as_json and (to_file or output is None):
        print_json(job_plan.to_json())
    _print_plan(job_plan, on_stderr=as_json or not to_file)
    if (cheaper := _cheaper_algorithm(network, job_plan)) is not None:
        say(cheaper)
    if job_plan.schedule is None:
        say("the schedule is too large for the file; it is made from the plan when it is needed")
    if to_file:
        say(f"plan -> {output}")


def _cheaper_algorithm(network: "Network", job_plan: "Plan") -> str | None:
    """Return which other algorithm costs less at this size, in the best order that is known for it; None: no other."""
    from plink.api.advising import AdviseRequest, advise

    if job_plan.cost_us is None or job_plan.model in _NOT_COMPARED or len(network.hosts) > _MAX_COMPARED_HOSTS:
        return None
    try:
        advice = advise(network, AdviseRequest(job_plan.size_bytes, job_plan.size_bytes, job_plan.model))
    except PlinkError:
        return None
    best = advice.best(job_plan.size_bytes)
    cost_us = best.at(job_plan.size_bytes)
    if best.algo == job_plan.algo or cost_us > _CHEAPER * job_plan.cost_us:
        return None
    return (
        f"{best.algo} costs {format_us(cost_us)} at this size, this plan {format_us(job_plan.cost_us)}: "
        f"`plink reorder --algo {best.algo}`, then `plink plan --algo {best.algo}`"
    )


def _print_plan(job_plan: "Plan", on_stderr: bool) -> None:
    """Print the plan: its cost against others, then its groups with the loads of their masters."""
    from rich.console import Console

    console = Console(stderr=on_stderr, soft_wrap=True, highlight=False)
    chunks_text = "" if job_plan.chunks is None else f" in {job_plan.chunks} chunks"
    groups_text = "" if job_plan.groups is None else f" in {len(job_plan.groups)} groups"
    cost = "" if job_plan.cost_us is None else f": {format_us(job_plan.cost_us)}"
    console.print(
        f"{job_plan.algo}, {job_plan.ranks} ranks{groups_text}, {format_bytes(job_plan.size_bytes)}{chunks_text}, "
        f"model {job_plan.model}{cost}",
        markup=False,
    )
    names = {
        "flat": "flat aggregation", "given": "hosts as given", "random_groups_median": "median of random groups",
        "masters_by_sizes": "masters by sizes",
    }  # fmt: skip
    if job_plan.baseline:
        compared = ", ".join(f"{names.get(key, key)} {format_us(value)}" for key, value in job_plan.baseline.items())
        console.print(f"compared with: {compared}", markup=False)
    if job_plan.groups is not None and job_plan.masters is not None:
        width = None if console.is_terminal else 120
        Console(stderr=on_stderr, width=width).print(_table(job_plan, job_plan.groups, job_plan.masters))


def _table(job_plan: "Plan", groups: "Groups", masters: "Masters") -> "Table":
    """Return a table with a row per group: hosts, chunks mastered globally and per rank, each beside its share."""
    import numpy as np
    from rich.table import Table

    table = Table(title=f"chunks of masters, in proportion to {masters.weights}", title_justify="left")
    for name, side in (("group", "right"), ("hosts", "left"), ("ranks", "right")):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    for name in ("global (share)", "global a rank (share)", "local a rank (share)"):
        table.add_column(name, justify="right")
    host_of_rank = [host.name for host in job_plan.hosts for _ in range(host.slots)]
    total = sum(masters.group_weights)
    global_counts = np.bincount(masters.global_masters, minlength=job_plan.ranks)
    chunks = len(masters.global_masters)
    for group_number, group in enumerate(groups[:_MAX_GROUPS]):
        members = np.array(group)
        weights = np.array(masters.rank_weights)[members]
        parts = weights / weights.sum()
        local_counts = np.bincount(masters.local_masters[:, group_number], minlength=job_plan.ranks)[members]
        global_chunks, share = int(global_counts[members].sum()), chunks * masters.group_weights[group_number] / total
        hosts = list(dict.fromkeys(host_of_rank[rank] for rank in group))
        names = " ".join(hosts[:_MAX_NAMED_HOSTS]) + (" ..." if len(hosts) > _MAX_NAMED_HOSTS else "")
        table.add_row(
            str(group_number), names, str(len(group)), f"{global_chunks} ({share:.3g})",
            f"{_span(global_counts[members])} ({_span(global_chunks * parts)})",
            f"{_span(local_counts)} ({_span(chunks * parts)})",
        )  # fmt: skip
    if len(groups) > _MAX_GROUPS:
        table.add_row("...")
    return table


def _span(values: "npt.NDArray[np.intp] | npt.NDArray[np.float64]") -> str:
    """Return the smallest and the largest value, one number where they agree."""
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return low if low == high else f"{low}-{high}"
