"""``plink pipeline plan``."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from plink.errors import UsageError
from plink.records import workspace
from plink.terminal.interrupts import deferred_interrupts
from plink.terminal.results import write_result
from plink.terminal.screen import print_lines, progress, say

if TYPE_CHECKING:
    from plink.model.pipeline.plan import PipelinePlan
    from plink.model.pipeline.profile import ModelProfile
    from solvers.pipeline.joint_search import Watch

_NETWORK_PANEL, _TRAINING_PANEL = "Hosts and their network", "How they train"


def plan(
    profile_file: Annotated[
        Path | None,
        typer.Argument(metavar="PROFILE", help="A profile of layers; default .plink/profile.json."),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="How many hosts with one worker each, or a hosts file.", rich_help_panel=_NETWORK_PANEL
        ),
    ] = None,
    gbps: Annotated[
        str | None,
        typer.Option(
            metavar="R,...",
            help="Gbit/s of a worker's link; of each level, innermost first.",
            rich_help_panel=_NETWORK_PANEL,
        ),
    ] = None,
    levels: Annotated[
        str | None,
        typer.Option(
            metavar="NxN", help="Workers per machine, machines per rack, ...: 4x4.", rich_help_panel=_NETWORK_PANEL
        ),
    ] = None,
    local_gbps: Annotated[
        float | None,
        typer.Option(
            min=0.001, help="Gbit/s between slots of one host; default: no limit.", rich_help_panel=_NETWORK_PANEL
        ),
    ] = None,
    rtt: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Round trip between hosts: 0.5ms.", rich_help_panel=_NETWORK_PANEL),
    ] = None,
    network_file: Annotated[
        Path | None,
        typer.Option(
            "--network",
            metavar="NETWORK",
            help="Plan for measured hosts: what `plink probe` wrote. --hosts then is a file of those to use.",
            rich_help_panel=_NETWORK_PANEL,
        ),
    ] = None,
    memory: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[HOST=]SIZE",
            help="Memory of every host, or of one; repeatable: 14GiB, node-3=6GiB.",
            rich_help_panel=_NETWORK_PANEL,
        ),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Also simulate other ways to train, and the given order.")
    ] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the search; default 0.")] = None,
    max_moves: Annotated[
        int | None,
        typer.Option(min=1, max=100_000_000, help="Of the search, where not everything can be tried; default 60,000."),
    ] = None,
    kind: Annotated[
        Literal["auto", "1f1b", "2bw", "1f1b-flush", "gpipe", "data-parallel", "model-parallel"],
        typer.Option(help="When minibatches are processed and parameters updated.", rich_help_panel=_TRAINING_PANEL),
    ] = "auto",
    model: Annotated[
        Literal["contention", "thesis"] | None,
        typer.Option(
            help="Of hosts that are alike: the fastest plan of those simulated, or the stages of the thesis's formulas "
            "as printed. Default: contention."
        ),
    ] = None,
    stages: Annotated[
        str | None, typer.Option(metavar="STAGES", help="The stages themselves, with replicas: 0-30x15,31-39x1.")
    ] = None,
    straight: Annotated[bool, typer.Option("--straight", help="One worker per stage.")] = False,
    all_workers: Annotated[
        bool,
        typer.Option(
            "--all-workers", help="Leave no worker idle, even where that is slower.", rich_help_panel=_NETWORK_PANEL
        ),
    ] = False,
    depth: Annotated[
        str,
        typer.Option(
            metavar="[auto|noam|N,...]",
            help="Minibatches in flight per replica of each stage; auto: as the network needs; noam: the thesis's.",
            rich_help_panel=_TRAINING_PANEL,
        ),
    ] = "auto",
    microbatches: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="M",
            help="For 2bw, 1f1b-flush, gpipe: minibatches per update.",
            rich_help_panel=_TRAINING_PANEL,
        ),
    ] = None,
    vertical_sync: Annotated[
        bool,
        typer.Option(
            "--vertical-sync", help="A minibatch uses the same version at every stage.", rich_help_panel=_TRAINING_PANEL
        ),
    ] = False,
    reduce: Annotated[
        Literal["wait", "late"],
        typer.Option(help="Whether the next forward pass waits for the all-reduce.", rich_help_panel=_TRAINING_PANEL),
    ] = "wait",
    recompute: Annotated[
        bool,
        typer.Option(
            "--recompute", help="Compute activations again instead of keeping them.", rich_help_panel=_TRAINING_PANEL
        ),
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write the plan, - for standard output.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Plan a pipeline: which layers on which workers, how often replicated, how many minibatches in flight.

    The plan is the fastest one that was simulated, for hosts that are alike or,
    with --network, on a measured network. With another --model it is the best
    one by that. Its actions are proven before it is written to
    .plink/pipeline.json; Ctrl-C leaves the best plan so far. See
    docs/pipelines.md.

    Example: plink pipeline plan profile.json --hosts 16 --levels 4x4 --gbps 80,10
    """
    if network_file is not None:
        _refuse_even_options({"--levels": levels, "--local-gbps": local_gbps, "--rtt": rtt, "--model": model})
    if network_file is None and (hosts is None or gbps is None):
        raise UsageError(
            "--hosts and --gbps are missing: plink pipeline plan --hosts 4 --gbps 10, "
            "or --network FILE for measured hosts"
        )
    workspace.check_output(output, None if as_json else workspace.PIPELINE, (profile_file or workspace.PROFILE,))
    from plink.api.pipeline_search import SearchOptions
    from plink.api.pipeline_training import TrainingRequest
    from plink.api.pipelines import EvenNetworkRequest, PipelineRequest, plan_pipeline
    from plink.cli.pipeline.inputs import profile_from
    from plink.cli.pipeline.report import plan_lines

    search = SearchOptions(memory or (), compare, seed, max_moves)
    training = TrainingRequest(
        kind, stages, depth, microbatches, vertical_sync, reduce, straight, all_workers, recompute
    )
    if network_file is not None:
        profile = profile_from(profile_file)
        options: dict[str, Any] = {
            "hosts": hosts, "gbps": gbps, "training": training, "search": search,
        }  # fmt: skip
        planner = partial(_plan_measured, profile, network_file, options)
    else:
        assert hosts is not None
        assert gbps is not None
        request = PipelineRequest(EvenNetworkRequest(hosts, gbps, levels, local_gbps, rtt), training, model, search)
        request.check()  # refuse before anything is read
        profile = profile_from(profile_file)
        planner = partial(plan_pipeline, profile, request)
    with deferred_interrupts() as stopped:  # from here on the best plan so far is written, whatever comes
        with progress("planning") as bars:

            def watch(done: int, total: int) -> bool:
                bars["planning"](done, total)
                return stopped()

            made = planner(watch)
        is_printed = write_result(made, "plan", workspace.PIPELINE, output, as_json)
    if not is_printed:
        print_lines(*plan_lines(made))
    if stopped():
        say("interrupted: this is the best plan so far")
        raise KeyboardInterrupt


