"""``plink pipeline`` and its commands."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import plink
from plink.errors import InputError, UsageError
from plink.features.pipeline.assess import measured_timeline
from plink.features.pipeline.request import (
    PipelineProfileRequest,
    PipelineRequest,
    PipelineSimulationRequest,
    PipelineTrainingRequest,
)
from plink.features.pipeline.show import (
    assessment_lines,
    pipeline_timeline,
    plan_lines,
    profile_lines,
    simulation_lines,
    tied_lines,
    timeline_lines,
    training_lines,
)
from plink.model.pipeline.exports import FORMATS, NEEDS_PROFILE, read_pipedream_graph
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.profile import ModelProfile
from plink.model.pipeline.results import TimedAction, chrome_trace
from plink.model.storage import STANDARD, check_writable, name_of, write_document, write_text
from plink.pictures import PAPER, check_picture, write_picture
from plink.records import workspace
from plink.records.runs import run_named
from plink.terminal.inputs import network_from
from plink.terminal.interrupts import deferred_interrupts
from plink.terminal.options import Json, takes
from plink.terminal.screen import print_json, print_lines, print_result, progress, say, say_read, write_result

_MIN_RATIO, _MAX_RATIO = 0.9, 1.1  # sum of layers over the whole model
_PLAN_HELP = "What `plink pipeline plan` wrote; default .plink/pipeline.json."
_PlanFile = Annotated[Path | None, typer.Argument(metavar="PLAN", help=_PLAN_HELP)]
_PlanOption = Annotated[Path | None, typer.Option("--plan", metavar="PLAN", help=_PLAN_HELP)]
_ProfileOption = Annotated[
    Path | None, typer.Option("--profile", metavar="PROFILE", help="The profile; default .plink/profile.json.")
]
_TraceFile = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="Write when ranks did what, for Perfetto or chrome://tracing."),
]
_Output = Annotated[Path | None, typer.Option("-o", "--output", help="Where to write it, - for standard output.")]
_ARGUMENTS_LAST: dict[str, Any] = {"allow_interspersed_args": False}

app = typer.Typer(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})


@app.callback()
def pipeline() -> None:
    """Split a model over hosts as a pipeline: profile it, plan the stages, prove the plan.

    Example: plink pipeline import graph.txt && plink pipeline plan --hosts 4 --gbps 10
    """


@app.command(context_settings=_ARGUMENTS_LAST)
@takes(PipelineProfileRequest)
def profile(
    request: PipelineProfileRequest,
    program: Annotated[
        str, typer.Argument(metavar="PROGRAM", help="A Python file with make(arguments) -> PipelineApp.")
    ],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Arguments of the program.")] = None,
    output: _Output = None,
    as_json: Json = False,
) -> None:
    """Profile a program's layers: seconds of both passes, bytes of parameters, of what crosses and what is kept.

    Each layer runs alone. A model that is no nn.Sequential is traced. Options
    come before PROGRAM.

    Example: plink pipeline profile --minibatches 50 pipeline_mlp.py --width 32
    """
    workspace.check_output(output, None if as_json else workspace.PROFILE, (program,))
    with progress("profiling") as bars:
        made = plink.profile_pipeline(program, arguments or [], request, bars["profiling"])
    ratio = (made.whole and made.whole.layers_over_whole) or 1.0
    if not _MIN_RATIO <= ratio <= _MAX_RATIO:
        say(
            f"warning: the layers alone take {ratio:.2f} of the whole model's time; this machine may be busy, "
            "the layers very short, or a layer's time depend on its neighbours"
        )
    _write_profile(made, output, as_json)


@app.command("import")
def import_graph(
    graph_file: Annotated[Path, typer.Argument(metavar="GRAPH", help="graph.txt of PipeDream's profiler.")],
    minibatch: Annotated[int, typer.Option(min=1, max=1 << 30, help="Items in its minibatch.")] = 64,
    output: _Output = None,
    as_json: Json = False,
) -> None:
    """Import a profile of PipeDream's profiler.

    Example: plink pipeline import graph.txt --minibatch 64
    """
    workspace.check_output(output, None if as_json else workspace.PROFILE, (graph_file,))
    _write_profile(read_pipedream_graph(graph_file, minibatch), output, as_json)


def _write_profile(profile: ModelProfile, output: Path | None, as_json: bool) -> None:
    if not write_result(profile, "profile", workspace.PROFILE, output, as_json):
        print_lines(*profile_lines(profile))


@app.command()
@takes(PipelineRequest)
def plan(
    request: PipelineRequest,
    profile_file: Annotated[
        Path | None, typer.Argument(metavar="PROFILE", help="A profile of layers; default .plink/profile.json.")
    ] = None,
    network_file: Annotated[
        Path | None,
        typer.Option(
            "--network",
            metavar="NETWORK",
            help="Plan for measured hosts: what `plink probe` wrote. --hosts then is a file of those to use.",
            rich_help_panel="Hosts and their network",
        ),
    ] = None,
    output: _Output = None,
    as_json: Json = False,
) -> None:
    """Plan a pipeline: which layers on which workers, how often replicated, how many minibatches in flight.

    The plan is the fastest one that was simulated, for hosts that are alike or,
    with --network, on a measured network. Its actions are proven before it is
    written to .plink/pipeline.json; Ctrl-C leaves the best plan so far. See
    docs/pipelines.md.

    Example: plink pipeline plan profile.json --hosts 16 --levels 4x4 --gbps 80,10
    """
    request.check_network(network_file is not None)
    workspace.check_output(output, None if as_json else workspace.PIPELINE, (profile_file or workspace.PROFILE,))
    profile = _profile_from(profile_file)
    network = None if network_file is None else network_from(network_file)
    for line in tied_lines(profile):
        say(line)
    with deferred_interrupts() as stopped:  # from here on the best plan so far is written, whatever comes
        with progress("planning") as bars:

            def watch(done: int, total: int) -> bool:
                bars["planning"](done, total)
                return stopped()

            made = plink.plan_pipeline(profile, request, network, watch)
        is_printed = write_result(made, "plan", workspace.PIPELINE, output, as_json)
    if not is_printed:
        print_lines(*plan_lines(made))
    if stopped():
        say("interrupted: this is the best plan so far")
        raise KeyboardInterrupt


@app.command()
def show(plan_file: _PlanFile = None, as_json: Json = False) -> None:
    """Show a plan: stages, hosts, delays, what limits it, and the first actions of each rank.

    Example: plink pipeline show pipeline.json
    """
    plan, _ = _plan_from(plan_file)
    print_result(plan, as_json, lambda: print_lines(*plan_lines(plan), *timeline_lines(plan)))


@app.command()
def verify(
    plan_file: _PlanFile = None,
    profile_file: Annotated[
        Path | None, typer.Option("--profile", help="Also check that the plan is of this profile.")
    ] = None,
    minibatches: Annotated[
        int | None,
        typer.Option(min=1, max=100_000, help="Of a job; default: any number, if a proof is known; else two cycles."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Prove a plan, or name the first thing that is wrong with it.

    Every rank ends; every minibatch passes each stage once each way, on the
    replica that its neighbours send to; every pass uses the version that the
    plan says.

    Example: plink pipeline verify pipeline.json
    """
    from plink.features.pipeline.plan import check_profile

    plan, location = _plan_from(plan_file)
    if profile_file is not None:
        check_profile(plan, plink.read_profile(profile_file), location)
    verified = plink.verify_pipeline(plan, minibatches)
    if as_json:
        print_json(verified.to_json())
    elif verified.valid:
        proven = "any number of" if verified.minibatches is None else str(verified.minibatches)
        print_lines(f"correct: {plan.label}, {plan.kind}, {plan.ranks} ranks, proven for {proven} minibatches")
    else:
        print_lines(*verified.errors)
    if not verified.valid:
        raise InputError(location, "its actions are not correct")


