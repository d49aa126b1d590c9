"""``plink pipeline profile`` and ``plink pipeline import``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plink.records import workspace
from plink.terminal.results import write_result
from plink.terminal.screen import progress, say

if TYPE_CHECKING:
    from plink.model.pipeline.profile import ModelProfile

_MIN_RATIO, _MAX_RATIO = 0.9, 1.1  # sum of layers over the whole model
_Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="Where to write the profile, - for standard output.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print the profile as JSON.")]


def profile(
    program: Annotated[
        str, typer.Argument(metavar="PROGRAM", help="A Python file with make(arguments) -> PipelineApp.")
    ],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Arguments of the program.")] = None,
    minibatches: Annotated[int, typer.Option(min=1, max=100_000, help="How many to measure.")] = 100,
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Threads of PyTorch.")] = 1,
    output: _Output = None,
    as_json: _Json = False,
) -> None:
    """Profile a program's layers: seconds of both passes, bytes of parameters, of what crosses and what is kept.

    Each layer runs alone. A model that is no nn.Sequential is traced. Options
    come before PROGRAM.

    Example: plink pipeline profile --minibatches 50 pipeline_mlp.py --width 32
    """
    workspace.check_output(output, None if as_json else workspace.PROFILE, (program,))
    import dataclasses

    import torch

    from plink.runtime.pipeline.app import load_pipeline_app
    from plink.runtime.pipeline.evaluation import check_evaluation
    from plink.runtime.pipeline.parts import build_model, tied_parameters
    from plink.runtime.pipeline.profiler import ProfiledProgram, consistent_profile

    torch.set_num_threads(threads)
    app = load_pipeline_app(program, arguments or [])
    cut = build_model(app)
    check_evaluation(app, cut)
    request = ProfiledProgram(cut.units, app.batch, app.loss, app.optimiser, tied_parameters(cut), app.device, app.seed)
    with progress("profiling") as bars:
        made = consistent_profile(request, minibatches, bars["profiling"])
    details = {"program": program, "arguments": list(arguments or []), **made.details, "method": cut.method}
    ratio = details["whole"]["layers_over_whole"]
    if not _MIN_RATIO <= ratio <= _MAX_RATIO:
        say(
            f"warning: the layers alone take {ratio:.2f} of the whole model's time; this machine may be busy, "
            "the layers very short, or a layer's time depend on its neighbours"
        )
    write_profile(dataclasses.replace(made, details=details), output, as_json)


def import_graph(
    graph_file: Annotated[Path, typer.Argument(metavar="GRAPH", help="graph.txt of PipeDream's profiler.")],
    minibatch: Annotated[int, typer.Option(min=1, max=1 << 30, help="Items in its minibatch.")] = 64,
    output: _Output = None,
    as_json: _Json = False,
) -> None:
    """Import a profile of PipeDream's profiler.

    Example: plink pipeline import graph.txt --minibatch 64
    """
    from plink.model.pipeline.pipedream_graph import read_pipedream_graph

    workspace.check_output(output, None if as_json else workspace.PROFILE, (graph_file,))
    write_profile(read_pipedream_graph(graph_file, minibatch), output, as_json)


def write_profile(profile: "ModelProfile", output: Path | None, as_json: bool) -> None:
    """Write a profile where it goes, and print what matters of it."""
    from plink.model.units import format_bytes, format_time

    if write_result(profile, "profile", workspace.PROFILE, output, as_json):
        return
    longest = max(profile.layers, key=lambda layer: layer.compute_s)
    print(
        f"{len(profile.layers)} layer{'s' * (len(profile.layers) != 1)}, {format_time(profile.compute_s)} a minibatch, "
        f"{format_bytes(profile.parameter_bytes)} of parameters; "
        f"longest: {' '.join(filter(None, (longest.name, longest.kind)))}, {format_time(longest.compute_s)}"
    )