def _refuse_even_options(options: Mapping[str, Any]) -> None:
    """Refuse options of hosts that are alike; ``options``: by name, None where it was not set.

    :raises UsageError: naming the option.
    """
    misplaced = [name for name, value in options.items() if value is not None]
    if misplaced:
        raise UsageError(f"{misplaced[0]} is for hosts that are alike; omit it with --network")


def _plan_measured(
    profile: "ModelProfile", network_file: Path, options: Mapping[str, Any], watch: "Watch"
) -> "PipelinePlan":
    """Return the plan; ``options``: by the request's names, ``hosts`` a file and ``gbps`` text."""
    from plink.api.pipeline_placement import MeasuredPipelineRequest, plan_on_network
    from plink.model.hosts import read_hosts
    from plink.model.network import read_network

    gbps = options["gbps"]
    try:
        rate = None if gbps is None else float(gbps)
    except ValueError:
        rate = 0.0
    if rate is not None and not 0 < rate < 1e7:
        raise UsageError(
            f"--gbps {gbps[:40]}: with --network, one rate in Gbit/s, for hosts whose rates nobody measured"
        )
    hosts = options["hosts"]
    request = MeasuredPipelineRequest(
        **{**options, "gbps": rate, "hosts": None if hosts is None else read_hosts(Path(hosts)).ranked()}
    )
    request.check()
    return plan_on_network(profile, read_network(network_file), request, watch)