@app.command()
@takes(PipelineSimulationRequest)
def simulate(
    request: PipelineSimulationRequest,
    plan_file: _PlanFile = None,
    profile_file: _ProfileOption = None,
    network_file: Annotated[
        Path | None,
        typer.Option("--network", metavar="NETWORK", help="What `plink probe` wrote; default .plink/network.json."),
    ] = None,
    trace: _TraceFile = None,
    beside: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="With --trace: also what the ranks of this run did, or of the `last`."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="Draw the first minibatches, .svg or .png.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulate a plan on a network: seconds per minibatch, and what each rank waits for.

    Ranks do their actions in sequence, as the executor does; their messages
    share links. No formula of the planner is used.

    Example: plink pipeline simulate plan.json --profile profile.json --network measured.json
    """
    if picture is not None:
        check_picture(picture)
    if beside is not None and trace is None:
        raise UsageError(f"--beside {beside[:40]} goes with --trace FILE, which gets both")
    if trace is not None:
        check_writable(trace)
    plan, location = _plan_from(plan_file)
    profile = _profile_from(profile_file)
    measured = {} if beside is None else {"measured": measured_timeline(plan, _run_folder(beside))}
    network = None if network_file is None and request.gbps is not None else network_from(network_file)
    is_drawn = trace is not None or picture is not None
    with progress("simulating") as bars:
        simulated = plink.simulate_pipeline(plan, profile, network, request, is_drawn, bars["simulating"], location)
    if trace is not None:
        _write_trace(trace, plan, {"simulated": simulated.timeline} | measured)
    if picture is not None:
        drawn = pipeline_timeline(plan, simulated.timeline, simulated.document.minibatch_s, PAPER)
        write_picture(drawn, picture)
        say(f"timeline -> {picture}")
    print_result(simulated.document, as_json, lambda: print_lines(*simulation_lines(plan, simulated.document)))


@app.command()
def export(
    plan_file: _PlanFile = None,
    to: Annotated[
        Literal["torch-csv", "torchtitan", "megatron", "deepspeed", "pipedream"],
        typer.Option("--to", help="For which program."),
    ] = "torch-csv",
    profile_file: _ProfileOption = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write it; default: standard output.")
    ] = None,
) -> None:
    """Write a plan for another program: torch's schedules, torchtitan, Megatron-LM, DeepSpeed, PipeDream.

    torch-csv has the passes of each rank, and pipedream all of its runtime's
    configuration; the others take over which layers form a stage.

    Example: plink pipeline export plan.json --to pipedream -o conf.json
    """
    from plink.features.pipeline.plan import check_profile

    if output is not None:
        check_writable(output)
    plan, location = _plan_from(plan_file)
    profile = ModelProfile(minibatch=plan.minibatch, layers=())
    if to in NEEDS_PROFILE:
        profile = _profile_from(profile_file)
        check_profile(plan, profile, location)
    exported = FORMATS[to](plan, profile)
    if exported.note:
        say(exported.note)
    if output is None or str(output) == STANDARD:
        print(exported.text, end="")
    else:
        write_text(output, exported.text)
        say(f"{to} -> {output}")


@app.command()
def assess(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's id, the beginning of it, or `last`.")] = "last",
    plan_file: _PlanOption = None,
    trace: _TraceFile = None,
    as_json: Json = False,
) -> None:
    """Compare what a plan predicted with what a run of it did, and name the assumption that was off.

    Example: plink pipeline assess last
    """
    if trace is not None:
        check_writable(trace)
    folder = _run_folder(run)
    plan, _ = _plan_from(plan_file)
    assessment = plink.assess_pipeline(plan, folder)
    if trace is not None:
        _write_trace(trace, plan, {"measured": measured_timeline(plan, folder)})
    print_result(assessment, as_json, lambda: print_lines(*assessment_lines(assessment)))


@app.command(context_settings=_ARGUMENTS_LAST)
@takes(PipelineTrainingRequest)
def train(
    request: PipelineTrainingRequest,
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help="A .py file that defines make(arguments).")],
    args: Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Arguments of the program.")] = None,
    plan_file: _PlanOption = None,
    as_json: Json = False,
) -> None:
    """Train a plan's pipeline in this process, with the versions and delays it would have on hosts.

    It ends with the same bits as the pipeline where stages have one or two
    replicas, and shows what delays do to learning before hosts are rented.

    Example: plink pipeline train --plan pipeline.json --beside pipeline_mlp.py
    """
    plan, location = _plan_from(plan_file)
    training = plink.train_pipeline(program, plan, args or [], request, location, say)
    print_result(training, as_json, lambda: print_lines(*training_lines(training)))


def _profile_from(path: Path | None) -> ModelProfile:
    """Return the named profile, or the workspace's.

    :raises UsageError: when there is none.
    """
    return plink.read_profile(path or _latest(workspace.PROFILE, "plink pipeline profile PROGRAM"))


def _plan_from(path: Path | None) -> tuple[PipelinePlan, str]:
    """Return the named plan, or the workspace's, and its name for messages.

    :raises UsageError: when there is none.
    """
    path = path or _latest(workspace.PIPELINE, "plink pipeline plan")
    return plink.read_pipeline(path), name_of(path)


def _latest(path: Path, command: str) -> Path:
    workspace.check_trusted()
    if not path.is_file():
        raise UsageError(f"no {path} here yet: run `{command}` first, or name a file")
    say_read(path)
    return path


def _run_folder(run: str) -> Path:
    workspace.check_trusted()
    return run_named(workspace.RUNS, run).folder


def _write_trace(file: Path, plan: PipelinePlan, timelines: dict[str, tuple[TimedAction, ...]]) -> None:
    """Write timelines, by their names, as a trace."""
    write_document(file, chrome_trace(plan, timelines))
    counts = " and ".join(f"{len(timeline)} {name}" for name, timeline in timelines.items())
    say(f"{counts} actions of {plan.ranks} ranks -> {file}")
