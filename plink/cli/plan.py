"""``plink plan``."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plink.cli.screen import print_json, say
from plink.model.units import format_bytes, format_us, parse_bytes
from plink.records import workspace

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from rich.table import Table

    from plink.model.plan import Groups, Masters, Plan

_MOST_NAMES = 6
_MOST_GROUPS = 40


def plan(
    network_file: Annotated[
        Path | None, typer.Argument(metavar="NETWORK", help="What `plink probe` wrote; default .plink/network.json.")
    ] = None,
    algo: Annotated[str, typer.Option(help="The collective's algorithm: 2lha, ring, nccl-tree, ...")] = "2lha",
    size: Annotated[str, typer.Option(help="Bytes that are reduced (64KB, 100MB).")] = "100MB",
    model: Annotated[str, typer.Option(help="latency, alpha-beta, contention, or auto.")] = "auto",
    order: Annotated[
        Path | None,
        typer.Option(help="An order, or one name a line; default: .plink/order.json if it is of these hosts."),
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
            help="For 2lha: equal parts that the vector is cut into; default: one a rank, 8 with --weights bandwidth."
        ),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="For 2lha: masters in proportion to sizes (the default) or bandwidth.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="An option of the algorithm: --set base=4, --set fan-out=3.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Draws the random groups to compare with.")] = 0,
    denoise: Annotated[
        bool,
        typer.Option("--denoise", help="Take round trips as an embedding fits them; `plink embed` says if it helps."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where to write it, - for standard output; default .plink/plan.json."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Decide all that a job needs: order, groups, who aggregates which chunk, schedule and environment.

    The plan is left in .plink/plan.json. docs/plans.md tells how masters are
    chosen.

    Example: plink plan cloud.json --algo 2lha --size 100MB
    """
    from plink.api.planning import PlanRequest
    from plink.api.planning import plan as make_plan
    from plink.cli.inputs import last_groups, last_order, network_from
    from plink.cli.placement_options import parse_groups_option
    from plink.cli.set_options import parse_set_options
    from plink.model.order import read_order
    from plink.model.storage import STANDARD

    request = PlanRequest(
        algo, parse_bytes(size), model, groups=None if groups is None else 1, chunks=chunks, weights=weights,
        options=parse_set_options(set_ or []), seed=seed, denoise=denoise,
    )  # fmt: skip
    request.check()
    read = (network_file or workspace.NETWORK, order or workspace.ORDER, groups or workspace.GROUPS)
    workspace.check_output(output, None if as_json and network_file is not None else workspace.PLAN, read)
    network = network_from(network_file)
    found = last_order(network) if order is None else read_order(order)
    group_request = None if groups is None else parse_groups_option(groups)
    if group_request is None and algo == "2lha" and (found is None or not found.details.get("groups")):
        group_request = last_groups(network)
    made = make_plan(
        network,
        replace(
            request, order=found, order_from=str(order or workspace.ORDER),
            groups=group_request, groups_from=str(groups or workspace.GROUPS),
        ),
    )  # fmt: skip
    if output is None and not as_json:
        workspace.prepare()
        output = workspace.PLAN
    elif network_file is None:  # the network came from there
        made.write(workspace.PLAN)
    to_file = output is not None and str(output) != STANDARD
    if output is not None:
        made.write(output)
    if as_json and (to_file or output is None):
        print_json(made.to_json())
    _tell(made, on_stderr=as_json or not to_file)
    flat = made.baseline.get("flat")
    if made.algo == "2lha" and flat is not None and made.cost_us is not None and made.cost_us > flat:
        say("flat aggregation (--algo flat) is cheaper here: two levels pay where groups share their way out")
    if made.schedule is None:
        say("the schedule is too large for the file; it is made from the plan when it is needed")
    if to_file:
        say(f"plan -> {output}")


def _tell(made: "Plan", on_stderr: bool) -> None:
    """The plan for people: its price and what it is compared with, then groups and the loads of their masters."""
    from rich.console import Console

    console = Console(stderr=on_stderr, soft_wrap=True, highlight=False)
    cut = "" if made.chunks is None else f" in {made.chunks} chunks"
    where = "" if made.groups is None else f" in {len(made.groups)} groups"
    cost = "" if made.cost_us is None else f": {format_us(made.cost_us)}"
    console.print(
        f"{made.algo}, {made.ranks} ranks{where}, {format_bytes(made.size_bytes)}{cut}, model {made.model}{cost}",
        markup=False,
    )
    names = {
        "flat": "flat aggregation", "given": "hosts as given", "random_groups_median": "median of random groups",
        "masters_by_sizes": "masters by sizes",
    }  # fmt: skip
    if made.baseline:
        compared = ", ".join(f"{names.get(key, key)} {format_us(value)}" for key, value in made.baseline.items())
        console.print(f"compared with: {compared}", markup=False)
    if made.groups is not None and made.masters is not None:
        width = None if console.is_terminal else 120
        Console(stderr=on_stderr, width=width).print(_table(made, made.groups, made.masters))


def _table(made: "Plan", groups: "Groups", masters: "Masters") -> "Table":
    """A group a row: its hosts, chunks that it masters globally and that each rank masters, each beside its share."""
    import numpy as np
    from rich.table import Table

    table = Table(title=f"chunks of masters, in proportion to {masters.weights}", title_justify="left")
    for name, side in (("group", "right"), ("hosts", "left"), ("ranks", "right")):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    for name in ("global (share)", "global a rank (share)", "local a rank (share)"):
        table.add_column(name, justify="right")
    seats = [host.name for host in made.hosts for _ in range(host.slots)]
    total = sum(masters.group_weights)
    globally = np.bincount(masters.global_masters, minlength=made.ranks)
    chunks = len(masters.global_masters)
    for number, group in enumerate(groups[:_MOST_GROUPS]):
        members = np.array(group)
        weights = np.array(masters.rank_weights)[members]
        parts = weights / weights.sum()
        locally = np.bincount(masters.local_masters[:, number], minlength=made.ranks)[members]
        own, share = int(globally[members].sum()), chunks * masters.group_weights[number] / total
        hosts = list(dict.fromkeys(seats[rank] for rank in group))
        shown = " ".join(hosts[:_MOST_NAMES]) + (" ..." if len(hosts) > _MOST_NAMES else "")
        table.add_row(
            str(number), shown, str(len(group)), f"{own} ({share:.3g})",
            f"{_span(globally[members])} ({_span(own * parts)})", f"{_span(locally)} ({_span(chunks * parts)})",
        )  # fmt: skip
    if len(groups) > _MOST_GROUPS:
        table.add_row("...")
    return table


def _span(values: "npt.NDArray[np.intp] | npt.NDArray[np.float64]") -> str:
    """Smallest and largest, one number where they are alike."""
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return low if low == high else f"{low}-{high}"
