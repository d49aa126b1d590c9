"""``plink pipeline train``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plink.terminal.screen import print_json, say

if TYPE_CHECKING:
    from plink.model.pipeline.plan import PipelinePlan

_ROWS = 10


def train(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help="A .py file that defines make(arguments).")],
    args: Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Arguments of the program.")] = None,
    plan_file: Annotated[
        Path | None, typer.Option("--plan", metavar="PLAN", help="The plan; default .plink/pipeline.json.")
    ] = None,
    minibatches: Annotated[int | None, typer.Option(min=1, help="Train fewer minibatches, or more.")] = None,
    beside: Annotated[bool, typer.Option("--beside", help="Also train without delays, for comparison.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of PyTorch; default: its own.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the losses as JSON.")] = False,
) -> None:
    """Train a plan's pipeline in this process, with the versions and delays it would have on hosts.

    It ends with the same bits as the pipeline where stages have one or two
    replicas, and shows what delays do to learning before hosts are rented.

    Example: plink pipeline train --plan pipeline.json --beside pipeline_mlp.py
    """
    import torch

    from plink.cli.pipeline.inputs import plan_from
    from plink.model.storage import name_of
    from plink.runtime.pipeline.app import load_pipeline_app
    from plink.runtime.pipeline.evaluation import summary
    from plink.runtime.pipeline.job import PipelineProgram
    from plink.runtime.pipeline.one_process import train_in_one_process

    plan, path = plan_from(plan_file)
    if threads is not None:
        torch.set_num_threads(threads)

    def losses_of(plan: "PipelinePlan", label: str) -> list[float]:
        app = load_pipeline_app(program, args or [])
        app.minibatches = minibatches or app.minibatches
        say(f"{label}: {app.minibatches} minibatches")
        losses: dict[int, float] = {}
        results = train_in_one_process(PipelineProgram(app, Path(program)), plan, name_of(path), losses.__setitem__)
        for result in results:
            for trained, metrics in result.evaluations.items() if result.replica == 0 else ():
                say(f"{label}, {summary(trained, metrics)}")
        return [losses[number] for number in sorted(losses)]

    own = losses_of(plan, f"{plan.label}, {plan.kind}")
    other = losses_of(_without_delays(plan), "sequential") if beside else None
    if as_json:
        print_json(
            {
                "schema": "plink.pipeline-training/1", "program": program, "kind": plan.kind,
                "replicas": list(plan.replicas), "minibatches": len(own), "losses": own, "sequential": other,
            }
        )  # fmt: skip
        return
    print("minibatches", "pipeline", *(["sequential"] if other else []), sep="  ")
    for first, last in _ranges(len(own)):
        means = [sum(losses[first : last + 1]) / (last + 1 - first) for losses in (own, other) if losses]
        columns = [f"{mean:>{width}.5g}" for mean, width in zip(means, (8, 10), strict=False)]
        print(f"{f'{first}-{last}':>11}", *columns, sep="  ")


def _without_delays(plan: "PipelinePlan") -> "PipelinePlan":
    """Return the plan of one stage on one rank."""
    from dataclasses import replace

    from plink.model.hosts import Hosts
    from plink.model.pipeline.plan import PipelineStage

    first = replace(plan.hosts.members[0], slots=1)
    names = [stage.details.get("names") for stage in plan.stages]
    details = {"names": [names[0][0], names[-1][1]]} if names[0] and names[-1] else {}
    stage = PipelineStage(0, plan.stages[-1].last, (0,), 1, 1.0, details)
    return replace(
        plan, kind="model-parallel", hosts=Hosts((first,)), stages=(stage,), boundaries=(), accumulate=1,
        vertical_sync=False, reduce="wait", recompute=False, actions=None,
    )  # fmt: skip


def _ranges(count: int) -> list[tuple[int, int]]:
    """Return first and last minibatch of a few ranges."""
    size = max(1, -(-count // _ROWS))
    return [(first, min(count, first + size) - 1) for first in range(0, count, size)]
