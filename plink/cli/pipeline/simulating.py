"""``plink pipeline simulate``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plink.errors import UsageError
from plink.terminal.screen import print_json, print_lines, progress

if TYPE_CHECKING:
    from plink.api.pipeline_simulation import SimulatedPlan

_MAX_RANKS = 32
_SHOWN_LINKS = 3


def simulate(
    plan_file: Annotated[
        Path | None, typer.Argument(metavar="PLAN", help="What `plink pipeline plan` wrote; default that of .plink.")
    ] = None,
    profile_file: Annotated[
        Path | None, typer.Option("--profile", metavar="PROFILE", help="The profile; default .plink/profile.json.")
    ] = None,
    network_file: Annotated[
        Path | None,
        typer.Option("--network", metavar="NETWORK", help="What `plink probe` wrote; default .plink/network.json."),
    ] = None,
    gbps: Annotated[
        float | None,
        typer.Option(min=0.001, max=1e6, help="Without a network, or one without rates: Gbit/s of every host."),
    ] = None,
    minibatches: Annotated[
        int | None, typer.Option(min=2, max=20_000, help="Of the job; default: enough for a steady state.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write a trace for Perfetto or chrome://tracing.")
    ] = None,
    beside: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="With --trace: also what the ranks of this run did, or of the `last`."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="Draw the first minibatches, .svg or .png.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Simulate a plan on a network: seconds per minibatch, and what each rank waits for.

    Ranks do their actions in sequence, as the executor does; their messages
    share links. No formula of the planner is used.

    Example: plink pipeline simulate plan.json --profile profile.json --network measured.json
    """
    from plink.api.pipeline_simulation import PipelineSimulationRequest, simulate_plan
    from plink.api.pipelines import check_profile
    from plink.cli.pipeline.inputs import plan_from, profile_from
    from plink.cli.pipeline.tracing import timeline_of_run, write_trace
    from plink.model.storage import check_writable, name_of
    from plink.terminal.inputs import network_from
    from plink.terminal.pictures import check_picture

    if picture is not None:
        check_picture(picture)
    if beside is not None and trace is None:
        raise UsageError(f"--beside {beside[:40]} goes with --trace FILE, which gets both")
    if trace is not None:
        check_writable(trace)
    plan, path = plan_from(plan_file)
    profile = profile_from(profile_file)
    check_profile(plan, profile, name_of(path))
    measured = None if beside is None else timeline_of_run(beside, plan, path)
    network = gbps if network_file is None and gbps is not None else network_from(network_file)
    request = PipelineSimulationRequest(minibatches, gbps, trace is not None or picture is not None)
    with progress("simulating") as bars:
        simulated = simulate_plan(plan, profile, network, request, bars["simulating"])
    if trace is not None:
        timelines = {"simulated": simulated.result.timeline} | ({} if measured is None else {"measured": measured})
        write_trace(trace, plan, timelines)
    if picture is not None:
        _draw(simulated, picture)
    if as_json:
        print_json(simulated.to_json())
    else:
        print_lines(*_lines(simulated))


def _draw(simulated: "SimulatedPlan", picture: Path) -> None:
    """Draw the timeline into a file."""
    from plink.report.colours import PAPER
    from plink.report.pipeline_timeline import pipeline_timeline
    from plink.terminal.pictures import write_picture
    from plink.terminal.screen import say

    result = simulated.result
    drawn = pipeline_timeline(simulated.plan, result.timeline, result.minibatch_s, PAPER)
    write_picture(drawn, picture)
    say(f"timeline -> {picture}")


def _lines(simulated: "SimulatedPlan") -> list[str]:
    from plink.model.units import format_time

    plan, result, document = simulated.plan, simulated.result, simulated.to_json()
    mean = "" if result.is_periodic else ", a mean"
    lines = [
        f"{plan.label}, {plan.kind}: {format_time(result.minibatch_s)} a minibatch{mean}, "
        f"{document['items_per_s']:,.0f} items/s",
        f"{result.minibatches} minibatches take {format_time(result.makespan_s)}; "
        f"{format_time(result.fill_s)} of it to fill",
        f"limited by: {document['limited_by']}",
    ]
    rows = [("rank", "host", "stage", "busy", "waits for: activations", "gradients", "all-reduce")]
    for rank in document["ranks"][:_MAX_RANKS]:
        shares = ("busy", "waits_for_activations", "waits_for_gradients", "waits_for_all_reduce")
        rows.append((str(rank["rank"]), rank["host"], str(rank["stage"]), *(f"{rank[key]:.0%}" for key in shares)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            text.ljust(width) if k == 1 else text.rjust(width)
            for k, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells))
    if plan.ranks > _MAX_RANKS:
        lines.append(f"... and {plan.ranks - _MAX_RANKS} more ranks")
    links = [f"{name} {used:.0%}" for name, used in result.links[:_SHOWN_LINKS]]
    if links:
        lines.append(f"busiest links: {'; '.join(links)}")
    lines.append(f"rates: {simulated.capacities}")
    return lines
